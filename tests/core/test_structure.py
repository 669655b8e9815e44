"""Pruning (Eq. 4) and growing (Eqs. 5-7): invariants, and numbers worked by hand."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import tiny
import torch
import torch.nn.functional as F
from growth import VECTORS, check_grown
from hypothesis import given
from hypothesis import strategies as st

import rclcpb_core as core
from rclcpb import runner
from rclcpb.scenarios import Task

SIZES = st.lists(st.integers(1, 9), min_size=1, max_size=3)
BETAS = st.sampled_from([0.0, 1e-5, 0.3, 1.0, 4.0, 1e9])
HEADS = st.lists(st.integers(1, 4), min_size=1, max_size=3)


def build(hidden: Any, heads: Any, seed: int, trunk: bool = False, **changes: Any) -> Any:
    """A network, and the config it was made with."""
    torch.manual_seed(seed)
    config = tiny.config(hidden=tuple(hidden), **changes)
    return tiny.network(config, trunk, heads), config


def split(layer: core.BayesLayer, state: dict, name: str, vector: str) -> Any:
    return layer.split(state[f"{name}.{vector}"])


# ----------------------------------------------------------------------- pruning: Eq. 4


@given(SIZES, HEADS, st.integers(0, 99), st.data())
def test_prune_changes_the_weights_below_beta_and_nothing_else(
    hidden: list, heads: list, seed: int, data: st.DataObject
) -> None:
    betas = tuple(data.draw(BETAS) for _ in hidden)
    net, config = build(hidden, heads, seed, beta=betas)
    before = tiny.snapshot(net)
    masks = []
    for k, layer in enumerate(net.hidden):  # Eq. 4 spelled out
        mu, rho = (split(layer, before, f"hidden.{k}", v)[0] for v in ("mu", "rho"))
        masks.append(mu.abs() / torch.exp(rho / 2) < betas[k])
    deltas = core.prune(net, config)
    assert [int(d) for d in deltas] == [int(m.sum()) for m in masks]
    after = net.state_dict()
    assert after.keys() == before.keys()
    for name in before:
        if not name.startswith("hidden"):
            assert torch.equal(before[name], after[name])  # trunk and heads stay
    for (k, layer), vector in itertools.product(enumerate(net.hidden), VECTORS):
        old, old_bias = split(layer, before, f"hidden.{k}", vector)
        new, new_bias = split(layer, after, f"hidden.{k}", vector)
        assert torch.equal(old_bias, new_bias)
        assert torch.equal(old[~masks[k]], new[~masks[k]])
        assert (old[masks[k]] != new[masks[k]]).all()  # posterior and prior both
    for k, layer in enumerate(net.hidden):
        fresh = {"rho": config.rho_init, "prior_mu": 0.0, "prior_rho": 0.0}
        for vector, value in fresh.items():
            assert (split(layer, after, f"hidden.{k}", vector)[0][masks[k]] == value).all()


def test_prune_leaves_the_trunk_alone() -> None:
    net, config = build((6, 5), (3,), 0, trunk=True, beta=(1e9,))
    before = tiny.snapshot(net)
    assert [int(d) for d in core.prune(net, config)] == [6 * 32 * 4, 6 * 5]
    after = net.state_dict()
    assert all(torch.equal(before[k], after[k]) for k in before if "trunk" in k)


def test_beta_for_each_layer_and_one_for_all() -> None:
    one = tiny.config(hidden=(5, 4, 3), beta=0.5, gamma=0.25)
    assert one.beta == (0.5,) and one.gamma == (0.25,)
    assert [one.threshold("beta", k) for k in range(3)] == [0.5] * 3
    each = tiny.config(hidden=(5, 4, 3), beta=(0.1, 0.2, 0.3), gamma=[1.0, 2.0, 3.0])
    assert [each.threshold("beta", k) for k in range(3)] == [0.1, 0.2, 0.3]
    assert [each.threshold("gamma", k) for k in range(3)] == [1.0, 2.0, 3.0]


def test_utilisation_is_the_share_at_or_above_beta() -> None:
    net, config = build((2, 2), (2,), 0, beta=(1.0, 3.0))
    with torch.no_grad():
        for layer in net.hidden:
            layer.rho.zero_()  # sigma 1
            layer.mu.fill_(2.0)
        net.hidden[0].mu[:18] = 0.5  # 18 of 72 weights below 1
    assert core.utilisation(net, config) == [0.75, 0.0]


# ---------------------------------------------------------------------------- growing


@given(SIZES, HEADS, st.integers(0, 99), st.booleans(), st.data())
def test_growing_keeps_old_entries_bit_for_bit(
    hidden: list, heads: list, seed: int, zero: bool, data: st.DataObject
) -> None:
    alpha = [data.draw(st.integers(0, 5)) for _ in hidden]
    net, _ = build(hidden, heads, seed)
    shapes = [layer.shape for layer in tiny.layers(net)]
    old = [tiny.snapshot(layer) for layer in tiny.layers(net)]
    core.grow(net, alpha, zero)
    assert net.sizes() == [n + a for n, a in zip(hidden, alpha, strict=True)]
    widths = [36, *net.sizes()]
    for k, layer in enumerate(net.hidden):
        assert layer.shape == (widths[k + 1], widths[k])
    for classes, head in zip(heads, net.heads, strict=True):
        assert head.shape == (classes, widths[-1])
    for layer, shape, before in zip(tiny.layers(net), shapes, old, strict=True):
        check_grown(layer, shape, before, zero)


@given(SIZES, HEADS, st.integers(0, 99), st.data())
def test_zero_columns_leave_every_heads_function_and_random_ones_do_not(
    hidden: list, heads: list, seed: int, data: st.DataObject
) -> None:
    alpha = [data.draw(st.integers(1, 5)) for _ in hidden]
    x = torch.randn(11, 36)
    for zero in (True, False):
        net, _ = build(hidden, heads, seed, mu_init="normal", mu_scale=1.0)
        net.double()  # so that only the order of sums can differ
        ways = [net(x.double(), h, core.by_means) for h in range(len(heads))]
        core.grow(net, alpha, zero)
        net.double()
        for h, old in enumerate(ways):
            new = net(x.double(), h, core.by_means)
            assert torch.allclose(new, old, rtol=1e-10, atol=1e-10) == zero


def test_growing_nothing_changes_nothing() -> None:
    net, _ = build((5, 4), (2, 3), 1)
    before, kept = tiny.snapshot(net), net.hidden[0].mu
    core.grow(net, [0, 0])
    assert tiny.same(before, net.state_dict()) and net.hidden[0].mu is kept


def test_growing_after_a_trunk() -> None:
    net, _ = build((5, 4), (2,), 1, trunk=True)
    before = tiny.snapshot(net)
    core.grow(net, [2, 3])
    assert net.sizes() == [7, 7] and net.hidden[0].shape == (7, 32 * 2 * 2)
    after = net.state_dict()
    assert all(torch.equal(before[k], after[k]) for k in before if "trunk" in k)
    assert net(torch.randn(3, 3, 8, 8)).shape == (3, 2)


# ------------------------------------------------------------------- sharing: Eqs. 5-7


@given(st.integers(2, 12), st.integers(1, 6), st.integers(0, 99))
def test_class_distances_equal_a_plain_double_loop(tc: int, n: int, seed: int) -> None:
    means = 3 * torch.randn(tc, n, generator=torch.Generator().manual_seed(seed))
    expected = torch.zeros(n)
    for i in range(tc):
        for j in range(i + 1, tc):
            expected += (means[i] - means[j]).abs()
    expected = 2 * expected / (tc * (tc - 1))
    torch.testing.assert_close(core.class_distances(means), expected, atol=1e-5, rtol=1e-5)


def test_class_distances_of_one_class_are_zero() -> None:
    assert core.class_distances(torch.tensor([[3.0, -1.0]])).tolist() == [0.0, 0.0]


def test_eq_5_by_hand() -> None:
    """Three classes, two neurons: pairs 1, 2, 3 apart and 0.3, 0.1, 0.2 apart."""
    means = torch.tensor([[0.0, 0.5], [1.0, 0.8], [3.0, 0.6]])
    assert core.class_distances(means).tolist() == pytest.approx([2.0, 0.2])
    distances = torch.tensor([2.0, 0.5, 0.1, 0.0])
    assert int(core.shared_neurons(distances, 0.1)) == 2  # "above": 0.1 is not
    assert int(core.shared_neurons(distances, 0.0)) == 3
    assert int(core.shared_neurons(distances, 5.0)) == 0


def test_class_means_equal_a_loop_over_samples() -> None:
    (net, _), n = build((6, 5), (3,), 0), 5000  # more than one chunk
    x, y = torch.randn(n, 36), torch.randint(3, (n,))
    got = core.class_means(net, x, y, 3)
    weights = [layer.split(layer.mu.detach()) for layer in net.hidden]
    for label in range(3):
        out = x[y == label]
        for k, (w, b) in enumerate(weights):
            out = (out @ w.T + b).clamp_min(0)
            torch.testing.assert_close(got[k][label], out.mean(0), atol=1e-4, rtol=1e-4)


def test_eqs_6_and_7_by_hand() -> None:
    assert core.pruned_neurons(1568, 784) == 2.0  # 1,568 weights, 784 to a neuron
    assert core.pruned_neurons(0, 784) == 0.0
    assert core.neurons_to_add(128, 100, 2.0) == 26
    assert core.neurons_to_add(128, 100, 2.6) == 25
    assert core.neurons_to_add(128, 127, 0.0) == 1
    assert core.neurons_to_add(128, 128, 0.0) == 0
    assert core.neurons_to_add(128, 200, 30.0) == 0  # never below 0


def task(pixels: int, classes: int) -> Task:
    x, y = np.zeros((classes, pixels), np.uint8), np.arange(classes)
    return Task("t", x, y, x, y, tuple(range(classes)))


def test_required_neurons_scale_with_input_size_and_classes() -> None:
    first = task(100, 2)
    assert core.required_neurons(64, task(100, 2), first) == 64
    assert core.required_neurons(64, task(400, 2), first) == pytest.approx(128)
    assert core.required_neurons(64, task(100, 8), first) == pytest.approx(128)
    assert core.required_neurons(64, task(400, 8), first) == pytest.approx(256)
    assert core.required_neurons(64, task(25, 2), first) == pytest.approx(32)
    assert core.required_neurons(50, task(200, 3), first) == pytest.approx(50 * 3**0.5)


class Spied(core.Learner):
    """Says by hand, between pruning and growing, how many neurons Eq. 5 finds shared."""

    def task_means(self, t: int, data: core.Samples) -> list[torch.Tensor]:
        seen = self.config.distance_classes == "seen" and self.scenario.heads == "single"
        sets = [data, *self.coreset[:t]] if seen else [data]
        x, y = (torch.cat(values) for values in list(zip(*sets, strict=True))[:2])
        self.by_hand = shared_by_hand(self.net, x, y, self.config.gamma)
        return super().task_means(t, data)


def shared_by_hand(
    net: core.ProgressiveBNN, x: torch.Tensor, y: torch.Tensor, gammas: tuple[float, ...]
) -> tuple[list[int], int]:
    """Eq. 5 with a loop over all pairs of classes; and how many classes there were."""
    shared = []
    for k, activation in enumerate(net.activations(x)):
        means = [activation[y == c].mean(0) for c in y.unique()]
        pairs = list(itertools.combinations(means, 2))
        distance = sum((a - b).abs() for a, b in pairs) / len(pairs)
        shared.append(int((distance > gammas[k % len(gammas)]).sum()))
    return shared, len(means)


def below_beta(net: core.ProgressiveBNN, config: core.Config) -> list[int]:
    """delta of Eq. 4, layer by layer."""
    betas = [config.beta[k % len(config.beta)] for k in range(len(net.growable))]
    return [int((la.snr() < b).sum()) for la, b in zip(net.growable, betas, strict=True)]


@pytest.mark.parametrize("heads", ["single", "multi"])
@pytest.mark.parametrize("classes", ["task", "seen"])
def test_the_learner_adds_what_eqs_5_to_7_say(heads: Any, classes: Any) -> None:
    """Everything from the learner's data, computed again by hand from the network."""
    config = tiny.config(gamma=(0.4, 0.9), beta=(0.5, 2.0), distance_classes=classes)
    learner = Spied(tiny.scenario(heads=heads), config)
    stages = iter(runner.Run(learner))
    next(stages)
    deltas = below_beta(learner.net, config)
    stage = next(stages)
    shared, seen = learner.by_hand
    assert seen == (4 if classes == "seen" and heads == "single" else 2)
    assert stage.pruned == deltas and sum(deltas) > 0
    assert stage.shared == shared
    expected = [
        round(max(0, n - s - d / before))
        for n, s, d, before in zip((10, 8), shared, deltas, (36, 10), strict=True)
    ]
    assert stage.added == expected and sum(expected) > 0
    assert stage.hidden == [10 + expected[0], 8 + expected[1]] == learner.net.sizes()


def test_larger_gamma_adds_more_neurons() -> None:
    sizes = []
    for gamma in (0.0, 0.2, 1e9):
        record = runner.learn(tiny.scenario(), tiny.config(gamma=gamma, epochs=1))
        sizes.append(sum(record.hidden[-1]))
    assert sizes == sorted(sizes) and sizes[0] < sizes[-1]


# -------------------------------------------------- convolutions that grow: one property


@pytest.fixture
def growing_trunk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Convolutions are pruned and grow, too; nothing else is another."""
    monkeypatch.setattr(core.ProgressiveBNN, "growable", property(lambda net: net.body))


@pytest.mark.usefixtures("growing_trunk")
@pytest.mark.parametrize("zero", [True, False])
def test_growing_convolutions_widen_the_layers_after_them(zero: bool) -> None:
    (net, _), x = build((5, 4), (2, 3), 1, trunk=True, mu_init="normal"), torch.randn(6, 3, 8, 8)
    shapes = [layer.shape for layer in tiny.layers(net)]
    old = [tiny.snapshot(layer) for layer in tiny.layers(net)]
    net.double()
    before = [net(x.double(), head, core.by_means) for head in (0, 1)]
    core.grow(net.float(), [3, 2, 0, 1], zero)
    assert net.sizes() == [19, 34, 5, 5]
    widened = [(19, 3, 3, 3), (34, 19, 3, 3), (5, 34 * 4), (5, 5)]
    assert [layer.shape for layer in net.body] == widened
    for layer, shape, was in zip(tiny.layers(net), shapes, old, strict=True):
        check_grown(layer, shape, was, zero)
    net.double()
    after = [net(x.double(), head, core.by_means) for head in (0, 1)]
    for new, was in zip(after, before, strict=True):
        assert torch.allclose(new, was, rtol=1e-9, atol=1e-9) == zero


@pytest.mark.usefixtures("growing_trunk")
def test_means_of_eq_5_take_a_channel_s_mean_activation() -> None:
    (net, _), y = build((5, 4), (2,), 1, trunk=True), torch.tensor([0, 1, 1, 0, 1])
    x = torch.randn(5, 3, 8, 8)
    means = core.class_means(net, x, y, 2)
    assert [m.shape for m in means] == [(2, 16), (2, 32), (2, 5), (2, 4)]
    weight, bias = net.trunk[0].split(net.trunk[0].mu.detach())
    first = F.max_pool2d(F.conv2d(x, weight, bias, padding=1).relu(), 2)
    for label in (0, 1):
        of_class = first[y == label]
        for channel in range(16):
            by_hand = of_class[:, channel].mean().item()
            assert means[0][label, channel].item() == pytest.approx(by_hand, abs=1e-5)


@pytest.mark.usefixtures("growing_trunk")
@pytest.mark.parametrize("heads", ["single", "multi"])
def test_a_run_prunes_and_grows_convolutions(heads: Any) -> None:
    """Eqs. 4-7 over all four layers, and state and file hold the wider convolutions."""
    settings = {"gamma": (0.1, 0.05), "beta": (0.5,), "epochs": 2}
    config = tiny.config(**settings, new_into_old="zero")
    run = runner.Run(Spied(tiny.scenario(heads=heads, trunk=True), config))
    stages, learner = iter(run), run.method
    next(stages)
    deltas = below_beta(learner.net, config)
    stage = next(stages)
    shared, _ = learner.by_hand
    columns = (27, 144, 128, 10)
    first = (*core.TRUNK, 10, 8)
    assert stage.pruned == deltas and stage.shared == shared
    alphas = zip(first, shared, deltas, columns, strict=True)
    assert stage.added == [max(0, round(n - s - d / c)) for n, s, d, c in alphas]
    assert stage.added[0] > 0 and stage.added[1] > 0
    sizes = [n + more for n, more in zip(first, stage.added, strict=True)]
    assert stage.hidden == learner.sizes() == sizes
    assert learner.net.trunk[1].shape == (sizes[1], sizes[0], 3, 3)
    assert learner.net.hidden[0].shape == (sizes[2], 4 * sizes[1])
    assert len(stage.utilisation) == 4 and all(0 < u <= 1 for u in stage.utilisation)
    other = core.Learner(learner.scenario, config)
    other.load(learner.state())
    assert tiny.same(other.net.state_dict(), learner.net.state_dict())
    record = run.finish("rcl-cpb")
    assert core.average_accuracy(record.accuracy) > 0.5  # of at most six classes
