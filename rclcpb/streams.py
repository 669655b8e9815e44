"""The command's three streams: there, and able to write whatever is said."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import Any


def open_streams() -> None:
    """All three are there, and write what a terminal has no letters for as '?'."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:  # closed; what is opened next would be written to by mistake
            os.open(os.devnull, os.O_RDWR)
    for name, number in (("stdout", 1), ("stderr", 2)):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.dup(number), "w"))
        stream: Any = getattr(sys, name)
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def drop_output() -> None:
    """What could not be written is not tried again at the end."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def one_line(error: object) -> str:
    """What an error says, whatever a path in it is called: no line breaks, no control codes."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in str(error))


def say(text: str) -> None:
    """On stderr, if anybody can hear it."""
    with suppress(OSError, ValueError):
        print(text, file=sys.stderr, flush=True)
