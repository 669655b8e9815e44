"""The benchmarks as modules and as scripts; their folder is no package."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"bench_{name}", BENCHMARKS / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def script(name: str, *words: str) -> str:
    """What the script prints, as a reader starts it."""
    command = [sys.executable, str(BENCHMARKS / f"{name}.py"), *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
