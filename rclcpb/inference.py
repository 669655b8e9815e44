"""Which task is an image from? With a head a task, the head that is least in doubt says so."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import torch
from scipy.stats import rankdata
from torch import Tensor

from rclcpb.files import RclCpbError
from rclcpb.method import seeded
from rclcpb_core import Prediction, predict

Doubt: TypeAlias = Literal["entropy", "confidence", "information"]
DOUBTS: tuple[Doubt, ...] = get_args(Doubt)


def doubt(answer: Prediction, kind: Doubt = "entropy") -> Tensor:
    """How much a head doubts each answer (N,): nothing at 0.

    entropy: of the mean prediction, as a share of the most that its classes allow;
    confidence: what is left to 1 of the likeliest class; information: what of the entropy is
    about the weights (mutual information).
    """
    if kind == "confidence":
        return 1 - answer.probabilities.max(1).values
    if kind not in DOUBTS:
        raise RclCpbError(f"doubt={kind!r}: choose from {', '.join(DOUBTS)}.")
    found = answer.entropy if kind == "entropy" else answer.mutual_information
    return found / math.log(max(2, answer.probabilities.shape[1]))


def least_in_doubt(answers: Sequence[Prediction], kind: Doubt = "entropy") -> Tensor:
    """For each input the head (N,) that doubts its answer least; `answers` has one a head."""
    return torch.stack([doubt(answer, kind) for answer in answers]).argmin(0)


def told_apart(known: np.ndarray, strange: np.ndarray) -> float:
    """AUC: how often a strange image is doubted more than a known one; a tie counts half."""
    rank = rankdata(np.concatenate([known, strange]))[len(known) :]
    higher = rank.sum() - len(strange) * (len(strange) + 1) / 2
    return float(higher / (len(known) * len(strange)))


def found_tasks(
    net: Any, tests: Sequence[tuple[Tensor, Tensor]], samples: int = 10, seed: int = 0
) -> dict[str, Any]:
    """How often each kind of doubt finds the task, and the label; means over the tasks.

    `tests` are (inputs, columns of the task's own head), one a head. `heads` counts, for the
    entropy, which head (column) each task's inputs (row) were taken for.
    """
    right: dict[str, list[list[float]]] = {kind: [] for kind in DOUBTS}
    told, taken = [], []
    for j, (x, y) in enumerate(tests):
        with seeded(seed, "found_tasks", j):
            answers = [predict(net, x, head, samples) for head in range(len(tests))]
        hit = answers[j].probabilities.argmax(1) == y
        told.append(hit.float().mean().item())
        for kind in DOUBTS:
            head = least_in_doubt(answers, kind)
            found = head == j
            both = [one.float().mean().item() for one in (found, found & hit)]
            right[kind].append(both)
            if kind == "entropy":
                taken.append(torch.bincount(head, minlength=len(tests)).tolist())
    means = {kind: np.mean(of, 0).tolist() for kind, of in right.items()}
    shares = {kind: {"task": task, "label": label} for kind, (task, label) in means.items()}
    return shares | {"told": float(np.mean(told)), "chance": 1 / len(tests), "heads": taken}
