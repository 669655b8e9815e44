"""Files that are whole or not there, and nothing in them that runs."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from on_disk import one_sentence
from power import Disk, State
from running import Harm
from safetensors import torch as safetensors

from rclcpb import files
from rclcpb.files import Damaged, RclCpbError, _digest, load_tensors, replacing, save_tensors
from rclcpb.records import load_record

TENSORS = {
    "matrix": torch.arange(12.0).view(3, 4).t(),  # not contiguous
    "whole numbers": torch.tensor([[2**40, -1]]),
    "flags": torch.tensor([True, False]),
    "one": torch.tensor(0.1),
    "none": torch.empty(0, 5),
}
FACTS = {"sizes": [3, 4], "name": "é", "share": 0.1, "nothing": None, "deep": {"a": [True]}}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file as `save_tensors` writes it."""
    path = tmp_path / "new" / "folder" / "kept.safetensors"
    save_tensors(path, TENSORS, FACTS)
    return path


def refused(path: Path) -> str:
    with pytest.raises(RclCpbError, match="is damaged or not a kept network") as caught:
        load_tensors(path, "a kept network")
    assert str(path) in str(caught.value)
    return str(caught.value)


# --------------------------------------------------------------------------- replacing


def test_the_old_file_stays_until_the_new_one_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "f.txt"
    path.write_text("old")

    def half(part: Path) -> None:
        part.write_text("half")
        raise KeyError("some error in between")

    with pytest.raises(KeyError), replacing(path) as part:
        half(part)
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]
    with replacing(path) as part:
        part.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new" and list(tmp_path.iterdir()) == [path]


def test_two_processes_never_write_to_one_part(tmp_path: Path, monkeypatch: Any) -> None:
    path = tmp_path / "f.txt"
    with replacing(path) as mine:
        monkeypatch.setattr(os, "getpid", lambda: 1)
        with replacing(path) as other:
            assert mine != other and mine.parent == other.parent == path.parent
            mine.write_text("mine")
            other.write_text("other")
        assert path.read_text() == "other"
    assert path.read_text() == "mine" and list(tmp_path.iterdir()) == [path]


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with (
        pytest.raises(RclCpbError, match=r"cannot write .*Not a directory") as caught,
        replacing(tmp_path / "file" / "deep" / "f.txt"),
    ):
        pytest.fail("there is nothing to write to")
    assert "--out" in one_sentence(caught.value)
    assert (tmp_path / "file").read_text() == "in the way"


@pytest.mark.parametrize("before", [{}, {"new/folder/f.txt": b"old"}])
def test_a_power_cut_leaves_the_old_file_or_the_new_one(tmp_path: Path, before: dict) -> None:
    """Whole, at each moment; and the new one from the moment that it is written."""
    State("before", before).restore(tmp_path)
    path = tmp_path / "new" / "folder" / "f.txt"
    with Disk(tmp_path) as disk, replacing(path) as part:
        part.write_text("new")
    left = [{k: v for k, v in s.files.items() if "part" not in k} for s in disk.states]
    new = {"new/folder/f.txt": b"new"}
    assert before in left and new in left
    assert all(files in (before, new) for files in left)
    assert disk.left() == [new, new]


# ------------------------------------------------------------------ tensors and their facts


def test_tensors_and_facts_come_back_as_they_were(path: Path) -> None:
    tensors, facts = load_tensors(path, "a kept network")
    assert facts == FACTS and tensors.keys() == TENSORS.keys()
    for name, value in TENSORS.items():
        assert tensors[name].dtype == value.dtype and torch.equal(tensors[name], value)
    assert list(path.parent.iterdir()) == [path]


def test_a_parameter_is_saved_without_its_graph(tmp_path: Path) -> None:
    parameter = torch.nn.Parameter(torch.randn(3))
    save_tensors(tmp_path / "f", {"p": parameter, "twice": 2 * parameter}, {})
    tensors, _ = load_tensors(tmp_path / "f", "a kept network")
    assert torch.equal(tensors["twice"], 2 * parameter.detach())
    assert not tensors["p"].requires_grad


def test_any_changed_byte_is_found(path: Path) -> None:
    """In the header, in the facts, in the checksum, in the numbers."""
    whole = path.read_bytes()
    for place in {*range(0, len(whole), 7), len(whole) - 1}:
        content = bytearray(whole)
        content[place] ^= 1
        path.write_bytes(content)
        refused(path)
    path.write_bytes(whole)
    assert load_tensors(path, "a kept network")[1] == FACTS


@pytest.mark.parametrize("share", [0.0, 0.02, 0.5, 0.9999])
def test_a_truncated_file_is_found(path: Path, share: float) -> None:
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])
    refused(path)


def test_tensors_of_another_program_are_refused(tmp_path: Path) -> None:
    for metadata in (None, {}, {"state": "{}"}, {"state": "{}", "sha256": "0"}):
        (tmp_path / "f").write_bytes(safetensors.save({"a": torch.ones(2)}, metadata))
        refused(tmp_path / "f")


def unreadable(path: Path) -> None:
    """It may be a good one: nobody hears that it is damaged."""
    with pytest.raises(RclCpbError, match="cannot read") as caught:
        load_tensors(path, "a kept network")
    assert str(path)[:80] in str(caught.value) and not isinstance(caught.value, Damaged)


def test_what_is_no_file_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    for name in ("", "pipe", "loop", "none", "/dev/zero", "a\0b", "x" * 300, "a/" * 3000):
        unreadable(tmp_path / name)


def test_a_file_never_takes_the_place_of_what_is_none(tmp_path: Path) -> None:
    """Root, as in a container, could otherwise put its answers in the place of /dev/null."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("pipe")
    for name in ("pipe", "folder", "link"):
        with pytest.raises(RclCpbError, match="a folder, a pipe or a device") as caught:
            save_tensors(tmp_path / name, {"a": torch.ones(2)}, {})
        one_sentence(caught.value)
    assert (tmp_path / "pipe").is_fifo() and (tmp_path / "link").is_symlink()


@pytest.mark.parametrize("error", [OSError(5, "Input/output error"), MemoryError()])
def test_a_failing_disk_or_memory_is_no_damage(
    error: BaseException, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise error

    monkeypatch.setattr(os, "open", fail)
    unreadable(path)


def test_a_giant_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "giant"
    with path.open("wb") as file:
        file.truncate(2**40)  # of which nothing is on the disk
    with pytest.raises(Damaged, match=r"1099\.5 GB long, at most 4\.3"):
        load_tensors(path, "a kept network")
    with pytest.raises(Damaged, match=r"at most 0\.1 would be right"):
        load_record(path)


@pytest.mark.parametrize("state", ["[" * 10**5, "[1]", "3", "null", '"a"', "{", ""])
def test_facts_that_are_none_are_refused(path: Path, state: str) -> None:
    """Their checksum may be right."""
    made = {k: v.contiguous() for k, v in TENSORS.items()}
    metadata = {"state": state, "sha256": _digest(made, state)}
    path.write_bytes(safetensors.save(made, metadata))
    refused(path)


def test_tensors_of_other_kinds_are_refused(path: Path) -> None:
    odd = {"a": torch.ones(3, dtype=torch.bfloat16)}
    path.write_bytes(safetensors.save(odd, {"state": "{}"}))
    refused(path)


def test_a_pickle_under_the_name_runs_no_code(tmp_path: Path) -> None:
    trace, path = tmp_path / "trace", tmp_path / "kept.safetensors"
    path.write_bytes(pickle.dumps(Harm(trace)))
    refused(path)
    torch.save({"a": Harm(trace)}, path)
    refused(path)
    assert not trace.exists()


def test_a_full_disk_leaves_the_old_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = path.read_bytes()

    def full(part: Path, content: bytes) -> int:
        with part.open("wb") as file:
            file.write(content[:9])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.Path, "write_bytes", full)
    with pytest.raises(RclCpbError, match="No space left on device") as caught:
        save_tensors(path, {"a": torch.ones(9)}, {})
    one_sentence(caught.value)
    assert path.read_bytes() == before and list(path.parent.iterdir()) == [path]
