"""The doubt of colour networks: who is asked about what, and what is counted."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
import torch
from bench import BENCHMARKS, load, script

import rclcpb_core as core
from rclcpb.images import Images
from rclcpb.inference import told_apart
from rclcpb.scenarios import Scenario


@pytest.fixture(scope="module")
def doubt() -> Any:
    sys.path.insert(0, str(BENCHMARKS))
    yield load("doubt")
    sys.path.remove(str(BENCHMARKS))


@pytest.fixture
def colour(doubt: Any, monkeypatch: pytest.MonkeyPatch) -> Scenario:
    """Three tasks of small colour images, and a stand-in for SVHN: noise."""
    noise = np.random.default_rng(0).integers(0, 256, (40, 8, 8, 3), dtype=np.uint8)
    svhn = Images(noise, np.zeros(40, np.int64), noise, np.zeros(40, np.int64))
    monkeypatch.setattr(doubt, "load_images", lambda *_: svhn)
    monkeypatch.setattr(doubt, "STRANGE", 20)
    return tiny.scenario(heads="multi", trunk=True)


def test_auc_is_a_share_of_pairs_and_a_tie_counts_half() -> None:
    rng = np.random.default_rng(0)
    known, strange = rng.integers(0, 5, 30), rng.integers(1, 7, 20)
    pairs = [(s > k) + (s == k) / 2 for k in known for s in strange]
    assert told_apart(known, strange) == pytest.approx(np.mean(pairs))
    assert told_apart(np.zeros(9), np.zeros(7)) == 0.5


def test_the_twin_has_no_widths_and_no_kl_and_is_otherwise_the_same(doubt: Any) -> None:
    plus, twin, natural = (doubt.settings("mh-cifar100", name) for name in doubt.NETWORKS)
    assert math.exp(twin.rho_init / 2) < 1e-6 and twin.kl_weight == twin.replay_kl == 0
    names = ("rho_init", "lr_rho", "kl_weight", "replay_kl")
    assert replace(twin, **{name: getattr(plus, name) for name in names}) == plus
    assert plus.epochs == natural.epochs == 10 and natural.optimiser == "natural"


def test_a_twin_by_its_draws_is_the_twin_by_its_means(doubt: Any, colour: Scenario) -> None:
    flat = tiny.config(rho_init=-30.0, lr_rho=1e-9, kl_weight=0.0, replay_kl=0.0)
    row = doubt.measured(colour, 2, flat, 0, None)
    draws, means = (row["told"][way] for way in doubt.WAYS)
    np.testing.assert_allclose(draws[-1], means[-1], atol=1e-4)
    assert [len(of) for of in draws] == [1, 2]  # after each task, all tasks so far
    for kind, of in row["auc"]["draws"].items():
        assert of["entropy"] == pytest.approx(row["auc"]["means"][kind]["entropy"], abs=1e-6)
        assert row["auc"]["means"][kind]["mutual_information"] == 0.5  # all alike
    assert row["untold"]["draws"]["label"] <= row["untold"]["draws"]["task"] <= 1


def test_who_reads_no_colour_is_not_asked_about_svhn(doubt: Any) -> None:
    flat = tiny.config(epochs=1, replay_steps=2)
    row = doubt.measured(tiny.scenario(heads="multi"), 2, flat, 0, None)
    assert set(row["auc"]["draws"]) == {"classes to come", "blends"}


def test_blends_are_of_two_classes(doubt: Any, colour: Scenario) -> None:
    test = core.samples(colour, 0, "test")
    torch.manual_seed(0)
    blends = doubt.blended(test)
    same = (blends[:, None] == test.x[None]).flatten(2).all(-1)
    assert 0 < len(blends) <= 20 and not same.any()


def test_a_run_on_record_is_not_run_again(
    doubt: Any, colour: Scenario, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any
) -> None:
    small = tiny.config(epochs=1, replay_steps=2)
    monkeypatch.setattr(doubt, "settings", lambda *_: small)
    monkeypatch.setattr(doubt, "make_scenario", lambda *_: colour)
    words = ["doubt", "mh-cifar100", "--seeds", "0", "--tasks", "2", "--out", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", words)
    doubt.main()
    first = capsys.readouterr().out
    rows = [json.loads(line) for line in (tmp_path / "mh-cifar100.jsonl").read_text().splitlines()]
    assert [row["network"] for row in rows] == [*doubt.NETWORKS]
    assert rows[0]["auc"] == rows[2]["auc"]  # the same settings here: nothing else differs
    monkeypatch.setattr(doubt, "measured", lambda *_: pytest.fail("run again"))
    doubt.main()
    assert capsys.readouterr().out == first and "right head" in first


def test_it_runs_as_a_script() -> None:
    assert "SVHN" in script("doubt", "--help")
