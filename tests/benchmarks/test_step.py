"""The benchmark of a step: everybody has the same network, and the report says what was run."""

from __future__ import annotations

import importlib
import json
import re
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from bench import load, script

import rclcpb_core as core

NUMBER = r"(\d+\.\d\d)"
LAST_LINE = "core/plain: " + " ".join(
    f"{name} {NUMBER}"
    for name in ("mlp-weight", "mlp-local", "conv", "natural-weight", "natural-local")
)


@pytest.fixture
def step() -> Any:
    return load("step")


def reported(printed: str, out: Path) -> dict[str, Any]:
    """What it wrote, if that is what it printed."""
    match = re.fullmatch(LAST_LINE, printed.splitlines()[-1])
    assert match, printed
    written = json.loads(out.read_text())
    assert [f"{ratio:.2f}" for ratio in written["worst"].values()] == list(match.groups())
    for case in written["cases"]:
        assert set(case["ratio"]) == {"plain", *load("step").CORE}
        assert case["ratio"]["plain"] == 1 and min(case["milliseconds"].values()) > 0
        ratios = case["ratio"]
        ours = {k: ratios[f"core natural {k}"] / ratios[f"core {k}"] for k in ("weight", "local")}
        names = ("weight", "local") if case["kind"] == "mlp" else ("conv",)
        for name in names:
            of = ours[name if case["kind"] == "mlp" else "weight"]
            assert written["natural/adam"][name] >= of - 1e-9
    return written


def test_quick_steps_print_and_write_their_ratios(
    step: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    small = [case._replace(hidden=(6, 5), quick_rounds=1) for case in step.CASES[2:4]]
    monkeypatch.setattr(step, "CASES", small)
    out = tmp_path / "deep" / "step.json"
    monkeypatch.setattr(sys, "argv", ["step.py", "--quick", "--out", str(out)])
    step.main()
    written = reported(capsys.readouterr().out, out)
    assert [case["kind"] for case in written["cases"]] == ["mlp", "conv"]


def test_it_runs_as_a_script() -> None:
    assert "--quick" in script("step", "--help")


@pytest.mark.long
def test_quick_takes_under_45_seconds_on_the_real_sizes(tmp_path: Path) -> None:
    """45 seconds of CPU: wall time says more about what else the machine does."""
    resource = pytest.importorskip("resource")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    printed = script("step", "--quick", "--out", str(tmp_path / "step.json"))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 45
    written = reported(printed, tmp_path / "step.json")
    assert all(0.5 < ratio < 3 for ratio in written["worst"].values())  # no timing test
    sizes = [[100, 100], [160, 128], [256, 256], [128, 128], [733, 789]]
    assert [case["hidden"] for case in written["cases"]] == sizes


def test_missing_peers_are_one_sentence(
    step: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(name: str) -> ModuleType:
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(importlib, "import_module", missing)
    assert step.installed_peers() == {}
    said = capsys.readouterr().out
    assert said.count("\n") == 1 and "requirements-bench.txt" in said


def test_every_method_of_a_step_has_the_same_network(step: Any) -> None:
    for case in step.CASES:
        plain = step.network(
            case, torch.nn.Linear, lambda a, b: torch.nn.Conv2d(a, b, 3, padding=1)
        )
        settings = core.Config().layer_settings()
        ours = core.ProgressiveBNN(case.shape(), case.hidden, settings, case.kind == "conv")
        ours.add_head(case.classes())
        weights = sum(p.numel() for p in plain.parameters())
        assert 2 * weights == sum(p.numel() for p in ours.parameters())  # mu and rho


@pytest.mark.parametrize("kind", ["mlp", "conv"])
def test_every_peer_takes_a_step(step: Any, kind: str) -> None:
    for name in ("torchbnn", "bayesian_torch", "blitz"):
        pytest.importorskip(name)  # optional: requirements-bench.txt
    case = step.Case(kind, (6, 5), rounds=1, quick_rounds=1)
    times = step.measure(case, step.peers(), True, time.perf_counter)
    assert len(times) == 7 and min(times.values()) > 0
