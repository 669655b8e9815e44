"""How the process keeps its memory: for the command line, which owns its process."""

from __future__ import annotations

import ctypes
from contextlib import suppress


def keep_freed_memory() -> None:
    """Tell glibc not to return freed memory: a step's buffers are the last step's.

    Without it every step's larger buffers come as new pages, which the system has to
    clear: a tenth of a convolutional run. Buffers above 32 MiB (images, not steps) are
    returned as ever; with other C libraries nothing changes.
    """
    m_trim_threshold, m_mmap_threshold = -1, -3  # of malloc.h
    with suppress(AttributeError, TypeError):  # no mallopt; on Windows no CDLL(None)
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(m_mmap_threshold, 2**25)
        mallopt(m_trim_threshold, 2**30)
