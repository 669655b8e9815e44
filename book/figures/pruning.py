"""Figures of chapter 4, Pruning by signal-to-noise."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from .style import BLUE, EACH, GREEN, INK, ORANGE, PURPLE, VERMILION, WIDTH, end_labels

ORDERS = {  # what says which weights go first
    "snr": ("SNR", BLUE, "o", "-"),
    "size": ("|μ| alone", VERMILION, "s", "--"),
    "shuffled": ("SNR, widths shuffled", PURPLE, "^", "-."),
    "random": ("at random", INK, "x", ":"),
}
OPTIMISERS = {
    "adam": "Adam",
    "natural": "natural steps",
    "natural-strong": "natural, prior counts more",
}
BINS = {  # of the SNR after task 1, in the paper's colours, each with a second cue
    "SNR above 10⁻²": (BLUE, "-"),
    "10⁻⁵ to 10⁻²": (ORANGE, "--"),
    "below 10⁻⁵": (GREEN, ":"),
}


def pruning_runs(results: Path, scenario: str) -> list[dict[str, Any]]:
    """What benchmarks/pruning.py recorded of a scenario; the seeds in order."""
    path = results / "pruning" / f"{scenario}.jsonl"
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    return sorted(map(json.loads, lines), key=lambda run: int(run["seed"]))


def adaptations(
    moves: Sequence[Sequence[Any]], bins: Sequence[Sequence[Any]], tasks: Sequence[str]
) -> Figure:
    """How far weights moved at each later task, by bin of their SNR after task 1.

    moves[t][k]: |change of mu| of layer k at a task; bins[k]: the layer's three masks.
    """
    rows, columns = len(bins), len(moves)
    fig, axes = plt.subplots(rows, columns, figsize=(WIDTH, 4.2), sharex=True, sharey="row")
    edges = np.arange(-9, -0.9, 0.25)  # the first bar is for weights that stayed
    for t, k in np.ndindex(columns, rows):
        ax, values = axes[k, t], np.asarray(moves[t][k])
        for (colour, style), mask in zip(BINS.values(), bins[k], strict=True):
            chosen = values[np.asarray(mask)]
            logs = np.where(chosen > 0, np.log10(np.maximum(chosen, 1e-8)), -8.9)
            share = 100 * np.histogram(logs, edges)[0] / max(len(chosen), 1)
            ax.stairs(share, edges, fill=True, color=colour, alpha=0.3)
            ax.stairs(share, edges, color=colour, ls=style, lw=1.4)
        if k == 0:
            ax.set_title(f"task {t + 2}: {tasks[t + 1]}")
        ax.set_xticks([-8.875, -6, -4, -2], ["none", "−6", "−4", "−2"])
    for k in range(rows):
        axes[k, 0].set_ylabel(f"hidden layer {k + 1}\nshare of the bin, %")
    fig.supxlabel("log₁₀ of the change of μ", fontsize=10)
    handles = [
        mpl.lines.Line2D([], [], color=c, ls=s, label=n, lw=2.4) for n, (c, s) in BINS.items()
    ]
    fig.legend(handles=handles, loc="outside upper center", ncols=3, fontsize=9)
    return fig


def three_weights(cases: dict[str, tuple[float, float]]) -> Figure:
    """A few weights as Gaussians: how much of each lies on either side of zero."""
    fig, axes = plt.subplots(1, len(cases), figsize=(WIDTH, 2.2), sharex=True)
    grid = np.linspace(-0.32, 0.48, 400)
    for ax, (name, (mu, sigma)) in zip(axes, cases.items(), strict=True):
        density = np.exp(-0.5 * ((grid - mu) / sigma) ** 2) / sigma
        ax.fill_between(grid, density, color=BLUE, alpha=0.3, lw=0)
        ax.plot(grid, density, color=BLUE)
        ax.axvline(0, color=INK, lw=1)
        ax.axvline(mu, color=VERMILION, ls="--", lw=1.4)
        ax.set(yticks=[], xlabel="weight", title=name, ylim=(0, None))
        ax.spines["left"].set_visible(False)
    return fig


def pulled(paths: dict[str, Sequence[float]], levels: dict[str, float]) -> Figure:
    """A weight on which only its prior acts, step by step, from a few starts."""
    fig, ax = plt.subplots(figsize=(WIDTH, 2.9))
    looks = zip((BLUE, ORANGE, GREEN, PURPLE), ("-", "--", "-.", ":"), strict=True)
    for (name, values), (colour, style) in zip(paths.items(), looks, strict=False):
        ax.plot(np.abs(values), color=colour, ls=style, label=name)
    for name, value in levels.items():
        ax.axhline(value, color=INK, lw=0.9)
        ax.text(1.01, value, name, va="center", fontsize=9, transform=ax.get_yaxis_transform())
    ax.set(yscale="log", ylim=(1e-7, 2), xlabel="step of task 1", ylabel="|μ|")
    ax.legend(loc="upper right", ncols=4, fontsize=9)
    return fig


def together(edges: Sequence[str], shares: dict[str, Sequence[float]]) -> Figure:
    """Share of weights with a low SNR, by how often both of their ends are on."""
    fig, ax = plt.subplots(figsize=(WIDTH, 2.8))
    width, hatches = 0.8 / len(shares), ("", "////")
    for k, (name, values) in enumerate(shares.items()):
        x = np.arange(len(values)) + (k - (len(shares) - 1) / 2) * width
        ax.bar(
            x,
            100 * np.asarray(values),
            0.94 * width,
            color=(BLUE, ORANGE)[k],
            hatch=hatches[k],
            edgecolor="white",
            label=name,
        )
    ax.set_xticks(range(len(edges)), edges)
    ax.set(
        xlabel="images in which both ends of the weight are on",
        ylabel="weights with SNR below 0.01, %",
    )
    ax.legend()
    return fig


def zero_or_fresh(betas: Sequence[float], found: dict[str, Sequence[Sequence[float]]]) -> Figure:
    """Accuracy on what was learned, right after the weights below beta are changed."""
    fig, ax = plt.subplots(figsize=(WIDTH, 2.9))
    looks = (("o", BLUE, "-"), ("s", VERMILION, "--"))
    ends = []
    for (marker, colour, style), (name, values) in zip(looks, found.items(), strict=True):
        each = 100 * np.asarray(values)  # (betas, draws)
        ax.plot(betas, each.mean(1), color=colour, ls=style)
        ax.plot(
            np.repeat(betas, each.shape[1]),
            each.ravel(),
            marker=marker,
            color=colour,
            **EACH,
        )
        ends.append((each.mean(1)[-1], name, colour))
    ax.set(xscale="log", xlabel="threshold β", ylabel="accuracy, %")
    end_labels(ax, ends, x=1.1 * max(betas))
    return fig


def beta_frame(snr: Sequence[Any], beta: float) -> Figure:
    """What one beta re-initialises: where in the SNRs, and at which pixels."""
    fig, axes = plt.subplots(1, 3, figsize=(WIDTH, 2.9), width_ratios=[1, 1, 0.8])
    edges = np.arange(-9, 2.01, 0.25)
    for k, (ax, layer) in enumerate(zip(axes, snr, strict=False)):
        values = np.asarray(layer)
        logs = np.log10(np.maximum(values.ravel(), 1e-9))
        share = 100 * np.histogram(logs, edges)[0] / values.size
        low = edges[1:] <= np.log10(beta) + 1e-9
        ax.stairs(share, edges, fill=True, color="#d9d9d9")
        ax.stairs(np.where(low, share, 0), edges, fill=True, color=BLUE)
        ax.axvline(np.log10(beta), color=INK, ls="--", lw=1)
        delta = int((values < beta).sum())
        ax.set_title(
            f"layer {k + 1}: δ = {delta:,}\n= {delta / values.shape[1]:.1f}"
            f" of {len(values)} neurons",
            fontsize=9.5,
        )
        ax.set(xlabel="log₁₀ SNR", xticks=[-8, -6, -4, -2, 0, 2])
    axes[0].set_ylabel("weights, %")
    below = (np.asarray(snr[0]) < beta).mean(0).reshape(28, 28)
    axes[2].imshow(below, vmin=0, vmax=1, cmap="Blues")
    axes[2].set(xticks=[], yticks=[])
    axes[2].spines[:].set_visible(True)
    axes[2].set_title("layer 1, by pixel", fontsize=9.5)
    return fig


def pruning_curves(runs: Sequence[dict[str, Any]], first: str, last: str) -> Figure:
    """Accuracy against the share of hidden weights that are gone, the mean over seeds.

    A row of panels for after the first task and one for after the last, a column an optimiser.
    """
    names = [name for name in OPTIMISERS if any(run["optimiser"] == name for run in runs)]
    size, stages = (WIDTH, 5.0), {"first": first, "last": last}
    fig, axes = plt.subplots(2, len(names), figsize=size, sharex=True, sharey=True, squeeze=False)
    for ax, (stage, name) in zip(axes.flat, product(stages, names), strict=True):
        mine = [run for run in runs if run["optimiser"] == name]
        ticks = [f"{100 * share:g}" for share in mine[0]["shares"]]
        for order, (label, colour, marker, style) in ORDERS.items():
            curve = 100 * np.mean([run[stage][order] for run in mine], axis=0)
            ax.plot(curve, color=colour, marker=marker, ls=style, label=label)
        ax.set_xticks(range(len(ticks)), ticks)
    for ax, name in zip(axes[0], names, strict=True):
        ax.set_title(OPTIMISERS[name], fontsize=9.5)
    for ax, stage in zip(axes[:, 0], stages.values(), strict=True):
        ax.set_ylabel(f"{stage}: accuracy, %")
    fig.supxlabel("hidden weights set to zero, %", fontsize=10)
    lines, labels = axes[0, 0].get_legend_handles_labels()
    fig.legend(lines, labels, loc="outside upper center", ncols=4, fontsize=9)
    return fig


def ahead(runs: Sequence[dict[str, Any]], share: float) -> list[str]:
    """What SNR keeps more than |mu| and than shuffled widths do, after the last task."""
    told = []
    for name, title in OPTIMISERS.items():
        mine = [run for run in runs if run["optimiser"] == name]
        if not mine:
            continue
        place = mine[0]["shares"].index(share)
        kept = {o: np.array([100 * run["last"][o][place] for run in mine]) for o in ORDERS}
        gaps = kept["snr"] - kept["size"]
        told.append(
            f"{title}: SNR keeps {kept['snr'].mean():.1f} %, |μ| {kept['size'].mean():.1f} %,"
            f" shuffled widths {kept['shuffled'].mean():.1f} % (SNR ahead of |μ| in"
            f" {(gaps > 0).sum()} of {len(gaps)} seeds)"
        )
    return told
