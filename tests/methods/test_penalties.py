"""EWC, LP, SI and RWalk against loops, exact posteriors and numbers worked by hand."""

from __future__ import annotations

from typing import Any

import field
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rclcpb.method import samples, seeded
from rclcpb.methods.network import Batch, PlainNet
from rclcpb.methods.penalties import LP, SI, squared_gradients


def by_loop(net: nn.Module, x: Tensor, y: Tensor, shown: Any = slice(None)) -> dict[str, Tensor]:
    """The squared gradients of one image after another."""
    total = {name: torch.zeros_like(p) for name, p in net.named_parameters()}
    for image, label in zip(x, y, strict=True):
        loss = F.cross_entropy(net(image[None])[:, shown], label[None])
        gradients = torch.autograd.grad(loss, list(net.parameters()))
        for square, gradient in zip(total.values(), gradients, strict=True):
            square += gradient**2
    return total


@pytest.mark.parametrize("trunk", [False, True])
def test_squared_gradients_are_each_images_own(trunk: bool) -> None:
    net = PlainNet((3, 8, 8) if trunk else (1, 6, 6), (10, 8), trunk, 4)
    x, y = torch.randn(9, 3, 8, 8) if trunk else torch.randn(9, 36), torch.randint(4, (9,))
    found = squared_gradients(net, x, lambda out: F.cross_entropy(out, y, reduction="sum"))
    expected = by_loop(net, x, y)
    assert found.keys() == expected.keys()
    for name in expected:
        assert torch.allclose(found[name], expected[name], rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("mask", ["all", "own"])
def test_the_fisher_is_a_mean_over_answers_drawn_from_the_network(mask: str) -> None:
    method = field.learn("ewc", "single", tasks=2, mask=mask)
    data, shown = samples(method.scenario, 1, "train"), slice(2 * (mask == "own"), 4)
    with seeded(3, 1, "fisher"), torch.no_grad():
        y = torch.multinomial(method.net(data.x)[:, shown].softmax(1), 1)[:, 0]
    expected = by_loop(method.net, data.x, y, shown)
    for name, fisher in method.importance(1).items():
        assert torch.allclose(fisher, expected[name] / len(y), rtol=1e-3, atol=1e-8)


@pytest.mark.parametrize(("name", "keep"), [("ewc", 1.0), ("ewc-online", 0.9)])
def test_the_penaltys_gradient_is_that_of_its_formula(name: str, keep: float) -> None:
    method = field.make(name, strength=3.0, keep=keep)
    field.begin(method, 0)
    parameters = dict(method.net.named_parameters())
    past: dict[str, list[tuple[Tensor, Tensor]]] = {key: [] for key in parameters}
    for _ in range(3):
        for key, p in parameters.items():
            p.data.normal_()
            past[key].append((torch.rand_like(p), p.detach().clone()))
            method.consolidate(key, past[key][-1][1], past[key][-1][0])
    expected = {}
    for key, p in parameters.items():
        p.data.normal_()
        p.grad = torch.zeros_like(p)
        newest = past[key][-1][1]
        terms = [
            keep ** (2 - j) * fisher * (p - (theta if name == "ewc" else newest)) ** 2
            for j, (fisher, theta) in enumerate(past[key])
        ]
        (expected[key],) = torch.autograd.grad(3.0 / 2 * torch.stack(terms).sum(), p)
    method.change_gradients(1)
    for key, p in parameters.items():
        assert torch.allclose(p.grad, expected[key], rtol=1e-4, atol=1e-4)


def test_new_output_rows_have_no_past() -> None:
    method = field.learn("ewc", "single", tasks=2)
    field.begin(method, 2)
    precision = method.kept["precision.output.weight"]
    assert precision.shape == (6, 8) and not precision[4:].any() and precision[:4].any()


class Line(LP):
    """y = theta x + noise of variance 1: a posterior that is known exactly."""

    def network(self) -> nn.Module:
        net = nn.Linear(4, 1, bias=False).double()
        net.widen = lambda outputs: None
        return net

    def loss(self, t: int, batch: Batch) -> Tensor:
        return (self.net(batch.x)[:, 0] - batch.y).square().mean() / 2


def test_lp_is_exact_where_the_posterior_is_gaussian(monkeypatch: pytest.MonkeyPatch) -> None:
    method = Line(field.make("lp").scenario, field.settings(strength=1.0, lr=0.05))
    precision, pull = torch.ones(4).double(), torch.zeros(4).double()  # of N(0, 1)
    for t in range(3):
        n = len(method.scenario.tasks[t].y_train)
        x = torch.linalg.qr(torch.randn(n, 4).double())[0] * torch.tensor([1.0, 3.0, 5.0, 7.0])
        y = x @ torch.randn(4).double() + torch.randn(n).double()
        precision, pull = precision + x.square().sum(0), pull + x.T @ y
        field.begin(method, t)
        method.optimizer = method.adam()
        for step in range(1500):
            method.optimizer.param_groups[0]["lr"] = 0.05 * 0.995**step
            method.step(t, Batch(x, y, torch.zeros(n)))
        fisher = {"weight": x.square().mean(0, keepdim=True)}
        monkeypatch.setattr("rclcpb.methods.penalties.Penalty.importance", lambda *_, f=fisher: f)
        method.end(t)
        assert torch.allclose(method.kept["precision.weight"][0], precision)
        assert torch.allclose(method.kept["anchor.weight"][0], pull / precision, atol=1e-5)


class Bowl(SI):
    """A loss that is a parabola in every weight: sum of c theta^2 / 2."""

    def loss(self, t: int, batch: Batch) -> Tensor:
        return sum((c * p.square()).sum() / 2 for c, p in self.curves())

    def curves(self) -> list[tuple[float, Tensor]]:
        return [(1.0 + i, p) for i, p in enumerate(self.net.parameters())]


@pytest.mark.parametrize("strength", [0.0, 50.0])
def test_sis_path_adds_up_to_the_fall_of_the_tasks_loss(strength: float) -> None:
    method = Bowl(field.make("si").scenario, field.settings(strength=strength, lr=1e-4))
    field.begin(method, 0)
    for key in [key for key in method.kept if key.startswith("precision")]:
        method.kept[key] += 0.1  # a pull towards 1, which is no merit of the weights
        method.kept[key.replace("precision", "anchor")] += 1
    starts = [p.detach().clone() for p in method.net.parameters()]
    method.optimizer = method.adam()
    for _ in range(300):
        method.step(0, field.first_batch(method, 0))
    names = [name for name, _ in method.net.named_parameters()]
    for name, start, (c, p) in zip(names, starts, method.curves(), strict=True):
        fall = c / 2 * (start.square() - p.detach().square())  # each weight's own
        assert torch.allclose(method.kept[f"path.{name}"], fall, rtol=0.05, atol=1e-4)
        omega = 2 * fall.clamp_min(0) / ((p.detach() - start) ** 2 + method.config.damping)
        assert torch.allclose(method.importance(0)[name], omega, rtol=0.06, atol=0.05)


def test_rwalks_score_by_hand() -> None:
    """Way 0.5, Fisher 0.4: half of it times the way squared is 0.05; path 0.2, damping 0.05."""
    method = field.make("rwalk", damping=0.05)
    field.begin(method, 0)
    for name, p in method.net.named_parameters():
        method.kept[f"start.{name}"] = p.detach() - 0.5
        method.kept[f"fisher.{name}"].fill_(0.4)
        method.kept[f"path.{name}"].fill_(0.2)
    method.kept["path.output.bias"].fill_(-0.2)
    method.close_interval()
    scores = {name: method.kept[f"score.{name}"] for name, _ in method.net.named_parameters()}
    assert scores.pop("output.bias").eq(0).all()
    assert all(torch.allclose(score, torch.tensor(2.0)) for score in scores.values())
    assert not method.kept["path.output.weight"].any()
    found = method.importance(0)  # each kind at most 1; the scores are halved for later
    assert found["output.bias"].tolist() == [1, 1]
    assert torch.allclose(found["output.weight"], torch.tensor(2.0))
    assert torch.allclose(method.kept["score.output.weight"], torch.tensor(1.0))


def test_rwalks_fisher_follows_each_batch() -> None:
    method = field.make("rwalk", keep=0.75)
    field.begin(method, 0)
    batch, method.optimizer, method.since = field.first_batch(method, 0), method.adam(), 0
    expected = by_loop(method.net, batch.x, batch.y)
    method.step(0, batch)
    for name, squares in expected.items():
        assert torch.allclose(method.kept[f"fisher.{name}"], 0.25 * squares / 16, rtol=1e-3)


@pytest.mark.parametrize("memory", [0, 6])
def test_rwalk_with_and_without_stored_images(memory: int) -> None:
    method = field.learn("rwalk", memory=memory)
    assert method.stored() == 3 * memory
