"""Figures of chapter 13, How sure is it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from .style import BLUE, EACH, GREY, INK, ORANGE, VERMILION, WIDTH

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


def reliability(panels: dict[str, dict[str, tuple[np.ndarray, np.ndarray]]]) -> Figure:
    """A panel a moment, two in a row; of each who answers: (confidence, right or wrong)."""
    rows = (len(panels) + 1) // 2
    fig, axes = plt.subplots(rows, 2, figsize=(WIDTH, 2.6 * rows), sharex=True, sharey=True)
    for ax, (moment, answers) in zip(axes.flat, panels.items(), strict=True):
        ax.plot([0, 1], [0, 1], color=GREY, lw=1)
        for name, found in answers.items():
            colour, line, mark = LOOKS[name]
            ax.plot(*curve(*found), color=colour, ls=line, marker=mark, ms=4, label=name)
        ax.set(title=moment, xlim=(0.2, 1.02), ylim=(-0.03, 1.05))
    for ax in axes[-1]:
        ax.set_xlabel("how sure it says it is")
    for ax in axes[:, 0]:
        ax.set_ylabel("how often it is right")
    handles, names = axes[0, 0].get_legend_handles_labels()
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


# --------------------------------------------------------------- networks with a head a task


class Asked(NamedTuple):
    """Who answers in benchmarks/doubt.py: a network, by its draws or its means."""

    network: str
    way: str


COLOUR = {
    "RCL-CPB+": Asked("plus", "draws"),
    "its means alone": Asked("plus", "means"),
    "deterministic twin": Asked("twin", "means"),
    "RCL-CPB natural": Asked("natural", "draws"),
    "natural, means alone": Asked("natural", "means"),
}
KINDS = ("classes to come", "SVHN", "blends")


def recorded(results: Path, scenario: str) -> list[dict[str, Any]]:
    """The runs of benchmarks/doubt.py, of the seeds that every network has."""
    path = results / "doubt" / f"{scenario}.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    networks = {who.network for who in COLOUR.values()}
    have = {
        row["seed"]: {one["network"] for one in rows if one["seed"] == row["seed"]} for row in rows
    }
    return [row for row in rows if have[row["seed"]] == networks]


def told(rows: Sequence[dict[str, Any]], who: Asked) -> np.ndarray:
    """Accuracy, NLL and calibration error after the last task (seeds, 3), means over tasks."""
    mine = [row for row in rows if row["network"] == who.network]
    return np.array([np.mean(row["told"][who.way][-1], 0) for row in mine])


def found(rows: Sequence[dict[str, Any]], who: Asked) -> np.ndarray:
    """How often the head least in doubt is the right one, and says the right label (seeds, 2)."""
    mine = [row["untold"][who.way] for row in rows if row["network"] == who.network]
    return np.array([[one["task"], one["label"]] for one in mine])


def auc(rows: Sequence[dict[str, Any]], who: Asked, kind: str, doubt: str) -> np.ndarray:
    """Of each seed, for telling such images from a head's own."""
    mine = [row for row in rows if row["network"] == who.network]
    return np.array([row["auc"][who.way][kind][doubt] for row in mine])


def apart(rows: Sequence[dict[str, Any]]) -> Figure:
    """A panel a kind of strange image, a row a doubt; every seed a dot, the mean a bar."""
    fig, axes = plt.subplots(1, len(KINDS), figsize=(WIDTH, 3.1), sharex=True, sharey=True)
    draws = [name for name, who in COLOUR.items() if who.way == "draws"]
    lines = [(name, "entropy") for name in COLOUR]
    lines += [(name, "mutual_information") for name in draws]
    for ax, kind in zip(axes, KINDS, strict=True):
        for place, (name, doubt) in enumerate(lines):
            values = auc(rows, COLOUR[name], kind, doubt)
            colour = BLUE if name in draws else ORANGE if "means" in name else VERMILION
            ax.plot(values, [place] * len(values), color=colour, marker="o", **EACH)
            ax.plot([values.mean()] * 2, [place - 0.3, place + 0.3], color=INK, lw=2)
        ax.axvline(0.5, color=GREY, ls=":", lw=1.2)
        ax.set(title=kind, xlabel="AUC")
    short = {"entropy": "", "mutual_information": ", mutual inf."}
    axes[0].set_yticks(range(len(lines)), [name + short[doubt] for name, doubt in lines])
    axes[0].set_ylim(len(lines) - 0.5, -0.5)
    return fig
