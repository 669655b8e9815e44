"""The search has the last row of whole runs, reads no test image, and repeats nothing."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import tiny
import torch
from bench import load, script

import rclcpb_core as core
from rclcpb.files import RclCpbError
from rclcpb.method import Method, Round, Samples
from rclcpb.presets import METHODS, MethodEntry, preset
from rclcpb.records import RESULTS
from rclcpb.runner import learn, make
from rclcpb.scenarios import Scenario, holdout
from rclcpb.settings import Settings

FIXED = {"prune": False, "grow": False}


@pytest.fixture(scope="module")
def regime() -> Any:
    return load("regime")


@pytest.fixture
def heads(regime: Any, monkeypatch: pytest.MonkeyPatch) -> Scenario:
    """A scenario with a head a task, which every name stands for."""
    scenario = tiny.scenario(heads="multi")
    monkeypatch.setattr(regime, "make_scenario", lambda *_: scenario)
    return scenario


def last(scenario: Scenario, config: Any, seed: int = 0, method: str = "rcl-cpb") -> list[float]:
    """The last row of a whole run on validation data."""
    return learn(holdout(scenario), config, seed, method).accuracy[-1]


# ------------------------------------------------------------------------- the last row


@pytest.mark.parametrize("heads", ["multi", "single"])
def test_the_search_has_the_last_row_of_a_whole_run(
    regime: Any, heads: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It leaves out the fits before the last task, and nothing else."""
    scenario, config, asked = tiny.scenario(heads=heads), tiny.config(), []
    whole = learn(scenario, config)
    run = regime.LastRow(make("rcl-cpb", scenario, config))
    answer = run.method.answer
    monkeypatch.setattr(run.method, "answer", lambda j, x: asked.append(j) or answer(j, x))
    assert run.learn() == whole.accuracy[-1]
    assert asked == [2, 0, 1, 2]  # the last task before it is learned, and all after it
    assert run.stages[-1].nll == whole.nll[-1] and run.method.sizes() == whole.hidden[-1]


def test_other_fits_of_one_training_are_those_of_a_whole_run(regime: Any) -> None:
    scenario, config = tiny.scenario(heads="multi"), tiny.config()
    run = regime.LastRow(make("rcl-cpb", scenario, config))
    first = run.learn()
    longer = replace(config, replay_steps=60, replay_kl=0.5, test_samples=7)
    for settings in (longer, replace(config, replay=False), config):
        assert run.serves(settings)
        assert run.again(settings) == learn(scenario, settings).accuracy[-1]
    assert run.again(config) == first
    for other in ({"epochs": 4}, {"replay_mix": 4}, {"coreset": 5}, {"gamma": 0.2}):
        assert not run.serves(replace(config, **other))


def test_what_a_fit_at_evaluation_needs_is_known(regime: Any) -> None:
    """Every setting of Config that only replay and prediction read shares a training."""
    names = set(core.Config.__dataclass_fields__)
    fits = {n for n in names if n.startswith(("replay", "test_"))} - {"replay_mix"}
    assert set(regime.FITS) == fits


def test_seeds_of_the_search_share_each_its_own_training(
    regime: Any, heads: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained, make = [], regime.make
    monkeypatch.setattr(regime, "make", lambda *a: trained.append(a[-1]) or make(*a))
    config, search = tiny.config(), regime.Search("tiny", "rcl-cpb")
    for settings in (config, replace(config, replay_steps=60)):
        for seed in (0, 1):
            assert search.row(settings, seed)["last"] == last(heads, settings, seed)
    assert trained == [0, 1]
    with pytest.raises(RclCpbError, match="not finite"):
        search.row(replace(config, lr_mu=1e30), 0)
    assert search.row(config, 0)["last"] == last(heads, config)  # the failed run serves nobody
    assert trained == [0, 1, 0, 0]


def test_the_control_is_searched_as_it_is_run(regime: Any, heads: Scenario) -> None:
    """Its variants share nothing, in whatever order they come."""
    config, search = tiny.config(**FIXED), regime.Search("tiny", "coreset-only")
    longer = replace(config, replay_steps=60)
    for settings in (config, longer, config):
        found = search.row(settings, 0)["last"]
        assert found == last(heads, settings, method="coreset-only")


def test_one_head_shares_no_training(regime: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """There, replay makes the network that goes on."""
    scenario, config = tiny.scenario(), tiny.config()
    monkeypatch.setattr(regime, "make_scenario", lambda *_: scenario)
    search = regime.Search("tiny", "rcl-cpb")
    for settings in (config, replace(config, replay_steps=60)):
        assert search.row(settings, 0)["last"] == last(scenario, settings)


def test_the_test_images_are_never_read(
    regime: Any, heads: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = regime.Search("tiny", "rcl-cpb").row(tiny.config(), 0)
    tasks = [replace(task, x_test=255 - task.x_test) for task in heads.tasks]
    other = replace(heads, tasks=tuple(tasks))
    monkeypatch.setattr(regime, "make_scenario", lambda *_: other)
    assert regime.Search("tiny", "rcl-cpb").row(tiny.config(), 0)["last"] == before["last"]
    assert len(regime.Search("tiny", "rcl-cpb", tasks=2).row(tiny.config(), 0)["last"]) == 2


# ------------------------------------------------------------------ any method's settings


@dataclass(frozen=True)
class Own(Settings):
    """Settings that no method here has."""

    epochs: int = 2
    power: float = 1.0
    widths: tuple[int, ...] = (3,)
    loud: bool = False
    kind: Literal["first", "second"] = "first"


class Always(Method):
    """Answers one class, whatever it sees."""

    def fit(self, t: int, data: Samples) -> Iterator[Round]:
        yield Round(1, self.config.epochs, 0.0)

    def answer(self, j: int, x: torch.Tensor) -> torch.Tensor:
        column = 0 if self.config.kind == "first" else 1
        return torch.eye(2)[torch.full((len(x),), column)]

    def parameters(self) -> int:
        return 0

    def state(self) -> dict[str, Any]:
        return {}

    def load(self, state: dict[str, Any]) -> None:
        pass


def test_a_variant_is_the_preset_with_other_values(regime: Any) -> None:
    base = preset("ta-smnist")
    assert regime.variant("", base) == base
    changed = regime.variant("hidden=3,4 gamma=0.2 epochs=7 prune=False grow=False", base)
    assert changed == replace(base, hidden=(3, 4), gamma=(0.2,), epochs=7, prune=False, grow=False)
    assert regime.variant("rho_init=-8 beta=1e-5,1e-4", base) == replace(
        base, rho_init=-8.0, beta=(1e-5, 1e-4)
    )


def test_values_are_of_the_settings_types(regime: Any) -> None:
    text = "power=-1e-3 widths=4,5,6 loud=True kind=second"
    assert regime.variant(text, Own()) == Own(2, -1e-3, (4, 5, 6), True, "second")
    for bad in ("epochs=two", "kind=third", "volume=3", "loud=perhaps"):
        with pytest.raises(SystemExit):
            regime.variant(bad, Own())


def test_any_method_of_the_registry_can_be_searched(
    regime: Any, heads: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(METHODS, "always", MethodEntry("always", "#000000", "x", Always))
    search = regime.Search("tiny", "always")
    for kind in ("first", "second"):
        row = search.row(Own(kind=kind), 0)
        assert row["last"] == last(heads, Own(kind=kind), method="always")
        assert row["hidden"] == [] and 0 < row["accuracy"] < 1
    assert regime.summary([row, row]).split()[1:3] == ["±", "0.00"]


# ------------------------------------------------------------------------------ its file


def test_every_row_searched_so_far_is_found_again(regime: Any) -> None:
    """Whatever the version that wrote it, if today's settings can say it."""
    gone = 0
    for path in sorted((RESULTS / "regime").glob("*.jsonl")):
        for row in regime.rows_of(path):
            assert {"variant", "accuracy", "last", "hidden", "seconds"} < set(row)
            kind = type(preset(path.stem, row["method"]))
            try:
                config = kind.from_json(row["config"])
            except RclCpbError:
                gone += 1
                continue
            key = {name: row[name] for name in ("method", "seed", "tasks")}
            assert regime.same_run(row, key, config)
            assert not regime.same_run(row, key, replace(config, epochs=999))
            assert not regime.same_run(row, key | {"tasks": 99}, config)
    assert gone == 13  # with views of stored images, which are gone


def test_the_command_appends_a_line_a_run_and_repeats_none(
    regime: Any,
    heads: Scenario,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    variants = ["epochs=2 replay_steps=5 hidden=8", "epochs=1 replay_steps=5 coreset=9"]
    words = ["ta-smnist-5k", *variants, "--tasks", "1", "--method", "vcl"]
    monkeypatch.setattr(sys, "argv", ["regime.py", *words, "--out", str(tmp_path / "new")])
    regime.main()
    shown, path = capsys.readouterr().out.splitlines(), tmp_path / "new" / "ta-smnist-5k.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [row["variant"] for row in rows] == variants
    assert list(rows[0]) == [
        *("method", "seed", "tasks", "config", "variant"),
        *("accuracy", "last", "hidden", "seconds"),
    ]
    base = preset("ta-smnist-5k", "vcl")
    config = replace(base, epochs=2, replay_steps=5, hidden=(8, 8))
    assert rows[0]["config"] == config.as_json() and rows[0]["hidden"] == [8, 8]
    assert [rows[0][name] for name in ("method", "seed", "tasks")] == ["vcl", 0, 1]
    assert rows[0]["accuracy"] == np.mean(rows[0]["last"]) and len(rows[0]["last"]) == 1
    assert len(shown) == 2 and shown[0].startswith(f"{100 * rows[0]['accuracy']:5.2f} ± 0.00")
    assert f"vcl {variants[0]}" in shown[0]
    regime.main()
    assert capsys.readouterr().out.splitlines() == shown
    assert len(path.read_text().splitlines()) == 2


def test_it_runs_as_a_script() -> None:
    assert "--method" in script("regime", "--help")
