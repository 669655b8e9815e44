"""No GPU here: torch's meta device shows a tensor left on the wrong device.

Every operation is watched. One that mixes devices, or makes anything larger than a
few numbers on the CPU, fails the test.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import tiny
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import rclcpb_core as core
from rclcpb import fast, method
from rclcpb.distort import DISTORTIONS
from rclcpb.images import Images
from rclcpb.scenarios import permuted_mnist

META = torch.device("meta")


class Watch(TorchDispatchMode):
    """Fails on an operation whose tensors are not all on meta, or small and alone."""

    def __init__(self, small: int) -> None:
        super().__init__()
        self.small, self.count = small, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        tensors = [
            leaf for leaf in tree_leaves((args, kwargs, result)) if isinstance(leaf, torch.Tensor)
        ]
        homes = {t.device.type for t in tensors if t.dim() or t.device == META}
        moved = func is torch.ops.aten._to_copy.default  # a few numbers brought over
        assert moved or len(homes) <= 1, f"{func} mixes {homes}"
        here = max((t.numel() for t in tensors if t.device.type == "cpu"), default=0)
        assert here <= self.small, f"{func} makes {here} numbers on the CPU"
        self.count += homes == {"meta"}
        return result


@contextmanager
def all_on_meta(small: int = 4) -> Iterator[Watch]:
    with Watch(small) as watch:
        yield watch
    assert watch.count > 0


def network(config: core.Config, trunk: bool) -> core.ProgressiveBNN:
    """Made on the CPU and brought over: what is watched comes after that."""
    return tiny.network(config, trunk, spread=False).to(META)


def samples(trunk: bool, head: int, n: int = 9) -> core.Samples:
    x = torch.empty((n, 3, 8, 8) if trunk else (n, 36), device=META)
    return core.Samples(x, torch.empty(n, dtype=torch.long, device=META), head)


def homes(net: torch.nn.Module) -> set[str]:
    return {value.device.type for value in net.state_dict().values()}


CASES = [(trunk, sampling) for trunk in (False, True) for sampling in ("weight", "local")]


@pytest.mark.parametrize("kind", [fast.FlatPosterior, core.PlainPosterior])
@pytest.mark.parametrize(("trunk", "sampling"), CASES)
def test_a_training_step(trunk: bool, sampling: Any, kind: Any) -> None:
    net = network(tiny.config(sampling=sampling), trunk)
    with all_on_meta():
        posterior = kind(net, [1, 0])
        optimizer = core.adam(posterior, 0.01, 0.01)
        posterior.new_round(2, 18)
        for parts in ([samples(trunk, 1)], [samples(trunk, 1), samples(trunk, 0)]):
            loss = posterior.gradients(parts, 0.1)
            optimizer.step()
            assert loss.device == META
        assert posterior.kl().device == META
    assert homes(net) == {"meta"} and posterior.mus[0].device == META


@pytest.mark.parametrize("trunk", [False, True])
@pytest.mark.parametrize("kind", ["none", *DISTORTIONS])
def test_a_round_of_training_with_distorted_and_mixed_images(trunk: bool, kind: str) -> None:
    config = tiny.config(batch_size=9, augment=kind, distort=kind, replay_mix=4)
    net, phase = network(config, trunk), core.Phase.training(config, 9)
    data, stored = samples(trunk, 1), [samples(trunk, 0)]
    with all_on_meta(9):  # a shuffle of nine indices is made on the CPU and moved
        flat = fast.FlatPosterior(net, [1, 0])
        step = core.adam(flat, 0.01, 0.01)
        total = core.train_round(flat, step, data, phase, 2, net.image_shape, stored)
    assert total.device == META


@pytest.mark.parametrize("trunk", [False, True])
def test_pruning_and_growing(trunk: bool) -> None:
    config = tiny.config()
    net = network(config, trunk)
    with all_on_meta():
        net.posterior_becomes_prior()
        deltas = core.prune(net, config)
        data = samples(trunk, 0)
        for means in core.class_means(net, data.x, data.y, 2):
            distances = core.class_distances(means)
            assert core.shared_neurons(distances, 0.1).device == META
        core.grow(net, [3, 2], zero=True)
        net.heads[0].grow(4)
        out = net(data.x, 0)
    assert {d.device.type for d in deltas} == {"meta"} == homes(net)
    assert net.sizes() == [13, 10] and out.shape == (9, 7) and out.device == META


@pytest.mark.parametrize("trunk", [False, True])
def test_a_prediction_and_its_inputs(trunk: bool) -> None:
    net, data = network(tiny.config(), trunk), samples(trunk, 0)
    with all_on_meta():
        prediction = core.predict(net, data.x, 0, 5)
        loss = net(data.x, 1).sum() + net.kl()
    assert {t.device.type for t in (*prediction, loss)} == {"meta"}
    assert prediction.probabilities.shape == (9, 3)


@pytest.mark.parametrize("heads", ["single", "multi"])
def test_the_learners_data_and_heads_are_on_its_device(heads: Any) -> None:
    scenario = tiny.scenario(heads=heads)
    learner = core.Learner(scenario, tiny.config(coreset=6), device="meta")
    data = core.samples(scenario, 0, device="meta")
    assert data.x.device == data.y.device == META
    learner.open_head(0)
    learner.net.posterior_becomes_prior()
    core.grow(learner.net, [1, 1])
    learner.open_head(1)
    assert homes(learner.net) == {"meta"}
    assert len(learner.net.heads) == (1 if heads == "single" else 2)


def test_permuted_images_are_shuffled_on_the_device() -> None:
    images = Images(*tiny.arrays((0, 1)))
    data = core.samples(permuted_mnist(images, 2), 1, device=META)
    assert data.x.device == META and data.pixels is not None
    assert data.pixels.device == META


def test_a_random_choice_stays_on_the_device() -> None:
    x, y = torch.empty(12, 4, device=META), torch.empty(12, device=META)
    assert core.choose_coreset(x, y, 5, "random").device == META


def test_a_resumed_fit_brings_adams_moments_to_the_device() -> None:
    """What a checkpoint holds comes from the CPU."""
    net = network(tiny.config(), False)
    flat = fast.FlatPosterior(net, [0])
    optimizer, like = core.adam(flat, 0.01, 0.01), torch.zeros(len(flat.mu))
    saved = {
        f"{i}.{name}": like.clone() if name != "step" else torch.tensor(4.0)
        for i in (0, 1)
        for name in ("step", "exp_avg", "exp_avg_sq")
    }
    assert method.load_moments(optimizer, {"rounds": 2, "moments": saved}) == 2
    for parameter in (flat.mu, flat.rho):
        assert parameter.device == META
        state = optimizer.state[parameter]
        assert state["exp_avg"].device == state["exp_avg_sq"].device == META
        assert float(state["step"]) == 4.0
    flat.new_round(1, 9)
    flat.gradients([samples(False, 0)], 0.0)
    optimizer.step()


@pytest.mark.filterwarnings("ignore:for .* copying from a non-meta parameter")
def test_a_saved_state_is_loaded_to_the_device() -> None:
    scenario, config = tiny.scenario(), tiny.config()
    trained = core.Learner(scenario, config)
    data = trained.store(0, core.samples(scenario, 0))
    trained.begin(0, data)
    trained.begin(1, data)
    learner = core.Learner(scenario, config, device="meta")
    learner.load(trained.state())
    assert homes(learner.net) == homes(learner.kept_head) == {"meta"}
    assert learner.coreset[0].x.device == learner.chosen[0].device == META


def test_the_watch_itself_notices() -> None:
    """A tensor left on the CPU, and work done there, both fail."""
    meta, cpu = torch.empty(8, device=META), torch.zeros(8)
    with pytest.raises((AssertionError, RuntimeError)), all_on_meta():
        torch.where(meta > 0, meta, cpu)
    with pytest.raises(AssertionError, match="8 numbers on the CPU"), all_on_meta():
        cpu.add(1)
    with pytest.raises(AssertionError, match="8 numbers on the CPU"), all_on_meta():
        cpu.to(META)
    layer = core.BayesLinear(6, 5, tiny.config().layer_settings()).to(META)
    layer.prior_rho = torch.zeros(35)
    with pytest.raises((AssertionError, RuntimeError)), all_on_meta():
        layer.kl()


def test_meta_inputs_come_from_numpy() -> None:
    scenario = tiny.scenario()
    x = scenario.inputs(np.zeros((2, 6, 6), np.uint8), scenario.tasks[0], META)
    assert x.device == META and x.shape == (2, 36)
