"""The probe of a chain: its probabilities, what each network is taught, what is measured."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
from bench import BENCHMARKS, load

from rclcpb.method import samples


@pytest.fixture(scope="module")
def chain() -> Iterator[Any]:
    sys.path.insert(0, str(BENCHMARKS))
    yield load("chain")
    sys.path.remove(str(BENCHMARKS))


class Says(torch.nn.Module):
    """A network that gives every image the same probabilities."""

    def __init__(self, *probabilities: float) -> None:
        super().__init__()
        self.logits = torch.tensor(probabilities).log()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.logits.expand(len(x), -1)


def test_probabilities_multiply_along_the_chain(chain: Any) -> None:
    """By hand: the newest is asked first, and what it leaves goes to the one before it."""
    links = [Says(0.25, 0.75), Says(0.2, 0.2, 0.6), Says(0.1, 0.4, 0.5)]
    p = chain.along(links, torch.zeros(3, 4))
    by_hand = [0.5 * 0.6 * 0.25, 0.5 * 0.6 * 0.75, 0.5 * 0.2, 0.5 * 0.2, 0.1, 0.4]
    assert torch.allclose(p, torch.tensor(by_hand).expand(3, 6))
    assert torch.allclose(p.sum(1), torch.ones(3))


def test_a_link_learns_its_classes_and_who_is_older(
    chain: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stored images of older tasks are one class to it, own images have their own."""
    monkeypatch.setattr(chain, "distort", lambda x, *_: x)  # these images are too small for it
    data = chain.Data(tiny.scenario(), "ta-smnist", 0)
    net = chain.link(data, 1, 150)
    own, older = data.train[1], torch.cat([one.x for one in data.stored[:1]])
    assert (net(older).argmax(1) == 2).float().mean() > 0.8
    assert (net(own.x).argmax(1) == own.y - 2).float().mean() > 0.8


def test_what_is_measured_takes_an_accuracy_apart(chain: Any) -> None:
    tests = [samples(tiny.scenario(), t, "test") for t in range(2)]
    sure = torch.eye(6)
    right = [sure[test.y] for test in tests]
    assert chain.measured(right, tests)["accuracy"] == 1
    beside = [sure[test.y ^ 1] for test in tests]  # the other class of the same pair
    found = chain.measured(beside, tests)
    assert (found["accuracy"], found["right_task"], found["told_task"]) == (0, 1, 0)
    elsewhere = [sure[4 + 0 * test.y] + 0.1 * sure[test.y] for test in tests]
    found = chain.measured(elsewhere, tests)
    assert (found["accuracy"], found["right_task"], found["told_task"]) == (0, 0, 1)


def test_a_seed_on_record_is_not_run_again(
    chain: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(chain, "make_scenario", lambda *_: tiny.scenario())
    monkeypatch.setattr(chain, "holdout", lambda scenario: scenario)
    monkeypatch.setattr(chain, "STEPS", {"chain": 3, "alone": 3})
    words = ["chain.py", "ta-smnist", "--seeds", "0", "--out", str(tmp_path)]
    for _ in range(2):
        monkeypatch.setattr(sys, "argv", words)
        chain.main()
    rows = [json.loads(line) for line in (tmp_path / "ta-smnist.jsonl").read_text().splitlines()]
    assert [row["answer"] for row in rows] == ["alone", "alone, two", "chain", "alone and chain"]
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 8 and printed[:4] == printed[4:]
