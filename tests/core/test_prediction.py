"""Prediction: the fast samples are the looped ones' distribution, in chunks that fit."""

from __future__ import annotations

import math

import pytest
import tiny
import torch
from torch import Tensor

import rclcpb_core as core

DRAWS = 3000


def doubtful(trunk: bool) -> tuple[core.ProgressiveBNN, Tensor]:
    """A network whose samples differ, and some inputs."""
    net = tiny.network(tiny.config(rho_init=-2.5), trunk)
    return net, tiny.inputs(net, 5)


MANY = [
    (False, 3_000),
    (True, 800),
    pytest.param(False, 20_000, marks=pytest.mark.long),
    pytest.param(True, 4_000, marks=pytest.mark.long),
]


@pytest.mark.parametrize(("trunk", "draws"), MANY)
def test_fast_and_looped_samples_have_the_same_distribution(trunk: bool, draws: int) -> None:
    """Mean and variance of every probability, within five standard errors."""
    net, x = doubtful(trunk)
    with torch.no_grad():
        fast = core.logits(net, x, 0, draws).softmax(2)  # (M, B, classes)
        loop = torch.stack([net(x, 0).softmax(1) for _ in range(draws)])
    assert loop.std(0).min() > 0.01  # there is something to compare
    centre = loop.mean(0)
    for a, b in ((fast, loop), ((fast - centre) ** 2, (loop - centre) ** 2)):
        error = ((a.var(0) + b.var(0)) / draws).sqrt()
        assert ((a.mean(0) - b.mean(0)).abs() < 5 * error).all()


@pytest.mark.parametrize("trunk", [False, True])
def test_an_inputs_fast_samples_are_independent(trunk: bool) -> None:
    """Inputs share noise, one input's samples must not: no correlation at any lag."""
    net, x = doubtful(trunk)
    with torch.no_grad():
        fast = core.logits(net, x, 0, DRAWS).softmax(2)
    scores = (fast - fast.mean(0)) / fast.std(0)
    for lag in (1, 2, 3, 10):
        correlation = (scores[lag:] * scores[:-lag]).mean(0)
        assert correlation.abs().max() < 5 / math.sqrt(DRAWS)


@pytest.mark.parametrize(("trunk", "samples"), [(False, 10**6), (True, 10)])
def test_prediction_takes_chunks_of_bounded_size(
    trunk: bool, samples: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a layer's activations nor all samples' logits exceed 2^24 numbers."""
    shape = (3, 64, 64) if trunk else (36,)
    config = tiny.config()
    net = core.ProgressiveBNN(
        shape if trunk else (1, 6, 6), config.hidden, config.layer_settings(), trunk
    )
    net.add_head(3)
    x = torch.zeros(1, *shape).expand(600, *shape)
    sizes: list[int] = []

    def logits(net: core.ProgressiveBNN, piece: Tensor, head: int, samples: int) -> Tensor:
        sizes.append(len(piece))
        return torch.zeros(1, len(piece), 3)

    monkeypatch.setattr(core, "logits", logits)
    assert core.predict(net, x, 0, samples).probabilities.shape == (600, 3)
    widest = max(3 * samples, max(core.TRUNK) * 64 * 64 if trunk else 10)
    assert len(sizes) > 1 and max(sizes) * widest <= 2**24
