"""Which task is an image from? With a head a task, the head that is least in doubt says so."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, TypeAlias, get_args

import torch
from torch import Tensor

from rclcpb.files import RclCpbError
from rclcpb_core import Prediction

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
    """For each input the head (N,) that doubts its answer least; `answers` has one a head.

    A head of one class is never in doubt, and so always chosen: ask such a network by task.
    """
    return torch.stack([doubt(answer, kind) for answer in answers]).argmin(0)
