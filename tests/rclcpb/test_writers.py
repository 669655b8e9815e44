"""Metrics writers: what a run tells them is what the record says, also of a run that stops."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
from running import KINDS, AtEveryRound, one_line

from rclcpb import ContinualClassifier
from rclcpb.files import RclCpbError
from rclcpb.records import Record
from rclcpb.writers import CsvWriter, TensorBoardWriter


def lines(path: Path) -> list[tuple[int, str, float]]:
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return [(int(row["step"]), row["name"], float(row["value"])) for row in rows]


def agrees(found: list[tuple[int, str, float]], record: Record) -> None:
    """Every number of the record, and a loss a round."""
    values = {(step, name): value for step, name, value in found}
    assert len(values) == len(found)  # nothing twice
    tasks, layers = len(record.tasks), len(record.hidden[0])
    for t in range(tasks):
        for j in range(t + 1):
            told = values[t + 1, f"accuracy/task {j + 1}"]
            assert told == pytest.approx(record.accuracy[t][j], rel=1e-4)
        for k in range(layers):
            assert values[t + 1, f"hidden/layer {k + 1}"] == record.hidden[t][k]
    losses = [step for step, name in values if name == "training/nll"]
    assert losses == [*range(1, 2 * tasks + 1)]  # two epochs a task
    assert values[2 * tasks, "training/kl"] == pytest.approx(record.train_kl[-1], rel=1e-4)


def test_a_csv_holds_what_the_record_says(tmp_path: Path) -> None:
    path = tmp_path / "new" / "run.csv"
    record = KINDS["one head"].run([CsvWriter(path)]).finish("rcl-cpb")
    agrees(lines(path), record)


def test_a_run_that_goes_on_adds_to_its_csv(tmp_path: Path) -> None:
    path = tmp_path / "run.csv"

    def stop(run: Any, done: int) -> None:
        if len(run.stages) == 1 and not stopped:
            stopped.append(done)
            raise KeyboardInterrupt

    stopped: list[int] = []
    run = KINDS["heads"].run([AtEveryRound(stop), CsvWriter(path)])
    with pytest.raises(KeyboardInterrupt):
        list(run)
    record = run.finish("rcl-cpb")
    agrees(lines(path), record)


def test_a_file_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(RclCpbError, match="choose another file"):
        list(KINDS["heads"].run([CsvWriter(tmp_path)]))


def test_tensorboard_shows_what_the_record_says(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="pip install 'rclcpb[tensorboard]'")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    record = KINDS["heads"].run([TensorBoardWriter(tmp_path)]).finish("rcl-cpb")
    board = EventAccumulator(str(tmp_path))
    board.Reload()
    found = [
        (event.step, name.replace("_", " "), event.value)
        for name in board.Tags()["scalars"]
        for event in board.Scalars(name)
    ]
    agrees(found, record)


def test_the_classifier_for_your_own_data_writes_too(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="pip install 'rclcpb[tensorboard]'")
    path, made = tmp_path / "run.csv", ContinualClassifier(tiny.config(epochs=2))
    for t, pair in enumerate(tiny.PAIRS[:2]):
        x, y = tiny.images(pair, 24, np.random.default_rng(t))
        hooks = [CsvWriter(path), TensorBoardWriter(tmp_path / "board")]
        made.learn(x, y, test=(x, y), hooks=hooks)
    found = {(step, name): value for step, name, value in lines(path)}
    assert [found[2, f"accuracy/task {j}"] for j in (1, 2)] == pytest.approx(
        made.run_.stages[1].accuracy, rel=1e-4
    )
    assert {step for step, name in found if name == "training/nll"} == {1, 2, 3, 4}
    assert len(list((tmp_path / "board").iterdir())) == 2  # a file a task, shown as one run


def test_without_the_extra_tensorboard_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(module: str) -> Any:
        raise ImportError(module)

    monkeypatch.setattr("rclcpb.writers.importlib.import_module", missing)
    with pytest.raises(RclCpbError, match=r"rclcpb\[tensorboard\]") as error:
        TensorBoardWriter("logs")
    assert one_line(f"error: {error.value}\n")
