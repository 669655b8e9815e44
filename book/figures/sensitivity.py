"""Figures of chapter 9, Sensitivity."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rclcpb.records import Record

from .style import BLUE, EACH, ORANGE, VERMILION, WIDTH, dots, end_labels


def sweep(
    found: dict[float, Sequence[tuple[float, Sequence[int]]]],
    name: str,
    range_of_paper: tuple[float, float] | None = None,
) -> Figure:
    """{value: (accuracy, sizes) a seed}: both against the value, every seed a dot."""
    fig, (left, right) = plt.subplots(1, 2, figsize=(WIDTH, 3.1))
    x = np.arange(len(found))
    for place, entries in zip(x, found.values(), strict=True):
        dots(left, place, [accuracy for accuracy, _ in entries], "rcl-cpb")
    means = [np.mean([a for a, _ in entries]) for entries in found.values()]
    left.plot(x, means, color=BLUE, lw=1, alpha=0.6)
    ends = []
    for k, (colour, marker) in enumerate(((BLUE, "o"), (ORANGE, "s"))):
        sizes = [[size[k] for _, size in entries] for entries in found.values()]
        for place, values in zip(x + 0.1 * k - 0.05, sizes, strict=True):
            right.plot(
                [place] * len(values),
                values,
                marker=marker,
                color=colour,
                **EACH,
            )
        right.plot(x, [np.mean(values) for values in sizes], color=colour, ls=("-", "--")[k])
        ends.append((float(np.mean(sizes[-1])), f"layer {k + 1}", colour))
    for ax in (left, right):
        ax.set_xticks(x, [f"{value:g}" for value in found])
        ax.set(xlabel=name, xlim=(-0.5, len(x) - 0.5))
        if range_of_paper:
            low, high = range_of_paper
            for place in (i for i, v in enumerate(found) if low <= v <= high):
                ax.axvspan(place - 0.5, place + 0.5, color="#eeeeee", lw=0, zorder=-1)
    left.set(title="average accuracy, %")
    left.margins(y=0.25)
    right.set(title="neurons after the last task")
    right.set_ylim(0, None)
    end_labels(right, ends, x=x[-1] + 0.15)
    return fig


def added_by_gamma(gammas: Sequence[float], added: Sequence[Sequence[int]]) -> Figure:
    """What Eq. 7 adds to each layer of one network, against gamma."""
    fig, ax = plt.subplots(figsize=(WIDTH, 2.6))
    ax.axvspan(0.05, 0.3, color="#eeeeee", zorder=-1)
    ends = []
    for k, (colour, style) in enumerate(((BLUE, "-"), (ORANGE, "--"))):
        ax.step(gammas, added[k], where="mid", color=colour, ls=style)
        ends.append((float(added[k][-1]), f"layer {k + 1}", colour))
    ax.set(xlabel="γ", ylabel="neurons to add", xlim=(0, gammas[-1]))
    end_labels(ax, ends, gap=0.1)
    return fig


def size_against_accuracy(
    series: dict[str, dict[float, Sequence[tuple[float, Sequence[int]]]]],
) -> Figure:
    """Every run of every sweep: all its neurons, its accuracy; the means labelled."""
    fig, ax = plt.subplots(figsize=(WIDTH, 3.4))
    for (name, found), colour, marker, down in zip(
        series.items(), (BLUE, VERMILION), "o^", (False, True), strict=False
    ):
        means = []
        for value, entries in found.items():
            neurons = [sum(size) for _, size in entries]
            accuracy = [a for a, _ in entries]
            ax.plot(neurons, accuracy, marker, color=colour, alpha=0.45, mec="white", mew=0.4)
            means.append((float(np.mean(neurons)), float(np.mean(accuracy)), f"{value:g}"))
        ax.plot(
            *np.array([m[:2] for m in means]).T,
            color=colour,
            label=name,
            marker=marker,
            ls="-" if not down else "--",
        )
        _label_values(ax, means, colour, down)
    _log_ticks(ax)
    ax.set(xlabel="neurons after the last task, both layers")
    ax.set_ylabel("average accuracy, %")
    ax.margins(y=0.12)
    ax.legend(loc="lower right")
    return fig


def _label_values(
    ax: Axes, means: Sequence[tuple[float, float, str]], colour: str, down: bool
) -> None:
    """The swept value beside each mean, where no line runs."""
    heights = [accuracy for _, accuracy, _ in means]
    for i, (neurons, accuracy, text) in enumerate(means):
        dip = down or accuracy < max(heights[max(0, i - 1) : i + 2])  # the line goes above it
        place, side = ((9, -11), "left") if down else ((0, -15 if dip else 8), "center")
        if i == 0 and not down:
            place, side = (-7, -3), "right"
        ax.annotate(
            text,
            (neurons, accuracy),
            xytext=place,
            textcoords="offset points",
            ha=side,
            color=colour,
            fontsize=9,
            zorder=5,
            bbox={"fc": "white", "ec": "none", "pad": 0.6, "alpha": 0.8},
        )


def _log_ticks(ax: Axes) -> None:
    """Numbers of neurons, each tick twice the one before."""
    ax.set_xscale("log")
    low, high = ax.get_xlim()
    ticks = [t for t in (25, 50, 100, 200, 400, 800) if low <= t <= high]
    ax.set_xticks(ticks, [str(t) for t in ticks])
    ax.set_xticks([], minor=True)


def setting_frame(records: Sequence[Record], top: int, title: str) -> Figure:
    """One setting: the layers' sizes task by task, and the last accuracies."""
    fig, (left, right) = plt.subplots(1, 2, figsize=(WIDTH, 2.9))
    tasks = records[0].tasks
    x = np.arange(len(tasks))
    for k, (colour, marker) in enumerate(((BLUE, "o"), (ORANGE, "s"))):
        for r in records:
            sizes = [size[k] for size in r.hidden]
            left.plot(
                x,
                sizes,
                color=colour,
                marker=marker,
                alpha=0.7,
                lw=1.2,
                ls=("-", "--")[k],
                label=f"layer {k + 1}" if r is records[0] else None,
            )
    left.set_xticks(x, tasks)
    left.set(xlabel="after learning", ylabel="neurons", ylim=(0, top), title=title)
    left.legend(loc="upper left", ncols=2, fontsize=9)
    values = 100 * np.array([r.accuracy[-1] for r in records])
    right.bar(x, values.mean(0), color=BLUE, alpha=0.25)
    right.plot(np.tile(x, len(values)), values.ravel(), marker="o", color=BLUE, **EACH)
    right.set_xticks(x, tasks)
    right.set(xlabel="tested on", ylabel="accuracy, %", ylim=(0, 103))
    right.set_title(f"mean {values.mean():.1f} %")
    return fig
