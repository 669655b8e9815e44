"""Metrics writers: hooks that write down how a run goes on.

Run(method, [CsvWriter("run.csv"), TensorBoardWriter("logs")])
"""

from __future__ import annotations

import csv
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rclcpb.files import RclCpbError, make_folder
from rclcpb.method import Round
from rclcpb.records import Stage
from rclcpb.runner import Hook, Run

NUMBERS = ("zero_shot", "seconds", "structure_seconds")  # one a task
A_LAYER = ("pruned", "shared", "added", "hidden", "utilisation")
A_TASK = ("accuracy", "nll", "ece")


def optional(module: str, extra: str) -> Any:
    """A package that comes with an extra of ours."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        name = module.split(".")[-1]
        raise RclCpbError(
            f"this needs the package {name}: install it with `pip install 'rclcpb[{extra}]'`."
        ) from error


def told(stage: Stage) -> Iterator[tuple[str, float]]:
    """What a stage says, by names such as accuracy/task 2; what does not apply is left out."""
    yield from ((name, getattr(stage, name)) for name in NUMBERS)
    for names, unit in ((A_LAYER, "layer"), (A_TASK, "task")):
        for name in names:
            for i, value in enumerate(getattr(stage, name) or (), 1):
                yield f"{name}/{unit} {i}", value
    if stage.accuracy:
        yield "accuracy/mean", sum(stage.accuracy) / len(stage.accuracy)


class Writer(Hook):
    """Counts rounds and tasks from 1, through a run that was stopped and goes on, too."""

    def on_start(self, run: Run) -> None:
        self.open()

    def on_round(self, run: Run, done: Round) -> None:
        place = len(run.stages) * run.method.rounds_a_task() + done.done
        self.write("training/nll", done.nll, place)
        if done.kl is not None:
            self.write("training/kl", done.kl, place)

    def on_task(self, run: Run, stage: Stage) -> None:
        for name, value in told(stage):
            self.write(name, value, len(run.stages))
        if len(run.stages) == len(run.scenario.tasks):
            self.close()

    def on_stop(self, run: Run) -> None:
        self.close()

    def open(self) -> None:
        """Make ready to write."""

    def write(self, name: str, value: float, step: int) -> None:
        """A number: training/... at each round, all else at each task."""
        raise NotImplementedError

    def close(self) -> None:
        """What is written is on disk."""


class CsvWriter(Writer):
    """Lines `step,name,value`; a run that goes on adds to the file."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def open(self) -> None:
        if not self.path.exists() or not self.path.stat().st_size:
            self.line("step", "name", "value")

    def write(self, name: str, value: float, step: int) -> None:
        self.line(step, name, f"{value:.6g}")

    def line(self, *cells: object) -> None:
        try:
            make_folder(self.path.parent)
            with open(self.path, "a", newline="", encoding="utf-8") as file:
                csv.writer(file).writerow(cells)
        except OSError as error:
            raise RclCpbError(
                f"cannot write {self.path} ({error.strerror}): choose another file."
            ) from error


class TensorBoardWriter(Writer):
    """A folder that `tensorboard --logdir` shows; needs rclcpb[tensorboard]."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.module = optional("torch.utils.tensorboard", "tensorboard")

    def open(self) -> None:
        self.board = self.module.SummaryWriter(str(self.folder))

    def write(self, name: str, value: float, step: int) -> None:
        self.board.add_scalar(name.replace(" ", "_"), value, step)

    def close(self) -> None:
        self.board.close()
