"""The Bayesian layers against torch.distributions, moments and finite differences."""

from __future__ import annotations

import copy
import math
from unittest.mock import patch

import pytest
import tiny
import torch
import torch.nn.functional as F
from growth import check_grown
from torch import Tensor
from torch.distributions import Normal, kl_divergence

import rclcpb_core as core

KINDS = {
    "linear": lambda settings: core.BayesLinear(7, 5, settings),
    "conv": lambda settings: core.BayesConv2d(3, 4, settings),
}
INPUTS = {"linear": (6, 7), "conv": (2, 3, 5, 5)}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


def settings(**changes: object) -> core.LayerSettings:
    return tiny.config(**changes).layer_settings()


def make(kind: str, **changes: object) -> core.BayesLayer:
    layer = KINDS[kind](settings(**changes))
    tiny.spread_out(layer)
    return layer


# --------------------------------------------------------------------------------- KL


def test_kl_equals_torch_distributions(kind: str) -> None:
    layer = make(kind)
    q = Normal(layer.mu, (layer.rho / 2).exp())
    p = Normal(layer.prior_mu, (layer.prior_rho / 2).exp())
    torch.testing.assert_close(layer.kl(), kl_divergence(q, p).sum())


def test_kl_of_network_is_the_sum_over_its_layers() -> None:
    net = tiny.network(trunk=True)
    expected = sum(layer.kl() for layer in tiny.layers(net))
    assert len(tiny.layers(net)) == 6  # two convolutions, two hidden, two heads
    torch.testing.assert_close(net.kl(), expected)


def test_kl_counts_weights_and_biases(kind: str) -> None:
    """Moving one bias by d changes the KL by what that bias alone says."""
    layer = make(kind)
    before = layer.kl().item()
    with torch.no_grad():
        gap = (layer.mu[-1] - layer.prior_mu[-1]).item()
        layer.mu[-1] += 1.0
    precision = math.exp(-layer.prior_rho[-1].item())
    expected = ((gap + 1) ** 2 - gap**2) * precision / 2
    assert layer.kl().item() - before == pytest.approx(expected, rel=1e-3, abs=1e-3)


def test_posterior_becomes_prior_makes_kl_exactly_zero(kind: str) -> None:
    layer = make(kind)
    mu, rho = layer.mu.detach().clone(), layer.rho.detach().clone()
    assert layer.kl() > 1
    layer.posterior_becomes_prior()
    assert layer.kl().item() == 0
    assert torch.equal(layer.prior_mu, mu) and torch.equal(layer.prior_rho, rho)
    with torch.no_grad():  # and it is a copy: training on does not move the prior
        layer.mu += 1
        layer.rho += 1
    assert torch.equal(layer.prior_mu, mu) and torch.equal(layer.prior_rho, rho)


def test_what_a_task_taught_counts_as_often_as_is_asked(kind: str) -> None:
    """Precision new + (s - 1) (new - old), where a task made a weight surer; means stay."""
    layer = make(kind)
    mu, new = layer.mu.detach().clone(), (-layer.rho.detach()).exp()
    layer.prior_rho = (
        layer.rho.detach().clone()
        + torch.tensor([0.7, -0.4]).repeat(layer.rho.numel() // 2 + 1)[: layer.rho.numel()]
    )
    old = (-layer.prior_rho).exp()
    layer.posterior_becomes_prior(3.0)
    expected = torch.where(new > old, 3 * new - 2 * old, new)
    assert torch.allclose((-layer.prior_rho).exp(), expected, rtol=1e-4)
    assert torch.equal(layer.prior_mu, mu) and layer.kl().item() == pytest.approx(0, abs=1e-4)


# --------------------------------------------------------------------------- sampling


def analytic_moments(kind: str, layer: core.BayesLayer, x: Tensor) -> tuple:
    """Mean and variance of the outputs: the weights are independent."""
    operate = F.linear if kind == "linear" else lambda *a: F.conv2d(*a, padding=1)
    mean = operate(x, *layer.split(layer.mu))
    return mean, operate(x**2, *layer.split(layer.rho.exp()))


@pytest.mark.parametrize("sampling", ["weight", "local"])
def test_output_moments(kind: str, sampling: str) -> None:
    layer, n = make(kind, sampling=sampling, rho_init=-3.0), 4000
    x = torch.randn(INPUTS[kind])
    with torch.no_grad():
        mean, variance = analytic_moments(kind, layer, x)
        drawn = torch.stack([layer(x) for _ in range(n)])
    # 5 standard errors: of the mean, and of a Gaussian's sample variance
    assert ((drawn.mean(0) - mean).abs() < 5 * (variance / n).sqrt()).all()
    error = (drawn.var(0) / variance - 1).abs()
    assert (error < 5 * math.sqrt(2 / (n - 1))).all()


def test_weight_sampling_shares_one_draw_over_the_batch_and_local_does_not() -> None:
    x = torch.randn(1, 7).expand(50, 7)
    assert make("linear", sampling="weight")(x).std(0).max() < 1e-5
    assert make("linear", sampling="local")(x).std(0).min() > 1e-3


@pytest.mark.parametrize("sampling", ["weight", "local"])
def test_without_sampling_the_layer_is_its_mean(kind: str, sampling: str) -> None:
    layer, x = make(kind, sampling=sampling), torch.randn(INPUTS[kind])
    mean, _ = analytic_moments(kind, layer, x)
    assert torch.equal(layer.mean(x), mean)
    assert not torch.allclose(layer(x), mean)


def test_moments_are_the_analytic_ones() -> None:
    layer, x = make("linear"), torch.randn(6, 7)
    mean, variance = (moment.t() for moment in layer.moments(x))
    sigma = (layer.rho / 2).exp()
    weight, bias = layer.split(sigma**2)
    by_hand = torch.stack([(x[i] ** 2 * weight).sum(1) + bias for i in range(6)])
    torch.testing.assert_close(variance, by_hand)
    torch.testing.assert_close(mean, layer.mean(x))


@pytest.mark.parametrize("sampling", ["weight", "local"])
def test_gradients_against_finite_differences(kind: str, sampling: str) -> None:
    """Plain formulas, float64, fixed noise: forward and KL in mu and rho."""
    layer = make(kind, sampling=sampling).double()
    x = torch.randn(INPUTS[kind], dtype=torch.double, requires_grad=True)
    noises: dict[torch.Size, Tensor] = {}

    def fixed(like: Tensor) -> Tensor:
        if like.shape not in noises:
            noises[like.shape] = torch.randn(like.shape, dtype=torch.double)
        return noises[like.shape]

    def call(mu: Tensor, rho: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        tensors = {"mu": mu, "rho": rho}
        out = torch.func.functional_call(layer, tensors, (x,))
        parts = [rho - layer.prior_rho, (mu - layer.prior_mu) ** 2]
        kl = (parts[0].exp() + parts[1] / layer.prior_rho.exp() - 1 - parts[0]).sum()
        return out, kl / 2

    with patch("torch.randn_like", fixed):
        assert torch.autograd.gradcheck(call, (layer.mu, layer.rho, x))
    layer.kl().backward()
    expected = torch.autograd.grad(call(layer.mu, layer.rho, x)[1], [layer.mu, layer.rho])
    torch.testing.assert_close(layer.mu.grad, expected[0])
    torch.testing.assert_close(layer.rho.grad, expected[1])


# ---------------------------------------------------- SNR, initialisation, persistence


def test_snr_is_mean_over_deviation_of_the_weights(kind: str) -> None:
    layer = make(kind)
    snr = layer.snr()
    assert snr.shape == layer.shape
    for place, (m, r) in enumerate(zip(layer.mu, layer.rho, strict=True)):
        if place == snr.numel():
            break  # biases have no part in Eq. 4
        expected = abs(m.item()) / math.exp(r.item() / 2)
        assert snr.flatten()[place].item() == pytest.approx(expected, rel=1e-5)


def test_normal_initialisation() -> None:
    normal = settings(mu_init="normal", mu_scale=0.1, rho_init=-3.0, prior_var=0.25)
    layer = core.BayesLinear(200, 100, normal)
    n = len(layer.mu)
    assert n == 200 * 100 + 100
    assert abs(layer.mu.mean().item()) < 5 * 0.1 / math.sqrt(n)
    assert layer.mu.std().item() == pytest.approx(0.1, rel=5 / math.sqrt(2 * n))
    assert (layer.rho == -3.0).all()
    assert (layer.prior_mu == 0).all()
    torch.testing.assert_close(layer.prior_rho.exp(), torch.full((n,), 0.25))


@pytest.mark.parametrize(("kind", "fan_in"), [("linear", 400), ("conv", 36 * 9)])
def test_fan_in_initialisation(kind: str, fan_in: int) -> None:
    he = settings(mu_init="fan-in", rho_init=-6.0)
    layer = core.BayesLinear(400, 60, he) if kind == "linear" else core.BayesConv2d(36, 60, he)
    weight, bias = layer.split(layer.mu.detach())
    n = weight.numel()
    expected = math.sqrt(2 / fan_in)
    assert weight.std().item() == pytest.approx(expected, rel=5 / math.sqrt(2 * n))
    assert (bias == 0).all()
    assert (layer.rho == -6.0).all()


def test_two_layers_start_differently(kind: str) -> None:
    one, other = (KINDS[kind](settings()) for _ in range(2))
    assert not torch.equal(one.mu, other.mu)


def test_state_dict_round_trip(kind: str) -> None:
    """All four vectors persist, the prior too."""
    layer, copy = make(kind), make(kind)
    state = layer.state_dict()
    assert set(state) == {"mu", "rho", "prior_mu", "prior_rho"}
    assert not torch.equal(layer.mu, copy.mu)
    copy.load_state_dict(state)
    assert all(torch.equal(getattr(layer, k), getattr(copy, k)) for k in state)
    assert copy.kl().item() == layer.kl().item()


def test_reinitialise_changes_what_the_mask_says_and_nothing_else(kind: str) -> None:
    layer = make(kind)
    before = {k: v.clone() for k, v in layer.state_dict().items()}
    mask = torch.rand(layer.shape) < 0.4
    layer.reinitialise(mask)
    for name, old in before.items():
        (new_w, new_b), (old_w, old_b) = (
            layer.split(v) for v in (getattr(layer, name).detach(), old)
        )
        assert torch.equal(new_w[~mask], old_w[~mask]) and torch.equal(new_b, old_b)
        assert (new_w[mask] != old_w[mask]).all()
    assert (layer.split(layer.rho)[0][mask] == layer.settings.rho_init).all()
    assert (layer.split(layer.prior_mu)[0][mask] == 0).all()
    assert isinstance(layer.mu, torch.nn.Parameter) and layer.mu.requires_grad


def test_reinitialised_means_are_normal() -> None:
    """Eq. 4's fresh weights are draws, not a constant."""
    layer = core.BayesLinear(100, 100, settings(mu_init="normal", mu_scale=0.3))
    layer.reinitialise(torch.ones(layer.shape, dtype=torch.bool))
    weight = layer.split(layer.mu.detach())[0]
    assert weight.std().item() == pytest.approx(0.3, rel=5 / math.sqrt(2 * 10_000))
    assert weight.unique().numel() > 9_000


# ---------------------------------------------------------------------------- growing


def grown(layer: core.BayesLayer, extra_out: int, extra_in: int, zero: bool) -> None:
    shape, before = layer.shape, tiny.snapshot(layer)
    layer.grow(extra_out, extra_in, zero)
    check_grown(layer, shape, before, zero)


def exact(layer: core.BayesLayer, x: Tensor) -> Tensor:
    """Its mean function in float64, so that only the order of sums can differ."""
    return copy.deepcopy(layer).double().mean(layer.prepare(x.double()))


@pytest.mark.parametrize("zero", [True, False])
def test_a_convolution_grows_channels_both_ways(zero: bool) -> None:
    """New output channels join; with zero columns the old ones compute what they did."""
    layer, x = make("conv"), torch.randn(2, 3, 5, 5)
    before = exact(layer, x)
    grown(layer, 2, 1, zero)
    assert layer.shape == (6, 4, 3, 3)
    after = exact(layer, torch.cat([x, torch.randn(2, 1, 5, 5)], 1))
    assert after.shape == (2, 6, 5, 5) and (after[:, 4:] != 0).all()
    assert torch.allclose(after[:, :4], before, rtol=1e-10, atol=1e-10) == zero
    assert layer.kl().isfinite() and layer.snr().shape == layer.shape


@pytest.mark.parametrize("zero", [True, False])
def test_a_linear_layer_after_a_flattened_convolution_has_many_columns_a_channel(
    zero: bool,
) -> None:
    """A new channel of 2 x 2 pixels is four new columns, and they come last."""
    layer, x = core.BayesLinear(3 * 4, 5, settings(), unit=4), torch.randn(6, 3, 2, 2)
    before = exact(layer, x)
    grown(layer, 1, 2, zero)
    assert layer.shape == (6, 5 * 4)
    after = exact(layer, torch.cat([x, torch.randn(6, 2, 2, 2)], 1))
    assert torch.allclose(after[:, :5], before, rtol=1e-10, atol=1e-10) == zero


def test_a_unit_is_a_neuron_or_the_mean_of_a_channel(kind: str) -> None:
    """What Eq. 5 compares: a number a unit."""
    layer, x = make(kind), torch.randn(INPUTS[kind])
    out = layer.mean(x)
    units = layer.per_unit(out)
    assert units.shape == out.shape[:2]
    if kind == "conv":
        by_hand = [[channel.sum().item() / 25 for channel in image] for image in out]
        out = torch.tensor(by_hand)
    torch.testing.assert_close(units, out)
