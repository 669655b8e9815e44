"""What a whole run costs is measured on real runs."""

from __future__ import annotations

import math
from typing import Any

import pytest
import tiny
import torch
from bench import load, script

from rclcpb.presets import preset


@pytest.fixture(scope="module")
def run() -> Any:
    return load("run")


def test_thinning_keeps_every_class(run: Any) -> None:
    thinned = run.thinned(tiny.scenario(), 4)
    for thin, task in zip(thinned.tasks, tiny.scenario().tasks, strict=True):
        assert len(thin.y_train) == math.ceil(len(task.y_train) / 4)
        assert set(thin.y_train) == set(task.y_train)


def test_a_run_and_shorter_ones_are_timed(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    quick = tiny.config(epochs=1, replay_steps=1, coreset=2)
    monkeypatch.setattr(run, "preset", lambda *_: quick)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)  # then a core's time counts
    scenario = tiny.scenario(tiny.PAIRS[:2])
    whole = run.whole_run(scenario)
    assert len(whole["seconds"]) == len(whole["hidden"]) == 2 and whole["peak_mib"] > 0
    assert len(whole["structure_share"]) == 1 and min(whole["structure_share"]) > 0
    assert whole["cpu_seconds"] >= sum(whole["seconds"]) > 0
    growth = run.growth(scenario)
    assert [row["n"] for row in growth["tasks"]] == [1, 2]
    assert [row["n"] for row in growth["neurons"]] == [64, 128, 256, 512]
    assert [row["n"] for row in growth["samples"]] == [6, 12, 24, 48]
    assert all(row["cpu_seconds"] > 0 for rows in growth.values() for row in rows)


@pytest.mark.parametrize("trunk", [False, True])
def test_predictions_are_timed(run: Any, trunk: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "TEST_BATCH", 20)
    row = run.prediction(trunk, (6, 5), 1)
    assert row["hidden"] == [6, 5] and row["kind"] == ("conv" if trunk else "mlp")
    assert row["faster"] == row["loop_milliseconds"] / row["predict_milliseconds"] > 0


def test_it_runs_as_a_script_on_a_scenario_there_is(run: Any) -> None:
    assert preset(run.SCENARIO) and "--out" in script("run", "--help")
