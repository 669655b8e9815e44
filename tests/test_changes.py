"""Changes that CONTRIBUTING.md promises to be in one or two places, made."""

from __future__ import annotations

import copy
import csv
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
import torch
import torch.nn.functional as F
from torch import Tensor

import rclcpb_core as core
from rclcpb import fast, presets, runner, scenarios
from rclcpb.method import Round
from rclcpb.records import Stage


class CsvWriter(runner.Hook):
    """A metrics writer: a line an epoch, and one a task."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, *cells: object) -> None:
        with self.path.open("a", newline="") as file:
            csv.writer(file).writerow(cells)

    def on_round(self, run: runner.Run, done: Round) -> None:
        self.write(len(run.stages), done.done, done.nll, done.kl)

    def on_task(self, run: runner.Run, stage: Stage) -> None:
        self.write(stage.task, "accuracy", *(stage.accuracy or ()))


def test_a_metrics_writer_is_a_hook(tmp_path: Path) -> None:
    scenario, config = tiny.scenario(), tiny.config()
    record = runner.learn(scenario, config, hooks=[CsvWriter(tmp_path / "log.csv")])
    rows = list(csv.reader((tmp_path / "log.csv").open()))
    epochs = [row for row in rows if row[1] != "accuracy"]
    assert [(int(t), int(epoch)) for t, epoch, *_ in epochs] == [
        (t, epoch + 1) for t in range(3) for epoch in range(config.epochs)
    ]
    assert [float(a) for a in rows[-1][2:]] == record.accuracy[-1]


def test_another_optimiser_is_one_function(monkeypatch: pytest.MonkeyPatch) -> None:
    """It stops and goes on bit for bit, too, whatever it keeps."""

    def momentum(posterior: core.Posterior, lr_mu: float, lr_rho: float) -> torch.optim.Optimizer:
        rates = ((posterior.mus, lr_mu), (posterior.rhos, lr_rho))
        return torch.optim.SGD([{"params": p, "lr": lr} for p, lr in rates], momentum=0.9)

    monkeypatch.setattr(core, "adam", momentum)
    scenario, config = tiny.scenario(), tiny.config(decay=True)
    record = runner.learn(scenario, config)
    assert record.accuracy[0][0] > 0.9
    stopped, goes_on = (core.Learner(scenario, config) for _ in range(2))
    data = stopped.store(0, core.samples(scenario, 0))
    stopped.begin(0, data)
    fit = stopped.fit(0, data)
    next(fit)
    goes_on.load(stopped.state())
    for rounds, learner in ((fit, stopped), (goes_on.fit(0, data), goes_on)):
        assert [done.done for done in rounds] == [2, 3]
        learner.end(0)
    assert tiny.same(tiny.snapshot(stopped.net), tiny.snapshot(goes_on.net))


def waves(frequencies: tuple[float, float], seed: int, n: int = 60) -> tuple[np.ndarray, ...]:
    """Noisy sine waves of two frequencies, each series of 32 numbers with its own phase."""
    rng = np.random.default_rng(seed)

    def split(count: int) -> tuple[np.ndarray, np.ndarray]:
        y = rng.integers(0, 2, count)
        phase = rng.uniform(0, 0.5, (count, 1))
        x = np.sin(np.linspace(0, 1, 32) * np.array(frequencies)[y][:, None] + phase)
        return (x + 0.1 * rng.normal(size=x.shape)).astype(np.float32), y

    return (*split(n), *split(n))


def series(name: str, seed: int, root: object) -> scenarios.Scenario:
    """Two tasks of two kinds of series."""
    tasks = [waves(pair, seed + t) for t, pair in enumerate([(3, 9), (6, 14)])]
    return scenarios.from_arrays(tasks, heads="multi", name=name)


def test_a_scenario_of_series_is_one_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    config = tiny.config(hidden=(16, 16), epochs=20)
    entry = presets.ScenarioEntry("sine waves, a head a task", "series", series, config, {})
    monkeypatch.setitem(presets.SCENARIOS, "series", entry)
    scenario = presets.make_scenario("series", seed=1)
    record = runner.learn(scenario, seed=1, method="vcl")
    assert core.average_accuracy(record.accuracy) > 0.85
    assert record.config == replace(presets.preset("series"), grow=False, prune=False).__dict__


def test_another_distance_for_eq_5_is_one_function(monkeypatch: pytest.MonkeyPatch) -> None:
    def largest(means: Tensor) -> Tensor:
        """The largest distance of two classes in place of the mean."""
        return means.max(0).values - means.min(0).values

    scenario = tiny.scenario([(0, 1, 2), (3, 4, 5)])
    plain = runner.learn(scenario, tiny.config(gamma=(0.3,)))
    three = torch.tensor([[0.0], [1.0], [4.0]])
    assert largest(three).item() == 4 and core.class_distances(three).item() == pytest.approx(8 / 3)
    monkeypatch.setattr(core, "class_distances", largest)
    other = runner.learn(scenario, tiny.config(gamma=(0.3,)))
    pairs = zip(other.shared[1], plain.shared[1], strict=True)
    assert all(more >= fewer for more, fewer in pairs)
    assert other.shared != plain.shared and other.hidden != plain.hidden


def test_convolutions_that_grow_are_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    every = property(lambda net: [*net.trunk, *net.hidden])
    monkeypatch.setattr(core.ProgressiveBNN, "growable", every)
    scenario = tiny.scenario(heads="multi", trunk=True)
    config = tiny.config(gamma=(0.5,), beta=(0.2,), new_into_old="zero")
    record = runner.learn(scenario, config)
    assert all(channels > 0 for channels in record.added[1][:2])
    assert all(weights > 0 for weights in record.pruned[1][:2])
    for t in (1, 2):
        sizes = zip(record.hidden[t - 1], record.added[t], strict=True)
        assert record.hidden[t] == [before + added for before, added in sizes]
    assert min(record.accuracy[-1]) > 0.8


class Recurrent(core.BayesLayer):
    """h <- tanh(W x_t + U h + b) along a series; what the units read is x_t and each other."""

    def __init__(self, n_in: int, n_out: int, settings: Any, unit: int = 1) -> None:
        super().__init__((n_out, 1 + n_out), settings)

    def prepare(self, x: Tensor) -> Tensor:
        return x.flatten(1)  # (B, steps)

    def operate(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        h = x.new_zeros(len(x), self.shape[0])
        for step in x.split(1, 1):
            h = torch.tanh(F.linear(torch.cat([step, h], 1), weight, bias))
        return h

    def activate(self, x: Tensor) -> Tensor:
        return x

    def grow(self, extra_out: int = 0, extra_in: int = 0, zero: bool = False) -> None:
        super().grow(extra_out, extra_out, zero)  # a new unit is a new input, too


def test_a_recurrent_layer_is_a_class() -> None:
    """In front of layers of the fast path: trained, pruned, grown, stopped and gone on with."""
    scenario = series("series", 0, None)
    config = tiny.config(hidden=(8, 6), beta=(0.5,), gamma=(0.9,), epochs=10)
    learner = core.Learner(scenario, config)
    learner.net.hidden[0] = Recurrent(1, 8, learner.net.settings)
    again = copy.deepcopy(learner)
    assert fast.handles(learner.net)
    record = runner.Run(learner).finish("rcl-cpb")
    assert min(record.accuracy[-1]) > 0.8
    layer = learner.net.hidden[0]
    grown = 8 + record.added[1][0]
    assert grown > 8 and layer.shape == (grown, 1 + grown) and record.pruned[1][0] > 0
    again.load(learner.state())
    assert tiny.same(tiny.snapshot(learner.net), tiny.snapshot(again.net))
