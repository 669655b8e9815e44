"""Numbers in the book's prose: each is computed by a cell, or known here with where it is from."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import nbformat
import numpy as np
import pytest
import torch
from scipy.stats import t as student

import rclcpb_core as core
from rclcpb.presets import SCENARIOS, preset

ROOT = Path(__file__).resolve().parents[1]
BOOK = ROOT / "book"
sys.path.insert(0, str(BOOK))
from figures import RESULTS, evidence  # noqa: E402

# Not prose: code, formulas, addresses, generated parts.
OTHER = re.compile(
    r"<!-- (?:results|findings) -->.*?<!-- end -->|```.*?```|\$\$.*?\$\$|\$[^$\n]*\$"
    r"|`[^`]*`|\]\([^)]*\)|\{[^}]*\}`[^`]*`",
    re.DOTALL,
)
# What a measurement looks like: a decimal, or anything in per cent or points.
NUMBER = re.compile(
    r"(?<![\w.^{/=\-])\d+(?:\.\d+)?(?: ?%| points?\b)|(?<![\w.^{/=\-])\d+\.\d+(?![\w.])"
)


def prose(name: str) -> str:
    path = BOOK / name if (BOOK / name).exists() else ROOT / name
    text = path.read_text("utf-8")
    if path.suffix == ".ipynb":
        cells = nbformat.reads(text, 4).cells
        text = "\n".join(c.source for c in cells if c.cell_type == "markdown")
    return OTHER.sub(" ", text)


def says(chapter: str) -> list[str]:
    """The sentences and tables that a chapter's cells have written, as stored."""
    cells = nbformat.read(BOOK / chapter, 4).cells
    outputs = [o for c in cells if c.cell_type == "code" for o in c.outputs]
    return ["".join(o.get("data", {}).get("text/plain", "")) for o in outputs]


def critical(level: float) -> float:
    """Student's t with four degrees of freedom, two-sided."""
    return float(student.ppf(1 - level / 2, 4))


DEVIATION = core.Config().mu_scale


def saved(first: int = 784, wide: int = 256, classes: int = 10) -> float:
    """Products of weights in a loop over draws, as a multiple of `predict`'s."""
    draws = core.Config().test_samples
    behind = wide * wide + wide * classes
    return draws * (first * wide + behind) / (2 * first * wide + draws * behind)


LEVEL = 0.05
P_FIVE = {"5 %": lambda: 100 * LEVEL, "95 %": lambda: 100 * (1 - LEVEL), "0.05": lambda: LEVEL}
# chapter 5's layer by hand: mean activations of three classes, four neurons
PHI = torch.tensor([[0.9, 0.3, 0.0, 0.05], [0.1, 0.3, 0.0, 0.10], [0.5, 0.3, 0.3, 0.00]])
MEANS = PHI.mean(0).tolist()
GAMMAS = [g for name in ("pmnist",) for g in preset(name).gamma]
# page: number as written -> what computes it
KNOWN: dict[str, dict[str, Callable[[], float]]] = {
    "02_weights.ipynb": {"0.1": lambda: DEVIATION},
    "04_pruning.ipynb": {"0.1": lambda: DEVIATION},
    "05_growing.ipynb": {
        "0.3": lambda: MEANS[1],
        "0.1": lambda: MEANS[2],
        "0.05": lambda: MEANS[3],
        "1.07": lambda: float(core.class_distances(PHI)[0]) / MEANS[0],
    },
    "07_end_to_end.ipynb": {"0.1": lambda: DEVIATION},
    "08_ablations.ipynb": {"0.1": lambda: DEVIATION},
    "10_full_runs.ipynb": P_FIVE
    | {
        "0.3": lambda: GAMMAS[0],
        "2.78": lambda: critical(LEVEL),
        "1.24 points": lambda: critical(LEVEL) / np.sqrt(5),
        "7.4": lambda: critical(LEVEL / 28),
        "3.3 points": lambda: critical(LEVEL / 28) / np.sqrt(5),
    },
    "11_what_holds.ipynb": P_FIVE | {"2.5 %": lambda: 100 * LEVEL / 2, "0.5": lambda: 1 / 2},
    "12_field.ipynb": P_FIVE,
    "E_timings.ipynb": {"2.5": saved},
}
# page: numbers that are given and not found: a rule, a range of the paper's, a value tried
GIVEN = {
    "01_forgetting.ipynb": {"0 %"},  # its cells assert it
    "02_weights.ipynb": {"16 points", "0.001"},  # data points; a rate
    "03_vcl.ipynb": {"0.1"},  # a rate
    "04_pruning.ipynb": {"0.01"},  # the paper's largest beta
    "05_growing.ipynb": {"0.5"},  # a threshold in an exercise
    "07_end_to_end.ipynb": {"0 %"},
    "09_sensitivity.ipynb": {"0.05", "0.3"},  # the paper's range of gamma
    "10_full_runs.ipynb": {"0.12", "0.22"},  # gammas of the sweep
    "11_what_holds.ipynb": {"1.2", "0.6 points", "0.05", "0.3"},  # rules of verdicts
    "B_regime.ipynb": {"0.3", "0.03", "0.01"},  # KL weights tried
    "C_notation.md": {"0.5", "1.44"},  # chance; bits in a nat
    "index.md": {"3.11"},
    "README.md": {"3.11"},
}
PAGES = sorted(
    {
        *KNOWN,
        *GIVEN,
        *(p.name for end in ("ipynb", "md") for p in BOOK.glob(f"*_*.{end}")),
        "method.md",
    }
)
# chapters of other hands state which numbers are theirs in the same way
OURS = [name for name in PAGES if not re.match(r"1[2-9]_|F_", name)]


@pytest.mark.parametrize("name", OURS)
def test_no_number_is_typed_that_a_cell_could_have_computed(name: str) -> None:
    allowed = set(KNOWN.get(name, {})) | GIVEN.get(name, set())
    found = {match[0] for match in NUMBER.finditer(prose(name))}
    assert found - allowed == set()


@pytest.mark.parametrize("name", sorted(KNOWN))
def test_a_typed_number_is_what_its_formula_gives(name: str) -> None:
    for written, compute in KNOWN[name].items():
        number = written.split()[0]
        digits = len(number.partition(".")[2])
        assert f"{compute():.{digits}f}" == number, written


def test_the_stored_findings_are_those_of_the_records() -> None:
    """Else: python book/store.py 10_full_runs 11_what_holds, and commit."""
    stored = says("10_full_runs.ipynb")
    assert [line for line in evidence.findings(RESULTS) if line not in stored] == []
    tests = evidence.differences(RESULTS)
    rows = [f"{d.scenario}: {d.a} - {d.b} = {d.mean:+.2f} points" for d in tests]
    assert len(rows) > 20
    assert [row for row in rows if not any(row in line for line in stored)] == []


def test_the_verdicts_are_about_the_records_of_today() -> None:
    stored = "\n".join(says("11_what_holds.ipynb"))
    for sentence in (evidence.over_vcl(evidence.differences(RESULTS)),):
        assert sentence and sentence in stored


def test_the_papers_numbers_are_those_of_its_tables() -> None:
    """Each row of the registry that the paper's authors ran stands in chapter 10 as printed."""
    stored = "\n".join(says("10_full_runs.ipynb"))
    rows = [row for known in SCENARIOS.values() for row in known.paper]
    assert len(rows) > 20
    assert [row for row in rows if str(row.accuracy) not in stored] == []
