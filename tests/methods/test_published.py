"""Recorded runs beside numbers that other papers have for the same protocol."""

from __future__ import annotations

import numpy as np
import pytest

import rclcpb_core as core
from rclcpb.records import RESULTS, load_records

# van de Ven and Tolias (2019), "Three scenarios for continual learning", Table 4: split MNIST,
# five tasks, 20 runs; the paper's own PNN; Chaudhry et al. (2018) for RWalk with heads.
# Theirs have other sizes and other numbers of steps: so much room for each, in points.
PUBLISHED = [
    ("mh-smnist", "ewc", 98.64, 1.0),
    ("mh-smnist", "ewc-online", 99.12, 1.0),
    ("mh-smnist", "si", 99.09, 1.5),
    ("mh-smnist", "joint", 99.66, 0.5),
    ("mh-smnist", "rwalk", 99.3, 1.5),
    ("mh-smnist", "pnn", 99.8, 0.5),
    ("ta-smnist", "ewc,mask=all", 20.01, 1.0),
    ("ta-smnist", "joint", 97.94, 1.5),  # two passes here, many more there
]


@pytest.mark.parametrize(("scenario", "method", "number", "room"), PUBLISHED)
def test_a_published_number(scenario: str, method: str, number: float, room: float) -> None:
    records = load_records(RESULTS, scenario, method)
    assert records
    found = np.mean([100 * core.average_accuracy(r.accuracy) for r in records])
    assert found == pytest.approx(number, abs=room)
