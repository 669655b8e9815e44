"""The registry: the paper's numbers, and that every name has all that it needs."""

from __future__ import annotations

from dataclasses import replace

import pytest
import tiny

from rclcpb import natural, runner
from rclcpb.files import RclCpbError
from rclcpb.methods.plain import PlainMethod
from rclcpb.methods.settings import BASES
from rclcpb.presets import (
    METHODS,
    NAMES,
    PAIRS,
    SCENARIOS,
    TABLES,
    ScenarioEntry,
    entry,
    make_scenario,
    preset,
)

BAYESIAN = {name for name, known in METHODS.items() if not issubclass(known.learner, PlainMethod)}

PAPER = {  # its table of beta and gamma ("e" read as 10 to the), first sizes, coresets
    "pmnist": ((32, 32), 1e-5, 0.3, 200),
    "mh-smnist": ((64, 64), 1e-5, 0.2, 40),
    "ta-smnist": ((128, 128), 10**-2.5, 0.1, 20),
    "mh-cifar100": ((128, 128), 1e-4, 0.15, 256),
    "ta-cifar100": ((256, 256), 1e-2, 0.15, 256),
    "mnist-svhn-cifar10": ((256, 256), 1e-9, 0.08, 512),
}


@pytest.mark.parametrize("name", PAPER)
def test_presets_hold_the_papers_numbers(name: str) -> None:
    hidden, beta, gamma, coreset = PAPER[name]
    config = preset(name)
    assert config.hidden == hidden and config.coreset == coreset
    assert config.beta == (pytest.approx(beta),) and config.gamma == (gamma,)
    assert config.prune and config.grow
    assert config.sampling == "weight" and config.new_into_old == "random"
    assert config.coreset_choice == "random" and not config.replay_mix


@pytest.mark.parametrize("name", NAMES)
def test_every_scenario_has_every_bayesian_method(name: str) -> None:
    configs = {method: preset(name, method) for method in BAYESIAN}
    ours, minus_a, vcl = (configs[m] for m in ("rcl-cpb", "rcl-cpb-A", "vcl"))
    assert minus_a == replace(ours, grow=False)
    assert vcl == replace(ours, prune=False, grow=False)
    plus, vcl_plus, control = (configs[m] for m in ("rcl-cpb-plus", "vcl-plus", "coreset-only"))
    assert plus.grow and plus != ours and plus.coreset == ours.coreset  # stores no more
    assert vcl_plus == replace(plus, prune=False, grow=False)
    longer = {f: 3 * getattr(plus, f) for f in ("replay_steps", "replay_epochs")}
    assert control == replace(vcl_plus, **longer)


def test_a_scenario_of_the_registry_has_settings_of_its_own_for_the_other_methods() -> None:
    assert set(BASES) == set(SCENARIOS)
    assert all(set(of) == set(SCENARIOS) for of in natural.SETTINGS.values())


def test_a_new_scenario_is_one_entry_for_all_methods(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario, config = tiny.scenario(heads="multi"), tiny.config(epochs=1, coreset=3)
    new = ScenarioEntry("a new one", "new", lambda *_: scenario, config, {})
    monkeypatch.setitem(SCENARIOS, "new", new)
    for method in METHODS:
        settings = preset("new", method)
        assert settings.hidden == config.hidden and settings.epochs == config.epochs
    for method in ("rcl-cpb-natural", "vcl-memoryless", "icarl"):
        record = runner.learn(make_scenario("new"), preset("new", method), method=method)
        assert len(record.accuracy) == 3
    assert preset("new", "vcl-memoryless").coreset == 0 and preset("new", "icarl").memory == 3
    assert preset("new", "rcl-cpb-natural").optimiser == "natural"


@pytest.mark.parametrize("name", TABLES["mnist-5k"])
def test_less_data_is_seen_longer_in_smaller_batches(name: str) -> None:
    for method in METHODS:
        small, whole = preset(name, method), preset(name.removesuffix("-5k"), method)
        batch = min(64, whole.batch_size)
        assert small == replace(whole, epochs=3 * whole.epochs, batch_size=batch)


def test_every_name_stands_in_one_table_and_names_what_there_is() -> None:
    listed = [name for names in TABLES.values() for name in names]
    assert sorted(listed) == sorted(NAMES) and len(set(listed)) == len(listed)
    assert all(name in METHODS for pair in PAIRS for name in pair)
    assert len({known.title for known in SCENARIOS.values()}) == len(SCENARIOS)
    looks = {(known.colour, known.marker) for known in METHODS.values()}
    assert len(looks) == len(METHODS) == len({known.title for known in METHODS.values()})
    for name in TABLES["mnist-5k"]:
        assert entry(name) is SCENARIOS[name.removesuffix("-5k")]


@pytest.mark.parametrize("name", TABLES["mnist-5k"])
def test_small_scenarios_are_made_without_a_download(name: str, fast_digits: None) -> None:
    scenario = make_scenario(name)
    assert scenario.name == name
    assert len(scenario.tasks) == (10 if name.startswith("pmnist") else 5)
    one_head = name.startswith("ta-") or "shared" in name
    assert scenario.heads == ("single" if one_head else "multi")
    shuffles = [task.permutation for task in scenario.tasks]
    if name.startswith("pmnist"):  # drawn from the seed
        again, other = (make_scenario(name, seed).tasks[0].permutation for seed in (0, 1))
        assert (shuffles[0] == again).all() and not (shuffles[0] == other).all()
    else:
        assert shuffles == [None] * 5


def test_what_is_not_in_the_registry() -> None:
    with pytest.raises(RclCpbError, match="no method 'nothing': choose from rcl-cpb, "):
        preset("ta-smnist", "nothing")
    with pytest.raises(RclCpbError, match=r"no scenario 'nothing': choose from .*ta-smnist-5k"):
        preset("nothing")
    with pytest.raises(RclCpbError, match="no scenario 'ta-cifar100-5k'"):
        make_scenario("ta-cifar100-5k")
    with pytest.raises(RclCpbError, match="seed -1: give a seed of 0 or more"):
        make_scenario("pmnist-5k", -1)
