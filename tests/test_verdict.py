"""What chapter 12 says in words, on records made so that the answer is known."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from running import KINDS

from rclcpb.records import Record

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "book"))
from figures import verdict
from figures.evidence import Difference


@pytest.fixture(scope="module")
def of() -> dict[str, list[Record]]:
    """ER is better, smaller and more sparing than EWC; VCL is best and largest."""
    base = KINDS["one head"].run(epochs=1, replay_steps=1).finish("vcl")

    def record(method: str, accuracy: float, parameters: int, stored: int) -> list[Record]:
        rows = [[accuracy] * len(row) for row in base.accuracy]
        made: dict[str, Any] = {"accuracy": rows, "coreset_total": stored}
        return [replace(base, scenario="ta-smnist", method=method, parameters=parameters, **made)]

    return {
        "vcl": record("vcl", 0.9, 1000, 30),
        "er": record("er", 0.8, 500, 1),
        "ewc": record("ewc", 0.6, 500, 0),
        "finetune": record("finetune", 0.5, 500, 0),
        "joint": record("joint", 0.95, 500, 100),
        "rcl-cpb": record("rcl-cpb", 0.7, 600, 30),
    }


def test_who_is_beaten_in_everything_at_once(of: dict[str, list[Record]]) -> None:
    assert verdict.beats(of, "er", "ewc") and not verdict.beats(of, "ewc", "er")
    assert not verdict.beats(of, "er", "finetune")  # which holds nothing
    assert not verdict.beats(of, "er", "er") and not verdict.beats(of, "vcl", "er")
    assert verdict.front(of) == ["vcl", "er", "finetune"]  # joint training keeps everything
    (line,) = verdict.at_its_price({"ta-smnist": of})
    assert "VCL (90.0 %" in line and line.endswith("Beaten: RCL-CPB by ER.")


def test_the_best_with_and_without_stored_images(of: dict[str, list[Record]]) -> None:
    (line,) = verdict.choices({"ta-smnist": of})
    assert "with stored images VCL (90.00 %" in line and "without stored images EWC (60.00" in line
    assert line.endswith("joint training has 95.00 %.")
    (line,) = verdict.choices({"ta-smnist": {"ewc": of["ewc"]}})
    assert "the best without stored images EWC" in line and "joint" not in line


def test_quotes_beside_what_is_measured(of: dict[str, list[Record]]) -> None:
    assert verdict.quotes({"ta-smnist": of}) == [("ta-smnist", "ewc", 60.0, 55.8)]
    said = verdict.misled({"ta-smnist": of})
    assert "Of 1 quoted numbers" in said and "1 are too low and 0 too high" in said
    assert "EWC on ta-smnist (+4.2)" in said and verdict.misled({}) == ""


def test_a_setting_is_compared_with_all_else_alike(tmp_path: Path) -> None:
    def row(accuracy: float, method: str = "ewc", **config: Any) -> str:
        return json.dumps({"method": method, "config": config, "accuracy": accuracy}) + "\n"

    (tmp_path / "regime").mkdir()
    (tmp_path / "regime" / "ta-smnist.jsonl").write_text(
        row(0.5, mask="own", lr=1)
        + row(0.9, mask="own", lr=2)  # no other with this rate
        + row(0.2, mask="all", lr=1)
        + row(0.3, method="er", mask="all", lr=1)
        + row(0.1, method="vcl", mask="own", lr=1)
    )
    assert verdict.tried(tmp_path, "ta-smnist", "mask") == {"ewc": [("all", 20.0), ("own", 50.0)]}
    said = verdict.searched(tmp_path, "ta-smnist", "mask")
    assert "mask, on validation data: EWC 20.0 % with all, 50.0 % with own." in said
    assert verdict.searched(tmp_path, "pmnist", "mask") == ""


def test_comparisons_are_counted() -> None:
    def difference(a: str, points: float, p: float) -> Difference:
        return Difference("ta-smnist", a, "rcl-cpb", [points] * 3, p, p)

    tests = [difference("er", 2.0, 0.01), difference("si", -3.0, 0.02), difference("lp", 1.0, 0.3)]
    said = verdict.against(tests)
    assert said.startswith("Of 3 comparisons with RCL-CPB, 1 stand in its favour and 1 against it")
    assert "ER on ta-smnist (+2.0)" in said and verdict.against([]) == ""
