"""Gradient episodic memory: no step that old tasks' stored images speak against."""

from __future__ import annotations

import numpy as np
import torch
from scipy.optimize import nnls
from torch import Tensor

from rclcpb.methods.plain import PlainMethod


def dual(gradients: np.ndarray, gradient: np.ndarray, margin: float) -> np.ndarray:
    """min over v >= margin of 1 / 2 |G' v + g|^2, for G (tasks, parameters): GEM's dual.

    With v = u + margin and G G' = R R', it is non-negative least squares in at most as
    many variables as there are old tasks: min over u >= 0 of |R' u + R^-1 G (g + G' margin)|^2.
    """
    gram = gradients @ gradients.T  # (tasks, tasks)
    towards = gradients @ gradient + margin * gram.sum(1)
    gram += 1e-9 * (np.trace(gram) + 1e-12) / len(gram) * np.eye(len(gram))  # equal tasks
    root = np.linalg.cholesky(gram)
    return nnls(root.T, -np.linalg.solve(root, towards))[0] + margin


class GEM(PlainMethod):
    """The step nearest to the task's gradient g that raises no old task's loss.

    min over w of 1 / 2 |g - w|^2  with  G w >= 0,  row j of G the gradient on task j's
    stored images. Solved through its dual: w = g + G' v.
    """

    stores = needs_memory = True

    def change_gradients(self, t: int) -> None:
        if not t:
            return
        parameters = list(self.net.parameters())
        g = torch.cat([p.grad.flatten() for p in parameters])  # (parameters,)
        rows = torch.stack([self.old_gradient(j) for j in range(t)])  # (t, parameters)
        if (rows @ g >= 0).all():
            return
        v = dual(rows.double().cpu().numpy(), g.double().cpu().numpy(), self.config.margin)
        g = g + torch.from_numpy(v).to(g) @ rows
        for p, part in zip(parameters, g.split([p.numel() for p in parameters]), strict=True):
            p.grad.copy_(part.view_as(p))

    def old_gradient(self, j: int) -> Tensor:
        """The gradient of the loss on the stored images of task j."""
        memory = self.memory()
        loss = self.cross_entropy(memory.at(memory.task == j), self.config.mask == "own")
        gradients = torch.autograd.grad(loss, list(self.net.parameters()))
        return torch.cat([gradient.flatten() for gradient in gradients])
