"""Figures of chapter 10, Full runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rclcpb.paper import PaperRow
from rclcpb.presets import METHODS

from .evidence import FURTHER, OWN, Difference
from .style import BLUE, COLOUR, GREY, INK, LABEL, MARKER, WIDTH, end_labels, matrix

__all__ = ["OWN", "PAPER_SETTINGS", "forest", "network_sizes", "record_frame", "scenario_dots"]

# the paper's Table 1: name, incremental in what, images, number of tasks, classes a task
PAPER_SETTINGS = {
    "pmnist": ("pMNIST", "domains", "MNIST, 28 × 28", 10, 10),
    "mh-smnist": ("MH-sMNIST", "tasks", "MNIST, 28 × 28", 5, 2),
    "ta-smnist": ("TA-sMNIST", "classes", "MNIST, 28 × 28", 5, 2),
    "mh-cifar100": ("MH-CIFAR100", "tasks", "CIFAR-100, 32 × 32 × 3", 20, 5),
    "ta-cifar100": ("TA-CIFAR100", "classes", "CIFAR-100, 32 × 32 × 3", 20, 5),
    "mnist-svhn-cifar10": (
        "Sequence",
        "tasks, heterogeneous",
        "MNIST, 28 × 28; SVHN, 32 × 32; CIFAR-10, 32 × 32 × 3",
        3,
        10,
    ),
}


def scenario_dots(
    found: dict[str, dict[str, Sequence[float]]], paper: dict[str, dict[str, PaperRow]]
) -> Figure:
    """A panel a scenario, a row a method: every seed a dot, the paper's a diamond."""
    methods = [m for m in METHODS if any(m in of for of in found.values())]
    rows = -(-len(found) // 2)
    size = (WIDTH, 0.7 + (0.5 + 0.3 * len(methods)) * rows)
    fig, axes = plt.subplots(rows, 2, figsize=size, sharey=True, squeeze=False)
    for ax, name in zip(axes.flat, found, strict=False):
        for y, method in enumerate(methods):
            _row_of_dots(ax, y, found[name].get(method, ()), method)
            if (number := paper.get(name, {}).get(method)) is not None:
                face = COLOUR["paper"] if number.source == "own" else "white"
                ax.plot(
                    number.accuracy, y + 0.3, MARKER["paper"], color=COLOUR["paper"], mfc=face, ms=5
                )
        ax.set_yticks(range(len(methods)), [LABEL[m] for m in methods])
        ax.set(title=name, ylim=(len(methods) - 0.4, -0.6))
        ax.margins(x=0.16)
        ax.grid(axis="x", color="#e4e4e4")
    for ax in axes.flat[len(found) :]:
        ax.axis("off")
    fig.supxlabel(
        "average accuracy, % (grey diamond: paper's number; hollow: quoted by it)", fontsize=10
    )
    return fig


def _row_of_dots(ax: Axes, y: float, values: Sequence[float], method: str) -> None:
    """Every seed a dot, the mean a short upright line with its number."""
    if not len(values):
        ax.text(0.02, y, "not run", transform=ax.get_yaxis_transform(), va="center", fontsize=8)
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


def about(difference: Difference) -> str:
    """Which question a difference answers: a panel of the forest."""
    words = {"vcl": "RCL-CPB minus VCL", "rcl-cpb-A": "RCL-CPB minus −A, its growth left out"}
    words["coreset-only"] = "RCL-CPB+ minus stored images alone"
    if "," in difference.a + difference.b:
        return "RCL-CPB minus VCL, each in settings of its own"
    if METHODS[difference.a].family in FURTHER:
        return f"{LABEL[difference.a]} minus {LABEL[difference.b]}"
    name = difference.b.removesuffix("-plus")
    return words.get(name, f"{LABEL[difference.a]} minus {LABEL[difference.b]}")


def forest(found: Iterable[Difference]) -> Figure:
    """A row a difference: its mean with a 95 % interval; filled if it stands."""
    panels: dict[str, list[Difference]] = {}
    for d in found:
        panels.setdefault(about(d), []).append(d)
    heights = [len(of) + 1.6 for of in panels.values()]
    fig, axes = plt.subplots(
        len(panels),
        1,
        figsize=(WIDTH, 0.5 + 0.24 * sum(heights)),
        height_ratios=heights,
        squeeze=False,
    )
    for ax, (title, rows) in zip(axes.flat, panels.items(), strict=True):
        for y, d in enumerate(rows):
            _interval(ax, y, d)
        ax.axvline(0, color=INK, lw=0.9)
        names = [d.scenario + (", plus" if d.b == "vcl-plus" else "") for d in rows]
        ax.set_yticks(range(len(rows)), names, fontsize=8.5)
        ax.set(ylim=(len(rows) - 0.4, -0.6), title=title)
        ax.margins(x=0.12)
        ax.grid(axis="x", color="#e4e4e4")
    axes.flat[-1].set_xlabel("points of accuracy (each panel has its own scale)")
    return fig


def _interval(ax: Axes, y: float, d: Difference) -> None:
    method = "own" if "," in d.a + d.b else d.a
    colour, marker = COLOUR[method], "o" if method == "own" else MARKER[method]
    ax.hlines(y, d.mean - d.half, d.mean + d.half, color=colour, lw=1.6)
    ax.plot(d.mean, y, marker, color=colour, mfc=colour if d.stands else "white", ms=6, mew=1.3)
    text = f"{d.mean:+.1f}"
    place = {"xytext": (5, 0), "textcoords": "offset points", "va": "center", "fontsize": 8.5}
    ax.annotate(text, (d.mean + d.half, y), **place)
