"""Replay: stored images, or the network's answers to them, beside every batch: ER and DER++."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from rclcpb.methods.network import Batch
from rclcpb.methods.plain import PlainMethod


class ER(PlainMethod):
    """Experience replay: a batch of stored images beside every batch of the task.

    L(theta) = L_t(batch) + beta L_M(stored batch)
    """

    stores = needs_memory = True

    def loss(self, t: int, batch: Batch) -> Tensor:
        loss = super().loss(t, batch)
        if not self.tasks_stored():
            return loss
        stored = self.memory().at(self.draw())
        return loss + self.config.beta * self.cross_entropy(stored, self.config.mask == "own")


class DERpp(ER):
    """Dark experience replay ++: the stored images' logits are targets, too.

    L(theta) = L_t(batch) + beta L_M(stored batch) + alpha mean (f(x; theta) - z)^2,
    z = f(x; theta_j) being what the network said of x at the end of its task j, for the
    outputs that it had then.
    """

    STORED = ("memory", "logits")

    def loss(self, t: int, batch: Batch) -> Tensor:
        loss = super().loss(t, batch)
        if not (self.tasks_stored() and self.config.alpha):
            return loss
        index = self.draw()
        logits = self.net(self.memory().x[index])  # (B, outputs)
        gap = logits - self.stored_logits()[index]
        return loss + self.config.alpha * gap[~gap.isnan()].square().mean()

    def stored_logits(self) -> Tensor:
        """z of all stored images; NaN at outputs that came later or are other heads'."""
        parts = [self.kept[f"logits.{j}"] for j in range(self.tasks_stored())]
        missing = [self.outputs(self.task) - part.shape[1] for part in parts]
        padded = [F.pad(p, (0, n), value=math.nan) for p, n in zip(parts, missing, strict=True)]
        return torch.cat(padded)

    def remember(self, t: int) -> None:
        super().remember(t)
        with torch.no_grad():
            logits = self.net(self.fetch(t, self.kept[f"memory.{t}"]).x)
        self.kept[f"logits.{t}"] = logits.masked_fill(~self.visible(False)[t], math.nan)
