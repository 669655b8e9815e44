"""Commands for what a run has left: predict, export, doctor, tasks."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import tyro

from rclcpb import doctor, inference
from rclcpb.export import PlainNetwork, off_by, plain_network, write_onnx
from rclcpb.files import RclCpbError, read_whole, replacing
from rclcpb.images import nothing_fetched
from rclcpb.method import samples
from rclcpb.opened import Opened, ask_file, images_in, open_kept, pixels, write_answers
from rclcpb.presets import make_scenario
from rclcpb.records import load_record
from rclcpb.scenarios import Scenario
from rclcpb.tables import format_table


def refuse(rest: list[str]) -> None:
    if rest:
        raise RclCpbError(f"not understood: {' '.join(rest)}; see --help.")


@dataclass
class Predict:
    """Ask a kept network about images: a CSV with a label, its probability and its doubt."""

    network: tyro.conf.Positional[Path]
    """NETWORK.safetensors, of `run --keep` or of a saved ContinualClassifier."""
    images: tyro.conf.Positional[Path]
    """IMAGES.npz with an array x (N, ...), and perhaps their labels y."""
    out: Path = Path("answers.csv")
    task: str | None = None
    """With a head a task: whose head answers. Without it, the one least in doubt."""
    seed: int = 0

    def __call__(self, rest: list[str]) -> None:
        refuse(rest)
        x, y = images_in(self.images)
        answers = ask_file(self.network, x, self.task, self.seed)
        write_answers(self.out, answers)
        doubt = float(np.median(answers.entropy))
        print(f"{len(x)} answers -> {self.out} (half are in doubt by more than {doubt:.3f} nats)")
        if y is not None and y.shape == answers.label.shape:
            if (y.dtype.kind == "U") != (answers.label.dtype.kind == "U"):
                raise RclCpbError(
                    f"the labels in {self.images.name} are {y.dtype}, the network's"
                    f" {answers.label.dtype}: give labels of one kind."
                )
            print(f"right, by the labels in {self.images.name}: {_share(answers.label == y)}")


@dataclass
class Export:
    """Write a kept network without its widths: sparse and deterministic."""

    network: tyro.conf.Positional[Path]
    keep: float = 1.0
    """The share of hidden weights that stay, those with the highest SNR."""
    to: Literal["onnx", "safetensors"] = "safetensors"
    out: Path | None = None
    """Where to; else beside the network, as NETWORK-keep0.1.onnx."""
    data_dir: str | None = None

    def __call__(self, rest: list[str]) -> None:
        refuse(rest)
        opened = open_kept(self.network)
        plain, small = (plain_network(opened, keep) for keep in (1.0, self.keep))
        end = "onnx" if self.to == "onnx" else "plain.safetensors"
        out = self.out or self.network.with_name(f"{self.network.stem}-keep{self.keep:g}.{end}")
        if out.exists() and out.samefile(self.network):
            raise RclCpbError(f"{out} is the network itself: choose another --out.")
        if self.to == "onnx":
            write_onnx(small, out)
        else:
            small.save(out)
        left, whole = small.weights()
        print(f"{left:,} of {whole:,} hidden weights, {out.stat().st_size:,} bytes -> {out}")
        if self.to == "onnx":
            print(f"onnxruntime reads it, and is off by {off_by(small, out):.0e} at the most")
        try:
            scenario = its_scenario(opened, self.data_dir)
        except RclCpbError as error:
            print(f"its accuracy is not known here: {error}")
            return
        rows = [
            (task.name, *accuracies(opened, scenario, j, plain, small))
            for j, task in enumerate(scenario.tasks)
        ]
        means = [f"{np.mean([float(row[i]) for row in rows]):.2f}" for i in (1, 2, 3)]
        header = ("accuracy % on", "Bayesian", "its means", f"{100 * self.keep:g} % of them")
        print(format_table([*rows, ("all tasks", *means)], header))


def accuracies(opened: Opened, scenario: Scenario, j: int, *plain: PlainNetwork) -> list[str]:
    """On a task's test data, by its own head: of the Bayesian network, and of these."""
    task, multi = scenario.tasks[j], scenario.heads == "multi"
    images = shuffled(task)
    found = [opened.ask(images, opened.tasks[j] if multi else None).label == task.y_test]
    x = pixels(images)
    labels = np.array(opened.labels[j if multi else 0])
    for network in plain:
        answer = network(x)[j if multi else 0].argmax(1).numpy()
        found.append(labels[answer] == task.y_test)
    return [f"{100 * float(np.mean(right)):.2f}" for right in found]


def shuffled(task: Any) -> np.ndarray:
    """A task's test images as its network reads them."""
    x = task.x_test
    if task.permutation is None:
        return x
    return x.reshape(len(x), -1)[:, task.permutation].reshape(x.shape)


def its_scenario(opened: Opened, data_dir: str | None) -> Scenario:
    """The scenario that a kept network learned, if its images are here."""
    about = opened.about
    if not {"scenario", "seed", "data_sha256"} <= set(about):
        raise RclCpbError("the file names no scenario.")
    with nothing_fetched():
        scenario = make_scenario(str(about["scenario"]), about["seed"], data_dir)
    if scenario.sha256() != about["data_sha256"]:
        raise RclCpbError("the images here are not those that it learned.")
    return scenario


@dataclass
class Doctor:
    """Read a record: which sign of failure does it show, and what helps."""

    record: tyro.conf.Positional[Path]

    def __call__(self, rest: list[str]) -> None:
        refuse(rest)
        record = load_record(self.record)
        found = doctor.signs(record)
        last = 100 * float(np.mean(record.accuracy[-1]))
        print(f"{record.scenario}, {record.method}, seed {record.seed}: {last:.1f} % at the end")
        for sign in found:
            print(f"\n{sign.name}\n  seen: {sign.seen}\n  do:   {sign.do}")
        if not found:
            print("none of the known signs of failure.")


@dataclass
class Tasks:
    """Which task is an image from? How often the least doubtful head of a network is right."""

    network: tyro.conf.Positional[Path]
    out: Path | None = None
    """Add what was found to this file of JSON, a line a network."""
    data_dir: str | None = None

    def __call__(self, rest: list[str]) -> None:
        refuse(rest)
        _ = _lines(self.out) if self.out else []  # what cannot be added to is told before the work
        opened = open_kept(self.network)
        scenario = its_scenario(opened, self.data_dir)
        if scenario.heads != "multi":
            raise RclCpbError("this network has one head for all tasks: there is none to find.")
        if len(scenario.tasks) < 2:
            raise RclCpbError("this network has learned one task: there is nothing to find.")
        tests = [samples(scenario, t, "test") for t in range(len(scenario.tasks))]
        draws = opened.config.test_samples
        found = inference.found_tasks(opened.net, [(one.x, one.y) for one in tests], draws)
        rows = [
            (kind, *(f"{100 * found[kind][name]:.2f}" for name in ("task", "label")))
            for kind in inference.DOUBTS
        ]
        print(format_table(rows, ("doubt", "right task %", "right label %")))
        print(f"told the task: {100 * found['told']:.2f} % right labels")
        if self.out:
            about = {name: opened.about[name] for name in ("scenario", "method", "seed")}
            _add_line(self.out, about, found)


def _add_line(path: Path, about: dict[str, Any], found: dict[str, Any]) -> None:
    """A line in place of one about the same."""
    others = [one for one in _lines(path) if not about.items() <= one.items()]
    with replacing(path) as part:
        texts = [json.dumps(one, allow_nan=False) for one in [*others, about | found]]
        part.write_text("\n".join(texts) + "\n", "utf-8")


def _lines(path: Path) -> list[dict[str, Any]]:
    """What is in a file that `_add_line` wrote, if there is one."""
    try:
        found = (
            [json.loads(line) for line in read_whole(path).splitlines()] if path.exists() else []
        )
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError):
        found = [None]
    if not all(isinstance(one, dict) for one in found):
        raise RclCpbError(f"{path} is not a file that `rclcpb tasks` wrote: choose another --out.")
    return found


def _share(right: np.ndarray) -> str:
    return f"{100 * float(np.mean(right)):.2f} %"
