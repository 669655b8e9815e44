"""Figures of chapter 14, Your own data."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from rclcpb import doctor
from rclcpb.presets import METHODS, OURS, SCENARIOS
from rclcpb.records import Record, load_records

from . import style
from .style import BLUE, EACH, GREY, INK, ORANGE, VERMILION, WIDTH


def matrix(accuracy: Sequence[Sequence[float]], tasks: Sequence[str]) -> Figure:
    """A task a column, a row after each task."""
    fig, ax = plt.subplots(figsize=(0.5 * WIDTH, 2.7))
    style.matrix(ax, accuracy, tasks)
    return fig


# ------------------------------------------------------------------- which settings


def trade(sweeps: Mapping[tuple[str, float], tuple[float, float]], words: dict) -> Figure:
    """Accuracy against the neurons a run ended with, a line a setting, its values written."""
    fig, ax = plt.subplots(figsize=(WIDTH, 3.6))
    marks = ((BLUE, "o", (-4, -15)), (ORANGE, "s", (-6, 9)), (VERMILION, "^", (8, -3)))
    for field, (colour, marker, aside) in zip(words, marks, strict=True):
        found = sorted((v, 100 * a, n) for (f, v), (a, n) in sweeps.items() if f == field)
        values, right, neurons = zip(*found, strict=True) if found else ((), (), ())
        ax.plot(neurons, right, color=colour, marker=marker, label=words[field])
        for value, x, y in zip(values, neurons, right, strict=True):
            ax.annotate(f"{value:g}", (x, y), aside, textcoords="offset points", fontsize=9)
    ax.set(xscale="log", xlabel="neurons after the last task", ylabel="accuracy, %")
    ax.set_xticks([50, 100, 200, 400, 800], ["50", "100", "200", "400", "800"])
    ax.minorticks_off()
    ax.margins(y=0.1)
    ax.legend()
    return fig


class Change(NamedTuple):
    """One setting of a scenario's runs, from one value to the next that was tried."""

    field: str
    scenario: str
    low: float
    high: float


def searched(results: Path, fields: Iterable[str]) -> dict[Change, list[float]]:
    """Of pairs of searched runs that differ in one setting alone: the change in points."""
    found: dict[Change, list[float]] = {}
    for scenario in SCENARIOS:
        path = results / "regime" / f"{scenario}.jsonl"
        rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        ours = [row for row in rows if row["method"] in OURS]
        for field in fields:
            for runs in alike(ours, field):
                for low, high in pairwise(sorted(runs)):
                    points = 100 * (runs[high] - runs[low])
                    found.setdefault(Change(field, scenario, low, high), []).append(points)
    return found


def alike(rows: Sequence[dict[str, Any]], field: str) -> Iterable[dict[float, float]]:
    """Groups of runs that are the same but for this setting: {its value: accuracy}."""
    groups: dict[str, dict[float, float]] = {}
    for row in rows:
        rest = dict(row["config"])
        if (value := rest.pop(field, None)) is not None:
            key = json.dumps([row["method"], row["seed"], row["tasks"], rest], sort_keys=True)
            groups.setdefault(key, {})[value] = row["accuracy"]
    return groups.values()


def changes(found: Mapping[Change, Sequence[float]]) -> Figure:
    """A row a change: every pair of runs a dot, their mean a bar."""
    fig, ax = plt.subplots(figsize=(WIDTH, 0.6 + 0.27 * max(1, len(found))))
    names = []
    for place, (change, points) in enumerate(found.items()):
        ax.plot(points, [place] * len(points), color=BLUE, marker="o", **EACH)
        ax.plot([np.mean(points)] * 2, [place - 0.35, place + 0.35], color=INK, lw=2)
        names.append(f"{change.field} {change.low:g} → {change.high:g}, {change.scenario}")
    ax.axvline(0, color=GREY, lw=1)
    ax.set_yticks(range(len(names)), names)
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.set_xlabel("change in validation accuracy, points")
    return fig


# --------------------------------------------------------------------- signs of failure


def diagnosed(results: Path) -> tuple[int, dict[tuple[str, str, str], str]]:
    """The doctor's round of all recorded runs: how many, and where which sign is in how many."""
    total, signs = 0, {}
    for scenario in SCENARIOS:
        for method in METHODS:
            records = load_records(results, scenario, method)
            total += len(records)
            seen = Counter(sign.name for record in records for sign in doctor.signs(record))
            for name, count in seen.items():
                key = (scenario, METHODS[method].title, name)
                signs[key] = f"{count} of {len(records)}"
    return total, signs


def kl_weights(weights: Sequence[float], tried: dict[int, Sequence[Record]]) -> Figure:
    """Accuracy on task 1, and what is left of the KL, by its weight; a line a number of images."""
    fig, axes = plt.subplots(1, 2, figsize=(WIDTH, 2.8))
    looks = ((BLUE, "o", "-"), (VERMILION, "^", "--"))
    for (images, records), (colour, marker, line) in zip(tried.items(), looks, strict=True):
        found = [doctor.kl_a_weight(record) for record in records]
        right = [100 * record.accuracy[0][0] for record in records]
        for ax, values in zip(axes, (right, [kl[0] for kl in found if kl]), strict=True):
            ax.plot(weights, values, color=colour, marker=marker, ls=line, label=f"{images} images")
    for ax, name in zip(axes, ("accuracy, %", "KL a weight, nats"), strict=True):
        ax.set(xscale="log", xlabel="weight of the KL", title=name)
    axes[1].set_yscale("log")
    axes[1].minorticks_off()
    axes[1].set_yticks([0.0001, 0.001, 0.01, 0.1], ["0.0001", "0.001", "0.01", "0.1"])
    axes[0].axhline(50, color=GREY, ls=":", lw=1.2)
    axes[0].legend()
    return fig
