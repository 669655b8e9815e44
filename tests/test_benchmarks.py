"""The benchmarks run and report; the fast prediction is the slow one's distribution."""

from __future__ import annotations

import importlib
import importlib.util
import json
import math
import re
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import tiny
import torch
from torch import Tensor

import rclcpb_core as core

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"


def load(name: str) -> ModuleType:
    """A benchmark as a module; the folder is no package."""
    spec = importlib.util.spec_from_file_location(f"bench_{name}", BENCHMARKS / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# -------------------------------------------------------------------------- benchmarks


@pytest.mark.parametrize("heads", ["multi", "single"])
def test_the_search_has_the_last_row_of_a_whole_run(heads: str) -> None:
    """It leaves out the fits before the last task, and nothing else."""
    scenario, config = tiny.scenario(heads=heads), tiny.config()
    whole = core.learn(scenario, config)
    learner = load("regime").LastRow(scenario, config)
    quick = core.learn(scenario, config, learner=learner)
    assert quick.accuracy[-1] == whole.accuracy[-1]
    assert quick.nll[-1] == whole.nll[-1]
    assert (quick.nll[0] == whole.nll[0]) == (heads == "single")


def test_other_fits_of_one_training_are_those_of_a_whole_run() -> None:
    scenario, config = tiny.scenario(heads="multi"), tiny.config()
    learner = load("regime").LastRow(scenario, config)
    first = core.learn(scenario, config, learner=learner).accuracy[-1]
    longer = core.dataclasses.replace(config, replay_steps=60, replay_kl=0.5)
    for settings in (longer, config):
        whole = core.learn(scenario, settings)
        assert learner.again(settings) == whole.accuracy[-1]
    assert learner.again(config) == first


def test_the_control_is_searched_as_it_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its variants share nothing, in whatever order they come."""
    regime, scenario = load("regime"), tiny.scenario(heads="multi")
    monkeypatch.setattr(core, "make_scenario", lambda *_: scenario)
    monkeypatch.setattr(core, "holdout", lambda same: same)
    config = tiny.config(coreset_only=True, prune=False, grow=False)
    longer = core.dataclasses.replace(config, replay_steps=60)
    for settings in (config, longer, config):
        row = regime.last_row("tiny", settings, 0, "coreset-only", 0, None)
        assert row["last"] == core.learn(scenario, settings).accuracy[-1]


def test_seeds_of_the_search_share_each_its_own_training(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    regime, scenario = load("regime"), tiny.scenario(heads="multi")
    monkeypatch.setattr(core, "make_scenario", lambda *_: scenario)
    monkeypatch.setattr(core, "holdout", lambda same: same)
    learn, trained = core.learn, []

    def counted(*args: Any, **kind: Any) -> core.Record:
        trained.append(args[2])
        return learn(*args, **kind)

    monkeypatch.setattr(core, "learn", counted)
    config = tiny.config()
    longer = core.dataclasses.replace(config, replay_steps=60)
    for settings in (config, longer):
        for seed in (0, 1):
            row = regime.last_row("tiny", settings, seed, "rcl-cpb", 0, None)
            assert row["last"] == learn(scenario, settings, seed).accuracy[-1]
    assert trained == [0, 1]


def test_a_variant_is_the_preset_with_other_values() -> None:
    variant, preset = load("regime").variant, core.preset("ta-smnist")
    assert variant("", preset) == preset
    changed = variant("hidden=3,4 gamma=0.2 epochs=7 prune=False grow=False", preset)
    assert changed == core.dataclasses.replace(
        preset, hidden=(3, 4), gamma=(0.2,), epochs=7, prune=False, grow=False
    )


def test_quick_steps_print_and_write_their_ratios(tmp_path: Path) -> None:
    """45 seconds of CPU: wall time says more about what else the machine does."""
    resource = pytest.importorskip("resource")
    out = tmp_path / "deep" / "step.json"
    command = [
        sys.executable,
        str(BENCHMARKS / "step.py"),
        "--quick",
        "--out",
        str(out),
    ]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 45
    last = done.stdout.splitlines()[-1]
    number = r"(\d+\.\d\d)"
    match = re.fullmatch(f"core/plain: mlp-weight {number} mlp-local {number} conv {number}", last)
    assert match, last
    written = json.loads(out.read_text())
    shown = [f"{ratio:.2f}" for ratio in written["worst"].values()]
    assert shown == list(match.groups())
    assert all(0.5 < ratio < 3 for ratio in written["worst"].values())  # no timing test
    assert [case["hidden"] for case in written["cases"]] == [
        [100, 100],
        [160, 128],
        [256, 256],
        [128, 128],
        [733, 789],
    ]
    for case in written["cases"]:
        assert set(case["ratio"]) == {"plain", "core weight", "core local"}
        assert case["ratio"]["plain"] == 1 and min(case["milliseconds"].values()) > 0


def test_missing_peers_are_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    step = load("step")

    def missing(name: str) -> ModuleType:
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(importlib, "import_module", missing)
    assert step.installed_peers() == {}
    said = capsys.readouterr().out
    assert said.count("\n") == 1 and "requirements-bench.txt" in said


def test_every_method_of_a_step_has_the_same_network() -> None:
    step = load("step")
    for case in step.CASES:
        plain = step.network(
            case, torch.nn.Linear, lambda a, b: torch.nn.Conv2d(a, b, 3, padding=1)
        )
        ours = core.ProgressiveBNN(
            case.shape(), core.Config(hidden=case.hidden), case.kind == "conv"
        )
        ours.add_head(case.classes())
        weights = sum(p.numel() for p in plain.parameters())
        assert 2 * weights == sum(p.numel() for p in ours.parameters())  # mu and rho


@pytest.mark.parametrize("kind", ["mlp", "conv"])
def test_every_peer_takes_a_step(kind: str) -> None:
    for name in ("torchbnn", "bayesian_torch", "blitz"):
        pytest.importorskip(name)  # optional: requirements-bench.txt
    step = load("step")
    case = step.Case(kind, (6, 5), rounds=1, quick_rounds=1)
    times = step.measure(case, step.peers(), True, time.perf_counter)
    assert len(times) == 7 and min(times.values()) > 0


def test_thinning_keeps_every_class() -> None:
    run = load("run")
    scenario = run.thinned(tiny.scenario(), 4)
    for thin, task in zip(scenario.tasks, tiny.scenario().tasks, strict=True):
        assert len(thin.y_train) == math.ceil(len(task.y_train) / 4)
        assert set(thin.y_train) == set(task.y_train)


# -------------------------------------------------------------------------- prediction


DRAWS = 3000


def doubtful(trunk: bool) -> tuple[core.ProgressiveBNN, Tensor]:
    """A network whose samples differ, and some inputs."""
    net = tiny.network(tiny.config(rho_init=-2.5), trunk)
    return net, tiny.inputs(net, 5)


@pytest.mark.parametrize(("trunk", "draws"), [(False, 20_000), (True, 4_000)])
def test_fast_and_looped_samples_have_the_same_distribution(trunk: bool, draws: int) -> None:
    """Mean and variance of every probability, within five standard errors."""
    net, x = doubtful(trunk)
    with torch.no_grad():
        fast = net.logits(x, 0, draws).softmax(2)  # (M, B, classes)
        loop = torch.stack([net(x, 0).softmax(1) for _ in range(draws)])
    assert loop.std(0).min() > 0.01  # there is something to compare
    centre = loop.mean(0)
    for a, b in ((fast, loop), ((fast - centre) ** 2, (loop - centre) ** 2)):
        error = ((a.var(0) + b.var(0)) / draws).sqrt()
        assert ((a.mean(0) - b.mean(0)).abs() < 5 * error).all()


@pytest.mark.parametrize("trunk", [False, True])
def test_an_inputs_fast_samples_are_independent(trunk: bool) -> None:
    """Inputs share noise, one input's samples must not: no correlation at any lag."""
    net, x = doubtful(trunk)
    with torch.no_grad():
        fast = net.logits(x, 0, DRAWS).softmax(2)
    scores = (fast - fast.mean(0)) / fast.std(0)
    for lag in (1, 2, 3, 10):
        correlation = (scores[lag:] * scores[:-lag]).mean(0)
        assert correlation.abs().max() < 5 / math.sqrt(DRAWS)


@pytest.mark.parametrize(("trunk", "samples"), [(False, 10**6), (True, 10)])
def test_prediction_takes_chunks_of_bounded_size(
    trunk: bool, samples: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a layer's activations nor all samples' logits exceed 2^24 numbers."""
    net = tiny.network(trunk=trunk)
    shape = (3, 64, 64) if trunk else (36,)
    x = torch.zeros(1, *shape).expand(600, *shape)
    sizes: list[int] = []

    def logits(piece: Tensor, head: int, samples: int) -> Tensor:
        sizes.append(len(piece))
        return torch.zeros(1, len(piece), 3)

    monkeypatch.setattr(net, "logits", logits)
    assert core.predict(net, x, 0, samples).probabilities.shape == (600, 3)
    widest = max(3 * samples, max(core.TRUNK) * 64 * 64 if trunk else 10)
    assert len(sizes) > 1 and max(sizes) * widest <= 2**24
