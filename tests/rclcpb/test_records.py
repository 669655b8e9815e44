"""Records: whole or refused, found by method, in the order of their seeds."""

from __future__ import annotations

import json
import pickle
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import tiny
from running import KINDS, Harm

from rclcpb.files import RclCpbError
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
    del values["start"]
    path = tmp_path / "old.json"
    path.write_text(json.dumps(values))
    assert asdict(load_record(path)) == values | {"start": None}


def test_records_are_found_by_method_and_in_order(tmp_path: Path, record: Record) -> None:
    for method in ("rcl-cpb", "rcl-cpb-A", "rcl-cpb-plus"):
        for seed in (10, 2):
            path = record_path(tmp_path, "s", method, seed)
            save_record(replace(record, method=method, seed=seed), path)
    found = load_records(tmp_path, "s", "rcl-cpb")
    assert [(r.method, r.seed) for r in found] == [("rcl-cpb", 2), ("rcl-cpb", 10)]
    assert load_records(tmp_path, "s", "vcl") == []


def test_a_sweeps_records_are_in_a_folder_of_their_own(tmp_path: Path, record: Record) -> None:
    label = "vcl,kl_weight=0.1"
    save_record(record, record_path(tmp_path / "sweeps", "s", label, 3))
    assert [r.seed for r in load_records(tmp_path, "s", label)] == [record.seed]
    assert load_records(tmp_path, "s", "vcl") == []
