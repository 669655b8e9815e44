"""Three of the changes that CONTRIBUTING.md promises to be in one place, made."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tiny
import torch
from torch import Tensor

import rclcpb_core as core
from rclcpb import presets, runner, scenarios
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
