"""The fast path against autograd on the plain formulas, its noise, and distortions."""

from __future__ import annotations

import dataclasses
import math
import platform
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import tiny
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.distributions import Categorical, Normal, kl_divergence

import rclcpb_core as core
from rclcpb import fast, runner
from rclcpb.files import RclCpbError

FAULTS = """
import os, resource, sys, torch
sys.path.insert(0, sys.argv[1])
from rclcpb.memory import keep_freed_memory
for way in ("kept", "as ever"):
    if os.fork():
        os.wait()
        continue
    if way == "kept":
        keep_freed_memory()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for mib in range(1, 31):  # glibc by itself asks for new pages for each larger one
        torch.ones(mib * 2**18)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
    sys.exit()
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc's malloc only")
def test_a_step_s_buffers_come_without_new_pages() -> None:
    command = [sys.executable, "-c", FAULTS, str(Path(core.__file__).parent)]
    said = subprocess.run(command, text=True, capture_output=True, check=True).stdout
    kept, as_ever = map(int, said.split())
    assert kept < 60_000 < 100_000 < as_ever  # a MiB is 256 pages


# ------------------------------------------------------- gradients of Eq. 8, fast path


def recording(flat: fast.FlatPosterior) -> list[Tensor]:
    """The noise that the coming steps take, in the order in which they take it."""
    taken: list[Tensor] = []
    original = flat.noise

    def noise(shape: Sequence[int]) -> Tensor:
        taken.append(original(shape).clone())
        return taken[-1]

    flat.noise = noise  # type: ignore[method-assign]
    return taken


def replaying(taken: list[Tensor]) -> Callable[[Tensor], Tensor]:
    """A torch.randn_like that gives out these numbers again."""
    numbers, place = torch.cat([t.flatten() for t in taken]), [0]

    def randn_like(like: Tensor) -> Tensor:
        start, place[0] = place[0], place[0] + like.numel()
        return numbers[start : place[0]].view(like.shape)

    return randn_like


def samples(net: core.ProgressiveBNN, head: int, n: int = 7) -> core.Samples:
    classes = net.heads[head].shape[0]
    return core.Samples(tiny.inputs(net, n), torch.randint(classes, (n,)), head)


def flat_gradients(posterior: Any) -> Tensor:
    """Of all mu, then of all rho."""
    return torch.cat([p.grad.flatten() for p in (*posterior.mus, *posterior.rhos)])


def check_gradients(
    net: core.ProgressiveBNN, heads: Sequence[int], parts: Sequence[core.Samples], kl_weight: float
) -> None:
    """The fast path's, against autograd on `core.eq8` under the same noise."""
    flat, plain = fast.FlatPosterior(net, heads), core.PlainPosterior(net, heads)
    batch = sum(len(p.y) for p in parts)
    flat.new_round(3, batch)
    flat.gradients([samples(net, heads[-1], batch)], 0.3)  # an earlier step leaves no trace
    taken = recording(flat)
    nll, got = flat.gradients(parts, kl_weight), flat_gradients(flat)
    with patch("torch.randn_like", replaying(taken)):
        expected = plain.gradients(parts, kl_weight)
    torch.testing.assert_close(nll, expected)
    for ours, autograd in zip(got.chunk(2), flat_gradients(plain).chunk(2), strict=True):
        assert autograd.abs().max() > 1e-3
        assert (ours - autograd).abs().max() < 1e-5 * autograd.abs().max()
    torch.testing.assert_close(flat.kl(), plain.kl())


CASES = [
    (trunk, sampling, kl)
    for trunk in (False, True)
    for sampling in ("weight", "local")
    for kl in (0.0, 0.01)
]


@pytest.mark.parametrize(("trunk", "sampling", "kl_weight"), CASES)
def test_gradients_equal_autograd(trunk: bool, sampling: Any, kl_weight: float) -> None:
    net = tiny.network(tiny.config(sampling=sampling), trunk)
    check_gradients(net, [1], [samples(net, 1)], kl_weight)


@pytest.mark.parametrize(("trunk", "sampling", "kl_weight"), CASES)
def test_gradients_with_samples_of_two_heads(trunk: bool, sampling: Any, kl_weight: float) -> None:
    """A batch of two tasks; the third head has no sample in it and gets the KL only."""
    net = tiny.network(tiny.config(sampling=sampling), trunk, heads=(3, 2, 4))
    parts = [samples(net, 1, 5), samples(net, 0, 4)]
    check_gradients(net, [1, 0, 2], parts, kl_weight)


def test_gradients_of_one_hidden_layer_and_of_three() -> None:
    for hidden in ((9,), (9, 7, 5)):
        net = tiny.network(tiny.config(hidden=hidden, sampling="local"))
        check_gradients(net, [0], [samples(net, 0)], 0.02)


@pytest.mark.parametrize("trunk", [False, True])
def test_eq_8_is_likelihood_and_divergence(trunk: bool) -> None:
    """Without noise, from torch.distributions: -log p of every label, KL of every weight."""
    net = tiny.network(tiny.config(rho_init=-60.0), trunk, spread=False)
    parts = [samples(net, 1, 5), samples(net, 0, 4)]
    layers = [*net.body, *net.heads]
    likelihood, kl = 0.0, torch.zeros(())
    for part in parts:
        for x, label in zip(part.x, part.y, strict=True):
            scores = net(x[None], part.head, core.by_means)[0]
            likelihood += Categorical(logits=scores).log_prob(label).item()
    for layer in layers:
        q = Normal(layer.mu, (layer.rho / 2).exp())
        p = Normal(layer.prior_mu, (layer.prior_rho / 2).exp())
        kl = kl + kl_divergence(q, p).sum()
    nll, loss = core.eq8(net, layers, parts, 0.01)
    assert nll.item() == pytest.approx(-likelihood / 9, rel=1e-4)
    assert loss.item() == pytest.approx(-likelihood / 9 + 0.01 * kl.item(), rel=1e-4)


# --------------------------------------------------- layers that the fast path has not


class Cosine(core.BayesLayer):
    """Without a closed form: angles between inputs and weights, then a tanh."""

    def __init__(self, n_in: int, n_out: int, settings: core.LayerSettings) -> None:
        super().__init__((n_out, n_in), settings)

    def operate(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return F.linear(F.normalize(x), 3 * F.normalize(weight), bias)

    def activate(self, x: Tensor) -> Tensor:
        return x.tanh()


class CosineLearner(core.Learner):
    """Its second hidden layer is of that kind, after a linear one."""

    def new_network(self, hidden: Sequence[int]) -> core.ProgressiveBNN:
        net = super().new_network(hidden)
        net.hidden[1] = Cosine(hidden[0], hidden[1], net.settings)
        return net


def test_a_layer_without_a_closed_form_after_a_linear_one_trains_plainly() -> None:
    """One step, against finite differences of Eq. 8 under the same noise."""
    net = tiny.network(tiny.config(rho_init=-3.0), spread=False)
    net.hidden[1] = Cosine(10, 8, net.settings)
    net.double()
    part = samples(net, 1)._replace(x=torch.randn(7, 36).double())
    assert not fast.handles(net)
    plain, noise = core.PlainPosterior(net, [1]), torch.randn(1000).double()

    def loss() -> float:
        with patch("torch.randn_like", lambda like: noise[: like.numel()].view_as(like)):
            plain.gradients([part], 0.02)
            return core.eq8(net, plain.layers, [part], 0.02)[1].item()

    loss()
    for parameter in (net.hidden[1].mu, net.hidden[1].rho, net.hidden[0].mu):
        got, place = parameter.grad.clone(), int(parameter.grad.abs().argmax())
        around = []
        for move in (1e-5, -2e-5):
            parameter.data[place] += move
            around.append(loss())
        parameter.data[place] += 1e-5
        assert got[place].item() == pytest.approx((around[0] - around[1]) / 2e-5, rel=1e-5)


@pytest.mark.parametrize("heads", ["single", "multi"])
def test_a_run_with_such_a_layer_learns_grows_and_predicts(heads: Any) -> None:
    run = runner.Run(CosineLearner(tiny.scenario(heads=heads), tiny.config(gamma=0.5)))
    record = run.finish("rcl-cpb")
    net = run.method.net
    assert isinstance(net.hidden[1], Cosine) and not fast.handles(net)
    assert core.average_accuracy(record.accuracy) > (0.5 if heads == "single" else 0.8)
    assert sum(record.hidden[-1]) > 18  # it has grown
    x = torch.randn(5, 36)
    found = core.predict(net, x, 0, 400)
    with torch.no_grad():
        loop = torch.stack([net(x, 0).softmax(1) for _ in range(400)])
    error = (2 * loop.var(0) / 400).sqrt()
    assert ((found.probabilities - loop.mean(0)).abs() < 5 * error + 1e-6).all()
    again = CosineLearner(run.scenario, run.method.config)
    again.load(run.method.state())  # the layer is what it was, not another kind
    assert isinstance(again.net.hidden[1], Cosine)
    assert tiny.same(again.net.state_dict(), net.state_dict())


# --------------------------------------------------------------- what training touches


def test_layers_are_views_of_the_flat_vectors() -> None:
    net = tiny.network()
    flat = fast.FlatPosterior(net, [1])
    optimizer = core.adam(flat, 0.01, 0.01)
    before = tiny.snapshot(net)
    flat.new_round(1, 7)
    flat.gradients([samples(net, 1)], 0.01)
    optimizer.step()
    after = net.state_dict()
    for name in ("hidden.0", "hidden.1", "heads.1"):
        assert (after[f"{name}.mu"] != before[f"{name}.mu"]).any()
        assert (after[f"{name}.rho"] != before[f"{name}.rho"]).any()
    joined = torch.cat([layer.mu for layer in (*net.hidden, net.heads[1])])
    assert torch.equal(joined, flat.mu)
    torch.testing.assert_close(flat.kl(), sum(la.kl() for la in flat.layers).detach())


def test_training_a_head_leaves_the_others_bit_for_bit() -> None:
    net = tiny.network(tiny.config(sampling="local"))
    before, data = tiny.snapshot(net), samples(net, 1, 20)
    flat = fast.FlatPosterior(net, [1])
    phase = core.Phase.training(tiny.config(), 20)
    core.train_round(flat, core.adam(flat, 0.1, 0.1), data, phase, 5, (1, 6, 6))
    after = net.state_dict()
    for name, value in before.items():
        changed = not torch.equal(value, after[name])
        trained = name.split(".")[-1] in ("mu", "rho") and "heads.0" not in name
        assert changed == trained, name


def test_separate_learning_rates_apply() -> None:
    """Adam's first step is its rate, whatever the gradient's size."""
    net = tiny.network()
    flat = fast.FlatPosterior(net, [0])
    mu, rho = flat.mu.detach().clone(), flat.rho.detach().clone()
    phase = core.Phase.training(tiny.config(), 7)
    step = core.adam(flat, 0.03, 0.004)
    core.train_round(flat, step, samples(net, 0), phase, 1, (1, 6, 6))
    assert (flat.mu - mu).abs().median().item() == pytest.approx(0.03, rel=1e-3)
    assert (flat.rho - rho).abs().median().item() == pytest.approx(0.004, rel=1e-3)


def test_phases_carry_the_configs_numbers() -> None:
    config = tiny.config(
        epochs=4,
        batch_size=10,
        lr_mu=0.02,
        lr_rho=0.1,
        kl_weight=3.0,
        replay_steps=250,
        replay_lr=0.05,
        replay_kl=2.0,
        replay_batch=9,
        augment="shift",
        distort="affine",
    )
    train = core.Phase.training(config, 41)
    assert train.rounds == [5] * 4 and train.batch == 10  # ceil(41 / 10) an epoch
    assert (train.lr_mu, train.lr_rho) == (0.02, 0.1)
    assert train.kl_weight == pytest.approx(3 / 41) and train.augment == "shift"
    replay = core.Phase.replaying(config, 12)
    assert sum(replay.rounds) == 250 and replay.batch == 9
    assert replay.lr_mu == 0.05 and replay.lr_rho == pytest.approx(0.25)
    assert replay.kl_weight == pytest.approx(2 / 12) and replay.augment == "affine"
    passes = core.Phase.replaying(dataclasses.replace(config, replay_epochs=3), 19)
    assert passes.rounds == [3] * 3 and passes.lr_mu == 0.05  # ceil(19 / 9) a pass


def test_the_prior_pulls_the_posterior() -> None:
    """With the KL alone to speak of, a fit ends at the prior."""
    config = tiny.config(batch_size=50)
    net = tiny.network(config)
    flat, data = fast.FlatPosterior(net, [0]), samples(net, 0, 50)
    phase = core.Phase.training(config, 50)._replace(kl_weight=1e4)
    before = flat.kl()
    core.train_round(flat, core.adam(flat, 0.05, 0.05), data, phase, 400, (1, 6, 6))
    assert flat.kl() < 0.01 * before


# ------------------------------------------------------------------------------- noise


@pytest.mark.parametrize("sampling", ["weight", "local"])
def test_a_steps_noise_repeats_no_number(sampling: Any) -> None:
    net = tiny.network(tiny.config(sampling=sampling), trunk=True)
    flat = fast.FlatPosterior(net, [0])
    flat.new_round(20, 7)
    flat.pool = torch.arange(len(flat.pool), dtype=torch.float)  # each place its number
    taken, firsts = recording(flat), set()
    for _ in range(20):
        taken.clear()
        flat.gradients([samples(net, 0)], 0.0)
        numbers = torch.cat([t.flatten() for t in taken])
        drawn = (
            len(flat.mu)
            if sampling == "weight"
            else sum(len(layer.mu) for layer in net.trunk) + 7 * (10 + 8 + 3)
        )
        assert len(numbers) == drawn == len(numbers.unique())
        firsts.add(numbers[0].item())
    assert len(firsts) > 10  # steps begin at different places


@pytest.mark.parametrize("sampling", ["weight", "local"])
def test_noise_is_standard_normal(sampling: Any) -> None:
    net = tiny.network(tiny.config(sampling=sampling))
    flat, means, squares = fast.FlatPosterior(net, [0]), [], []
    for _ in range(200):  # one step a pool: independent
        flat.new_round(1, 7)
        taken = recording(flat)
        flat.gradients([samples(net, 0)], 0.0)
        numbers = torch.cat([t.flatten() for t in taken])
        means.append(numbers.mean().item() * math.sqrt(len(numbers)))
        squares.append((numbers.square().mean().item() - 1) * math.sqrt(len(numbers) / 2))
    for scores in (means, squares):  # both are close to standard normal themselves
        assert abs(np.mean(scores)) < 5 / math.sqrt(200)
        assert np.std(scores) == pytest.approx(1, abs=5 / math.sqrt(400))


def test_every_round_draws_a_new_pool() -> None:
    net = tiny.network()
    flat, data = fast.FlatPosterior(net, [0]), samples(net, 0)
    phase = core.Phase.training(tiny.config(), 7)
    optimizer, pools = core.adam(flat, 0.01, 0.01), []
    for _ in range(3):
        core.train_round(flat, optimizer, data, phase, 2, (1, 6, 6))
        pools.append(flat.pool.clone())
    assert not torch.isin(pools[0][:100], pools[1]).any()
    assert not torch.isin(pools[1][:100], pools[2]).any()


# ----------------------------------------------------------------------------- batches


@given(st.integers(1, 60), st.integers(1, 20), st.integers(1, 3))
def test_batches_cover_every_sample_once_an_epoch(n: int, size: int, epochs: int) -> None:
    steps = math.ceil(n / size)
    got = list(core.batches(n, size, epochs * steps, torch.device("cpu")))
    assert len(got) == epochs * steps and max(map(len, got)) <= size
    for e in range(epochs):
        epoch = torch.cat(got[e * steps : (e + 1) * steps])
        assert epoch.sort().values.tolist() == list(range(n))


def test_batches_shuffle_anew() -> None:
    one, other = core.batches(50, 50, 2, torch.device("cpu"))
    assert one.tolist() != other.tolist() and one.tolist() != list(range(50))


def test_mixed_batches_hold_stored_images() -> None:
    """With `mixed`, each step's batch has that many images of a stored set."""
    net = tiny.network()
    data, old = samples(net, 0, 20), samples(net, 0, 6)
    flat, seen = fast.FlatPosterior(net, [0]), []
    original = flat.gradients
    flat.gradients = lambda parts, w: (seen.append(parts), original(parts, w))[1]  # type: ignore[method-assign]
    phase = core.Phase.training(tiny.config(replay_mix=5), 20)
    core.train_round(flat, core.adam(flat, 0.01, 0.01), data, phase, 4, (1, 6, 6), [old])
    for (part,) in seen:
        from_old = (part.x[:, None] == old.x[None]).all(2).any(1)
        assert from_old.sum() == 5
        place = (part.x[from_old][:, None] == old.x[None]).all(2).int().argmax(1)
        assert torch.equal(part.y[from_old], old.y[place])


# ------------------------------------------------------------------- numbers that blow


@pytest.mark.parametrize("changes", [{"lr_mu": 1e30}, {"rho_init": 300.0}])
def test_a_loss_that_is_not_finite_stops_with_task_and_cause(changes: dict) -> None:
    run = runner.Run(core.Learner(tiny.scenario(), tiny.config(**changes)))
    with pytest.raises(RclCpbError, match=r"^task 1, .*not finite.*lower lr_mu"):
        next(iter(run))
