"""The control: a fresh network at every task, which learns the stored images alone."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import tiny
import torch
from running import FIXED

from rclcpb import runner
from rclcpb.files import RclCpbError
from rclcpb.method import Samples
from rclcpb.methods.control import StoredImagesAlone
from rclcpb.metrics import forgetting
from rclcpb.runner import Run

both_heads = pytest.mark.parametrize("heads", ["single", "multi"])


def refits(control: StoredImagesAlone) -> tuple[Run, list[tuple[str, dict[str, torch.Tensor]]]]:
    """A finished run; of each fit its name and the network as it began."""
    seen = []
    original = control.refit

    def refit(net: Any, t: int, name: str, data: Samples) -> None:
        seen.append((name, tiny.snapshot(net)))
        original(net, t, name, data)

    control.refit = refit  # type: ignore[method-assign]
    run = Run(control)
    run.finish("coreset-only")
    return run, seen


@both_heads
def test_it_learns_from_the_stored_samples_alone(heads: Any) -> None:
    """Noise in place of all other training images changes nothing."""
    clean, config = tiny.scenario(heads=heads), tiny.config(**FIXED)
    run = Run(StoredImagesAlone(clean, config))
    first = run.finish("coreset-only")
    noisy = []
    for t, task in enumerate(clean.tasks):
        x = np.random.default_rng(t).integers(0, 256, task.x_train.shape, dtype=np.uint8)
        kept = run.method.chosen[t].numpy()
        x[kept] = task.x_train[kept]
        noisy.append(replace(task, x_train=x))
    second = runner.learn(replace(clean, tasks=tuple(noisy)), config, method="coreset-only")
    assert first.accuracy == second.accuracy and first.nll == second.nll
    assert first.data_sha256 != second.data_sha256  # they were noisy
    assert np.mean(first.accuracy[-1]) > 0.4


@both_heads
def test_each_fit_begins_anew_under_the_prior_of_task_1(heads: Any) -> None:
    """A random start is no knowledge: a KL to it would only hold the control back."""
    config = tiny.config(**FIXED, replay_kl=0.1)
    _, seen = refits(StoredImagesAlone(tiny.scenario(heads=heads), config))
    names = {"single": ["replay"] * 3, "multi": ["fit 0", "fit 1", "fit 2"]}
    assert [name for name, _ in seen] == names[heads]
    for _, net in seen:
        assert (net["hidden.0.prior_mu"] == 0).all() and (net["hidden.0.prior_rho"] == 0).all()
        assert (net["hidden.0.rho"] == config.rho_init).all()  # nothing was learned before
    starts = [net["hidden.0.mu"] for _, net in seen]
    assert not any(torch.equal(a, b) for a, b in pairwise(starts))


def test_with_a_head_a_task_each_task_is_fitted_once() -> None:
    """No later task touches that network: its scores stand, nothing is forgotten."""
    run, seen = refits(StoredImagesAlone(tiny.scenario(heads="multi"), tiny.config(**FIXED)))
    assert len(seen) == 3
    for before, stage in pairwise(run.stages):
        for row in ("accuracy", "nll", "ece"):
            assert getattr(stage, row)[:-1] == getattr(before, row)
    assert forgetting([stage.accuracy for stage in run.stages]) == 0


def test_the_newest_task_is_always_fitted() -> None:
    """The control has nothing else to answer with."""
    config = tiny.config(**FIXED, replay_newest=False)
    run, seen = refits(StoredImagesAlone(tiny.scenario(heads="multi"), config))
    assert [name for name, _ in seen] == ["fit 0", "fit 1", "fit 2"]
    usual = runner.learn(run.scenario, tiny.config(**FIXED), method="coreset-only")
    assert [stage.nll for stage in run.stages] == usual.nll


@pytest.mark.parametrize("changes", [{"coreset": 0}, {"replay": False}])
def test_without_stored_images_there_is_nothing_to_learn(changes: dict) -> None:
    with pytest.raises(RclCpbError, match="coreset-only needs a coreset above 0 and replay=True"):
        StoredImagesAlone(tiny.scenario(), tiny.config(**FIXED, **changes))


def test_it_tells_no_loss_of_a_training_that_it_has_not() -> None:
    record = runner.learn(tiny.scenario(), tiny.config(**FIXED), method="coreset-only")
    assert record.train_nll == record.train_kl == [None] * 3
    assert record.hidden == [[10, 8]] * 3 and record.coreset_total == 18
