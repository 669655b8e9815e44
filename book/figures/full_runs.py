"""Figures of chapter 10, Full runs."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rclcpb.presets import METHODS

from .style import BLUE, COLOUR, GREY, INK, LABEL, MARKER, WIDTH, end_labels, matrix

# What the search found for a method by itself, where that is not its preset.
OWN = {
    "mh-cifar100": ("rcl-cpb,kl_weight=0.01", "vcl,kl_weight=0.03"),
    "ta-cifar100": ("vcl,replay_kl=0.1",),
    "mnist-svhn-cifar10": (
        "rcl-cpb,kl_weight=0.1,replay_kl=0.03",
        "vcl,kl_weight=0.1,replay_kl=0.03",
    ),
}


def own_pair(name: str) -> tuple[str, str]:
    """RCL-CPB and VCL on a scenario, each as the search found it best."""
    best = {label.split(",")[0]: label for label in ("rcl-cpb", *OWN[name])}
    return best["rcl-cpb"], best["vcl"]


def scenario_dots(
    found: dict[str, dict[str, Sequence[float]]], paper: dict[str, dict[str, float]]
) -> Figure:
    """A panel a scenario, a row a method: every seed a dot, the paper's a diamond."""
    methods = [m for m in METHODS if any(m in of for of in found.values())]
    rows = -(-len(found) // 2)
    fig, axes = plt.subplots(rows, 2, figsize=(WIDTH, 0.7 + 2.3 * rows), sharey=True, squeeze=False)
    for ax, name in zip(axes.flat, found, strict=False):
        for y, method in enumerate(methods):
            _row_of_dots(ax, y, found[name].get(method, ()), method)
            if (number := paper.get(name, {}).get(method)) is not None:
                ax.plot(number, y + 0.3, MARKER["paper"], color=COLOUR["paper"], ms=5)
        ax.set_yticks(range(len(methods)), [LABEL[m] for m in methods])
        ax.set(title=name, ylim=(len(methods) - 0.4, -0.6))
        ax.margins(x=0.16)
        ax.grid(axis="x", color="#e4e4e4")
    for ax in axes.flat[len(found) :]:
        ax.axis("off")
    fig.supxlabel("average accuracy, % (grey diamond: paper's number)", fontsize=10)
    return fig


def _row_of_dots(ax: Axes, y: float, values: Sequence[float], method: str) -> None:
    """Every seed a dot, the mean a short upright line with its number."""
    if not len(values):
        return
    shift = np.linspace(-0.14, 0.14, len(values)) if len(values) > 1 else [0.0]
    ax.plot(
        values,
        y + np.asarray(shift),
        MARKER[method],
        color=COLOUR[method],
        alpha=0.8,
        mec=INK,
        mew=0.3,
    )
    mean = float(np.mean(values))
    ax.vlines(mean, y - 0.26, y + 0.26, color=COLOUR[method], lw=2)
    ax.annotate(
        f"{mean:.1f}",
        (max(values), y),
        xytext=(6, 0),
        va="center",
        textcoords="offset points",
        fontsize=8.5,
    )


def network_sizes(
    found: dict[str, dict[str, Sequence[Sequence[int]]]], paper: dict[str, int]
) -> Figure:
    """A panel a scenario: all hidden neurons after each task, a thin line a seed."""
    rows = -(-len(found) // 2)
    fig, axes = plt.subplots(rows, 2, figsize=(WIDTH, 0.5 + 2.1 * rows), squeeze=False)
    for ax, (name, methods) in zip(axes.flat, found.items(), strict=False):
        ends = []
        for method, runs_of in methods.items():
            values = np.array(runs_of)  # (seeds, tasks)
            x = np.arange(1, values.shape[1] + 1)
            style = "-" if method == "rcl-cpb" else "--"
            ax.plot(x, values.T, color=COLOUR[method], lw=0.8, alpha=0.6, ls=style)
            ax.plot(x, values.mean(0), color=COLOUR[method], ls=style, marker=MARKER[method])
            ends.append((values.mean(0)[-1], LABEL[method], COLOUR[method]))
        if name in paper:
            ax.axhline(paper[name], color=GREY, ls=":", lw=1.2)
            ends.append((paper[name], "paper, at the end", GREY))
        ax.set_ylim(0, 1.15 * max(end for end, *_ in ends))
        ax.set(title=name, xlabel="tasks learned", ylabel="neurons")
        ax.xaxis.get_major_locator().set_params(integer=True)
        end_labels(ax, ends, x=x[-1], gap=0.12)
    for ax in axes.flat[len(found) :]:
        ax.axis("off")
    return fig


def record_frame(
    accuracy: Sequence[Sequence[Sequence[float]]], tasks: Sequence[str], title: str
) -> Figure:
    """R, the mean over seeds, beside the last accuracies, every seed a dot."""
    fig, (left, right) = plt.subplots(1, 2, figsize=(WIDTH, 3.5))
    n = len(tasks)
    mean = [np.mean([R[i] for R in accuracy], axis=0) for i in range(n)]
    if n <= 10:
        matrix(left, mean, tasks, title)
    else:  # too many for numbers
        values = np.full((n, n), np.nan)
        for i, row in enumerate(mean):
            values[i, : i + 1] = row
        left.imshow(values, vmin=0, vmax=1.25, cmap="Blues")
        left.set(title=title, xlabel="tested on", ylabel="after learning")
    values = 100 * np.array([R[-1] for R in accuracy])
    right.bar(range(n), values.mean(0), color=BLUE, alpha=0.3)
    right.plot(np.tile(np.arange(n), len(values)), values.ravel(), ".", color=BLUE)
    right.set(xlabel="tested on", ylim=(0, 103), xticks=range(n))
    right.set_xticklabels(tasks if n <= 10 else [])
    right.set_title(f"after the last task: mean {values.mean():.1f} %")
    return fig
