"""What the other methods share: their settings and a network with plain weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rclcpb.files import RclCpbError
from rclcpb.method import Shape
from rclcpb.settings import Settings
from rclcpb_core import TRUNK


@dataclass(frozen=True)
class PlainConfig(Settings):
    """Everything a run depends on besides its method, scenario and seed.

    One class serves the family; a method ignores what is not its own. All choices are
    ours unless a comment names the method's authors.
    """

    # every method
    hidden: tuple[int, ...] = (100, 100)  #: neurons of the hidden layers; pnn: of each column
    epochs: int = 10  #: passes over a task's images; joint: over those of all tasks so far
    batch_size: int = 128
    lr: float = 1e-3  #: Adam's rate
    decay: bool = True  #: the rate falls linearly towards 0 within each task
    mask: Literal["all", "own"] = "all"  #: single head: outputs in the loss, all or the task's own
    # er, der++, rwalk, gem and icarl
    memory: int = 0  #: images stored a task
    final_steps: int = 0  #: steps on the stored images alone at the end of each task
    # er, der++ and rwalk
    beta: float = 1.0  #: weight of the stored labels' loss (der++: its authors' 0.5 or 1)
    # der++
    alpha: float = 0.5  #: weight of the stored logits' loss (its authors' 0.1 to 1)
    # ewc, ewc-online, lp, si and rwalk
    strength: float = 100.0  #: of the penalty; lp: 1 is Bayes' own
    # ewc-online and rwalk
    keep: float = 0.9  #: the older Fisher's share: ewc-online a task, rwalk a step
    # si and rwalk
    damping: float = 1e-3  #: keeps their quotients finite: si's authors' xi, rwalk's epsilon
    # gem
    margin: float = 0.5  #: its authors' 0.5: how far the step leans towards the older tasks
    # icarl
    distillation: float = 1.0  #: weight of the old network's outputs as targets; its authors' 1

    POSITIVE: ClassVar[tuple[str, ...]] = ("hidden", "epochs", "batch_size", "lr", "damping")
    NOT_NEGATIVE: ClassVar[tuple[str, ...]] = (
        *("memory", "final_steps", "alpha", "beta", "strength", "keep", "margin", "distillation"),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.keep > 1:
            raise RclCpbError(f"keep={self.keep}: a share is at most 1.")


def he(layer: nn.Linear | nn.Conv2d) -> Any:
    """Fan-in (He) initialisation: N(0, 2 / inputs), biases at 0."""
    nn.init.normal_(layer.weight, std=math.sqrt(2 / layer.weight[0].numel()))
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return layer


def linear(n_in: int, n_out: int) -> Any:
    """A fully connected layer, in single precision whatever torch's default is."""
    return he(nn.Linear(n_in, n_out, dtype=torch.float32))


def convolution(n_in: int, n_out: int) -> Any:
    """A 3 x 3 convolution that keeps the size."""
    return he(nn.Conv2d(n_in, n_out, 3, padding=1, dtype=torch.float32))


def pooled(layer: nn.Module, x: Tensor) -> Tensor:
    """A layer of the trunk: convolution, pooling, ReLU."""
    return F.relu(F.max_pool2d(layer(x), 2))


def trunk_size(image_shape: Shape, trunk: bool) -> int:
    """How many numbers the first hidden layer gets."""
    channels, height, width = image_shape
    if not trunk:
        return channels * height * width
    halvings = 2 ** len(TRUNK)
    return TRUNK[-1] * (height // halvings) * (width // halvings)


class Batch(NamedTuple):
    """Images, which rows of the output layer are right, and which task each is from."""

    x: Tensor
    y: Tensor
    task: Tensor

    def at(self, index: Tensor) -> Batch:
        """Some of the images."""
        return Batch(self.x[index], self.y[index], self.task[index])

    @staticmethod
    def join(parts: Sequence[Batch]) -> Batch:
        return Batch(*(torch.cat(part) for part in zip(*parts, strict=True)))


class PlainNet(nn.Module):
    """The deterministic twin of the Bayesian network: trunk, hidden layers, one output layer.

    A head is a block of the output layer's rows: with a head a task, task t's rows come
    after those of the tasks before, and its loss and its answers look at them alone.
    """

    def __init__(
        self, image_shape: Shape, hidden: Sequence[int], trunk: bool, outputs: int
    ) -> None:
        super().__init__()
        channels = (image_shape[0], *TRUNK) if trunk else ()
        self.trunk = nn.ModuleList(convolution(a, b) for a, b in pairwise(channels))
        sizes = (trunk_size(image_shape, trunk), *hidden)
        self.hidden = nn.ModuleList(linear(a, b) for a, b in pairwise(sizes))
        self.output = linear(sizes[-1], outputs)

    def features(self, x: Tensor) -> Tensor:
        """The last hidden layer's activations."""
        for layer in self.trunk:
            x = pooled(layer, x)
        x = x.flatten(1)  # (B, pixels)
        for layer in self.hidden:
            x = F.relu(layer(x))
        return x

    def forward(self, x: Tensor) -> Tensor:
        return self.output(self.features(x))  # (B, outputs)

    @torch.no_grad()
    def widen(self, outputs: int) -> None:
        """Add rows to the output layer until it has so many; the old ones stay as they are."""
        old = self.output
        if outputs == old.out_features:
            return
        self.output = linear(old.in_features, outputs).to(old.weight.device)
        self.output.weight[: old.out_features] = old.weight
        self.output.bias[: old.out_features] = old.bias
