"""The pruning curve: what is set to zero, in which order, and what is measured."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
from bench import BENCHMARKS, load, script

import rclcpb_core as core


@pytest.fixture(scope="module")
def pruning() -> Any:
    sys.path.insert(0, str(BENCHMARKS))
    yield load("pruning")
    sys.path.remove(str(BENCHMARKS))


@pytest.fixture
def net() -> core.ProgressiveBNN:
    torch.manual_seed(0)
    return tiny.network(tiny.config(mu_init="normal"))


@pytest.mark.parametrize("order", ["snr", "size", "shuffled", "random"])
def test_a_share_of_all_hidden_weights_goes_and_nothing_else(
    pruning: Any, net: core.ProgressiveBNN, order: str
) -> None:
    before = tiny.snapshot(net)
    thin = pruning.without(net, order, 0.7)
    assert tiny.same(before, tiny.snapshot(net))  # a copy
    gone = [layer.weights(layer.mu) == 0 for layer in thin.hidden]
    total = sum(one.numel() for one in gone)
    assert sum(int(one.sum()) for one in gone) == round(0.7 * total)
    for new, old in zip(thin.hidden, net.hidden, strict=True):
        kept = new.mu != 0
        assert torch.equal(new.mu[kept], old.mu[kept]) and torch.equal(new.rho, old.rho)
        assert kept[-new.shape[0] :].all()  # the biases
    assert torch.equal(thin.heads[0].mu, net.heads[0].mu)


def test_the_lowest_go_first(pruning: Any, net: core.ProgressiveBNN) -> None:
    thin = pruning.without(net, "snr", 0.5)
    snr = torch.cat([layer.snr().flatten() for layer in net.hidden])
    gone = torch.cat([(layer.weights(layer.mu) == 0).flatten() for layer in thin.hidden])
    assert snr[gone].max() <= snr[~gone].min()
    by_size = pruning.without(net, "size", 0.5)
    assert not torch.equal(thin.hidden[0].mu, by_size.hidden[0].mu)  # the widths do differ


def test_shuffled_widths_are_the_same_widths(pruning: Any, net: core.ProgressiveBNN) -> None:
    layer = net.hidden[0]
    size, _ = pruning.parts(layer)
    torch.manual_seed(1)
    widths = [(size / pruning.score(layer, order)).flatten() for order in ("snr", "shuffled")]
    torch.testing.assert_close(widths[0].sort().values, widths[1].sort().values)
    assert not torch.allclose(*widths)


def test_curves_are_measured_after_the_first_task_and_after_the_last(pruning: Any) -> None:
    scenario = tiny.scenario(heads="multi")
    config = tiny.config(coreset=0, replay=False, epochs=12, prune=False, grow=False)
    row = pruning.curves(scenario, config, 0)
    for stage in ("first", "last"):
        found = row[stage]
        assert len({found[order][0] for order in pruning.ORDERS}) == 1  # nothing dropped
        assert all(len(found[order]) == len(pruning.SHARES) for order in pruning.ORDERS)
        assert len(found["alike"]) == len(found["spread"]) == 2 and min(found["spread"]) > 1
    assert row["first"]["snr"][0] > 0.9  # it has learned something
    assert row["first"]["random"][-1] < row["first"]["snr"][0]
    assert row["first"]["spread"] != row["last"]["spread"]


def test_the_optimisers_differ_in_nothing_but_rates_and_strength(pruning: Any) -> None:
    adam, natural, strong = (pruning.settings("mh-smnist", o) for o in pruning.OPTIMISERS)
    assert natural.prior_strength == adam.prior_strength == 1 < strong.prior_strength
    assert replace(strong, prior_strength=1.0) == natural
    same = {name: getattr(natural, name) for name in ("optimiser", "lr_mu", "lr_rho")}
    assert replace(adam, **same) == natural and not natural.grow and not natural.coreset


def test_a_run_on_record_is_not_run_again(
    pruning: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any
) -> None:
    small = tiny.config(coreset=0, replay=False, epochs=1, prune=False, grow=False)
    monkeypatch.setattr(pruning, "settings", lambda _, o: replace(small, optimiser=o[:7]))
    monkeypatch.setattr(pruning, "make_scenario", lambda *_: tiny.scenario(heads="multi"))
    words = ["pruning", "mh-smnist", "--seeds", "0", "--tasks", "2", "--out", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", words)
    pruning.main()
    first = capsys.readouterr().out
    rows = [json.loads(line) for line in (tmp_path / "mh-smnist.jsonl").read_text().splitlines()]
    assert [row["optimiser"] for row in rows] == ["adam", "natural"]
    assert all(row["tasks"] == 2 and row["seconds"] > 0 for row in rows)
    monkeypatch.setattr(pruning, "curves", lambda *_: pytest.fail("run again"))
    pruning.main()
    assert capsys.readouterr().out == first and "natural seed 0 last random:" in first


def test_it_runs_as_a_script() -> None:
    assert "pruning curve" in script("pruning", "--help")
