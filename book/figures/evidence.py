"""What the recorded runs say: differences tested seed by seed, and findings in words.

Chapters 10 and 11 and the first page read it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.stats import t as student
from scipy.stats import ttest_1samp

import rclcpb_core as core
from rclcpb.presets import METHODS, PAIRS, SCENARIOS
from rclcpb.records import Record, load_records
from rclcpb.tables import by_seed

from .style import LABEL

# What the search found for a method by itself, where that is not its preset.
OWN = {
    "pmnist": ("vcl,kl_weight=0.3",),
    "mh-cifar100": ("rcl-cpb,kl_weight=0.01", "vcl,kl_weight=0.03"),
    "ta-cifar100": ("vcl,replay_kl=0.1",),
    "mnist-svhn-cifar10": (
        "rcl-cpb,kl_weight=0.1,replay_kl=0.03",
        "vcl,kl_weight=0.1,replay_kl=0.03",
    ),
}


def own_pair(name: str) -> tuple[str, str]:
    """RCL-CPB and VCL on a scenario, each as the search found it best."""
    best = {label.split(",")[0]: label for label in ("rcl-cpb", *OWN[name])}
    return best["rcl-cpb"], best["vcl"]


# ------------------------------------------------------------------- differences, tested


class Difference(NamedTuple):
    """One method minus another on a scenario, seed by seed."""

    scenario: str
    a: str
    b: str
    points: list[float]  #: of accuracy, a seed
    p: float  #: of a paired t-test
    adjusted: float = 1.0  #: the same, corrected for all tests by Holm's rule

    @property
    def mean(self) -> float:
        return float(np.mean(self.points))

    @property
    def half(self) -> float:
        """Half the width of the 95 % confidence interval of the mean."""
        n = len(self.points)
        return float(student.ppf(0.975, n - 1) * np.std(self.points, ddof=1) / np.sqrt(n))

    @property
    def stands(self) -> bool:
        """Is it there beyond the noise of the seeds, with so many tests?"""
        return self.adjusted < 0.05


FURTHER = ("natural", "memoryless")  # families of methods that are ours alone


def differences(results: Path) -> list[Difference]:
    """About the paper's method: pairs of the registry, then each method in its own settings."""
    ours = [pair for pair in PAIRS if METHODS[pair[0]].family not in FURTHER]
    pairs = [(name, *pair) for name in SCENARIOS for pair in ours]
    pairs += [(name, *own_pair(name)) for name in OWN]
    return tested(results, pairs)


def further(results: Path) -> list[Difference]:
    """About what goes beyond the paper, corrected by themselves: another question."""
    ours = [pair for pair in PAIRS if METHODS[pair[0]].family in FURTHER]
    ours.append(("rcl-cpb-memoryless", "rcl-cpb"))
    return tested(results, [(name, *pair) for name in SCENARIOS for pair in ours])


def tested(results: Path, pairs: Sequence[tuple[str, str, str]]) -> list[Difference]:
    """Those of the pairs (scenario, a, b) that have three seeds or more, corrected for all."""
    found, asked = [], {(name, m) for name, a, b in pairs for m in (a, b)}
    of = {(name, m): by_seed(results, name, m) for name, m in asked}
    for name, a, b in pairs:
        x, y = of[name, a], of[name, b]
        points = [x[seed] - y[seed] for seed in sorted(set(x) & set(y))]
        if len(points) > 2:
            p = float(ttest_1samp(points, 0).pvalue) if np.ptp(points) else float(not points[0])
            found.append(Difference(name, a, b, points, p))
    adjusted = holm([d.p for d in found])
    return [d._replace(adjusted=p) for d, p in zip(found, adjusted, strict=True)]


def holm(p: Sequence[float]) -> list[float]:
    """p-values that may be held against 0.05 all at once (Holm, 1979)."""
    order, values = np.argsort(p), np.asarray(p, dtype=float)
    times = values[order] * np.arange(len(values), 0, -1)
    adjusted = np.empty(len(values))
    adjusted[order] = np.minimum(1, np.maximum.accumulate(times))
    return [float(x) for x in adjusted]


# ------------------------------------------------------------------- what is found, in words


def findings(results: Path) -> list[str]:
    """What the recorded runs say: a sentence each, and none where records are missing."""
    tests = differences(results)
    sentences = [_reached(results), over_vcl(tests), own_settings(tests), _over_stored(tests)]
    sentences += [beyond(results, family) for family in FURTHER]
    return [sentence for sentence in sentences if sentence]


def _ends(records: Sequence[Record]) -> tuple[float, float]:
    """Means over seeds: accuracy in per cent, neurons after the last task."""
    accuracy = np.mean([100 * core.average_accuracy(r.accuracy) for r in records])
    return float(accuracy), float(np.mean([sum(r.hidden[-1]) for r in records]))


def _reached(results: Path) -> str:
    reached, missed = [], []
    for name, known in SCENARIOS.items():
        records = load_records(results, name, "rcl-cpb")
        if known.paper and len(records) > 2:
            row, (accuracy, neurons) = known.paper[0], _ends(records)
            words = f"{name} ({accuracy:.1f} % at {neurons:.0f} neurons here, {row.accuracy} %"
            words += f" at {sum(row.hidden or ())} in the paper)"
            near = accuracy >= row.accuracy - 2 * (row.deviation or 0)
            (reached if near else missed).append(words)
    if not reached + missed:
        return ""
    return (
        f"RCL-CPB reaches the paper's accuracy, or comes within two of the paper's standard"
        f" deviations, in {len(reached)} of {len(reached + missed)} scenarios"
        + (f"; not on {', '.join(missed)}." if missed else ".")
    )


def over_vcl(tests: Sequence[Difference]) -> str:
    """The gains over VCL with equal settings, and the one the paper makes most of."""
    pairs = [d for d in tests if (d.a, d.b) in PAIRS and d.b in ("vcl", "vcl-plus")]
    if not pairs:
        return ""
    means = [d.mean for d in pairs]
    words = (
        f"Over VCL of its own size, with equal settings and stored images, RCL-CPB"
        f" gains {min(means):+.1f} to {max(means):+.1f} points; {sum(d.stands for d in pairs)} of"
        f" {len(pairs)} such gains stand at the 5 % level, corrected for all {len(tests)} tests."
    )
    own = {p.method: p.accuracy for p in SCENARIOS["ta-smnist"].paper if p.source == "own"}
    if one_head := [d for d in pairs if d.scenario == "ta-smnist"]:
        gains = " and ".join(
            f"{d.mean:+.1f} with {LABEL[d.a]} ({'stands' if d.stands else 'does not stand'})"
            for d in one_head
        )
        words += f" The paper's largest, {own['rcl-cpb'] - own['vcl']:.1f} points on ta-smnist,"
        words += f" is here {gains}."
    return words


def own_settings(tests: Sequence[Difference]) -> str:
    """The gains over VCL where both were tuned."""
    own = [d for d in tests if "," in d.a + d.b]
    gains = ", ".join(f"{d.mean:+.1f} on {d.scenario}" for d in own)
    words = (
        "With each method in settings of its own, where that was tried, the gain of RCL-CPB over"
    )
    return f"{words} VCL is {gains}." if own else ""


def _over_stored(tests: Sequence[Difference]) -> str:
    alone = [d for d in tests if d.b == "coreset-only"]
    if not alone:
        return ""
    least, most = min(alone, key=lambda d: d.mean), max(alone, key=lambda d: d.mean)
    not_there = [f"{d.scenario} ({d.mean:+.1f})" for d in alone if not d.stands]
    return (
        "A fresh network that learns from the stored images alone is the control. RCL-CPB+ is"
        f" above it by {least.mean:+.1f} points ({least.scenario}) to {most.mean:+.1f}"
        f" ({most.scenario})"
        + (f"; that does not stand on {' and '.join(not_there)}." if not_there else ".")
    )


BEYOND = {
    "natural": "With natural-gradient steps in place of Adam's, beyond the paper, RCL-CPB",
    "memoryless": "With such steps and no stored image at all, it",
}


def beyond(results: Path, family: str) -> str:
    """Where a family of ours is recorded: its accuracy, and that of those beside it."""
    kept, short = [], []
    for name in SCENARIOS:
        ends = {
            m: _ends(found)
            for m in (f"rcl-cpb-{family}", "rcl-cpb", "rcl-cpb-plus")
            if (found := load_records(results, name, m))
        }
        mine = ends.pop(f"rcl-cpb-{family}", None)
        if mine is None or "rcl-cpb" not in ends:
            continue
        beside = [f"{LABEL[m]} {a:.1f} % at {n:.0f}" for m, (a, n) in ends.items()]
        if fixed := load_records(results, name, f"vcl-{family}"):
            beside.append(f"VCL with the same steps {_ends(fixed)[0]:.1f} %")
        words = f"{name} {mine[0]:.1f} % at {mine[1]:.0f} neurons ({', '.join(beside)})"
        (kept if mine[0] >= ends["rcl-cpb"][0] else short).append(words)
    parts = [f"reaches {'; '.join(kept)}"] if kept else []
    parts += [f"falls short on {'; '.join(short)}"] if short else []
    return f"{BEYOND[family]} {', and '.join(parts)}." if parts else ""
