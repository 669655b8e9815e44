"""Tables: recorded runs beside the paper's numbers, and differences seed by seed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import ttest_rel

import rclcpb_core as core
from rclcpb import metrics
from rclcpb.costs import bytes_held, runs_searched
from rclcpb.files import RclCpbError
from rclcpb.paper import PaperRow
from rclcpb.presets import METHODS, OTHERS, SCENARIOS
from rclcpb.records import Record, load_records

HEADER = (
    *("scenario", "method", "from", "accuracy %", "forgetting", "hidden", "neurons"),
    *("parameters", "stored", "seconds", "seeds", "kB held", "searched"),
)


def spread(values: list[float], digits: int = 2) -> str:
    """mean ± standard deviation over seeds."""
    text = f"{np.mean(values):.{digits}f}"
    return text + (f" ± {np.std(values, ddof=1):.{digits}f}" if len(values) > 1 else "")


def of_one_kind(records: Sequence[Record]) -> None:
    """May they be averaged? Seeds differ, no setting does, but for a size that another run had."""
    seeds = [record.seed for record in records]
    if twice := sorted({seed for seed in seeds if seeds.count(seed) > 1}):
        raise RclCpbError(f"seed {twice[0]} is there {seeds.count(twice[0])} times: once is right.")
    first = records[0]
    for record in records[1:]:
        known, found = _settings(first), _settings(record)
        if odd := sorted(k for k in known | found if known.get(k) != found.get(k)):
            raise RclCpbError(
                f"{first.scenario}, {first.method}: seeds {first.seed} and {record.seed} are"
                f" recorded with other settings ({', '.join(odd)}): move one of them away."
            )


def _settings(record: Record) -> dict[str, Any]:
    """All that was set, today's defaults where an older record is silent."""
    config = record.config
    if record.method in METHODS:
        takes: Any = METHODS[record.method].learner.takes
        with suppress(RclCpbError):  # it has fields that are gone
            config = takes.from_json(config).as_json()
    if not config.get("grow"):  # its size may be that of a run that grew, seed by seed
        config = {name: value for name, value in config.items() if name != "hidden"}
    names = ("scenario", "method", "version")
    return config | {name: getattr(record, name) for name in names}


def origin(record: Record) -> str:
    """Where a row's numbers are from; those of an older version of the method say so."""
    old = record.version != core.VERSION
    return f"recorded, version {record.version}" if old else "recorded"


def summary(records: list[Record], searched: int = 0) -> tuple[str, ...]:
    """One method's row of the table; `searched` runs found its settings."""
    of_one_kind(records)
    r = records[0]
    sizes = [record.hidden[-1] for record in records if record.hidden[-1]]
    final = np.mean(sizes, axis=0) if sizes else np.zeros(0)  # not every method has a size
    return (
        r.scenario,
        r.method,
        origin(r),
        spread([100 * core.average_accuracy(r.accuracy) for r in records]),
        spread([100 * metrics.forgetting(r.accuracy) for r in records], 1),
        str([round(n) for n in final]) if sizes else "",
        f"{final.sum():.0f}" if sizes else "",
        f"{np.mean([r.parameters for r in records]):,.0f}",
        str(r.coreset_total),
        f"{np.mean([sum(r.seconds) for r in records]):.0f}",
        str(len(records)),
        kilobytes(records),
        str(searched or ""),
    )


def kilobytes(records: list[Record]) -> str:
    """What is held beside the network, the mean over seeds."""
    known = [held for r in records if (held := bytes_held(r)) is not None]
    return f"{np.mean(known) / 1000:,.0f}" if known else ""


def table_rows(results: Path, scenarios: Iterable[str]) -> list[tuple[str, ...]]:
    """Recorded methods of each scenario, then the paper's rows, labelled as such."""
    rows: list[tuple[str, ...]] = []
    for scenario in scenarios:
        tried = runs_searched(results, scenario)
        for method in METHODS:
            if records := load_records(results, scenario, method):
                rows.append(summary(records, tried[method]))
        for p in SCENARIOS[scenario].paper if scenario in SCENARIOS else ():
            accuracy = f"{p.accuracy}" + (f" ± {p.deviation}" if p.deviation else "")
            size = (str(list(p.hidden)), str(sum(p.hidden))) if p.hidden else ("", "")
            where = "paper" if p.source == "own" else f"paper, from {p.source}"
            rows.append((scenario, p.method, where, accuracy, "", *size, *[""] * 6))
    return rows


def by_seed(results: Path, scenario: str, method: str) -> dict[int, float]:
    """Average accuracy in per cent of each recorded seed."""
    records = load_records(results, scenario, method)
    return {r.seed: 100 * core.average_accuracy(r.accuracy) for r in records}


def paired(results: Path, scenario: str, a: str, b: str) -> str:
    """Method a against method b over the seeds both have: a sentence."""
    first, second = by_seed(results, scenario, a), by_seed(results, scenario, b)
    seeds = sorted(set(first) & set(second))
    if len(seeds) < 2:
        return ""
    x, y = [first[s] for s in seeds], [second[s] for s in seeds]
    wins = sum(p > q for p, q in zip(x, y, strict=True))
    p = float(ttest_rel(x, y).pvalue)
    return (
        f"{scenario}: {a} - {b} = {np.mean(x) - np.mean(y):+.2f} points, better in"
        f" {wins} of {len(seeds)} seeds (paired t-test p = {p:.2g})"
    )


_FURTHER = ("rcl-cpb-natural", "vcl-natural", "rcl-cpb-memoryless", "vcl-memoryless")
GLANCE = ("rcl-cpb", "vcl", "rcl-cpb-plus", "vcl-plus", "coreset-only", *_FURTHER)


def best_others(results: Path, scenario: str, count: int = 3) -> list[str]:
    """The best recorded methods of plain networks; joint training keeps all images."""
    means = {
        method: np.mean(list(found.values()))
        for method in OTHERS
        if method != "joint" and (found := by_seed(results, scenario, method))
    }
    return sorted(means, key=lambda method: -means[method])[:count]


def at_a_glance(results: Path, missing: bool = True) -> str:
    """The main table in Markdown: recorded runs beside the paper's numbers, the best others last.

    `missing` says of scenarios without records that they have none.
    """
    lines = [
        "| scenario | method | recorded here, % | sizes | seeds | paper's number, % |"
        " paper's sizes |",
        "|---" * 7 + "|",
    ]
    for scenario, known in SCENARIOS.items():
        title = known.title
        for method in (*GLANCE, *best_others(results, scenario)):
            records = load_records(results, scenario, method)
            if records or (missing and method in ("rcl-cpb", "vcl")):
                paper = [p for p in known.paper if p.method.split(",")[0] == method]
                cells = [METHODS[method].title, *_glance(records, paper)]
                lines.append(f"| {title} | " + " | ".join(map(_unbroken, cells)) + " |")
                title = ""
    return "\n".join(lines) + "\n"


def _unbroken(text: str) -> str:
    """Text that stays on one line."""
    return text.replace(" ", "\u00a0").replace("-", "\u2011")


def _glance(records: list[Record], paper: list[PaperRow]) -> list[str]:
    """Accuracy, sizes and seeds of the records; accuracy and sizes of the paper."""
    ours, theirs = ["*not recorded yet*", "", ""], ["", ""]
    if records:
        row = summary(records)
        ours = [row[3], row[5].strip("[]"), row[10]]
    if paper:
        p = paper[0]
        quoted = " (quoted)" if p.source != "own" else ""
        spread_of = f" ± {p.deviation:.2f}" if p.deviation else ""
        sizes = ", ".join(map(str, p.hidden)) if p.hidden else ""
        theirs = [f"{p.accuracy}{spread_of}{quoted}", sizes]
    return ours + theirs


def format_table(rows: list[tuple[str, ...]], header: tuple[str, ...] = HEADER) -> str:
    """Columns side by side, for a terminal."""
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    ruled = [header, tuple("-" * w for w in widths), *rows]
    padded = ([c.ljust(w) for c, w in zip(r, widths, strict=True)] for r in ruled)
    return "\n".join("  ".join(cells).rstrip() for cells in padded)
