"""Metrics, by hand: Eq. 9, forgetting, transfer, likelihood and calibration."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from rclcpb.metrics import backward_transfer, forgetting, forward_transfer, score
from rclcpb_core import average_accuracy


def test_metrics_by_hand() -> None:
    accuracy = [[0.9], [0.6, 0.8], [0.7, 0.5, 1.0]]
    assert average_accuracy(accuracy) == pytest.approx((0.7 + 0.5 + 1.0) / 3)
    # task 1 was best at 0.9 and ends at 0.7; task 2 at 0.8 and ends at 0.5
    assert forgetting(accuracy) == pytest.approx((0.2 + 0.3) / 2)
    assert backward_transfer(accuracy) == pytest.approx((-0.2 - 0.3) / 2)
    # the first task has nothing before it
    gain = forward_transfer([0.1, 0.6, 0.3], [0.5, 0.5, 0.25])
    assert gain == pytest.approx((0.1 + 0.05) / 2)


def test_forgetting_counts_from_the_best_and_transfer_from_the_first() -> None:
    accuracy = [[0.5], [0.9, 0.5], [0.7, 0.6, 1.0]]
    # the best need not be the first: 0.9 - 0.7, and a gain is a negative fall
    assert forgetting(accuracy) == pytest.approx((0.2 - 0.1) / 2)
    assert backward_transfer(accuracy) == pytest.approx((0.2 + 0.1) / 2)


def test_metrics_of_one_task() -> None:
    assert average_accuracy([[0.4]]) == pytest.approx(0.4)
    assert forgetting([[0.4]]) == backward_transfer([[0.4]]) == 0
    assert forward_transfer([0.4], [0.5]) == 0


def test_score_by_hand() -> None:
    """Five answers, four right; in ten bins, 0.95 and 0.91 share one."""
    p = torch.tensor([[0.95, 0.05], [0.91, 0.09], [0.3, 0.7], [0.25, 0.75], [0.55, 0.45]])
    y = torch.tensor([0, 1, 1, 1, 0])
    accuracy, nll, ece = score(p, y, bins=10)
    assert accuracy == pytest.approx(0.8)
    expected = -np.log([0.95, 0.09, 0.7, 0.75, 0.55]).mean()
    assert nll == pytest.approx(expected, rel=1e-5)
    # bin 0.9-1: |1 - 1.86|, bin 0.7-0.8: |2 - 1.45|, bin 0.5-0.6: |1 - 0.55|
    assert ece == pytest.approx((0.86 + 0.55 + 0.45) / 5, rel=1e-4)


def test_score_of_certainty() -> None:
    sure = torch.eye(3)
    assert score(sure, torch.arange(3)) == (1.0, 0.0, 0.0)
    accuracy, nll, ece = score(sure, (torch.arange(3) + 1) % 3)
    assert accuracy == 0 and ece == 1 and math.isfinite(nll) and nll > 20
