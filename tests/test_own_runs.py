"""From a run of one's own to the figures of the chapter that shows the book's."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from rclcpb.files import RclCpbError
from rclcpb.jobs import Job, run_job
from rclcpb.presets import preset
from rclcpb.records import RESULTS, record_path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "book"))
from figures import page  # noqa: E402

CELLS = f"""
import sys
sys.path[:0] = [{str(ROOT)!r}, {str(ROOT / "book")!r}]
import nbformat
cells = nbformat.read({str(ROOT / "book")!r} + "/10_full_runs.ipynb", 4).cells
for cell in [cell for cell in cells if cell.cell_type == "code"][1:]:
    exec(cell.source)
"""


def shown(results: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """What the chapter of full runs shows, in words, if its kernel starts in a folder."""
    environment = os.environ | {"RCLCPB_RESULTS": results, "MPLBACKEND": "agg"}
    words = [sys.executable, "-c", CELLS]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, env=environment)


def test_a_chapter_shows_a_run_of_ones_own(fast_digits: None, tmp_path: Path) -> None:
    """RCLCPB_RESULTS=runs names the folder from where Jupyter starts; a kernel starts below."""
    name, method = "ta-smnist-5k", "rcl-cpb"
    small = replace(preset(name, method), hidden=(8, 8), epochs=1, replay_steps=2)
    run_job(Job(name, method, 0, small, record_path(tmp_path / "runs", name, method, 0)))
    (tmp_path / "book").mkdir()
    done = shown("runs", tmp_path / "book")
    assert done.returncode == 0, done.stderr
    dots, rest = done.stdout.split("Figure 10.1")
    assert "recorded run: seed 0" in rest.splitlines()[0] and "a dot a seed" in dots
    assert "ta-smnist-5k. (recorded run: seed 0" in rest
    assert "ta-smnist. Not recorded yet" in rest  # the 5,000 digits pass for nothing else


def test_a_folder_that_is_not_there_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RCLCPB_RESULTS", "elsewhere")
    with pytest.raises(RclCpbError, match=r"names elsewhere, .* --out elsewhere"):
        page.results(tmp_path)
    monkeypatch.delenv("RCLCPB_RESULTS")
    assert page.results(tmp_path) == RESULTS
