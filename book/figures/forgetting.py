"""Figures of chapter 1, Forgetting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from .style import INK, TASK_COLOURS, WIDTH, end_labels, task_legend
from .vector import readable


def task_strip(rows: Sequence[tuple[str, Sequence[Any]]]) -> Figure:
    """Rows of small images, each row with its name."""
    columns = max(len(pictures) for _, pictures in rows)
    size = (WIDTH, 0.72 * len(rows) + 0.1)
    fig, axes = plt.subplots(len(rows), columns, figsize=size, squeeze=False)
    for row, (name, pictures) in zip(axes, rows, strict=True):
        for ax, picture in zip(row, pictures, strict=True):
            ax.imshow(np.asarray(picture).reshape(28, 28))
            ax.set(xticks=[], yticks=[])
            ax.spines[:].set_color("#bbbbbb")
        row[0].set_ylabel(name, rotation=0, ha="right", va="center", labelpad=8)
    return fig


def answers_so_far(answers: Sequence[Any], tasks: Sequence[str]) -> Figure:
    """What a network answers to one kind of image after each task: a bar a task."""
    fig, ax = plt.subplots(figsize=(WIDTH, 2.5))
    for y, answer in enumerate(answers):
        share = 100 * np.bincount(np.asarray(answer), minlength=10) / len(answer)
        ends = np.cumsum(share)
        for digit in np.flatnonzero(share):
            ax.barh(
                y,
                share[digit],
                left=ends[digit] - share[digit],
                height=0.7,
                color=readable(TASK_COLOURS[digit // 2]),  # under white numbers
                ec="white",
            )
            if share[digit] > 4:
                ax.text(
                    ends[digit] - share[digit] / 2,
                    y,
                    str(digit),
                    ha="center",
                    va="center",
                    color="white",
                    fontweight="bold",
                )
    ax.set_yticks(range(len(tasks)), tasks)
    ax.set(ylim=(len(tasks) - 0.5, -0.5), xlim=(0, 100), ylabel="after learning")
    ax.set_xlabel("answers to zeros, % (the number in a bar is the answer)")
    return fig


def forgetting_curves(
    runs_of: dict[str, Sequence[Sequence[float]]], tasks: Sequence[str]
) -> Figure:
    """A panel a question: accuracy on each task, from when it was learned on."""
    fig, axes = plt.subplots(1, len(runs_of), figsize=(WIDTH, 2.9), sharey=True)
    for ax, (title, accuracy) in zip(axes, runs_of.items(), strict=True):
        last = len(accuracy) - 1
        for j in range(len(accuracy)):
            values = [100 * accuracy[i][j] for i in range(j, last + 1)]
            ax.plot(
                range(j, last + 1),
                values,
                color=TASK_COLOURS[j],
                marker="os^Dv"[j % 5],
                clip_on=False,
            )
        ax.set_xticks(range(last + 1), tasks, fontsize=8)
        ax.set_title(title)
        ax.set_xlabel("after learning")
        ax.set_ylim(0, 103)
    axes[0].set_ylabel("accuracy, %")
    task_legend(fig, tasks)
    return fig


def sinking(
    steps: Sequence[int], old: Sequence[float], new: Sequence[float], accuracy: Sequence[float]
) -> Figure:
    """Old images in the first steps of a new task: their logits, and the accuracy."""
    fig, (left, right) = plt.subplots(1, 2, figsize=(WIDTH, 2.8))
    left.plot(steps, old, color=TASK_COLOURS[0])
    left.plot(steps, new, color=TASK_COLOURS[1], ls="--")
    left.set(xlabel="steps of the new task", ylabel="mean largest logit")
    left.set_title("old images: outputs")
    end_labels(
        left, [(old[-1], "old classes", TASK_COLOURS[0]), (new[-1], "new classes", TASK_COLOURS[1])]
    )
    right.plot(steps, 100 * np.asarray(accuracy), color=TASK_COLOURS[0])
    right.set(xlabel="steps of the new task", ylabel="accuracy, %", ylim=(-3, 103))
    right.set_title("old images: accuracy")
    return fig


def confusion(truth: Any, answer: Any, title: str) -> Figure:
    """How often each digit is taken for which, a row a digit, in per cent."""
    counts = np.zeros((10, 10))
    np.add.at(counts, (np.asarray(truth), np.asarray(answer)), 1)
    share = 100 * counts / counts.sum(1, keepdims=True)
    fig, ax = plt.subplots(figsize=(4.6, 4.2))
    ax.imshow(share, vmin=0, vmax=120, cmap="Blues")
    for i, j in zip(*np.nonzero(share >= 1), strict=True):
        ax.text(
            j,
            i,
            f"{share[i, j]:.0f}",
            ha="center",
            va="center",
            fontsize=8,
            color="white" if share[i, j] > 70 else INK,
        )
    ax.set(xticks=range(10), yticks=range(10), xlabel="answer", ylabel="digit")
    ax.tick_params(length=0)
    ax.set_title(title)
    return fig
