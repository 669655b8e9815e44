"""The machine of a run: what computes there is named, and can be fixed."""

from __future__ import annotations

import os
import platform
import sys
from contextlib import suppress

import pytest
import torch

from rclcpb import machine
from rclcpb.files import RclCpbError

x86 = pytest.mark.skipif(not machine.is_x86(), reason="kernels of x86 processors")


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing in the environment limits the instructions."""
    for name in machine.LIMITS:
        monkeypatch.delenv(name, raising=False)


def test_what_computes_is_named(free: None, monkeypatch: pytest.MonkeyPatch) -> None:
    before = machine.kernels()
    assert torch.backends.cpu.get_cpu_capability() in before and not machine.fixed()
    monkeypatch.setenv("MKL_CBWR", "COMPATIBLE")
    assert machine.kernels() == f"{before} MKL_CBWR=COMPATIBLE"
    assert machine.cpu() and machine.kernels("meta") == "meta"


def test_a_system_that_tells_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "processor", dict)
    assert machine.cpu() == (platform.processor() or platform.machine())
    assert torch.backends.cpu.get_cpu_capability() in machine.kernels()


@x86
def test_a_command_starts_anew_with_fixed_kernels(
    free: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[tuple] = []
    monkeypatch.setattr(os, "execve", lambda *words: started.append(words))
    monkeypatch.setattr(sys, "orig_argv", ["python", "-m", "x", "run", "--portable"])
    machine.fix_kernels(as_command=True)
    ((program, words, environment),) = started
    assert program == sys.executable and words[1:] == ["-m", "x", "run", "--portable"]
    assert environment.items() >= machine.PORTABLE.items()
    for name, value in machine.PORTABLE.items():
        monkeypatch.setenv(name, value)
    machine.fix_kernels(as_command=True)  # they are: no second time
    assert len(started) == 1 and machine.fixed() and machine.kernels() == "portable"


@x86
def test_libraries_that_are_loaded_have_chosen(free: None) -> None:
    with pytest.raises(RclCpbError, match=r"when Python starts: set ATEN_CPU_CAPABILITY=avx2 "):
        machine.fix_kernels(as_command=False)


@pytest.mark.parametrize("flags", ["sse4_2", None])
def test_a_machine_without_these_instructions_is_told(
    flags: str | None, free: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = {"model name": "An Old One"} | ({"flags": flags} if flags else {})
    monkeypatch.setattr(machine, "processor", lambda: known)
    monkeypatch.setattr(machine, "is_x86", lambda: flags is not None)
    with pytest.raises(RclCpbError, match="this is a An Old One: leave it out"):
        machine.fix_kernels(as_command=True)


def test_threads_are_as_before_afterwards() -> None:
    before = torch.get_num_threads()
    with suppress(ZeroDivisionError), machine.threads(before + 1):
        assert torch.get_num_threads() == before + 1
        raise ZeroDivisionError
    assert torch.get_num_threads() == before
    for number in (0, -2, 4096):
        with pytest.raises(RclCpbError, match=f"--threads {number}: give at least one"):
            machine.check_threads(number)
