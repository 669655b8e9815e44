"""A record, read as a doctor would: which sign of failure does it show, and what helps.

for sign in signs(load_record(path)): print(sign.name, sign.seen, sign.do)
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from rclcpb.files import DAMAGE, RclCpbError, plain
from rclcpb.records import Record

LEARNED = 0.5  # of the way from chance to 1: a task that was learned is beyond it
STILL = 0.05  # a KL that has moved by less than this share of itself has not moved
GONE = 0.3  # a posterior whose KL is below this share of the start's is the prior again
FALL = 0.5  # of what a task's accuracy had above chance
OVERFIT = 2.5  # times: test loss of a task just learned, over its training loss
PASSES = 20  # over all that is stored, at each task


class Sign(NamedTuple):
    """A sign of failure."""

    name: str
    seen: str  #: in the record
    do: str


def signs(record: Record) -> list[Sign]:
    """The signs a record shows; none is good news."""
    try:
        found = [heavy_kl(record), still_widths(record), replay_overfits(record), drowned(record)]
    except DAMAGE as error:  # its settings are not checked where records are read
        raise RclCpbError(
            f"this record's settings are of another version ({plain(error)}): run it again."
        ) from error
    return [sign for sign in found if sign]


def above_chance(record: Record) -> list[float]:
    """Of each task, just after it: where between chance (0) and all right (1)."""
    own = [row[-1] for row in record.accuracy]
    return [(a - c) / (1 - c) if c < 1 else 1.0 for a, c in zip(own, record.chance, strict=True)]


def kl_a_weight(record: Record) -> tuple[float, float] | None:
    """The KL a weight at the end of task 1, and what it was before: (end, start) in nats."""
    config, kl = record.config, record.train_kl[0]
    if "rho_init" not in config or not kl or not record.hidden or not record.hidden[0]:
        return None
    ratio = config["rho_init"] - math.log(config["prior_var"])
    means = config["mu_scale"] ** 2 / config["prior_var"] if config["mu_init"] == "normal" else 0
    return kl / weights_of_task_1(record), 0.5 * (math.exp(ratio) + means - 1 - ratio)


def inputs(record: Record, heads: list[int]) -> float:
    """How wide the input was, with its bias, if these were the heads: it is not recorded."""
    last = record.hidden[-1]
    numbers = record.parameters / (2 if "rho_init" in record.config else 1)
    return (numbers - behind(last, heads)) / last[0]


def behind(sizes: list[int], heads: list[int]) -> int:
    """Weights and biases behind the first layer."""
    return sum((a + 1) * b for a, b in pairwise(sizes)) + sum((sizes[-1] + 1) * n for n in heads)


def heads_of(record: Record) -> list[int]:
    """The outputs of each head: one head for all tasks, or a head a task.

    One that grows has another chance at each task; one that does not, as on permuted images,
    is told by its weights, from which the input must come out as a whole number.
    """
    columns = [round(1 / chance) for chance in record.chance]
    one = columns[-1:]
    if len(set(columns)) > 1 or len(columns) == 1:
        return one
    sized = record.hidden and record.hidden[-1]
    whole = sized and inputs(record, one).is_integer() and not inputs(record, columns).is_integer()
    return one if whole else columns


def weights_of_task_1(record: Record) -> float:
    """How many the network had then, from how many it has now."""
    heads, first = heads_of(record), record.hidden[0]
    return inputs(record, heads) * first[0] + behind(first, [round(1 / record.chance[0])])


def heavy_kl(record: Record) -> Sign | None:
    """KL too heavy: the posterior is the prior again, and the network answers by chance."""
    kl, learned = kl_a_weight(record), above_chance(record)
    if kl is None or learned[0] > LEARNED or kl[0] > GONE * kl[1]:
        return None
    return Sign(
        "KL too heavy",
        f"task 1 is learned to {100 * record.accuracy[0][0]:.0f} % (chance:"
        f" {100 * record.chance[0]:.0f} %), and the KL fell from {kl[1]:.2f} to {kl[0]:.2f} nats a"
        f" weight: the posterior has gone back to the prior (kl_weight is"
        f" {record.config['kl_weight']:g}).",
        "lower kl_weight to a tenth, and again, until task 1 is learned; or give more data.",
    )


def still_widths(record: Record) -> Sign | None:
    """Widths that do not move: rho ends where it began, and SNR is the size of the mean."""
    kl = kl_a_weight(record)
    if kl is None or abs(kl[0] - kl[1]) > STILL * kl[1]:
        return None
    config = record.config
    return Sign(
        "widths that do not move",
        f"after task 1 the KL is {kl[0]:.2f} nats a weight; with the widths of the start"
        f" (rho_init {config['rho_init']:g}) it is {kl[1]:.2f}: no weight is surer than another.",
        f"raise lr_rho ({config['lr_rho']:g}) tenfold, train for more steps, or take"
        " optimiser='natural', whose widths follow the curvature.",
    )


def passes(record: Record) -> float:
    """How often a fit on what is stored sees each image, at the last task."""
    config = record.config
    if not config.get("replay") or not record.coreset_total:
        return 0.0
    if config.get("replay_epochs"):
        return float(config["replay_epochs"])
    one_head = len(heads_of(record)) == 1
    fitted = record.coreset_total if one_head else config["coreset"]
    batch = min(config["replay_batch"], fitted)
    return config["replay_steps"] * batch / fitted


def replay_overfits(record: Record) -> Sign | None:
    """Replay that overfits: the task just learned is told worse than it was learned."""
    often, losses = passes(record), [row[-1] for row in record.nll]
    trained = [nll or 0.0 for nll in record.train_nll]
    later = [(n, t) for n, t in zip(losses, trained, strict=True)][1:]
    if often < PASSES or not later or above_chance(record)[0] < LEARNED:
        return None
    test, train = (float(np.mean([pair[i] for pair in later])) for i in (0, 1))
    unsure = float(np.mean([row[-1] for row in record.ece][1:]))
    if test < OVERFIT * train + 0.25 or unsure < 0.08:
        return None
    return Sign(
        "replay that overfits",
        f"just after they are learned, later tasks have a test loss of {test:.2f} (in training:"
        f" {train:.2f}) and a calibration error of {100 * unsure:.0f} %; a fit on what is stored"
        f" sees each image {often:.0f} times.",
        "store more (coreset), lower replay_steps or replay_lr, vary the images"
        " (distort='affine'), or mix them into training instead (replay_mix, replay=False).",
    )


def drowned(record: Record) -> Sign | None:
    """A head that drowns old classes: the last task is right, those before it are not."""
    last, one_head = record.accuracy[-1], len(heads_of(record)) == 1
    if len(last) < 2:
        return None
    falls = [share for share in _falls(record)]
    if last[-1] < LEARNED or float(np.mean(falls)) < FALL:
        return None
    what = "a head that drowns old classes" if one_head else "old tasks forgotten"
    return Sign(
        what,
        f"after the last task, it is right in {100 * last[-1]:.0f} % of its images, those before it"
        f" in {100 * float(np.mean(last[:-1])):.0f} % of theirs.",
        "store more (coreset), fit it (replay), mix it into training (replay_mix), choose it"
        " evenly (coreset_choice='balanced'), and keep reinit_head and restore_head on."
        if one_head
        else "store more (coreset, replay), raise prior_strength, or spare what is learned:"
        " new_into_old='none' with optimiser='natural'.",
    )


def _falls(record: Record) -> Iterator[float]:
    """Of each task before the last: what it lost of its own best, as a share."""
    for j, now in enumerate(record.accuracy[-1][:-1]):
        best = max(row[j] for row in record.accuracy[j:])
        yield (best - now) / best if best else 0.0
