"""Choosing what to store, other than at random: equally many of every class, or medoids."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def by_class(x: Tensor, y: Tensor, size: int, order: Tensor, medoids: bool) -> Tensor:
    """Indices of equally many samples of every class, the first in `order` of each.

    With `medoids`, those nearest to the centres of k-means instead.
    """
    labels, counts = y.unique(return_counts=True)
    chosen: dict[int, Tensor] = {}
    for i in counts.argsort(stable=True).tolist():  # a small class leaves room
        share = min(-(-size // (len(labels) - len(chosen))), int(counts[i]))
        size, mine = size - share, order[y[order] == labels[i]]
        pick = _medoids(x[mine].flatten(1), share) if medoids and share else slice(share)
        chosen[i] = mine[pick]
    return torch.cat([chosen[i] for i in sorted(chosen)])


def _medoids(x: Tensor, size: int, rounds: int = 20) -> Tensor:
    """k-means from the first samples, then the sample nearest to each centre."""
    centres = x[:size].clone()
    for _ in range(rounds):
        nearest = torch.cdist(x, centres).argmin(1)
        sums = torch.zeros_like(centres).index_add_(0, nearest, x)
        counts = torch.bincount(nearest, minlength=size)[:, None]
        centres = torch.where(counts > 0, sums / counts.clamp_min(1), centres)
    distance, chosen = torch.cdist(x, centres), []
    for k in range(size):  # a sample serves one centre only
        chosen.append(int(distance[:, k].argmin()))
        distance[chosen[-1]] = math.inf
    return torch.tensor(chosen, dtype=torch.long, device=x.device)
