"""Penalties on leaving what old tasks need: EWC, online EWC, LP, SI and RWalk."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rclcpb.method import Samples, samples, seeded
from rclcpb.methods.network import Batch
from rclcpb.methods.plain import CHUNK, PlainMethod
from rclcpb.methods.replay import ER


def squared_gradients(
    net: nn.Module, x: Tensor, loss: Callable[[Tensor], Tensor]
) -> dict[str, Tensor]:
    """The sum over images of each image's own squared gradient, for every parameter.

    `loss(outputs)` must be the sum of the images' losses. With a the inputs of a linear
    layer (B, in) and d the gradients at its outputs (B, out), image b's gradient is the
    outer product d_b a_b, and the sum of its squares is (d * d).T @ (a * a). The square
    of the batch's mean gradient is another thing, and much too small.
    """
    seen: dict[str, tuple[nn.Module, Tensor, Tensor]] = {}

    def hook(name: str) -> Callable[[nn.Module, Any, Tensor], None]:
        return lambda layer, inputs, output: seen.update({name: (layer, inputs[0], output)})

    layers = {n: m for n, m in net.named_modules() if isinstance(m, (nn.Linear, nn.Conv2d))}
    handles = [layer.register_forward_hook(hook(name)) for name, layer in layers.items()]
    with torch.enable_grad():
        total = loss(net(x))
    for handle in handles:
        handle.remove()
    gradients = torch.autograd.grad(total, [output for _, _, output in seen.values()])
    squares: dict[str, Tensor] = {}
    for (name, (layer, a, _)), d in zip(seen.items(), gradients, strict=True):
        weight, bias = _layer_squares(layer, a.detach(), d)
        squares |= {f"{name}.weight": weight, f"{name}.bias": bias}
    return squares


def _layer_squares(layer: nn.Module, a: Tensor, d: Tensor) -> tuple[Tensor, Tensor]:
    """One layer's sums for its inputs a and the gradients d at its outputs."""
    if isinstance(layer, nn.Linear):
        return d.square().t() @ a.square(), d.square().sum(0)
    assert isinstance(layer, nn.Conv2d)
    patches = F.unfold(a, (3, 3), padding=1)  # (B, in * 9, H * W)
    each = d.flatten(2) @ patches.mT  # (B, out, in * 9): every image's gradient
    return each.square().sum(0).view_as(layer.weight), d.sum((2, 3)).square().sum(0)


class Penalty(PlainMethod):
    """L(theta) = L_t(theta) + strength / 2 sum_i precision_i (theta_i - anchor_i)^2

    The methods differ in how `end` sets precision and anchor. What is new in a widened
    output layer has precision `prior` around 0.
    """

    prior = 0.0
    KEPT: ClassVar[tuple[str, ...]] = ("precision", "anchor")

    def begin(self, t: int, data: Samples) -> None:
        super().begin(t, data)
        self.widen_kept("precision", self.prior)
        self.widen_kept("anchor", 0.0)

    def widen_kept(self, kind: str, value: float) -> None:
        """Numbers kept for each parameter: those of a new output row are `value`."""
        for name, parameter in self.net.named_parameters():
            wide = torch.full_like(parameter, value)
            old = self.kept.get(f"{kind}.{name}", wide[:0])
            self.kept[f"{kind}.{name}"] = torch.cat([old, wide[len(old) :]])

    def weight(self, t: int) -> float:
        """What the penalty is multiplied with."""
        return self.config.strength

    def change_gradients(self, t: int) -> None:
        """The penalty's gradient, added to the task's: weight * precision * (theta - anchor)."""
        for name, parameter in self.net.named_parameters():
            away = parameter.detach() - self.kept[f"anchor.{name}"]
            parameter.grad.addcmul_(self.kept[f"precision.{name}"], away, value=self.weight(t))

    def end(self, t: int) -> None:
        super().end(t)
        for name, importance in self.importance(t).items():
            self.consolidate(name, self.net.get_parameter(name).detach(), importance)

    def importance(self, t: int) -> dict[str, Tensor]:
        """How much task t needs each weight: the diagonal of its Fisher information.

        F_i = mean over images x of (d log p(y | x) / d theta_i)^2, y drawn from the network.
        """
        data = samples(self.scenario, t, "train", self.device)
        shown = self.visible(self.config.mask == "own")[t]

        def surprise(outputs: Tensor) -> Tensor:
            log_p = outputs[:, shown].log_softmax(1)  # (B, visible)
            y = torch.multinomial(log_p.detach().exp(), 1)
            return -log_p.gather(1, y).sum()

        total = {name: torch.zeros_like(p) for name, p in self.net.named_parameters()}
        with seeded(self.seed, t, "fisher"):
            for x in data.x.split(CHUNK):
                for name, squares in squared_gradients(self.net, x, surprise).items():
                    total[name] += squares / len(data.y)
        return total

    def consolidate(self, name: str, theta: Tensor, importance: Tensor) -> None:
        """The precision and anchor of a parameter, from its old ones and the task's importance."""
        self.kept[f"precision.{name}"] += importance
        self.kept[f"anchor.{name}"] = theta.clone()


class EWC(Penalty):
    """Elastic weight consolidation: a Fisher and an anchor a task.

    strength / 2 sum_j sum_i F_ji (theta_i - theta_ji)^2, a sum of parabolas, which is (but for
    a constant) one: its precision sum_j F_ji, its anchor the mean of theta_ji weighted by F_ji.
    """

    def consolidate(self, name: str, theta: Tensor, importance: Tensor) -> None:
        anchor, precision = self.kept[f"anchor.{name}"], self.kept[f"precision.{name}"]
        precision += importance
        share = torch.where(precision > 0, importance / precision, 1.0)
        self.kept[f"anchor.{name}"] = torch.lerp(anchor, theta, share)


class OnlineEWC(Penalty):
    """EWC with one anchor, the newest, and Fishers that fade: precision = keep precision + F."""

    def consolidate(self, name: str, theta: Tensor, importance: Tensor) -> None:
        self.kept[f"precision.{name}"] *= self.config.keep
        super().consolidate(name, theta, importance)


class LP(Penalty):
    """Laplace propagation: the posterior after each task is a Gaussian around its mode.

    -log p(theta | D_1..t) = N_t L_t(theta) + 1 / 2 (theta - theta_{t-1})^2 precision_{t-1}
    precision_t = precision_{t-1} + strength N_t F_t,  precision_0 = 1 around 0: the prior N(0, 1)

    The log-likelihood's curvature is the Fisher of all N_t images, so strength 1 is Bayes' own.
    The loss is a mean over images: everything is divided by N_t.
    """

    prior = 1.0

    def weight(self, t: int) -> float:
        return 1 / len(self.scenario.tasks[t].y_train)

    def importance(self, t: int) -> dict[str, Tensor]:
        number = self.config.strength / self.weight(t)
        return {name: number * fisher for name, fisher in super().importance(t).items()}


class Path(Penalty):
    """Importance from the way the weights took: -g * step is each one's part in the loss's fall.

    g is the gradient of the task's loss alone; the penalty's pull is no merit of a weight.
    """

    KEPT = (*Penalty.KEPT, "start", "path")

    def begin(self, t: int, data: Samples) -> None:
        super().begin(t, data)
        for name, parameter in self.net.named_parameters():
            self.kept[f"start.{name}"] = parameter.detach().clone()
            self.kept[f"path.{name}"] = torch.zeros_like(parameter)

    def change_gradients(self, t: int) -> None:
        self.gradients = [p.grad.clone() for p in self.net.parameters()]
        super().change_gradients(t)

    def step(self, t: int, batch: Batch) -> Tensor:
        before = [p.detach().clone() for p in self.net.parameters()]
        loss = super().step(t, batch)
        moves = zip(self.net.named_parameters(), before, self.gradients, strict=True)
        for (name, parameter), old, gradient in moves:
            self.kept[f"path.{name}"] -= gradient * (parameter.detach() - old)
        return loss


class SI(Path):
    """Synaptic intelligence: the fall in loss that a weight brought, over its way squared.

    strength sum_i Omega_i (theta_i - theta_{t-1,i})^2,  Omega += max(0, path) / (way^2 + damping)
    """

    def importance(self, t: int) -> dict[str, Tensor]:
        found = {}
        for name, parameter in self.net.named_parameters():
            way = parameter.detach() - self.kept[f"start.{name}"]
            fall = self.kept[f"path.{name}"].clamp_min(0)
            found[name] = 2 * fall / (way.square() + self.config.damping)  # 2: no 1 / 2 above
        return found


class RWalk(Path, ER):
    """Riemannian walk: a Fisher that follows the training, and a score of the way; with a
    memory, stored images in every batch, too.

    strength / 2 sum_i (F_i + s_i) (theta_i - theta_{t-1,i})^2
    F = keep F + (1 - keep) F_batch at each step, per image
    s += max(0, path) / (1 / 2 F way^2 + damping) every INTERVAL steps, halved after each task;
    F and s are divided by their largest numbers, so that neither drowns the other.
    """

    needs_memory = False
    INTERVAL = 50  # its authors'
    KEPT = (*Path.KEPT, "fisher", "score")

    def begin(self, t: int, data: Samples) -> None:
        super().begin(t, data)
        self.widen_kept("fisher", 0.0)
        self.widen_kept("score", 0.0)

    def epoch(self, t: int, data: Samples, done: int) -> float:
        self.since = 0
        nll = super().epoch(t, data, done)
        self.close_interval()
        return nll

    def step(self, t: int, batch: Batch) -> Tensor:
        hidden = ~self.visible(self.config.mask == "own")[batch.task]  # (B, outputs)

        def surprise(outputs: Tensor) -> Tensor:
            return F.cross_entropy(
                outputs.masked_fill(hidden, -torch.inf), batch.y, reduction="sum"
            )

        for name, squares in squared_gradients(self.net, batch.x, surprise).items():
            self.kept[f"fisher.{name}"].lerp_(squares / len(batch.y), 1 - self.config.keep)
        loss = super().step(t, batch)
        self.since += 1
        if self.since == self.INTERVAL:
            self.close_interval()
        return loss

    def close_interval(self) -> None:
        """Score the weights for the steps since the last time; the next interval starts here."""
        self.since = 0
        for name, parameter in self.net.named_parameters():
            way = parameter.detach() - self.kept[f"start.{name}"]
            far = self.kept[f"fisher.{name}"] * way.square() / 2 + self.config.damping
            self.kept[f"score.{name}"] += self.kept[f"path.{name}"].clamp_min(0) / far
            self.kept[f"path.{name}"].zero_()
            self.kept[f"start.{name}"].copy_(parameter.detach())

    def importance(self, t: int) -> dict[str, Tensor]:
        found: dict[str, Tensor] = {}
        for kind in ("fisher", "score"):
            values = {n: self.kept[f"{kind}.{n}"] for n, _ in self.net.named_parameters()}
            largest = max(value.max() for value in values.values()).clamp_min(1e-30)
            for name, value in values.items():
                found[name] = found.get(name, 0) + value / largest
                if kind == "score":
                    value /= 2
        return found

    def consolidate(self, name: str, theta: Tensor, importance: Tensor) -> None:
        self.kept[f"precision.{name}"] = importance
        self.kept[f"anchor.{name}"] = theta.clone()
