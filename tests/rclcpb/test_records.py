"""Records: whole or refused, found by method, in the order of their seeds."""

from __future__ import annotations

import json
import pickle
import random
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import tiny
from running import KINDS, Harm

from rclcpb import records
from rclcpb.files import Damaged, RclCpbError
from rclcpb.records import Record, load_record, load_records, record_path, save_record
from rclcpb_core import Config


@pytest.fixture(scope="module")
def record() -> Record:
    return KINDS["one head"].run(epochs=1).finish("rcl-cpb")


def test_records_survive_a_round_trip(tmp_path: Path, record: Record) -> None:
    path = tmp_path / "new" / "folder" / "record.json"
    save_record(record, path)
    again = load_record(path)
    assert asdict(again) == json.loads(json.dumps(asdict(record)))
    save_record(again, path)
    assert asdict(load_record(path)) == asdict(again)
    assert Config.from_json(again.config) == tiny.config(epochs=1, gamma=0.9)
    assert [p.name for p in path.parent.iterdir()] == ["record.json"]  # no part is left


def test_a_number_that_is_not_finite_is_not_recorded(tmp_path: Path, record: Record) -> None:
    path = tmp_path / "record.json"
    save_record(record, path)
    before = path.read_bytes()
    with pytest.raises(ValueError, match="not JSON compliant"):
        save_record(replace(record, nll=[[float("nan")]]), path)
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]


def test_what_is_not_a_record(tmp_path: Path, record: Record) -> None:
    good = json.dumps(asdict(record))
    values, path = json.loads(good), tmp_path / "vcl-seed0.json"
    trace = tmp_path / "trace"
    bad = [
        b"",
        good[: len(good) // 2].encode(),
        b"[1, 2]",
        b"null",
        b"\xff\xfe\x00",
        pickle.dumps(Harm(trace)),
        json.dumps(values | {"extra": 1}).encode(),
        json.dumps({k: v for k, v in values.items() if k != "nll"}).encode(),
    ]
    for text in bad:
        path.write_bytes(text)
        with pytest.raises(RclCpbError, match="not a record of this version"):
            load_record(path)
        assert path.read_bytes() == text
    assert not trace.exists()


def test_a_record_older_than_the_networks_to_start_from(tmp_path: Path, record: Record) -> None:
    values = json.loads(json.dumps(asdict(record)))
    younger = {name: values.pop(name) for name in ("start", "identity", "cpu", "kernels")}
    assert younger["kernels"] and younger["identity"]
    path = tmp_path / "old.json"
    path.write_text(json.dumps(values))
    assert asdict(load_record(path)) == values | {
        "start": None,
        "identity": "",
        "cpu": "",
        "kernels": "",
    }


def test_no_flipped_bit_of_a_record_is_read(tmp_path: Path, record: Record) -> None:
    """Anywhere: in a number, a name or the checksum; only blanks may be others."""
    path, rng = tmp_path / "record.json", random.Random(0)
    save_record(record, path)
    good, before = path.read_bytes(), load_record(path)
    for _ in range(300):
        spoilt = bytearray(good)
        spoilt[rng.randrange(len(good))] ^= 1 << rng.randrange(8)
        path.write_bytes(spoilt)
        try:
            assert load_record(path) == before
        except Damaged:
            continue
        assert json.loads(spoilt) == json.loads(good)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("accuracy", [[float("nan")], [0.5, 0.5], [0.5, 0.5, 0.5]]),
        ("accuracy", [[17.0], [0.5, 0.5], [0.5, 0.5, 0.5]]),
        ("accuracy", [[0.5], [0.5, 0.5]]),
        ("accuracy", [[0.5], [0.5, 0.5], [0.5, 0.5, "0.5"]]),
        ("ece", [[-0.1], [0.5, 0.5], [0.5, 0.5, 0.5]]),
        ("zero_shot", [0.5, True, 0.5]),
        ("hidden", [[8, 8], [9.5, 9], [9, 9]]),
        ("seed", "0"),
        ("tasks", []),
        ("config", None),
        ("kernels", 3),
    ],
)
def test_what_no_run_can_have_come_to_is_no_record(
    field: str, value: Any, tmp_path: Path, record: Record
) -> None:
    """With or without a checksum that fits it."""
    values = json.loads(json.dumps(asdict(record)))
    path = tmp_path / "record.json"
    for signed in (False, True):
        changed = values | {field: value}
        if signed:
            changed["sha256"] = records._digest(changed)
        else:
            changed.pop("identity")
        path.write_text(json.dumps(changed))
        with pytest.raises(Damaged, match="not a record of this version"):
            load_record(path)
    with pytest.raises(ValueError, match=r"not what it should be|not JSON compliant"):
        save_record(replace(record, **{field: value}), tmp_path / "new.json")
    assert not (tmp_path / "new.json").exists()


def test_records_are_found_by_method_and_in_order(tmp_path: Path, record: Record) -> None:
    for method in ("rcl-cpb", "rcl-cpb-A", "rcl-cpb-plus"):
        for seed in (10, 2):
            path = record_path(tmp_path, "s", method, seed)
            save_record(replace(record, scenario="s", method=method, seed=seed), path)
    found = load_records(tmp_path, "s", "rcl-cpb")
    assert [(r.method, r.seed) for r in found] == [("rcl-cpb", 2), ("rcl-cpb", 10)]
    assert load_records(tmp_path, "s", "vcl") == []
    for name in ("rcl-cpb-seed0-old.json", "rcl-cpb-seed02.json", "rcl-cpb-seed1.json.bak"):
        (tmp_path / "s" / name).write_text("{}")
    assert len(load_records(tmp_path, "s", "rcl-cpb")) == 2  # none of these is a seed's


@pytest.mark.parametrize("odd", [{"seed": 4}, {"method": "vcl"}, {"scenario": "t"}])
def test_a_record_is_what_its_name_says(tmp_path: Path, record: Record, odd: Any) -> None:
    named = {"scenario": "s", "method": "rcl-cpb", "seed": 3}
    path = record_path(tmp_path, *named.values())
    save_record(replace(record, **(named | odd)), path)
    with pytest.raises(RclCpbError, match="give it the name of what it is") as caught:
        load_records(tmp_path, "s", "rcl-cpb")
    assert str(path) in str(caught.value)


def test_a_sweeps_records_are_in_a_folder_of_their_own(tmp_path: Path, record: Record) -> None:
    label = "vcl,kl_weight=0.1"
    named = replace(record, scenario="s", method="vcl", seed=3)
    save_record(named, record_path(tmp_path / "sweeps", "s", label, 3))
    assert [r.seed for r in load_records(tmp_path, "s", label)] == [3]
    assert load_records(tmp_path, "s", "vcl") == []
