"""Figures of chapter 5, Growing by activation distance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .style import (
    BLUE,
    EACH,
    GREEN,
    GREY,
    INK,
    ORANGE,
    SKY,
    TASK_COLOURS,
    VERMILION,
    WIDTH,
    dots,
    end_labels,
)

MOST = 48  # marks of a panel


def class_activations(
    layers: Sequence[Sequence[Any]], gamma: float, tasks: Sequence[str]
) -> Figure:
    """Mean activation of every neuron for a task's two classes: layers[k][t] is phi.

    Within the grey band the two differ by less than gamma; outside a neuron is shared.
    """
    rows, columns = len(layers), len(tasks)
    fig, axes = plt.subplots(rows, columns, figsize=(WIDTH, 5.0), sharex="row", sharey="row")
    for k, t in np.ndindex(rows, columns):
        ax, (a, b) = axes[k, t], np.asarray(layers[k][t])
        top = 1.05 * max(float(np.asarray(phi).max()) for phi in layers[k])
        ax.fill_between([0, top], [-gamma, top - gamma], [gamma, top + gamma], color="#e4e4e4")
        away = np.abs(a - b) > gamma
        drawn = np.arange(len(a)) % -(-len(a) // MOST) == 0
        ax.plot(a[drawn & ~away], b[drawn & ~away], "s", color=GREY, ms=3, alpha=0.8, mew=0)
        ax.plot(a[drawn & away], b[drawn & away], "o", color=BLUE, ms=4, alpha=0.8, mew=0)
        ax.set(xlim=(-0.03 * top, top), ylim=(-0.03 * top, top), aspect="equal")
        first, second = tasks[t].split("/")
        ax.set(xlabel=f"for {first}", ylabel=f"for {second}")
        ax.set_title(f"{away.sum()} of {len(a)} outside", fontsize=9.5)
        if k == 0:
            ax.annotate(
                f"task {t + 1}: {tasks[t]}", (0, 1.2), xycoords="axes fraction", fontweight="bold"
            )
    for k in range(rows):
        axes[k, 0].set_ylabel(f"hidden layer {k + 1}\n{axes[k, 0].get_ylabel()}")
    return fig


def distances_by_task(
    layers: Sequence[Sequence[Any]], gamma: float, tasks: Sequence[str]
) -> Figure:
    """Each task's distances, sorted, against gamma: layers[k][t], a panel a layer."""
    fig, axes = plt.subplots(1, len(layers), figsize=(WIDTH, 2.9), sharey=True)
    for k, ax in enumerate(axes):
        for t, style in zip(range(len(tasks)), ("-", "--", "-."), strict=True):
            values = np.sort(np.asarray(layers[k][t]))[::-1]
            ax.plot(values, ls=style, color=TASK_COLOURS[t], label=f"task {t + 1}: {tasks[t]}")
        ax.axhline(gamma, color=INK, ls="--", lw=1)
        ax.text(
            1,
            gamma,
            f"γ = {gamma:g}",
            ha="right",
            va="bottom",
            fontsize=9,
            transform=ax.get_yaxis_transform(),
        )
        ax.set(title=f"hidden layer {k + 1}", xlabel="neurons, sorted", yscale="log")
    axes[0].set(ylabel="distance (Eq. 5)", ylim=(3e-3, None))
    axes[0].legend(loc="lower left")
    return fig


def untrained_too(shares: dict[str, tuple[Sequence[float], Sequence[float]]]) -> Figure:
    """Share of neurons above gamma: trained networks, and untrained ones."""
    fig, ax = plt.subplots(figsize=(WIDTH, 2.6))
    for x, (trained, untrained) in enumerate(shares.values()):
        dots(ax, x - 0.2, 100 * np.asarray(trained), "rcl-cpb")
        dots(ax, x + 0.2, 100 * np.asarray(untrained), "paper")
    ax.set_xticks(range(len(shares)), list(shares))
    ax.set(ylabel="neurons above γ, %", ylim=(0, 100), xlim=(-0.6, len(shares) - 0.4))
    looks = (("o", BLUE, "trained, a seed each"), ("D", GREY, "untrained"))
    handles = [mpl.lines.Line2D([], [], ls="", marker=m, color=c, label=n) for m, c, n in looks]
    fig.legend(handles=handles, loc="outside upper center", ncols=2)
    return fig


def shared_part(ax: Axes, layer: Any, gamma: float) -> int:
    """Draw a layer's distances, sorted, with those above gamma shaded; how many these are."""
    values = np.sort(np.asarray(layer))[::-1]
    shared = int((values > gamma).sum())
    ax.fill_between(np.arange(shared), values[:shared], color=SKY, lw=0, alpha=0.5)
    ax.plot(values, color=BLUE)
    ax.axhline(gamma, color=INK, ls="--", lw=1)
    return shared


def gamma_frame(
    distances: Sequence[Any], gamma: float, required: Sequence[float], freed: Sequence[float]
) -> Figure:
    """One gamma: which neurons count as shared, and what Eq. 7 adds then."""
    fig, axes = plt.subplots(1, 3, figsize=(WIDTH, 2.9), width_ratios=[1, 1, 1.1])
    for k, (ax, layer) in enumerate(zip(axes, distances, strict=False)):
        shared = shared_part(ax, layer, gamma)
        ax.set(xlabel="neurons, sorted", ylim=(0, 1.0))
        ax.set_title(f"layer {k + 1}: {shared} above γ", fontsize=9.5)
        left = 0.0
        alpha = max(0, round(required[k] - shared - freed[k]))
        parts = ((shared, SKY, ""), (freed[k], GREEN, "...."), (alpha, ORANGE, "////"))
        for width, colour, hatch in parts:
            axes[2].barh(
                1 - k, width, left=left, color=colour, hatch=hatch, edgecolor="white", height=0.5
            )
            left += width
        axes[2].text(0, 1 - k + 0.31, f"layer {k + 1}: add {alpha}", fontsize=9.5)
    axes[0].set_ylabel("distance (Eq. 5)")
    axes[2].axvline(required[0], color=INK, lw=1)
    axes[2].text(required[0], -0.62, "required ", ha="right", fontsize=9)
    axes[2].set(xlabel="neurons", yticks=[], ylim=(-0.7, 1.65), xlim=(0, 180))
    axes[2].set_title("shared, freed, added", fontsize=9.5)
    return fig


def growth_shock(sizes: Sequence[int], found: dict[str, Sequence[Sequence[float]]]) -> Figure:
    """Accuracy on the old task right after growing, every draw a dot."""
    fig, ax = plt.subplots(figsize=(WIDTH, 2.9))
    looks = {
        "random": (VERMILION, "s", "--", 0.15),
        "zero": (BLUE, "o", "-", 0.0),
        "none": (GREEN, "D", ":", -0.15),
    }
    ends = []
    for name, values in found.items():
        colour, marker, style, shift = looks[name]
        each = 100 * np.asarray(values)  # (sizes, draws)
        x = np.arange(len(sizes))
        ax.plot(x, each.mean(1), color=colour, ls=style)
        ax.plot(
            np.repeat(x + shift, each.shape[1]),
            each.ravel(),
            marker=marker,
            color=colour,
            **EACH,
        )
        ends.append((each.mean(1)[-1], name, colour))
    ax.set_xticks(x, sizes)
    ax.set(xlabel="neurons added to each hidden layer", ylabel="accuracy, %")
    end_labels(ax, ends, x=x[-1] + 0.15)
    return fig
