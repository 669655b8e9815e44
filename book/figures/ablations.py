"""Figures of chapter 8, Ablations; the README shows one of them."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

import rclcpb_core as core
from rclcpb.presets import METHODS, OURS, SCENARIOS
from rclcpb.records import load_records

from .evidence import FURTHER
from .page import RESULTS
from .style import COLOUR, LABEL, MARKER, TASK_COLOURS, WIDTH, dots, task_legend


def methods_accuracy(
    accuracy: dict[str, dict[int, float]], paper: dict[str, float] | None = None
) -> Figure:
    """Average accuracy a method; every seed a dot, thin lines join equal seeds."""
    paper = paper or {}
    fig, ax = plt.subplots(figsize=(WIDTH, 3.2))
    joined: dict[int, list[tuple[float, float]]] = {}
    for x, values in enumerate(accuracy.values()):
        spread = np.linspace(-0.06, 0.06, len(values)) if len(values) > 1 else [0.0]
        for seed, shift in zip(sorted(values), spread, strict=True):  # as `dots` does
            joined.setdefault(seed, []).append((x + shift, 100 * values[seed]))
    for line in joined.values():
        ax.plot(*np.array(line).T, color="#bbbbbb", lw=1, zorder=0)
    for x, (method, values) in enumerate(accuracy.items()):
        points = 100 * np.array([values[seed] for seed in sorted(values)])
        dots(ax, x, points, method)
        ax.text(x + 0.2, points.mean(), f"{points.mean():.1f}", va="center")
        if method in paper:
            ax.plot(x - 0.25, paper[method], MARKER["paper"], color=COLOUR["paper"])
            ax.text(
                x - 0.3,
                paper[method],
                f"paper {paper[method]:.1f}",
                va="center",
                ha="right",
                color=COLOUR["paper"],
                fontsize=9,
            )
    ax.set_xticks(range(len(accuracy)), [LABEL[m] for m in accuracy])
    ax.set(ylabel="average accuracy, %", xlim=(-1.0, len(accuracy) - 0.45))
    ax.margins(y=0.2)
    return fig


def shares(
    panels: dict[str, dict[str, np.ndarray]], tasks: Sequence[str], ylabel: str, low: float = 0
) -> Figure:
    """A panel a title, a line a method: shares (seeds, tasks); every seed a dot."""
    fig, axes = plt.subplots(1, len(panels), figsize=(WIDTH, 3.1), sharey=True)
    for ax, (title, methods) in zip(axes, panels.items(), strict=True):
        for k, (method, values) in enumerate(methods.items()):
            x, values = np.arange(len(tasks)), 100 * np.asarray(values)
            ax.plot(x, values.mean(0), color=COLOUR[method], ls=("-", "--", ":")[k % 3])
            ax.plot(
                np.tile(x + 0.08 * (k - 1), len(values)),
                values.ravel(),
                ls="",
                marker=MARKER[method],
                color=COLOUR[method],
                alpha=0.7,
                ms=4.5,
                mec="white",
                mew=0.4,
            )
        ax.set_xticks(x, tasks)
        ax.set(title=title, xlabel="after learning", ylim=(low, 103))
    axes[0].set_ylabel(ylabel)
    handles = [
        mpl.lines.Line2D(
            [], [], color=COLOUR[m], marker=MARKER[m], ls=("-", "--", ":")[k % 3], label=LABEL[m]
        )
        for k, m in enumerate(methods)
    ]
    fig.legend(handles=handles, loc="outside lower center", ncols=3, fontsize=9)
    return fig


def forgetting_by_method(
    accuracy: dict[str, Sequence[Sequence[Sequence[float]]]], tasks: Sequence[str]
) -> Figure:
    """A panel a method, a line a task: the mean over seeds, every seed a dot."""
    fig, axes = plt.subplots(1, len(accuracy), figsize=(WIDTH, 3.2), sharey=True)
    last = len(tasks) - 1
    for ax, (method, runs_of) in zip(axes, accuracy.items(), strict=True):
        for j, colour in zip(range(last + 1), TASK_COLOURS, strict=False):
            x = np.arange(j, last + 1)
            values = 100 * np.array([[R[i][j] for i in x] for R in runs_of])
            ax.plot(x, values.mean(0), color=colour, marker="os^Dv"[j % 5])
            ax.plot(np.tile(x, len(values)), values.ravel(), ".", color=colour, ms=4, alpha=0.6)
        ax.set_xticks(range(last + 1), tasks, fontsize=8)
        ax.set(title=LABEL[method], xlabel="after learning", ylim=(0, 103))
    axes[0].set_ylabel("accuracy, %")
    task_legend(fig, tasks)
    return fig


def result(scenario: str = "ta-smnist") -> Figure:
    """The README's figure: the paper's method, its relatives and the control on a scenario."""
    shown = [m for m in OURS if METHODS[m].family not in FURTHER]
    found = {m: load_records(RESULTS, scenario, m) for m in shown}
    accuracy = {
        m: {r.seed: core.average_accuracy(r.accuracy) for r in records}
        for m, records in found.items()
        if records
    }
    paper = {p.method: p.accuracy for p in SCENARIOS[scenario].paper}
    fig = methods_accuracy(accuracy, paper)
    fig.set_size_inches(WIDTH * 1.15, 3.4)
    return fig
