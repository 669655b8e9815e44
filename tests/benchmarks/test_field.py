"""The search for the other methods' settings: one budget, the best kept, nothing run twice."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import tiny
from bench import BENCHMARKS, load

from rclcpb.methods.network import PlainConfig
from rclcpb.methods.settings import BASES
from rclcpb.presets import OTHERS, SCENARIOS, preset
from rclcpb.records import RESULTS


@pytest.fixture
def field(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return load("field")


@pytest.fixture
def search(field: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Of a scenario, with a made-up accuracy: best at strength 1000, a rate of 1e-3, own."""

    def made(name: str, heads: Any = "single") -> Any:
        monkeypatch.setattr(field, "make_scenario", lambda *_: tiny.scenario(heads=heads))
        found = field.Field(name, tmp_path)
        found.runs = []

        def accuracy(_: Any, config: PlainConfig) -> float:
            found.runs.append(config)
            value = 0.5 + 0.2 * (config.mask == "own") - 0.1 * (config.lr != 1e-3)
            return value - 0.01 * abs(config.strength - 1000) / 1000

        found.accuracy = accuracy
        return found

    return made


def test_every_scenario_has_a_plan_and_every_method_its_axes(field: Any) -> None:
    assert set(field.PLANS) == set(SCENARIOS) == set(BASES)
    assert set(field.AXES) == set(OTHERS)
    names = set(PlainConfig.__dataclass_fields__)
    assert {axis for axes in field.AXES.values() for axis, _ in axes} <= names


def test_the_best_within_the_budget_is_found(field: Any, search: Any) -> None:
    found = search("ta-smnist")
    best = found.best("ewc")
    assert len(found.runs) == field.PLANS["ta-smnist"].budget == len(set(found.runs))
    assert (best.mask, best.strength, best.lr) == ("own", 1000, 1e-3)
    assert found.runs[0] == found.start and best.hidden == BASES["ta-smnist"].hidden


def test_heads_leave_no_mask_and_no_fit_to_search(search: Any) -> None:
    found = search("mh-smnist", "multi")
    found.best("er")
    assert {(run.mask, run.final_steps) for run in found.runs} == {("all", 0)}


@pytest.mark.parametrize(("heads", "left"), [("multi", set()), ("single", {"pnn"})])
def test_which_methods_apply(field: Any, heads: Any, left: set[str]) -> None:
    scenario = tiny.scenario(heads=heads)
    assert {m for m in OTHERS if not field.applies(scenario, m)} == left
    assert not field.applies(scenario, "rcl-cpb")


def test_what_is_on_disk_is_not_run_again(
    field: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr(field, "make_scenario", lambda *_: tiny.scenario())
    rows = iter([{"accuracy": 0.6, "seconds": 1.0, "last": [0.6], "hidden": [8]}])
    search = field.Search("tiny", "er")
    monkeypatch.setattr(search, "row", lambda *_: next(rows))
    for _ in range(2):
        found = field.Field("ta-smnist", tmp_path)
        assert found.accuracy(search, found.start) == 0.6
    (line,) = (tmp_path / "ta-smnist.jsonl").read_text().splitlines()
    assert json.loads(line)["config"] == found.start.as_json()


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_settings_are_the_best_that_were_searched(name: str) -> None:
    """Of every method that has been: those with which its records are made."""
    best: dict[str, Any] = {}
    path = RESULTS / "regime" / f"{name}.jsonl"
    for row in map(json.loads, path.read_text().splitlines()):
        of = row["method"]
        if of in OTHERS and row["accuracy"] > best.get(of, row | {"accuracy": 0})["accuracy"]:
            best[of] = row
    for method, row in best.items():
        found = PlainConfig.from_json(row["config"])
        assert asdict(found) == asdict(preset(name, method)), method
