"""Measures of a run beside the paper's Eq. 9, which is in rclcpb_core.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor


def score(probabilities: Tensor, y: Tensor, bins: int = 15) -> tuple[float, float, float]:
    """Accuracy, negative log-likelihood and expected calibration error."""
    confidence, answer = probabilities.max(1)
    right = (answer == y).float()
    nll = -probabilities.gather(1, y[:, None]).clamp_min(1e-12).log().mean()
    place = (confidence * bins).long().clamp(0, bins - 1)  # 0 for a NaN
    gap = confidence.new_zeros(bins).index_add_(0, place, right - confidence)
    return right.mean().item(), nll.item(), (gap.abs().sum() / len(y)).item()


def forgetting(accuracy: Sequence[Sequence[float]]) -> float:
    """How far each old task fell from its best, on average."""
    last = len(accuracy) - 1
    falls = [max(accuracy[i][j] for i in range(j, last)) - accuracy[last][j] for j in range(last)]
    return float(np.mean(falls)) if falls else 0.0


def backward_transfer(accuracy: Sequence[Sequence[float]]) -> float:
    """BWT: what the tasks after it did to each task, on average."""
    last = len(accuracy) - 1
    moves = [accuracy[last][j] - accuracy[j][j] for j in range(last)]
    return float(np.mean(moves)) if moves else 0.0


def forward_transfer(zero_shot: Sequence[float], chance: Sequence[float]) -> float:
    """FWT: accuracy on a task just before it is learned, above chance."""
    gains = [z - c for z, c in zip(zero_shot[1:], chance[1:], strict=True)]
    return float(np.mean(gains)) if gains else 0.0


def utilisation(net: Any, config: Any) -> list[float]:
    """The share of each hidden layer's weights that are significant, SNR >= beta."""
    return [
        (layer.snr() >= config.threshold("beta", k)).float().mean().item()
        for k, layer in enumerate(net.growable)
    ]
