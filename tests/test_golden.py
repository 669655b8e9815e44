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
from rclcpb import machine
from rclcpb.presets import preset
from rclcpb.records import RESULTS, load_record

HERE = Path(__file__).resolve().parent
RECORDS = sorted(RESULTS.rglob("*-seed*.json"))


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="x86 kernels are fixed")
def test_golden_runs_end_in_the_same_bits() -> None:
    script = [sys.executable, str(HERE / "golden.py")]
    done = subprocess.run(script, capture_output=True, text=True, check=True, timeout=300)
    assert json.loads(done.stdout) == json.loads((HERE / "golden.json").read_text())


def test_golden_digits_cannot_move_without_a_new_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = tmp_path / "golden.json"
    run = {"a": {"sha256": "1"}}
    stored.write_text(json.dumps({"version": core.VERSION, "runs": run}))
    monkeypatch.setattr(golden, "GOLDEN", stored)
    monkeypatch.setattr(golden, "digests", lambda: run | {"b": {}})
    monkeypatch.setattr(sys, "argv", ["golden.py", "--write"])
    golden.main()  # a run more is no other digit
    monkeypatch.setattr(golden, "digests", lambda: {"a": {"sha256": "2"}})
    before = stored.read_bytes()
    with pytest.raises(SystemExit, match="other digits in a: raise VERSION"):
        golden.main()
    assert stored.read_bytes() == before
    monkeypatch.setattr(core, "VERSION", core.VERSION + 1)
    golden.main()
    assert json.loads(stored.read_text())["version"] == core.VERSION


def test_golden_runs_fix_the_kernels_as_the_command_does() -> None:
    assert golden.KERNELS == machine.PORTABLE | {"OMP_NUM_THREADS": "1"}
    assert json.loads((HERE / "golden.json").read_text())["version"] == core.VERSION


def test_every_record_loads_and_its_config_is_one_of_today() -> None:
    assert len(RECORDS) >= 260
    for path in RECORDS:
        record = load_record(path)
        config = type(preset(record.scenario, record.method)).from_json(record.config)
        assert record.scenario in path.parts and path.name.endswith(f"-seed{record.seed}.json")
        assert len(record.accuracy) == len(record.tasks) == len(record.hidden)
        assert len(record.hidden[-1]) == len(config.hidden), path
