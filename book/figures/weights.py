"""Figures of chapter 2, Weights as distributions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from .style import BLUE, COLOUR, GREY, INK, VERMILION, WIDTH, end_labels


def one_weight(
    points: tuple[Any, Any],
    prior: tuple[float, float],
    exact: tuple[float, float],
    learned: tuple[float, float] | None,
    truth: float,
) -> Figure:
    """Data for one weight beside its prior, exact posterior and learned q."""
    fig, (left, right) = plt.subplots(1, 2, figsize=(WIDTH, 2.9))
    x, y = (np.asarray(values) for values in points)
    line = np.array([-2.2, 2.2])
    if len(x):
        left.plot(x, y, "o", color=INK)
    left.plot(line, truth * line, color=GREY, ls="--", lw=1)
    mean, deviation = learned or exact
    for w in np.random.default_rng(0).normal(mean, deviation, 12):
        left.plot(line, w * line, color=BLUE, lw=0.7, alpha=0.5)
    left.set(xlim=(-2.2, 2.2), ylim=(-4, 4), xlabel="x", ylabel="y")
    left.set_title(f"{len(x)} points, 12 draws of the weight")
    grid = np.linspace(-2.5, 2.5, 500)
    curves = [(prior, GREY, ":", "prior"), (exact, VERMILION, "--", "exact posterior")]
    if learned:
        curves.append((learned, BLUE, "-", "learned q"))
    for (m, d), colour, style, name in curves:
        density = np.exp(-0.5 * ((grid - m) / d) ** 2) / (d * np.sqrt(2 * np.pi))
        right.plot(grid, density, color=colour, ls=style, label=name)
    right.axvline(truth, color=GREY, ls="--", lw=1)
    right.set(xlabel="weight w", ylabel="density", ylim=(0, 4.5), xlim=(-2.5, 2.5))
    right.set_title("what is believed about w")
    right.legend(loc="upper left", fontsize=9)
    return fig


def rho_moves(layers: Sequence[Any], start: float, reach: float) -> Figure:
    """Where rho ended in each layer, and how far Adam could have carried it."""
    fig, ax = plt.subplots(figsize=(WIDTH, 2.4))
    names = [f"hidden layer {k + 1}" for k in range(len(layers) - 1)] + ["output layer"]
    for k, values in enumerate(layers):
        body = ax.violinplot(np.asarray(values)[::7], [k], vert=False, widths=0.8)
        for part in [*body["bodies"], body["cmins"], body["cmaxes"], body["cbars"]]:
            part.set_color(BLUE)
    ax.axvline(start, color=INK, lw=1)
    for edge in (start - reach, start + reach):
        ax.axvline(edge, color=GREY, ls="--", lw=1)
    ax.text(start, len(layers) - 0.42, " start", va="bottom")
    ax.text(
        start + reach,
        len(layers) - 0.42,
        "as far as Adam can go ",
        ha="right",
        va="bottom",
        color=GREY,
    )
    ax.set_yticks(range(len(layers)), names)
    ax.set(ylim=(-0.6, len(layers) - 0.1), xlabel="ρ after training")
    return fig


def guesses(pictures: Any, probabilities: Any, labels: Any, columns: int = 6) -> Figure:
    """Images with the two likeliest answers; a cross marks a wrong first one."""
    rows = -(-len(pictures) // columns)
    fig, axes = plt.subplots(rows, columns, figsize=(WIDTH, 1.55 * rows))
    for ax, picture, p, label in zip(
        axes.flat, pictures, np.asarray(probabilities), labels, strict=True
    ):
        best = np.argsort(p)[::-1][:2]
        words = ", ".join(f"{c}: {100 * p[c]:.0f}%" for c in best)
        ax.imshow(np.asarray(picture).reshape(28, 28))
        ax.set(xticks=[], yticks=[])
        ax.spines[:].set_color("#bbbbbb")
        wrong = "" if best[0] == label else "✗ "
        ax.set_title(wrong + words, fontsize=8, loc="center")
    return fig


def coverage(shares: Any, curves: dict[str, tuple[Any, str]]) -> Figure:
    """Accuracy on the surest share of the test images."""
    fig, ax = plt.subplots(figsize=(WIDTH, 2.8))
    for values, method in curves.values():
        style = "-" if method == "rcl-cpb" else "--"
        ax.plot(100 * shares, 100 * np.asarray(values), color=COLOUR[method], ls=style)
    end_labels(
        ax, [(100 * values[-1], name, COLOUR[method]) for name, (values, method) in curves.items()]
    )
    ax.set(xlabel="share of the images answered, surest first, %", ylabel="accuracy on them, %")
    return fig


def overconfidence(angles: Any, curves: dict[str, tuple[Any, Any, str]]) -> Figure:
    """Confidence and accuracy while images turn, a panel a network."""
    fig, axes = plt.subplots(1, len(curves), figsize=(WIDTH, 2.8), sharey=True)
    for ax, (name, (sure, right, method)) in zip(axes, curves.items(), strict=True):
        sure, right = 100 * np.asarray(sure), 100 * np.asarray(right)
        ax.fill_between(angles, right, sure, color=COLOUR[method], alpha=0.18, lw=0)
        ax.plot(angles, sure, color=COLOUR[method], marker="o")
        ax.plot(angles, right, color=INK, marker="s", ls="--")
        ax.set(xlabel="turned by, degrees", ylim=(0, 103), xticks=range(0, 181, 45))
        ax.set_title(name)
        end_labels(ax, [(sure[-1], "confidence", COLOUR[method]), (right[-1], "accuracy", INK)])
    axes[0].set_ylabel("%")
    return fig


def draws(picture: Any, probabilities: Any, title: str) -> Figure:
    """An image beside the class probabilities of single draws of the weights."""
    fig, (left, right) = plt.subplots(1, 2, figsize=(WIDTH, 2.6), width_ratios=[1, 2.6])
    left.imshow(np.asarray(picture).reshape(28, 28))
    left.set(xticks=[], yticks=[])
    p = np.asarray(probabilities)  # (draws, classes)
    shift = np.random.default_rng(0).uniform(-0.28, 0.28, p.shape)
    right.plot((np.arange(10) + shift).ravel(), p.ravel(), ".", color=BLUE, alpha=0.25, ms=4)
    right.hlines(p.mean(0), np.arange(10) - 0.35, np.arange(10) + 0.35, color=VERMILION)
    right.set(xticks=range(10), ylim=(-0.03, 1.03), xlabel="class", ylabel="probability")
    right.set_title(title)
    return fig
