"""Figures of chapter 13, How sure is it."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from .style import BLUE, GREY, INK, ORANGE, VERMILION, WIDTH

LOOKS = {  # who answers: a colour, a line and a mark
    "Bayesian, 20 draws": (BLUE, "-", "o"),
    "its means alone": (ORANGE, "--", "s"),
    "deterministic twin": (VERMILION, ":", "^"),
}


def curve(confidence: np.ndarray, right: np.ndarray, bins: int = 10) -> tuple:
    """Reliability: mean confidence and share of right answers in each bin that has 10 or more."""
    place = np.clip((confidence * bins).astype(int), 0, bins - 1)
    kept = [i for i in range(bins) if (place == i).sum() >= 10]
    pairs = [(confidence[place == i].mean(), right[place == i].mean()) for i in kept]
    return tuple(np.array(pairs).reshape(-1, 2).T)


def reliability(panels: Sequence[dict[str, tuple[np.ndarray, np.ndarray]]]) -> Figure:
    """A panel a task; of each who answers: (confidence, right or wrong) an image."""
    fig, axes = plt.subplots(1, len(panels), figsize=(WIDTH, 2.7), sharey=True)
    for t, (ax, answers) in enumerate(zip(axes, panels, strict=True)):
        ax.plot([0, 1], [0, 1], color=GREY, lw=1)
        for name, found in answers.items():
            colour, line, mark = LOOKS[name]
            ax.plot(*curve(*found), color=colour, ls=line, marker=mark, ms=4, label=name)
        ax.set(xlabel="how sure it says it is", title=f"after task {t + 1}", xlim=(0.2, 1.02))
    axes[0].set_ylabel("how often it is right")
    handles, names = axes[0].get_legend_handles_labels()
    fig.legend(handles, names, loc="outside upper center", ncols=3, fontsize=9)
    return fig


def coverage(kept: Sequence[float], found: dict[str, Sequence[float]]) -> Figure:
    """Accuracy among the answers that are least in doubt, by how many of them are kept."""
    fig, ax = plt.subplots(figsize=(WIDTH, 2.9))
    for name, values in found.items():
        colour, line, mark = LOOKS[name]
        share, right = 100 * np.asarray(kept), 100 * np.asarray(values)
        ax.plot(share, right, color=colour, ls=line, marker=mark, label=name)
    ax.set(xlabel="answers given, % (the others are left to somebody else)", ylabel="right, %")
    ax.legend()
    return fig


def doubts(groups: dict[str, np.ndarray], name: str) -> Figure:
    """How a kind of doubt is spread over kinds of image."""
    fig, ax = plt.subplots(figsize=(WIDTH, 2.6))
    edges = np.linspace(0, max(values.max() for values in groups.values()), 31)
    looks = zip((BLUE, ORANGE, VERMILION, INK), ("-", "--", ":", "-."), strict=True)
    for (kind, values), (colour, line) in zip(groups.items(), looks, strict=False):
        share = 100 * np.histogram(values, edges)[0] / len(values)
        ax.stairs(share, edges, color=colour, ls=line, lw=1.8, label=kind)
    ax.set(xlabel=f"{name}, nats", ylabel="images, %", yscale="log")
    ax.legend()
    return fig
