"""Figures of chapter 6, Single-head learning."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .style import BLUE, EACH, GREY, INK, ORANGE, VERMILION, WIDTH, dots, end_labels


def switches(accuracy: dict[tuple[bool, bool, bool], Sequence[float]], floor: float) -> Figure:
    """Every combination of (re-initialise, restore, replay): every seed a dot."""
    fig, ax = plt.subplots(figsize=(WIDTH, 3.4))
    names = {
        (False, False): "neither",
        (True, False): "re-init.",
        (False, True): "restore",
        (True, True): "both",
    }
    places = {}
    for replay, offset in ((False, 0.0), (True, 4.7)):
        for k, pair in enumerate(names):
            places[(*pair, replay)] = offset + k
        ax.text(
            offset + 1.5,
            104,
            "with replay" if replay else "without replay",
            ha="center",
            fontweight="bold",
        )
    for key, values in accuracy.items():
        dots(ax, places[key], 100 * np.asarray(values), "rcl-cpb")
        top = f"{100 * np.mean(values):.0f}"
        ax.text(places[key] + 0.22, 100 * np.mean(values), top, va="center", fontsize=9)
    ax.axhline(100 * floor, color=GREY, ls=":", lw=1.2)
    ax.text(3.85, 100 * floor + 1.5, "last pair only", color=GREY, ha="center", fontsize=8.5)
    ax.set_xticks([*places.values()], [names[key[:2]] for key in places])
    ax.set(ylabel="average accuracy, %", ylim=(0, 103), xlim=(-0.5, 8.4))
    return fig


def first_losses(starts: dict[str, np.ndarray], tasks: Sequence[str]) -> Figure:
    """Before the first step of each task: the loss, and which outputs err (seeds)."""
    fig, axes = plt.subplots(1, 2, figsize=(WIDTH, 2.8))
    looks = (("kept", VERMILION, "^", -0.12), ("fresh", BLUE, "o", 0.12))
    titles = ("loss before the first step, nats", "error at old outputs, per image")
    for k, (ax, title) in enumerate(zip(axes, titles, strict=True)):
        ends = []
        for name, colour, marker, shift in looks:
            values = starts[name][..., k]  # (seeds, tasks)
            x = np.arange(values.shape[1])
            ax.plot(x, values.mean(0), color=colour)
            ax.plot(
                np.tile(x + shift, len(values)),
                values.ravel(),
                marker=marker,
                color=colour,
                **EACH,
            )
            ends.append((values.mean(0)[-1], name, colour))
        ax.set_xticks(x, tasks)
        ax.set(title=title, xlabel="task that begins", xlim=(-0.35, x[-1] + 0.3))
        ax.set_ylim(0, None if k == 0 else 1.05)
        end_labels(ax, ends, x=x[-1] + 0.1, gap=0.1)
    return fig


def _hatch(bars: Iterable[Any]) -> None:
    """What is new: another colour, and stripes for those who see no colours."""
    for bar in bars:
        bar.set_facecolor(ORANGE)
        bar.set_edgecolor("white")
        bar.set_hatch("////")


def _class_bars(ax: Axes, values: Any, new: int) -> None:
    """A bar a class; the newest classes hatched and in another colour."""
    values = np.asarray(values)
    bars = ax.bar(range(len(values)), values, color=BLUE, width=0.75)
    _hatch(bars[len(values) - new :])
    ax.set_xticks(range(len(values)))
    ax.tick_params(axis="x", length=0)


def head_bias(states: dict[str, tuple[Any, Any]], new: int) -> Figure:
    """A column a state of the output layer: mean logits, and how often each wins."""
    fig, axes = plt.subplots(2, len(states), figsize=(WIDTH, 4.0), sharey="row", sharex=True)
    for column, (title, (logits, share)) in zip(axes.T, states.items(), strict=True):
        _class_bars(column[0], logits, new)
        _class_bars(column[1], 100 * np.asarray(share), new)
        column[0].set_title(title)
        column[0].axhline(0, color=INK, lw=0.8)
        column[1].axhline(100 / len(share), color=INK, ls=":", lw=1.2)
        column[1].set_xlabel("output neuron")
    axes[0, 0].set_ylabel("mean logit")
    axes[1, 0].set_ylabel("answers, %")
    return fig


def replay_frame(
    share: Any, accuracy: Sequence[float], tasks: Sequence[str], new: int, title: str
) -> Figure:
    """One moment of replay: how often each class is the answer, and the accuracies."""
    fig, (left, right) = plt.subplots(1, 2, figsize=(WIDTH, 2.9))
    _class_bars(left, 100 * np.asarray(share), new)
    left.axhline(100 / len(share), color=INK, ls=":", lw=1.2)
    left.set(xlabel="output neuron", ylabel="answers, %", ylim=(0, 65), title=title)
    bars = right.bar(range(len(accuracy)), 100 * np.asarray(accuracy), color=BLUE)
    _hatch(bars[-1:])
    for k, value in enumerate(accuracy):
        right.text(k, 100 * value + 1.5, f"{100 * value:.0f}", ha="center", fontsize=9)
    right.set_xticks(range(len(accuracy)), tasks)
    right.set(xlabel="digits", ylabel="accuracy, %", ylim=(0, 108))
    right.set_title(f"mean {100 * np.mean(accuracy):.1f} %")
    return fig
