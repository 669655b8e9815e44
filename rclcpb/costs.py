"""What an accuracy cost: bytes held while learning, and runs that its settings took to find."""

from __future__ import annotations

import json
from pathlib import Path

from rclcpb.presets import METHODS, NAMES, OURS, entry
from rclcpb.records import Record

PIXELS = {"mnist": 28 * 28}  # bytes an image of a table's scenarios; in colour:
COLOUR_PIXELS = 32 * 32 * 3


def bytes_held(record: Record) -> int | None:
    """What a method holds when it learns the last task, besides its network and the task's data.

    A stored image takes a byte a pixel, each other number four: a prior, Fishers, anchors,
    logits, an old network. Gradients and the optimiser's moments are not counted. None of
    what the registry does not know.
    """
    how = METHODS.get(record.method)
    if how is None or record.scenario not in NAMES:
        return None
    numbers = how.held * record.parameters
    if how.logits or record.config.get("stored_targets") == "answers":
        # one for every class that an image's task could choose from
        each = record.coreset_total // len(record.tasks)
        numbers += each * sum(round(1 / chance) for chance in record.chance)
    pixels = PIXELS.get(entry(record.scenario).table, COLOUR_PIXELS)
    return pixels * record.coreset_total + 4 * numbers


def runs_searched(results: Path, scenario: str) -> dict[str, int]:
    """Runs of each method in the search for its settings, on validation data.

    The paper's family shares settings, so each of it has had the runs of all.
    """
    path, counts = results / "regime" / f"{scenario}.jsonl", dict.fromkeys(METHODS, 0)
    for line in path.read_text("utf-8").splitlines() if path.exists() else []:
        counts[json.loads(line)["method"]] += 1
    shared = sum(counts[method] for method in OURS)
    return counts | dict.fromkeys(OURS, shared)
