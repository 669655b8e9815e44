"""Progressive networks: a column a task, which reads from all columns before it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rclcpb.files import RclCpbError
from rclcpb.method import Shape
from rclcpb.methods.network import Batch, convolution, linear, pooled, trunk_size
from rclcpb.methods.plain import CHUNK, PlainMethod
from rclcpb.scenarios import Scenario
from rclcpb_core import TRUNK


class Columns(nn.Module):
    """A network a task; layer i of column t reads layer i - 1 of all columns up to t."""

    def __init__(self, image_shape: Shape, hidden: Sequence[int], trunk: bool) -> None:
        super().__init__()
        self.image_shape, self.hidden, self.trunk = image_shape, tuple(hidden), trunk
        self.columns = nn.ModuleList()

    def add(self, classes: int) -> None:
        """A new column, as wide as all others; the older ones learn no more."""
        self.requires_grad_(False)
        read = len(self.columns) + 1  # columns that each layer but the first reads from
        layers = []
        if self.trunk:
            layers += [convolution(self.image_shape[0], TRUNK[0])]
            layers += [convolution(read * a, b) for a, b in pairwise(TRUNK)]
        inputs = trunk_size(self.image_shape, self.trunk) * (read if self.trunk else 1)
        for width in (*self.hidden, classes):
            layers.append(linear(inputs, width))
            inputs = read * width
        self.columns.append(nn.ModuleList(layers))

    def forward(self, x: Tensor, t: int) -> Tensor:
        """Task t's logits; the columns after t have no part in them."""
        columns: list[Any] = list(self.columns)[: t + 1]
        active = [x]  # of each column, one layer's activations; all read the same image
        for depth in range(len(columns[0]) - 1):
            read = [torch.cat(active[: c + 1], 1) for c in range(t + 1)]
            active = [self.layer(column[depth], h) for column, h in zip(columns, read, strict=True)]
        return columns[t][-1](torch.cat(active, 1).flatten(1))  # (B, classes)

    @staticmethod
    def layer(layer: nn.Module, x: Tensor) -> Tensor:
        return pooled(layer, x) if isinstance(layer, nn.Conv2d) else F.relu(layer(x.flatten(1)))


class PNN(PlainMethod):
    """Progressive neural network: nothing is forgotten, for nothing old is touched.

    h_i^t = relu(W_i^t h_{i-1}^t + sum over k < t of U_i^{k:t} h_{i-1}^k)

    The W and U of one layer are one matrix on the concatenated activations; column t and
    its head are trained on task t and then frozen. Which column answers is the task's
    label: a scenario with one head cannot be had.
    """

    def __init__(self, scenario: Scenario, config: Any, seed: int = 0, device: Any = "cpu") -> None:
        if scenario.heads == "single":
            raise RclCpbError(
                f"pnn needs to be told the task of each image, and {scenario.name!r} has one head"
                " for all: choose a scenario with a head a task."
            )
        super().__init__(scenario, config, seed, device)

    def network(self) -> nn.Module:
        net = Columns(self.scenario.image_shape(), self.config.hidden, self.scenario.trunk)
        net.add(self.outputs(0))
        return net.to(self.device)

    def enlarge(self, t: int) -> None:
        for j in range(len(self.net.columns), t + 1):
            self.net.add(len(self.scenario.tasks[j].classes))
        self.net.to(self.device)

    def loss(self, t: int, batch: Batch) -> Tensor:
        return F.cross_entropy(self.net(batch.x, t), batch.y - self.offset(t))

    @torch.no_grad()
    def answer(self, j: int, x: Tensor) -> Tensor:
        return torch.cat([self.net(part, j) for part in x.split(CHUNK)]).softmax(1)

    def unchanged(self, j: int) -> bool:
        return j < self.task

    def notes(self) -> dict[str, Any]:
        return {"hidden": [width * len(self.net.columns) for width in self.config.hidden]}
