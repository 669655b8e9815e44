"""Natural-gradient steps: exact posteriors, the two samplers, and what Adam reaches."""

from __future__ import annotations

from typing import Any

import pytest
import tiny
import torch
from torch import Tensor

import rclcpb_core as core
from rclcpb import presets, runner
from rclcpb.files import RclCpbError


class Regression:
    """A Bayesian linear regression with noise of variance 1, its Eq. 8 in closed form.

    The inputs' columns are orthogonal, so that the exact posterior is diagonal as q is.
    """

    def __init__(self, n: int = 60, inputs: int = 5) -> None:
        settings = core.Config(rho_init=-2.0, mu_init="fan-in").layer_settings()
        self.layer = core.BayesLinear(inputs, 1, settings)
        ones = torch.ones(n, 1) / n**0.5  # the bias is a column, too
        columns = torch.linalg.qr(torch.cat([ones, torch.randn(n, inputs)], 1))[0][:, 1:]
        self.x = columns * torch.tensor([1.0, 3.0, 10.0, 30.0, 0.1])
        self.y = self.x @ torch.randn(inputs, 1) + 0.7 + torch.randn(n, 1)
        whole = torch.cat([self.x, torch.ones(n, 1)], 1)
        self.gram, self.target = whole.t() @ whole, (whole.t() @ self.y)[:, 0]
        self.mus, self.rhos = [self.layer.mu], [self.layer.rho]

    def gradients(self, kl_weight: float) -> None:
        """Of -E[log p] / N + KL / N: in closed form, held against autograd by a test below."""
        layer, n = self.layer, len(self.x)
        with torch.no_grad():
            variance, prior = layer.rho.exp(), layer.prior_rho.exp()
            pull = (layer.mu - layer.prior_mu) / prior
            layer.mu.grad = (self.gram @ layer.mu - self.target) / n + kl_weight * pull
            kl = kl_weight * (variance / prior - 1) / 2
            layer.rho.grad = self.gram.diag() * variance / 2 / n + kl

    def loss(self, kl_weight: float) -> Tensor:
        mean, variance = self.layer.moments(self.x)
        nll = ((mean.t() - self.y).square() + variance.t()).sum() / 2 / len(self.x)
        return nll + kl_weight * self.layer.kl()

    def exact(self) -> tuple[Tensor, Tensor]:
        """Mean and variance of the posterior, from the normal equations."""
        layer = self.layer
        precision = torch.diag(1 / layer.prior_rho.double().exp()) + self.gram.double()
        pulled = layer.prior_mu.double() / layer.prior_rho.double().exp()
        mean = torch.linalg.solve(precision, pulled + self.target.double())
        return mean, 1 / torch.diag(precision)


def test_the_regression_s_gradients_are_autograd_s() -> None:
    torch.manual_seed(3)
    problem = Regression()
    problem.loss(0.02).backward()
    by_autograd = problem.layer.mu.grad.clone(), problem.layer.rho.grad.clone()
    problem.gradients(0.02)
    torch.testing.assert_close(problem.layer.mu.grad, by_autograd[0])
    torch.testing.assert_close(problem.layer.rho.grad, by_autograd[1])


@pytest.mark.parametrize("second", [False, True])
def test_the_posterior_of_a_linear_regression_is_exact(second: bool) -> None:
    """Also where the prior is an older posterior with means and widths of its own."""
    torch.manual_seed(3)
    problem = Regression()
    if second:
        problem.layer.prior_mu.normal_()
        problem.layer.prior_rho.uniform_(-4, 1)
    weight = 1 / len(problem.x)
    optimizer: Any = core.Natural(problem, 0.1, 0.9, weight)  # type: ignore[arg-type]
    for _ in range(12000):
        problem.gradients(weight)
        optimizer.step()
    mean, variance = problem.exact()
    torch.testing.assert_close(problem.layer.mu.double(), mean, atol=1e-3, rtol=1e-3)
    torch.testing.assert_close(problem.layer.rho.double().exp(), variance, atol=1e-3, rtol=1e-3)


def test_adam_is_far_from_it_after_as_many_steps() -> None:
    """The control: at the presets' rate, the widths are not where the data put them."""
    torch.manual_seed(3)
    problem = Regression()
    weight = 1 / len(problem.x)
    optimizer = core.adam(problem, 1e-3, 1e-3)  # type: ignore[arg-type]
    for _ in range(2000):
        problem.gradients(weight)
        optimizer.step()
    _, variance = problem.exact()
    assert (problem.layer.rho.double() - variance.log()).abs().max() > 0.5


def test_a_step_is_the_gradient_over_the_fisher_information() -> None:
    """Of N(mu, v): 1 / v in mu and 1 / 2 in rho; by hand, for the first step."""
    torch.manual_seed(0)
    problem = Regression()
    weight, mu, rho = 1 / 60, problem.layer.mu.clone(), problem.layer.rho.clone()
    problem.gradients(weight)
    g_mu, g_rho = problem.layer.mu.grad.clone(), problem.layer.rho.grad.clone()
    core.Natural(problem, 1e-4, 1e-4, weight).step()  # type: ignore[arg-type]
    rate = 1 / (1 + 1e4)
    new_rho = rho - (2 * g_rho / weight * rate).clamp(-1, 1)
    torch.testing.assert_close(problem.layer.rho.detach(), new_rho)
    step = (g_mu * new_rho.exp() / weight).clamp(-0.3, 0.3)
    torch.testing.assert_close(problem.layer.mu.detach(), mu - 1e-4 * step)


def test_the_two_samplers_have_the_same_mean_gradient() -> None:
    """Weights drawn or outputs drawn: noise differs, what a step does on average does not."""
    torch.manual_seed(0)
    means, errors = [], []
    net = tiny.network(tiny.config(rho_init=-3.0), spread=False)
    part = core.Samples(tiny.inputs(net, 6), torch.randint(2, (6,)), 1)
    for local in (False, True):
        for layer in (*net.hidden, *net.heads):
            layer.local = local
        plain, draws = core.PlainPosterior(net, [1]), []
        for _ in range(800):
            plain.gradients([part], 0.01)
            draws.append(torch.cat([p.grad.flatten() for p in (*plain.mus, *plain.rhos)]))
        drawn = torch.stack(draws)
        means.append(drawn.mean(0))
        errors.append(drawn.var(0) / len(drawn))
    deviation = (means[0] - means[1]) / (errors[0] + errors[1]).sqrt().clamp_min(1e-9)
    assert deviation.square().mean() < 1.3  # 1 if they are the same
    assert deviation.abs().max() < 6
    assert means[0].abs().max() > 0.01


def test_its_evidence_bound_is_no_worse_than_adams() -> None:
    """On 5,000 digits, first task: Eq. 8 at the end, each with rates as the presets have them."""
    scenario = presets.make_scenario("mh-smnist-5k")
    one = runner.Scenario("one", scenario.tasks[:1], "multi")
    shared: dict[str, Any] = {"hidden": (20, 20), "sampling": "local", "coreset": 0}
    shared |= {"replay": False, "epochs": 30, "batch_size": 64, "decay": True}
    adam = core.Config(lr_mu=3e-3, lr_rho=3e-3, **shared)
    natural = core.Config(optimiser="natural", lr_mu=0.02, lr_rho=0.02, **shared)
    bounds = []
    for config in (adam, natural):
        record = runner.learn(one, config)
        n = len(one.tasks[0].y_train)
        bounds.append(record.train_nll[0] * n + record.train_kl[0])
    assert bounds[1] < bounds[0]


def test_a_fit_without_kl_is_adams() -> None:
    """Without KL there is no precision to divide by: replay at weight 0 is as ever."""
    config = tiny.config(optimiser="natural", lr_rho=0.02, lr_mu=0.02, replay_kl=0.0)
    record = runner.learn(tiny.scenario(), config)
    assert core.average_accuracy(record.accuracy) > 0.5


def test_training_without_kl_is_refused() -> None:
    with pytest.raises(RclCpbError, match="kl_weight"):
        core.Config(optimiser="natural", kl_weight=0.0)
