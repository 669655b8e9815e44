"""The machine of a run: its CPU, which instructions compute there, and how these are fixed.

Two machines end in different digits if their libraries choose different instructions. A record
says which did; with `--portable` every x86 machine of the last ten years uses the same ones, but
for the estimate that MKL's square roots begin with, which is each maker's own.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import torch

from rclcpb.files import RclCpbError

# What torch, MKL and oneDNN read when they are loaded. MKL has branches for Intel's processors
# alone; the one that all others have, too, is called compatible.
PORTABLE = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "MKL_CBWR": "COMPATIBLE",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
}
LIMITS = (*PORTABLE, "MKL_ENABLE_INSTRUCTIONS", "DNNL_MAX_CPU_ISA")
MOST_THREADS = max(64, os.cpu_count() or 1)  # some thousands end in a segmentation fault
WIDE = ("amx_tile", "avx512f", "avx2")  # what libraries ask for, the widest first


@cache
def processor() -> dict[str, str]:
    """What the system says of the first core, where it does."""
    try:
        lines = Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
    except OSError:
        return {}
    pairs = (line.partition(":") for line in lines)
    return {name.strip(): value.strip() for name, _, value in pairs}


def cpu() -> str:
    """The processor's name."""
    return processor().get("model name") or platform.processor() or platform.machine()


def fixed() -> bool:
    """Are the instructions those of every x86 machine?"""
    return is_x86() and all(os.environ.get(name) == value for name, value in PORTABLE.items())


def is_x86() -> bool:
    return platform.machine().lower() in ("x86_64", "amd64")


def kernels(device: torch.device | str = "cpu") -> str:
    """Which instructions compute there: a word for all that chooses them."""
    if (kind := torch.device(device).type) != "cpu":
        return torch.cuda.get_device_name(device) if kind == "cuda" else kind
    if fixed():
        return "portable"
    known = processor()
    wide = next((flag for flag in WIDE if flag in known.get("flags", "").split()), "")
    limits = (f"{name}={os.environ[name]}" for name in LIMITS if name in os.environ)
    words = (torch.backends.cpu.get_cpu_capability(), known.get("vendor_id", ""), wide, *limits)
    return " ".join(word for word in words if word)


def fix_kernels(as_command: bool) -> None:
    """The same command anew, with the kernels fixed, unless they are: libraries read that once."""
    if fixed():
        return
    if not is_x86() or "avx2" not in processor().get("flags", "avx2").split():
        raise RclCpbError(
            f"--portable is for x86 processors with AVX2, and this is a {cpu()}: leave it out."
        )
    if not as_command:
        raise RclCpbError(f"--portable has to be there when Python starts: set {as_words()}.")
    sys.stdout.flush()
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], os.environ | PORTABLE)


def as_words() -> str:
    """What fixes the kernels, for a shell."""
    return " ".join(f"{name}={value}" for name, value in PORTABLE.items())


def check_threads(number: int) -> None:
    if not 1 <= number <= MOST_THREADS:
        raise RclCpbError(f"--threads {number}: give at least one, and {MOST_THREADS} at most.")


@contextmanager
def threads(number: int) -> Iterator[None]:
    """So many compute."""
    check_threads(number)
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
