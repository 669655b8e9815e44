"""Figures of chapter 14, Your own data."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from rclcpb import doctor
from rclcpb.records import Record

from . import style
from .style import BLUE, GREY, VERMILION, WIDTH


def matrix(accuracy: Sequence[Sequence[float]], tasks: Sequence[str]) -> Figure:
    """A task a column, a row after each task."""
    fig, ax = plt.subplots(figsize=(0.5 * WIDTH, 2.7))
    style.matrix(ax, accuracy, tasks)
    return fig


def kl_weights(weights: Sequence[float], records: Sequence[Record]) -> Figure:
    """Accuracy on task 1, and what is left of the KL, by its weight."""
    fig, axes = plt.subplots(1, 2, figsize=(WIDTH, 2.6))
    found = [doctor.kl_a_weight(record) for record in records]
    ends = [kl[0] if kl else np.nan for kl in found]
    lines = ([100 * record.accuracy[0][0] for record in records], ends)
    names = ("accuracy, %", "KL a weight, nats")
    for ax, values, name, colour in zip(axes, lines, names, (BLUE, VERMILION), strict=True):
        ax.plot(weights, values, color=colour, marker="o")
        ax.set(xscale="log", xlabel="weight of the KL", ylabel=name)
    axes[0].axhline(100 * records[0].chance[0], color=GREY, ls="--", lw=1.2)
    axes[1].set_ylim(0, None)
    return fig
