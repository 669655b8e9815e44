"""Figures of chapter 15, A posterior that knows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from .style import BLUE, COLOUR, GREY, INK, LABEL, MARKER, VERMILION, WIDTH, dots

LOOKS = {"Adam": (VERMILION, "^", "--"), "natural": (BLUE, "D", "-")}  # an optimiser's
ON = ("never", "up to 1 %", "1–5 %", "5–20 %", "20–50 %", "above 50 %")  # of the images
FEWEST = 10  # weights of a group that is drawn


def shuffled(found: dict[str, tuple[Sequence[float], Sequence[float]]]) -> Figure:
    """Old tasks' accuracy with own and with shuffled widths, a line a seed."""
    fig, axes = plt.subplots(1, len(found), figsize=(WIDTH, 2.9), sharey=True)
    for ax, (name, pairs) in zip(axes, found.items(), strict=True):
        colour, marker, _ = LOOKS[name]
        for own, mixed in zip(*pairs, strict=True):
            ax.plot([0, 1], [100 * own, 100 * mixed], color=colour, marker=marker, alpha=0.75)
        ax.set_xticks([0, 1], ["own widths", "shuffled widths"])
        ax.set(xlim=(-0.3, 1.3), title=name)
    axes[0].set_ylabel("old tasks at the end, %")
    return fig


def convergence(errors: dict[str, tuple[Sequence[float], str]]) -> Figure:
    """How far the widths are from the exact ones, step by step."""
    fig, ax = plt.subplots(figsize=(WIDTH, 2.9))
    for (name, (values, look)), style in zip(errors.items(), ("--", ":", "-"), strict=True):
        ax.plot(np.arange(1, len(values) + 1), values, color=LOOKS[look][0], ls=style, label=name)
    ax.set(xscale="log", yscale="log", xlabel="step", ylabel="largest error of log σ")
    ax.legend(loc="lower left")
    return fig


def widths_frame(exact: Sequence[float], learned: dict[str, Sequence[float]]) -> Figure:
    """Learned widths against exact ones: on the diagonal they agree."""
    fig, ax = plt.subplots(figsize=(WIDTH, 3.1))
    edges = (0.6 * min(exact), 1.8 * max(exact))
    ax.plot(edges, edges, color=GREY, lw=1)
    for name, values in learned.items():
        colour, marker, _ = LOOKS[name]
        ax.plot(exact, values, ls="", marker=marker, color=colour, ms=8, label=name)
    ax.set(xscale="log", yscale="log", xlim=edges, ylim=edges)
    ax.set(xlabel="exact σ", ylabel="learned σ")
    ax.legend(loc="upper left")
    return fig


def by_use(found: dict[str, Sequence[Sequence[Any]]], start: float) -> Figure:
    """Widths of weights by how often both of their ends are on: found[name][layer][bin]."""
    layers = len(next(iter(found.values())))
    fig, axes = plt.subplots(1, layers, figsize=(WIDTH, 3.1), sharey=True)
    for k, ax in enumerate(axes):
        for shift, (name, of_layer) in zip((-0.12, 0.12), found.items(), strict=True):
            colour, marker, style = LOOKS[name]
            bins = [i for i, v in enumerate(of_layer[k]) if len(v) >= FEWEST]
            quantiles = np.array([np.quantile(of_layer[k][i], (0.1, 0.5, 0.9)) for i in bins])
            x = np.array(bins) + shift
            ax.vlines(x, quantiles[:, 0], quantiles[:, 2], color=colour, lw=1.2)
            ax.plot(x, quantiles[:, 1], color=colour, marker=marker, ls=style, label=name)
        ax.axhline(start, color=INK, lw=0.8)
        ax.text(0, 0.98 * start, "start", fontsize=9, va="top")
        ax.set_xticks(range(len(ON)), ON, rotation=30, ha="right")
        ax.set(yscale="log", title=f"hidden layer {k + 1}")
        ax.set_yticks([0.05, 0.1, 0.2, 0.5], ["0.05", "0.1", "0.2", "0.5"])
        ax.set_ylim(0.04, 0.5)
        ax.yaxis.set_minor_formatter(mpl.ticker.NullFormatter())
    axes[0].set_ylabel("σ")
    axes[0].legend(loc="upper left", ncols=2)
    fig.supxlabel("images in which both ends of the weight are on", fontsize=10)
    return fig


def strengths(found: dict[float, tuple[float, float]]) -> Figure:
    """What is learned against what is kept, a mark a strength of the prior."""
    fig, ax = plt.subplots(figsize=(WIDTH, 2.9))
    new, kept = 100 * np.array(list(found.values())).T
    ax.plot(new, kept, color=GREY, lw=1.2)
    ax.plot(new, kept, ls="", marker="D", color=BLUE)
    for strength, x, y in zip(found, new, kept, strict=True):
        ax.annotate(f"{strength:g}", (x, y), xytext=(7, 5), textcoords="offset points")
    ax.set(xlabel="a task just learned, %", ylabel="old tasks at the end, %")
    ax.margins(0.12)
    return fig


def recorded_dots(found: dict[str, dict[str, Sequence[float]]], methods: Sequence[str]) -> Figure:
    """Recorded runs, a panel a scenario: every seed a dot, the mean a line."""
    columns = 2
    rows = -(-len(found) // columns)
    fig, axes = plt.subplots(rows, columns, figsize=(WIDTH, 0.6 + 2.1 * rows), squeeze=False)
    for ax, (scenario, of_method) in zip(axes.flat, found.items(), strict=False):
        for x, method in enumerate(methods):
            if method in of_method:
                dots(ax, x, of_method[method], method)
        ax.set_xticks([])
        ax.set(title=scenario, ylabel="accuracy, %", xlim=(-0.6, len(methods) - 0.4))
    for ax in axes.flat[len(found) :]:
        ax.axis("off")
    known = [method for method in methods if any(method in one for one in found.values())]
    handles = [
        mpl.lines.Line2D([], [], ls="", marker=MARKER[m], color=COLOUR[m], label=LABEL[m])
        for m in known
    ]
    fig.legend(handles=handles, loc="outside lower center", ncols=3, fontsize=9)
    return fig
