"""The same digits with other instructions: the command's way, and emulated processors."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from outcomes import RIGHT, WRONG, Tally
from running import content

import rclcpb_core as core
from rclcpb import machine
from rclcpb.records import load_record

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not machine.is_x86(), reason="kernels of x86 processors"),
]
SCRIPT = Path(core.__file__)
SMALL = ["--epochs", "3", "--hidden", "16", "16", "--sampling", "local"]
# Instruction sets as a user, or an older processor, would limit them.
LIMITED = {
    "ATEN_CPU_CAPABILITY": "default",
    "MKL_ENABLE_INSTRUCTIONS": "SSE4_2",
    "ONEDNN_MAX_CPU_ISA": "SSE41",
}
GOLDEN = """
import sys
sys.path[:0] = {paths!r}
import golden
golden.RUNS = {{name: golden.RUNS[name] for name in {names!r}}}
import tiny
for name, (method, kind, changes) in golden.RUNS.items():
    made = golden.learned(tiny.scenario(**kind), method, tiny.config(**changes))
    print(golden.digest(made)["sha256"])
"""
PROCESSORS = ("Haswell-noTSX,vendor=GenuineIntel", "EPYC-Rome")


def test_portable_command(tally: Tally, tmp_path: Path) -> None:
    """Two instruction sets end alike with it, and differ without: else this would show nothing."""
    free = {name: value for name, value in os.environ.items() if name not in machine.LIMITS}
    found = {}
    for limits in ({}, LIMITED):
        for portable in ([], ["--portable"]):
            out = tmp_path / f"{len(found)}"
            words = ["run", "ta-smnist-5k", *SMALL, *portable, "--out", str(out)]
            command = [sys.executable, str(SCRIPT), *words]
            subprocess.run(command, check=True, env=free | limits, capture_output=True, timeout=600)
            record = load_record(out / "ta-smnist-5k" / "rcl-cpb-seed0.json")
            assert (record.kernels == "portable") is bool(portable)
            found[bool(limits), bool(portable)] = content(record)
    assert found[False, False]["nll"] != found[True, False]["nll"]
    same = found[False, True] == found[True, True]
    tally.add(RIGHT if same else WRONG, "other digits, though portable")


def digests(processor: str) -> list[str]:
    """Of three golden runs, on an emulated processor."""
    tests = Path(__file__).resolve().parents[1]
    packages = [str(Path(module.__file__ or "").parents[1]) for module in (torch, np)]
    names = ["weight, one head", "local, one head, elastic", "trunk, heads"]
    code = GOLDEN.format(paths=[str(tests), str(tests.parent), *packages], names=names)
    python = os.path.realpath(sys.executable)
    env = os.environ | machine.PORTABLE | {"OMP_NUM_THREADS": "1"}
    command = ["qemu-x86_64", "-cpu", processor, python, "-c", code]
    done = subprocess.run(command, check=True, env=env, capture_output=True, text=True, timeout=900)
    return done.stdout.split()


@pytest.mark.skipif(not shutil.which("qemu-x86_64"), reason="qemu-user is not installed")
def test_portable_on_emulated_processors(tally: Tally) -> None:
    """One of Intel's and one of AMD's, both without the wide instructions of newer ones.

    They are compared with each other: a square root begins with the estimate of the processor
    itself, and an emulator's is not that of the machine it runs on (SECURITY.md).
    """
    intel, amd = map(digests, PROCESSORS)
    assert len(intel) == 3
    for mine, theirs in zip(intel, amd, strict=True):
        tally.add(RIGHT if mine == theirs else WRONG, "emulated processors differ")
