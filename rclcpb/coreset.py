"""Choosing what to store, other than at random: equally many of every class, or medoids."""

from __future__ import annotations

import math

import torch
from torch import Tensor

CHOICES = ("random", "balanced", "medoids")


def leaving_one(y: Tensor, order: Tensor) -> Tensor:
    """The order with the last of each class at its end, so that it is left to train on."""
    labels, places = y[order].sort(stable=True)
    last = torch.ones_like(labels, dtype=torch.bool)
    last[:-1] = labels[1:] != labels[:-1]
    kept = torch.empty_like(last).scatter_(0, places, last)
    return order[kept.byte().argsort(stable=True)]


def by_class(
    x: Tensor, y: Tensor, size: int, order: Tensor, medoids: bool, left: int = 1
) -> Tensor:
    """Indices of equally many samples of every class, the first in `order` of each.

    With `medoids`, those nearest to the centres of k-means instead. So many of each class
    are `left` to train on.
    """
    labels, counts = y.unique(return_counts=True)
    chosen: dict[int, Tensor] = {}
    for i in counts.argsort(stable=True).tolist():  # a small class leaves room
        share = min(-(-size // (len(labels) - len(chosen))), int(counts[i]) - left)
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
