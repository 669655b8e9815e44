"""Chapter 12 in words: who is before whom, at what price, and what follows for a choice."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import combinations, pairwise
from pathlib import Path

import numpy as np

from rclcpb.costs import bytes_held
from rclcpb.presets import OTHERS, OURS
from rclcpb.records import Record

from .evidence import Difference, tested
from .field import Found, accuracies, printed, ranked, rivals
from .style import LABEL

Methods = dict[str, list[Record]]  # of one scenario


def mean(records: Sequence[Record]) -> float:
    return float(np.mean(accuracies(records)))


def held(records: Sequence[Record]) -> float:
    """Kilobytes beside the network."""
    return float(np.mean([bytes_held(r) or 0 for r in records])) / 1000


def parameters(records: Sequence[Record]) -> float:
    return float(np.mean([r.parameters for r in records]))


def beats(of: Methods, a: str, b: str) -> bool:
    """Is a at least as accurate, as small and as sparing as b, and better in one of these?"""
    costs = [(-mean(of[m]), parameters(of[m]), held(of[m])) for m in (a, b)]
    return costs[0] != costs[1] and all(x <= y for x, y in zip(*costs, strict=True))


def front(of: Methods) -> list[str]:
    """The methods that no other beats in accuracy, parameters and memory at once."""
    return [m for m in rivals(of) if not any(beats(of, other, m) for other in rivals(of))]


def at_its_price(found: Found) -> list[str]:
    """On each scenario, the front; and of the paper's family, who is not on it and why."""
    lines = []
    for name, of in found.items():
        ahead = front(of)
        words = ", ".join(f"{LABEL[m]} ({mean(of[m]):.1f} %, {held(of[m]):,.0f} kB)" for m in ahead)
        beaten = [
            f"{LABEL[m]} by {', '.join(LABEL[o] for o in ahead if beats(of, o, m))}"
            for m in rivals(of)
            if m in OURS and m not in ahead
        ]
        line = f"{name}: not beaten in all three at once are {words}."
        lines.append(line + (f" Beaten: {'; '.join(beaten)}." if beaten else ""))
    return lines


def choices(found: Found) -> list[str]:
    """The best method of each scenario that stores images, and the best that stores none."""
    lines = []
    for name, of in found.items():
        best: dict[bool, str] = {}
        for m in rivals(of):
            best.setdefault(of[m][0].coreset_total > 0, m)
        parts = [
            f"{'with' if stores else 'without'} stored images {LABEL[m]} ({mean(of[m]):.2f} %,"
            f" {parameters(of[m]) / 1000:,.0f} thousand parameters)"
            for stores, m in sorted(best.items(), reverse=True)
        ]
        ceiling = f"; joint training has {mean(of['joint']):.2f} %" if "joint" in of else ""
        lines.append(f"{name}: the best {', and the best '.join(parts)}{ceiling}.")
    return lines


def quotes(found: Found) -> list[tuple[str, str, float, float]]:
    """(scenario, method, here, quoted) where the paper quotes another's number."""
    return [
        (name, m, mean(of[m]), row.accuracy)
        for name, of in found.items()
        for m in of
        if m in OTHERS and (row := printed(name, m)) is not None and row.source != "own"
    ]


def misled(found: Found) -> str:
    """How far the quotes are from what is measured, in a sentence."""
    away = [(here - quoted, name, m) for name, m, here, quoted in quotes(found)]
    if not away:
        return ""
    gaps = [gap for gap, _, _ in away]
    ends = [f"{LABEL[m]} on {name} ({gap:+.1f})" for gap, name, m in (max(away), min(away))]
    return (
        f"Of {len(away)} quoted numbers that are measured here, {sum(g > 0 for g in gaps)} are too"
        f" low and {sum(g < 0 for g in gaps)} too high; they are {np.mean(np.abs(gaps)):.1f} points"
        f" off on average, from {ends[0]} to {ends[1]}."
    )


def against(tests: Sequence[Difference]) -> str:
    """How the comparisons with one method came out."""
    if not tests:
        return ""
    better = [d for d in tests if d.stands and d.mean > 0]
    worse = [d for d in tests if d.stands and d.mean < 0]
    words = "; ".join(f"{LABEL[d.a]} on {d.scenario} ({d.mean:+.1f})" for d in better)
    return (
        f"Of {len(tests)} comparisons with {LABEL[tests[0].b]}, {len(worse)} stand in its favour"
        f" and {len(better)} against it{': ' + words if words else ''}."
    )


def tried(results: Path, name: str, field: str) -> dict[str, list[tuple[str, float]]]:
    """Of each method, the values of one setting that the search tried with all else alike.

    Each with its accuracy in per cent, on validation data, lowest first.
    """
    path = results / "regime" / f"{name}.jsonl"
    groups: dict[tuple[str, str], dict[str, float]] = {}
    for row in map(json.loads, path.read_text("utf-8").splitlines() if path.exists() else []):
        if row["method"] in OTHERS:
            rest = {k: v for k, v in row["config"].items() if k != field}
            group = groups.setdefault((row["method"], json.dumps(rest, sort_keys=True)), {})
            group[str(row["config"][field])] = 100 * row["accuracy"]
    found: dict[str, list[tuple[str, float]]] = {}
    for (method, _), values in groups.items():
        if len(values) > 1:  # the first such group: the search starts with it
            found.setdefault(method, sorted(values.items(), key=lambda pair: pair[1]))
    return found


def searched(results: Path, name: str, field: str) -> str:
    """What one setting decides, in a sentence, from the search."""
    found = tried(results, name, field)
    parts = [
        f"{LABEL[m]} {low:.1f} % with {worse}, {high:.1f} % with {better}"
        for m, ((worse, low), *_, (better, high)) in found.items()
    ]
    what = field.replace("_", " ")
    return f"{name}, {what}, on validation data: {'; '.join(parts)}." if parts else ""


def told_apart(results: Path, found: Found, name: str) -> list[tuple[str, str]]:
    """Neighbours in the order that their seeds tell apart, among all pairs of a scenario."""
    order = ranked(found[name])
    tests = tested(results, [(name, a, b) for a, b in combinations(order, 2)])
    told = {(d.a, d.b) for d in tests if d.stands}
    return [pair for pair in pairwise(order) if pair in told]
