"""Figures of chapter 3, Variational continual learning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from .style import BLUE, GREY, INK, ORANGE, VERMILION, WIDTH, matrix


def two_weights(cases: dict[str, tuple[Any, Any, Any]], total: float) -> Figure:
    """(mean, deviations, answer) of two weights a panel, and what a new task asks."""
    fig, axes = plt.subplots(1, len(cases), figsize=(WIDTH, 3.5), sharey=True)
    turn = np.linspace(0, 2 * np.pi, 200)
    for ax, (title, (mean, deviation, answer)) in zip(axes, cases.items(), strict=True):
        for radius in (1, 2):
            ax.plot(
                mean[0] + radius * deviation[0] * np.cos(turn),
                mean[1] + radius * deviation[1] * np.sin(turn),
                color=BLUE,
                lw=1.6 / radius,
            )
        line = np.array([-0.6, 2.6])
        ax.plot(line, total - line, color=ORANGE, ls="--")
        ax.annotate("", answer, mean, arrowprops={"arrowstyle": "-|>", "color": INK})
        ax.plot(*mean, "o", color=BLUE)
        ax.plot(*answer, "s", color=VERMILION, zorder=3)
        ax.axvline(mean[0], color=GREY, ls=":", lw=1)
        ax.set(xlim=(-0.6, 2.6), ylim=(-1.1, 2.1), xlabel="$w_1$", title=title)
        ax.set_aspect("equal")
        ax.text(2.1, total - 1.95, "task 2", color="#8A5F00")
        ax.text(mean[0] + 0.06, -1.02, "task 1", color=GREY)
    axes[0].set_ylabel("$w_2$")
    return fig


def widths(sigma: dict[str, Any], start: float, prior: float) -> Figure:
    """How wide the weights became, a panel a learning rate of rho."""
    fig, axes = plt.subplots(1, len(sigma), figsize=(WIDTH, 2.6), sharex=True)
    edges = np.geomspace(0.02, 3, 70)
    for ax, (title, values) in zip(axes, sigma.items(), strict=True):
        counts, _ = np.histogram(np.asarray(values), edges)
        ax.stairs(100 * counts / counts.sum(), edges, fill=True, color=BLUE)
        for place, name in ((start, "start "), (prior, "prior ")):
            ax.axvline(place, color=INK, ls="--", lw=1)
            ax.text(
                place,
                0.97,
                name,
                ha="right",
                va="top",
                fontsize=9,
                transform=ax.get_xaxis_transform(),
            )
        ax.set(xscale="log", xlabel="σ after the first task", title=title)
        ax.set_xticks([0.03, 0.1, 0.3, 1], ["0.03", "0.1", "0.3", "1"])
        ax.minorticks_off()
    axes[0].set_ylabel("weights, %")
    return fig


def before_after(panels: dict[str, tuple[Any, Any]], tasks: Sequence[str]) -> Figure:
    """Accuracy a task before and after the coreset is fitted, a panel a network."""
    fig, axes = plt.subplots(1, len(panels), figsize=(WIDTH, 2.7), sharey=True)
    for ax, (title, (before, after)) in zip(axes, panels.items(), strict=True):
        for j, pair in enumerate(zip(before, after, strict=True)):
            ax.plot([j, j], 100 * np.asarray(pair), color="#bbbbbb", lw=2, zorder=0)
        ax.plot(100 * np.asarray(before), "o", mfc="white", mec=INK, label="before")
        ax.plot(100 * np.asarray(after), "s", color=BLUE, label="after")
        ax.set_xticks(range(len(tasks)), tasks)
        ax.set(xlabel="digits", title=title, xlim=(-0.5, len(tasks) - 0.5))
    axes[0].set_ylabel("accuracy, %")
    axes[0].legend(loc="lower right", fontsize=9)
    return fig


def leash_frame(
    accuracy: Sequence[Sequence[float]],
    tasks: Sequence[str],
    points: dict[float, tuple[float, float]],
    chosen: float,
) -> Figure:
    """R at one weight of the KL term, and where that stands among the others."""
    fig, (left, right) = plt.subplots(1, 2, figsize=(WIDTH, 3.1), width_ratios=[1, 1.2])
    matrix(left, accuracy, tasks, "accuracy, %")
    new, kept = 100 * np.array(list(points.values())).T
    right.plot(new, kept, color="#bbbbbb", lw=1.2, marker="o", mfc="white", mec=GREY)
    x, y = (100 * value for value in points[chosen])
    right.plot(x, y, "o", color=VERMILION, ms=10)
    right.annotate(
        f"λ = {chosen:g}",
        (x, y),
        xytext=(0, 10),
        ha="center",
        textcoords="offset points",
        color=VERMILION,
    )
    right.set(xlabel="a task just learned, %", ylabel="old tasks at the end, %")
    right.set_title("learning against keeping")
    right.margins(0.14)
    return fig
