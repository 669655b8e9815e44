"""Sections of chapters 4 and 15 that read records: with none, with some, and what they say."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import nbformat
import numpy as np
import pytest

from rclcpb.records import load_record, record_path, save_record

BOOK = Path(__file__).resolve().parents[1] / "book"
sys.path.insert(0, str(BOOK))
import figures  # noqa: E402
from figures import page, posterior, pruning  # noqa: E402

SECTIONS = {
    "04_pruning": ("## How much could go, and who knows?",),
    "15_posterior": ("## Does it forget less?", "## Recorded runs"),
}
SHARES = [0.0, 0.5, 0.9]


def code_of(name: str, headings: tuple[str, ...]) -> list[str]:
    """The chapter's imports, and the code below some of its headings."""
    within, found = False, []
    for cell in nbformat.read(BOOK / f"{name}.ipynb", 4).cells:
        if cell.cell_type == "markdown":
            titles = [line for line in cell.source.split("\n") if line.startswith("## ")]
            within = titles[-1] in headings if titles else within
        elif within or "use_style(" in cell.source:
            found.append(cell.source)
    return found


def curve_run(optimiser: str, seed: int, snr: list[float], size: list[float]) -> dict[str, Any]:
    curves = {"snr": snr, "size": size, "shuffled": size, "random": [0.9, 0.2, 0.1]}
    stages = {stage: curves for stage in ("first", "last")}
    return {"optimiser": optimiser, "seed": seed, "shares": SHARES} | stages


@pytest.mark.parametrize("records", ["none", "some"])
@pytest.mark.parametrize("name", SECTIONS)
def test_sections_that_read_records_cope_with_few(
    name: str, records: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[Any] = []
    monkeypatch.setattr(figures, "RESULTS", tmp_path)
    monkeypatch.setattr(page, "display", shown.append)
    if records == "some":
        (tmp_path / "pruning").mkdir()
        (tmp_path / "pmnist").mkdir()
        lines = (BOOK / "results" / "pruning" / "mh-smnist.jsonl").read_text().splitlines(True)
        (tmp_path / "pruning" / "mh-smnist.jsonl").write_text(lines[1])
        for method, seeds in {"rcl-cpb-natural": (0, 1), "rcl-cpb-plus": (1, 2)}.items():
            for seed in seeds:
                kept = load_record(record_path(BOOK / "results", "pmnist", "rcl-cpb-plus", seed))
                path = record_path(tmp_path, "pmnist", method, seed)
                save_record(replace(kept, method=method), path)
    place: dict[str, Any] = {}
    for source in code_of(name, SECTIONS[name]):
        exec(compile(source, name, "exec"), place)
        plt.close("all")
    words = " ".join(map(str, shown))
    missing = records == "none" or name == "04_pruning"  # which has a figure a scenario
    assert ("ecorded yet" in words) == missing and not re.search(r"\bnan\b", words)
    assert ("Figure" in words) == (records == "some")
    if name == "15_posterior" and records == "some":
        assert "ahead in 0 of 1 seeds" in words  # the same record under two names


def test_the_curves_of_a_run_are_drawn_and_compared() -> None:
    runs = [
        curve_run("adam", 0, [0.95, 0.9, 0.8], [0.95, 0.9, 0.6]),
        curve_run("adam", 1, [0.95, 0.9, 0.5], [0.95, 0.9, 0.6]),
        curve_run("natural", 0, [0.97, 0.96, 0.9], [0.97, 0.95, 0.7]),
    ]
    figures.use_style("4")
    fig = pruning.pruning_curves(runs, "task 1", "all")
    assert [ax.get_title(loc="left") for ax in fig.axes][:2] == ["Adam", "natural steps"]
    line = fig.axes[0].get_lines()[0]
    np.testing.assert_allclose(line.get_ydata(), [95, 90, 65])
    plt.close(fig)
    adam, natural = pruning.ahead(runs, 0.9)
    assert "SNR keeps 65.0 %, |μ| 60.0 %" in adam and "ahead of |μ| in 1 of 2 seeds" in adam
    assert natural.startswith("natural steps: SNR keeps 90.0 %")


def test_groups_without_weights_are_not_drawn() -> None:
    group = [np.full(20, 0.1), np.zeros(0)] + [np.full(20, 0.2)] * 4
    fig = posterior.by_use({"Adam": [group, group], "natural": [group, group]}, 0.05)
    assert len(fig.axes[0].get_lines()[0].get_xdata()) == 5
    plt.close(fig)
