"""Figures of the appendices, and the search on validation data that two of them read."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

import rclcpb_core as core
from rclcpb.presets import OTHERS, preset

from .page import RESULTS
from .style import BLUE, COLOUR, GREY, INK, LABEL, MARKER, TASK_COLOURS, VERMILION, WIDTH


def regime(name: str) -> list[dict[str, Any]]:
    """The search on validation data: one entry a setting, in the order tried.

    A field that Config got later had its default in the earlier rows.
    """
    path = RESULTS / "regime" / f"{name}.jsonl"
    default = core.Config().as_json() | _retired()
    found: dict[str, dict[str, Any]] = {}
    for line in path.read_text().splitlines() if path.exists() else []:
        row = json.loads(line)
        if row["method"] in OTHERS:  # whose settings are others: chapter 12 has them
            continue
        config = default | row["config"]
        key = json.dumps([row["method"], row["tasks"], config], sort_keys=True)
        entry = {"method": row["method"], "tasks": row["tasks"], "config": config}
        entry = found.setdefault(key, entry | {"accuracy": {}, "hidden": {}, "s": {}})
        entry["accuracy"][row["seed"]] = 100 * row["accuracy"]
        entry["hidden"][row["seed"]] = row["hidden"]
        entry["s"][row["seed"]] = row["seconds"]
    return list(found.values())


def _retired() -> dict[str, Any]:
    """Fields that Config no longer has, with the values that are today's behaviour."""
    return {name: values[0] for name, values in core.Config.RETIRED.items()}


def as_searched(scenario: str, method: str) -> dict[str, Any]:
    """A method's preset, with the fields that a row of the search has."""
    control = {"coreset_only": True} if method == "coreset-only" else {}
    return preset(scenario, method).as_json() | _retired() | control


def searched(name: str, method: str) -> int:
    """How many settings of a method were tried on validation data."""
    return sum(entry["method"] == method for entry in regime(name))


def chain_rows(name: str) -> list[tuple[object, ...]]:
    """What benchmarks/chain.py found: an answer a row, its means over seeds."""
    path = RESULTS / "chain" / f"{name}.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    measures = ("accuracy", "right_task", "told_task")
    found = []
    for answer in dict.fromkeys(row["answer"] for row in rows):
        mine = [row for row in rows if row["answer"] == answer]
        means = [f"{100 * np.mean([row[m] for row in mine]):.2f}" for m in measures]
        found.append((answer, *means, len(mine)))
    return found


class Change(NamedTuple):
    """Two settings of the search that differ in one field, and what that changed."""

    scenario: str
    method: str
    field: str  # "lr" where both learning rates change together
    before: Any
    after: Any
    points: list[float]  # a seed

    def __str__(self) -> str:
        return f"{self.field} {setting(self.before)} → {setting(self.after)}"


def setting(value: Any) -> str:
    """A field's value as one would type it."""
    if isinstance(value, list | tuple):
        return ",".join(f"{x:g}" for x in value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def one_field_changes(name: str) -> list[Change]:
    """What leaving a method's preset in one field changed, in the search so far.

    Two settings tell if they differ in that field only and one of them has the preset's
    value there. The other fields may differ from the preset: a seed's points are the
    mean over all such pairs.
    """
    found: dict[tuple[str, ...], tuple[Any, Any, dict[int, list[float]]]] = {}
    for a, b in itertools.combinations(regime(name), 2):
        seeds = sorted(set(a["accuracy"]) & set(b["accuracy"]))
        same = (a["method"], a["tasks"]) == (b["method"], b["tasks"])
        odd = [k for k in a["config"] if a["config"][k] != b["config"][k]]
        if not seeds or not same or not (len(odd) == 1 or odd == ["lr_mu", "lr_rho"]):
            continue
        retired = core.Config.RETIRED.get(odd[0], (None,))[0]
        default = getattr(preset(name, a["method"]), odd[0], retired)
        default = list(default) if isinstance(default, tuple) else default
        if b["config"][odd[0]] == default:  # from what the preset has, to the other
            a, b = b, a
        before, after = a["config"][odd[0]], b["config"][odd[0]]
        if before != default:
            continue
        field = "lr" if len(odd) == 2 else odd[0]
        key = (field, a["method"], setting(after))
        _, _, points = found.setdefault(key, (before, after, {}))
        for s in seeds:
            points.setdefault(s, []).append(b["accuracy"][s] - a["accuracy"][s])
    changes = [
        Change(name, method, field, a, b, [float(np.mean(of)) for of in points.values()])
        for (field, method, _), (a, b, points) in found.items()
    ]
    return sorted(changes, key=lambda change: change.field)


def search_path(found: dict[str, Sequence[tuple[float, str, bool]]]) -> Figure:
    """Accuracy of each setting in the order tried; the best so far, and the presets."""
    rows = -(-len(found) // 2)
    fig, axes = plt.subplots(rows, 2, figsize=(WIDTH, 0.5 + 2.2 * rows), squeeze=False)
    for ax, (name, tried) in zip(axes.flat, found.items(), strict=False):
        values = np.array([accuracy for accuracy, *_ in tried])
        x = np.arange(1, len(tried) + 1)
        ax.step(x, np.maximum.accumulate(values), where="post", color="#bbbbbb", lw=1.2)
        for place, (accuracy, method, chosen) in zip(x, tried, strict=True):
            ax.plot(
                place,
                accuracy,
                MARKER[method],
                color=COLOUR[method],
                mec=INK if chosen else "white",
                mew=1.6 if chosen else 0.4,
                ms=8 if chosen else 5,
            )
        ax.set(title=name, xlabel="setting, in the order tried", ylabel="accuracy, %")
        ax.xaxis.get_major_locator().set_params(integer=True)
    for ax in axes.flat[len(found) :]:
        ax.axis("off")
    seen = dict.fromkeys(m for tried in found.values() for _, m, _ in tried)
    handles = [
        mpl.lines.Line2D([], [], ls="", marker=MARKER[m], color=COLOUR[m], label=LABEL[m])
        for m in seen
    ]
    ring = {"marker": "o", "mfc": "white", "mec": INK, "mew": 1.6, "ms": 8}
    handles.append(mpl.lines.Line2D([], [], ls="", label="became a preset", **ring))
    fig.legend(handles=handles, loc="outside lower center", ncols=4, fontsize=9)
    return fig


def one_change(rows: Sequence[tuple[str, Sequence[float]]]) -> Figure:
    """A row a change of one setting: the differences in accuracy, every seed a dot."""
    fig, ax = plt.subplots(figsize=(WIDTH, 0.9 + 0.235 * len(rows)))
    for y, (_, values) in enumerate(rows):
        ax.axhline(y, color="#eeeeee", lw=0.8, zorder=0)
        colour = BLUE if np.mean(values) > 0 else VERMILION
        ax.barh(y, np.mean(values), color=colour, alpha=0.35, height=0.6)
        ax.plot(values, [y] * len(values), "o", color=colour, ms=4.5)
    ax.axvline(0, color=INK, lw=0.9)
    ax.set_yticks(range(len(rows)), [text for text, _ in rows], fontsize=8.5)
    ax.set(ylim=(len(rows) - 0.4, -0.6), xlabel="change in accuracy, points")
    return fig


def step_ratios(cases: Sequence[dict[str, Any]]) -> Figure:
    """A panel a kind of network: time of a step, plain layers' being 1."""
    kinds = list(dict.fromkeys(case["kind"] for case in cases))
    names = [n for n in cases[0]["ratio"] if n != "plain"]
    fig, axes = plt.subplots(
        1, len(kinds), figsize=(WIDTH, 1.1 + 0.36 * len(names)), sharey=True, squeeze=False
    )
    for ax, kind in zip(axes.flat, kinds, strict=True):
        chosen = [case for case in cases if case["kind"] == kind]
        for k, case in enumerate(chosen):
            y = np.arange(len(names)) + 0.2 * (k - (len(chosen) - 1) / 2)
            ax.plot(
                [case["ratio"][n] for n in names],
                y,
                "os^Dv"[k % 5],
                ls="",
                color=TASK_COLOURS[k],
                label=str(case["hidden"]),
            )
        ax.axvline(1, color=INK, lw=0.9)
        ax.set_yticks(range(len(names)), names)
        ax.set(title=kind, xlabel="time of a step, plain = 1", xlim=(0, None))
        ax.set_ylim(len(names) - 0.5, -0.5)
        ax.grid(axis="x", color="#e4e4e4")
        ax.legend(fontsize=8, loc="best")
    return fig


def cost_growth(growth: dict[str, Sequence[dict[str, float]]]) -> Figure:
    """Seconds of a run against what it grows with; dashed: in proportion."""
    fig, axes = plt.subplots(1, len(growth), figsize=(WIDTH, 2.6))
    names = {"neurons": "neurons a layer", "samples": "images a task"}
    for ax, (name, rows) in zip(axes, growth.items(), strict=True):
        x, y = ([row[key] for row in rows] for key in ("n", "cpu_seconds"))
        ax.plot([0, x[-1]], [0, y[-1]], color=GREY, ls="--", lw=1)
        ax.plot(x, y, color=BLUE, marker="o")
        ax.set(xlabel=names.get(name, name), xlim=(0, None), ylim=(0, None))
    axes[0].set_ylabel("CPU seconds")
    return fig


def run_minutes(found: dict[str, dict[str, Sequence[float]]]) -> Figure:
    """A group a scenario, a row a method: minutes a run, every seed a dot."""
    rows = [(name, m) for name, methods in found.items() for m in methods]
    fig, ax = plt.subplots(figsize=(WIDTH, 0.9 + 0.25 * len(rows)))
    for y, (name, method) in enumerate(rows):
        values = found[name][method]
        ax.barh(y, np.mean(values), color=COLOUR[method], alpha=0.35, height=0.7)
        ax.plot(
            values, [y] * len(values), MARKER[method], color=COLOUR[method], ms=4, mec=INK, mew=0.3
        )
    ax.set_yticks(range(len(rows)), [f"{name}: {LABEL[m]}" for name, m in rows], fontsize=8.5)
    ax.set(ylim=(len(rows) - 0.4, -0.6), xlabel="minutes a run", xlim=(0, None))
    return fig
