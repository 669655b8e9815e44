"""Figures of chapter 7, End to end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .growing import shared_part
from .style import TASK_COLOURS, WIDTH, end_labels, matrix
from .vector import readable

DARK_TASKS = [readable(colour) for colour in TASK_COLOURS]  # under white numbers


def _neurons(
    ax: Axes, births: Sequence[int], x: float, title: str, fresh: Sequence[float] = ()
) -> None:
    """A layer as a block of squares, each in the colour of the task it was added at.

    fresh: of each old neuron the share of its weights that are re-initialised, left white.
    """
    columns = 12
    place = np.arange(sum(births))
    task = np.repeat(np.arange(len(births)), births)
    colours = np.array(TASK_COLOURS)[task] if len(task) else []
    across, down = x + 0.34 * (place % columns), -0.34 * (place // columns)
    ax.scatter(across, down, s=20, marker="s", c=colours, lw=0)
    share = np.asarray(fresh, dtype=float)
    old = len(share)
    ax.scatter(across[:old], down[:old], s=16 * share, marker="s", c="white", lw=0)
    words = " + ".join(str(n) for n in births if n) or "0"
    ax.text(x - 0.17, 1.0, f"{title}: {sum(births)}", fontsize=9.5, fontweight="bold")
    freed = f"; {share.mean():.0%} of weights fresh" if old else ""
    ax.text(x - 0.17, 0.45, f"= {words}{freed}", fontsize=8)


def growth_frame(
    births: Sequence[Sequence[int]],
    outputs: int,
    accuracy: Sequence[Sequence[float]],
    tasks: Sequence[str],
    title: str,
    fresh: Sequence[Any] = ((), ()),
) -> Figure:
    """The network as it stands, beside R as far as it is filled."""
    fig, (ax, right) = plt.subplots(1, 2, figsize=(WIDTH, 3.4), width_ratios=[1.65, 1])
    for k, (layer, share) in enumerate(zip(births, fresh, strict=True)):
        _neurons(ax, layer, 5.2 * k, f"hidden layer {k + 1}", share)
    x = 5.2 * len(births)
    ax.text(x - 0.17, 1.0, f"output: {outputs}", fontsize=9.5, fontweight="bold")
    for c in range(outputs):
        ax.scatter(x + 0.2, -0.1 - 0.72 * c, s=110, c=DARK_TASKS[c // 2])
        ax.text(
            x + 0.2, -0.12 - 0.72 * c, str(c), ha="center", va="center", color="white", fontsize=8
        )
    ax.set(xlim=(-0.4, x + 1.9), ylim=(-7.6, 1.6))
    ax.axis("off")
    ax.set_title(title, loc="left", fontsize=10)
    matrix(right, accuracy, tasks, "accuracy, %")
    return fig


def pruned_pixels(share: Any, lit: Any) -> Figure:
    """Which pixels' weights were re-initialised, beside which pixels are ever lit."""
    fig, axes = plt.subplots(1, 2, figsize=(WIDTH, 2.9))
    titles = ("share of a pixel's weights re-initialised", "pixel's mean brightness")
    for ax, values, title in zip(axes, (share, lit), titles, strict=True):
        shown = ax.imshow(np.asarray(values).reshape(28, 28), vmin=0, cmap="Blues")
        ax.set_title(title)
        ax.set(xticks=[], yticks=[])
        fig.colorbar(shown, ax=ax, shrink=0.85)
    return fig


def sorted_distances(distances: Sequence[Any], gamma: float, title: str = "") -> Figure:
    """Each layer's distances of Eq. 5, sorted, against gamma: right of it is shared."""
    fig, axes = plt.subplots(1, len(distances), figsize=(WIDTH, 2.8), sharey=True)
    for k, (ax, layer) in enumerate(zip(axes, distances, strict=True)):
        shared = shared_part(ax, layer, gamma)
        ax.text(len(layer), gamma, f" γ = {gamma:g}", ha="right", va="bottom")
        ax.set_title(f"hidden layer {k + 1}: {shared} of {len(layer)} can be shared")
        ax.set_xlabel("neurons, sorted")
        ax.set_ylim(0)
    axes[0].set_ylabel("distance (Eq. 5)")
    fig.suptitle(title)
    return fig


def steps_accuracy(
    steps: Sequence[str], accuracy: Sequence[Sequence[float]], tasks: Sequence[str]
) -> Figure:
    """Accuracy on each task after each step of Algorithm 1."""
    fig, ax = plt.subplots(figsize=(WIDTH, 3.0))
    values = 100 * np.asarray(accuracy)
    for j in range(len(tasks)):
        ax.plot(values[:, j], marker="os^Dv"[j % 5], color=TASK_COLOURS[j])
    ax.set_xticks(range(len(steps)), steps)
    ax.set(ylim=(-4, 104), ylabel="accuracy, %")
    end_labels(
        ax, [(values[-1, j], f"digits {task}", TASK_COLOURS[j]) for j, task in enumerate(tasks)]
    )
    return fig


def opinions(image: Any, answers: Sequence[Any], tasks: Sequence[str]) -> Figure:
    """What the network says about one image after each task."""
    fig, axes = plt.subplots(1, len(answers) + 1, figsize=(WIDTH, 2.1))
    axes[0].imshow(np.asarray(image).reshape(28, 28))
    axes[0].set(xticks=[], yticks=[])
    axes[0].set_title("the image", fontsize=9)
    for t, (ax, answer) in enumerate(zip(axes[1:], answers, strict=True)):
        colours = [TASK_COLOURS[c // 2] for c in range(len(answer))]
        ax.barh(range(len(answer)), np.asarray(answer), color=colours)
        ax.set(xlim=(0, 1), ylim=(9.6, -0.6), xticks=[0, 1])
        ax.set_yticks(range(10), range(10) if t == 0 else [""] * 10)
        ax.set_title(f"after {tasks[t]}", fontsize=9)
    axes[1].set_ylabel("class")
    return fig
