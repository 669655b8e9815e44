"""What may not change unnoticed: golden runs bit for bit, and every record that was written."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from pathlib import Path

import golden
import pytest

import rclcpb_core as core
from rclcpb.presets import preset
from rclcpb.records import RESULTS, load_record

HERE = Path(__file__).resolve().parent
RECORDS = sorted(RESULTS.rglob("*-seed*.json"))


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="x86 kernels are fixed")
def test_golden_runs_end_in_the_same_bits() -> None:
    script = [sys.executable, str(HERE / "golden.py")]
    done = subprocess.run(script, capture_output=True, text=True, check=True, timeout=1800)
    found, known = json.loads(done.stdout), json.loads((HERE / "golden.json").read_text())
    expected = known.get(golden.maker(), {})
    alike = expected.get("arithmetic", found["arithmetic"]) == found["arithmetic"]
    if expected and alike:
        assert {name: found[name] for name in expected} == expected
    else:  # a processor not seen so far: the same structure, and accuracies of the same kind
        for name, seen in known["AuthenticAMD"].items():
            if name not in ("version", "arithmetic"):
                assert found[name]["hidden"] == pytest.approx(seen["hidden"], rel=0.3)
                mean = sum(seen["accuracy"]) / len(seen["accuracy"])
                assert sum(found[name]["accuracy"]) / len(seen["accuracy"]) > mean - 25


def test_digits_cannot_move_without_a_new_version() -> None:
    """It counts up by itself as little as a record notices: `--write` asks for it."""
    before = {"version": 1, "arithmetic": "a", "one": {"sha256": "1"}}
    golden.refuse_moved(before, before | {"two": {"sha256": "2"}})  # a run more
    moved = before | {"one": {"sha256": "2"}}
    with pytest.raises(SystemExit, match="other digits in one: first raise VERSION"):
        golden.refuse_moved(before, moved)
    golden.refuse_moved(before, moved | {"version": 2})
    golden.refuse_moved(before, moved | {"arithmetic": "b"})  # another machine
    known = json.loads((HERE / "golden.json").read_text())
    assert {of["version"] for of in known.values()} == {core.VERSION}


def test_every_record_loads_and_its_config_is_one_of_today() -> None:
    assert len(RECORDS) >= 260
    for path in RECORDS:
        record = load_record(path)
        config = type(preset(record.scenario, record.method)).from_json(record.config)
        assert record.scenario in path.parts and path.name.endswith(f"-seed{record.seed}.json")
        assert len(record.accuracy) == len(record.tasks) == len(record.hidden)
        assert len(record.hidden[-1]) == len(config.hidden), path
