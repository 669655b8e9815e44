"""Predictions: distributions with their uncertainty, as a loop over plain samples has them."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import tiny
import torch

import rclcpb_core as core
from rclcpb import runner


@pytest.mark.parametrize("trunk", [False, True])
def test_prediction_is_a_distribution_with_its_uncertainty(trunk: bool) -> None:
    net = tiny.network(tiny.config(rho_init=-2.0), trunk)
    p, entropy, information = core.predict(net, tiny.inputs(net, 30), 0, 50)
    assert p.shape == (30, 3) and (p >= 0).all()
    torch.testing.assert_close(p.sum(1), torch.ones(30))
    torch.testing.assert_close(entropy, -(p * p.log()).sum(1))
    assert (entropy <= math.log(3) + 1e-5).all()
    assert (information > 0).all() and (entropy >= information).all()


def by_means(net: core.ProgressiveBNN, x: torch.Tensor, head: int = 0) -> torch.Tensor:
    """Probabilities under the mean weights."""
    return net(x, head, core.by_means).softmax(1).detach()


@pytest.mark.parametrize("trunk", [False, True])
def test_weights_without_doubt_give_no_mutual_information(trunk: bool) -> None:
    net = tiny.network(tiny.config(rho_init=-60.0), trunk, spread=False)
    x = tiny.inputs(net)
    p, entropy, information = core.predict(net, x, 1, 20)
    torch.testing.assert_close(p, by_means(net, x, 1))
    assert information.abs().max() < 1e-5 and entropy.min() > 0.01


@pytest.mark.parametrize("sampling", ["weight", "local"])
@pytest.mark.parametrize("trunk", [False, True])
def test_prediction_equals_a_loop_over_plain_samples(trunk: bool, sampling: Any) -> None:
    net = tiny.network(tiny.config(rho_init=-2.5, sampling=sampling), trunk)
    x, n = tiny.inputs(net, 4), 1500 if trunk else 3000
    with torch.no_grad():
        loop = torch.stack([net(x, 0).softmax(1) for _ in range(n)])
    p, _, information = core.predict(net, x, 0, n)
    error = (loop.var(0) * 2 / n).sqrt()
    assert loop.std(0).min() > 0.01  # there is something to average
    assert ((p - loop.mean(0)).abs() < 5 * error + 1e-6).all()
    conditional = -(loop * loop.clamp_min(1e-30).log()).sum(2)
    expected = -(loop.mean(0) * loop.mean(0).log()).sum(1) - conditional.mean(0)
    torch.testing.assert_close(information, expected, atol=0.02, rtol=0.05)


def test_prediction_in_chunks_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    net = tiny.network(tiny.config(rho_init=-60.0), spread=False)
    x, sizes, logits = torch.randn(40, 36), [], core.logits

    def counted(net: Any, piece: torch.Tensor, head: int, samples: int) -> torch.Tensor:
        sizes.append(len(piece))
        return logits(net, piece, head, samples)

    monkeypatch.setattr(core, "logits", counted)
    monkeypatch.setattr(core, "CHUNK", 500)
    whole = core.predict(net, x, 0, 10).probabilities
    assert len(sizes) > 2 and sum(sizes) == 40
    torch.testing.assert_close(whole, by_means(net, x))


def test_the_head_asked_for_answers() -> None:
    net = tiny.network()
    x = tiny.inputs(net)
    assert core.predict(net, x, 0).probabilities.shape == (7, 3)
    assert core.predict(net, x, 1).probabilities.shape == (7, 2)


def test_a_mirrored_prediction_is_the_mean_over_both_views() -> None:
    """With weights that do not vary, half of the samples are of each view."""
    net = tiny.network(tiny.config(rho_init=-60.0), trunk=True, spread=False)
    x = tiny.inputs(net, 5)
    straight, mirrored = (core.predict(net, v)[0] for v in (x, x.flip(-1)))
    assert not torch.allclose(straight, mirrored, atol=1e-3)
    both = core.predict(net, x, samples=4, mirror=True)[0]
    torch.testing.assert_close(both, (straight + mirrored) / 2)
    uneven = core.predict(net, x, samples=3, mirror=True)[0]
    torch.testing.assert_close(uneven, (2 * straight + mirrored) / 3)
    alone = core.predict(net, x, samples=1, mirror=True)[0]
    torch.testing.assert_close(alone, straight)


def test_only_images_that_may_be_mirrored_are_shown_mirrored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scenario = tiny.scenario(heads="multi", trunk=True)
    first, *others = scenario.tasks
    digits = replace(first, mirror=False)
    scenario = replace(scenario, tasks=(digits, *others))
    asked: list[tuple[int, bool]] = []
    predict = core.predict

    def watched(net: Any, x: Any, head: int, samples: int, mirror: bool) -> Any:
        asked.append((head, mirror))
        return predict(net, x, head, samples, mirror)

    monkeypatch.setattr(core, "predict", watched)
    config = tiny.config(epochs=1, test_mirror=True, test_samples=2, replay_steps=1)
    runner.learn(scenario, config)
    assert set(asked) == {(0, False), (1, True), (2, True)}


# ------------------------------------------------------------------------------- on disk


@pytest.mark.parametrize("trunk", [False, True])
def test_a_network_on_disk_is_the_same_network(
    trunk: bool, tmp_path: Any, global_rng: None
) -> None:
    net, path = tiny.network(tiny.config(sampling="local"), trunk), tmp_path / "net"
    before = torch.get_rng_state()
    net.save(path, {"labels": [[7, 8, 9], [1, 2]]})
    again = core.load(path)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(20)  # as every test begins
    assert tiny.same(tiny.snapshot(net), tiny.snapshot(again))
    assert again.settings == net.settings and again.image_shape == net.image_shape
    assert again.about == {"labels": [[7, 8, 9], [1, 2]]}
    assert [layer.shape for layer in tiny.layers(again)] == [
        layer.shape for layer in tiny.layers(net)
    ]
