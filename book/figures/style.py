"""One look for all figures: colours, marks, labels, and panels that several chapters draw."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rclcpb.presets import METHODS

BLUE, ORANGE, VERMILION = "#0072B2", "#E69F00", "#D55E00"  # Okabe and Ito's colours
GREEN, SKY, PURPLE, YELLOW = "#009E73", "#56B4E9", "#CC79A7", "#F0E442"
GREY, INK, OLIVE = "#767676", "#222222", "#8A7A00"  # yellow lines vanish on white
# a colour, a name and a second cue mean the same in every chapter
COLOUR = {name: m.colour for name, m in METHODS.items()}
COLOUR |= {"paper": GREY, "plain": PURPLE, "own": INK}
LABEL = {name: m.title for name, m in METHODS.items()}
LABEL |= {"paper": "paper", "plain": "plain network", "own": "each in its own settings"}
MARKER = {name: m.marker for name, m in METHODS.items()} | {"paper": "D", "plain": "v", "own": "x"}
TASK_COLOURS = (BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY, INK, YELLOW, GREY, "#7F3C8D")
WIDTH = 7.2  # inches: the text column
EACH = {"ls": "", "alpha": 0.75, "mec": "white", "mew": 0.5}  # the look of one seed among others


_counted: Counter[str] = Counter()  # figures and tables so far
_chapter = ""


def next_number(kind: str) -> str:
    """Figure 3.2: the kind, the chapter, and how many there are with this one."""
    _counted[kind] += 1
    return f"{kind} {_chapter}{_counted[kind]}"


def use_style(chapter: str = "") -> None:
    """One look: a white ground, few lines, clear type. And figures count from 1 in a chapter."""
    global _chapter
    _chapter = f"{chapter}." if chapter else ""
    _counted.clear()
    mpl.rcParams.update(
        {
            "figure.figsize": (WIDTH, 3.2),
            "figure.dpi": 110,
            "figure.facecolor": "white",
            "savefig.facecolor": "white",
            "axes.facecolor": "white",
            "figure.constrained_layout.use": True,
            "font.size": 10,
            "axes.titlesize": 10.5,
            "axes.labelsize": 10,
            "axes.titlelocation": "left",
            "xtick.labelsize": 9,
            "ytick.labelsize": 9,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.edgecolor": INK,
            "axes.labelcolor": INK,
            "text.color": INK,
            "xtick.color": INK,
            "ytick.color": INK,
            "axes.axisbelow": True,
            "lines.linewidth": 1.8,
            "lines.markersize": 5,
            "legend.frameon": False,
            "image.cmap": "Greys",
            "image.interpolation": "none",
            "axes.prop_cycle": mpl.cycler(color=TASK_COLOURS[:6]),
        }
    )


def end_labels(
    ax: Axes, entries: Iterable[tuple[float, str, str]], x: float | None = None, gap: float = 0.06
) -> None:
    """Write labels at the ends of lines, (y, text, colour) each, moved apart."""
    low, high = ax.get_ylim()
    x = ax.dataLim.x1 if x is None else x
    ordered = sorted(entries)
    places = np.array([y for y, *_ in ordered], dtype=float)
    for _ in range(100):  # push neighbours apart until each has its room
        close = np.diff(places) < gap * (high - low)
        if not close.any():
            break
        for i in np.flatnonzero(close):
            middle = (places[i] + places[i + 1]) / 2
            places[i : i + 2] = middle + np.array([-0.51, 0.51]) * gap * (high - low)
    for place, (_, text, colour) in zip(places, ordered, strict=True):
        ax.annotate(
            text,
            (x, place),
            xytext=(6, 0),
            textcoords="offset points",
            color=colour,
            va="center",
            annotation_clip=False,
        )


def dots(ax: Axes, x: float, values: Sequence[float], method: str) -> None:
    """Every seed a dot, the mean a short line."""
    spread = np.linspace(-0.06, 0.06, len(values)) if len(values) > 1 else [0.0]
    ax.plot(
        x + np.asarray(spread),
        values,
        marker=MARKER[method],
        color=COLOUR[method],
        **EACH,
    )
    ax.hlines(np.mean(values), x - 0.16, x + 0.16, color=COLOUR[method], lw=2)


def matrix(
    ax: Axes, accuracy: Sequence[Sequence[float]], tasks: Sequence[str], title: str = ""
) -> None:
    """R as a picture: a row after each task, a column for each task, in per cent."""
    n = len(tasks)
    values = np.full((n, n), np.nan)
    for i, row in enumerate(accuracy):
        values[i, : len(row)] = row
    ax.imshow(values, vmin=0, vmax=1.25, cmap="Blues")
    for i, j in zip(*np.nonzero(~np.isnan(values)), strict=True):
        ax.text(
            j,
            i,
            f"{100 * values[i, j]:.0f}",
            ha="center",
            va="center",
            color="white" if values[i, j] > 0.75 else INK,
        )
    ax.set_xticks(range(n), tasks)
    ax.set_yticks(range(n), tasks)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    ax.set(xlabel="tested on", ylabel="after learning", title=title)


def matrices(runs_of: dict[str, Sequence[Sequence[float]]], tasks: Sequence[str]) -> Figure:
    """An R matrix a question, side by side."""
    fig, axes = plt.subplots(1, len(runs_of), figsize=(WIDTH, 2.9))
    for ax, (title, accuracy) in zip(axes, runs_of.items(), strict=True):
        matrix(ax, accuracy, tasks, title)
        ax.tick_params(labelsize=8)
        if ax is not axes[0]:
            ax.set(ylabel="", yticklabels=[])
    return fig


def task_legend(fig: Figure, tasks: Sequence[str]) -> None:
    """A line a task below the panels, in the tasks' colours."""
    handles = [
        mpl.lines.Line2D([], [], color=TASK_COLOURS[j], label=task, marker="os^Dv"[j % 5])
        for j, task in enumerate(tasks)
    ]
    fig.legend(
        handles=handles,
        loc="outside lower center",
        ncols=len(tasks),
        fontsize=9,
        title="tested on",
        title_fontsize=9,
    )
