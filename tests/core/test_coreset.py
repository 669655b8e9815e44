"""The stored samples: how they are chosen, and that training never sees them."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import tiny
import torch
from hypothesis import given
from hypothesis import strategies as st

import rclcpb_core as core
from rclcpb.files import RclCpbError

CHOICES = ("random", "balanced", "medoids")


def points(n: int = 40, classes: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(n, 5), torch.arange(n) % classes


@pytest.mark.parametrize("choice", CHOICES)
@given(
    n=st.integers(2, 30),
    classes=st.integers(1, 5),
    size=st.integers(0, 29),
    seed=st.integers(0, 99),
)
def test_as_many_as_asked_and_none_twice(
    choice: str, n: int, classes: int, size: int, seed: int
) -> None:
    torch.manual_seed(seed)
    x, y = torch.randn(n, 3), torch.randint(classes, (n,))  # classes of any size
    size = min(size, n - len(y.unique()))
    chosen = core.choose_coreset(x, y, size, choice)
    assert len(chosen) == size == len(set(chosen.tolist()))
    assert all(0 <= i < n for i in chosen.tolist())
    left = torch.ones(n, dtype=torch.bool).index_fill_(0, chosen, False)
    assert set(y[left].tolist()) == set(y.tolist())  # of every class, some to train on


@pytest.mark.parametrize("choice", CHOICES)
def test_equal_images_are_not_stored_twice(choice: str) -> None:
    chosen = core.choose_coreset(torch.zeros(12, 4), torch.arange(12) % 2, 6, choice)
    assert len(set(chosen.tolist())) == 6


@pytest.mark.parametrize("choice", CHOICES)
def test_too_large(choice: str) -> None:
    x, y = points(10)
    for size in (8, 10, 11):  # of three classes
        with pytest.raises(RclCpbError, match="choose a smaller coreset"):
            core.choose_coreset(x, y, size, choice)


def test_random_is_uniform_over_samples() -> None:
    x, y = points(20)
    counts = np.zeros(20)
    for _ in range(1000):
        counts[core.choose_coreset(x, y, 5, "random").tolist()] += 1
    deviation = np.sqrt(1000 * 0.25 * 0.75)
    assert (abs(counts - 250) < 5 * deviation).all()


@pytest.mark.parametrize("choice", ["balanced", "medoids"])
def test_equally_many_of_every_class(choice: str) -> None:
    y = torch.tensor([0] * 30 + [1] * 8 + [2] * 12)
    x = torch.randn(50, 4)
    counts = y[core.choose_coreset(x, y, 12, choice)].bincount(minlength=3)
    assert counts.tolist() == [4, 4, 4]
    counts = y[core.choose_coreset(x, y, 13, choice)].bincount(minlength=3)
    assert sorted(counts.tolist()) == [4, 4, 5]


@pytest.mark.parametrize("choice", ["balanced", "medoids"])
def test_a_small_class_leaves_room_to_the_others(choice: str) -> None:
    y = torch.tensor([0] * 2 + [1] * 20 + [2] * 20)
    counts = y[core.choose_coreset(torch.randn(42, 4), y, 12, choice)].bincount()
    assert counts.tolist() in ([1, 6, 5], [1, 5, 6])


def test_balanced_is_random_within_a_class() -> None:
    x, y = points(40, 2)
    draws = {tuple(core.choose_coreset(x, y, 4, "balanced").tolist()) for _ in range(20)}
    assert len(draws) > 15


def test_medoids_are_samples_near_the_clusters_centres() -> None:
    """Two clear clusters a class: one sample of each, near its middle."""
    centres = torch.tensor([[0.0, 0.0], [9.0, 9.0], [0.0, 9.0], [9.0, 0.0]])
    which = torch.arange(80) % 4
    x = centres[which] + torch.randn(80, 2)
    chosen = core.choose_coreset(x, which // 2, 4, "medoids")
    clusters = which[chosen].tolist()
    assert len(set(clusters)) == 4  # k-means may end elsewhere; this start does not
    assert (x[chosen] - centres[which[chosen]]).norm(dim=1).max() < 1


@pytest.mark.parametrize("choice", CHOICES)
def test_the_learner_stores_what_it_does_not_train_on(choice: Any) -> None:
    config = tiny.config(coreset_choice=choice, coreset=7)
    learner = core.Learner(tiny.scenario(), config)
    for t in range(3):
        everything = core.samples(learner.scenario, t)
        data = learner.store(t, everything)
        stored = learner.coreset[t]
        assert len(stored.y) == 7 and len(data.y) == len(everything.y) - 7
        assert learner.stored() == 7 * (t + 1)
        rows = {tuple(r.tolist()) for r in data.x}
        assert not rows & {tuple(r.tolist()) for r in stored.x}
        both = torch.cat([data.x, stored.x])
        assert sorted(map(tuple, both.tolist())) == sorted(map(tuple, everything.x.tolist()))
        again = learner.store(t, everything)  # as a run that goes on does
        assert torch.equal(again.x, data.x) and len(learner.coreset) == t + 1
        assert torch.equal(learner.coreset[t].x, stored.x)
        assert torch.equal(learner.coreset[t].y, stored.y)


def test_other_seeds_store_other_samples() -> None:
    scenario, stored = tiny.scenario(), []
    for seed in (0, 1):
        learner = core.Learner(scenario, tiny.config(), seed)
        learner.store(0, core.samples(scenario, 0))
        stored.append(learner.coreset[0].x)
    assert not torch.equal(*stored)


def test_a_coreset_larger_than_a_task_is_refused_before_training() -> None:
    message = re.escape("coreset=500, but task 1 (task 0) has only 48 samples")
    with pytest.raises(RclCpbError, match=message):
        core.Learner(tiny.scenario(), tiny.config(coreset=500))
