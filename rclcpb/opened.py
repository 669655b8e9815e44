"""What is asked of a kept network, or of a saved classifier: images in, labels and doubt out.

open_kept("mine.safetensors").ask(images)
"""

from __future__ import annotations

import csv
import math
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

import rclcpb_core as core
from rclcpb import checks, intake
from rclcpb.estimator import ContinualClassifier
from rclcpb.files import DAMAGE, RclCpbError, load_tensors, plain, read_whole, replacing
from rclcpb.inference import least_in_doubt
from rclcpb.known import Known
from rclcpb.method import seeded

LONGEST = 2**31  # bytes of images, unpacked


class Answers(NamedTuple):
    """One of each an image."""

    label: np.ndarray
    probability: np.ndarray  #: of that label
    entropy: np.ndarray  #: all that is in doubt, in nats
    mutual_information: np.ndarray  #: what of it is about the weights
    task: np.ndarray  #: whose head answered


def pixels(images: np.ndarray) -> Tensor:
    """Images as floats; bytes become 0 to 1."""
    x = torch.tensor(np.ascontiguousarray(images))
    return x.float() / 255 if x.dtype == torch.uint8 else x.float()


@dataclass(frozen=True)
class Opened:
    """A kept network and all that lies between images and labels."""

    net: core.ProgressiveBNN
    tasks: list[str]  #: of each head
    labels: list[list[Any]]  #: behind each head's outputs
    shape: tuple[int, ...]  #: of an image
    center: Tensor
    scale: Tensor
    config: core.Config
    about: dict[str, Any]
    known: Known  #: in which unit it learned

    def inputs(self, images: np.ndarray) -> Tensor:
        """Images (N, ...), bytes or floats, as the network reads them."""
        checks.images("images", images)
        if images.shape[1:] != self.shape or not len(images):
            raise RclCpbError(
                f"images {images.shape}: this network reads (N, {', '.join(map(str, self.shape))})."
            )
        x = pixels(self.known.inputs(images) if self.known.scale is None else images)
        if not x.isfinite().all():
            raise RclCpbError("the images hold NaN or infinity: clean or drop these.")
        x = (x - self.center) / self.scale
        x = x.permute(0, 3, 1, 2) if x.ndim == 4 else x
        return x if self.net.trunk else x.flatten(1)

    def heads(self, task: str | None = None) -> list[int]:
        """The heads that may answer: a task's, or all."""
        if task is None or len(self.labels) == 1:
            return [*range(len(self.labels))]
        if task not in self.tasks:
            raise RclCpbError(f"no task {task!r}: choose from {', '.join(self.tasks)}.")
        return [self.tasks.index(task)]

    def ask(self, images: np.ndarray, task: str | None = None, seed: int = 0) -> Answers:
        """The likeliest label of each image; of several heads, the one least in doubt says it."""
        x, heads = self.inputs(images), self.heads(task)
        mirror = self.config.test_mirror and bool(self.net.trunk)
        draws = self.config.test_samples, mirror
        with seeded(seed, "ask"):
            told = [checks.finite(core.predict(self.net, x, head, *draws)) for head in heads]
        chosen = least_in_doubt(told).tolist()
        rows = [one.probabilities.max(1) for one in told]
        label, task_of, doubts = [], [], torch.zeros(3, len(x))
        for i, h in enumerate(chosen):
            label.append(self.labels[heads[h]][int(rows[h].indices[i])])
            task_of.append(self.tasks[heads[h]] if len(self.labels) > 1 else "")
            found = rows[h].values[i], told[h].entropy[i], told[h].mutual_information[i]
            doubts[:, i] = torch.stack(found)
        sure, total, weights = doubts.numpy()
        return Answers(np.array(label), sure, total, weights, np.array(task_of))


def open_kept(path: str | Path) -> Opened:
    """A network that a run kept, or the one of a classifier that was saved."""
    _, facts = load_tensors(Path(path), "a kept network")
    if "given" in facts:
        return of_classifier(ContinualClassifier.load(path))
    if "exported" in facts:
        raise RclCpbError(
            f"{path} is an exported network, without doubt: read it with PlainNetwork.load, or ask"
            " the network it was exported from."
        )
    net = core.load(path)
    try:
        inputs, multi = net.about["inputs"], net.about["heads"] == "multi"
        channels, *size = net.image_shape
        shape = (*size, channels) if channels > 1 or net.trunk else tuple(size)
        shape = tuple(inputs.get("shape", shape))
        labels = [[*of] for of in net.about["labels"]]
        tasks = [*map(str, net.about["tasks"])] if multi else ["all"]
        center, scale = (torch.tensor(float(inputs[name])) for name in ("center", "scale"))
        sizes = [head.shape[0] for head in net.heads]
        if [*map(len, labels)] != sizes or len(tasks) != len(sizes) or not scale > 0:
            raise ValueError("its card is of another network")
        if math.prod(shape) != math.prod(net.image_shape):
            raise ValueError("its card is of other images")
        if not all(isinstance(label, int | str) for of in labels for label in of):
            raise ValueError("its card has labels that are none")
        config = core.Config.from_json(net.about.get("config", {}))
    except DAMAGE as error:
        raise RclCpbError(
            f"{path} does not say what it reads and answers ({plain(error)}): keep a network with"
            " `rclcpb run --keep`, or save a ContinualClassifier."
        ) from error
    known = Known(shape, None, top=1.0)  # a run's image sets are bytes, read as 0 to 1
    return Opened(net, tasks, labels, shape, center, scale, config, net.about, known)


def of_classifier(classifier: ContinualClassifier) -> Opened:
    """A classifier's network alone, without what it stores."""
    run, known = classifier.run_, classifier.known_
    scenario, newest = run.scenario, {head: j for j, head in enumerate(run.method.head_of)}
    pieces = [*newest.values()] if scenario.heads == "multi" else [len(run.stages) - 1]
    labels = [[known.labels[code] for code in scenario.columns(j)] for j in pieces]
    tasks = [str(known.names[j]) for j in pieces] if scenario.heads == "multi" else ["all"]
    center, scale = (torch.tensor(float(one)) for one in (scenario.center, scenario.scale))
    if known.scale:
        center, scale = (torch.from_numpy(part).float() for part in known.scale)
    config, net = run.method.config, run.method.net
    return Opened(net, tasks, labels, known.shape, center, scale, config, {}, known)


# --------------------------------------------------------------------------------- files


def images_in(path: Path) -> tuple[np.ndarray, np.ndarray | None]:
    """Images of an npz file, its only array or the one named x or x_test; and y, if it has."""
    content = read_whole(path)
    try:
        with zipfile.ZipFile(BytesIO(content)) as archive:
            if sum(one.file_size for one in archive.infolist()) > LONGEST:
                raise ValueError(f"it would unpack to more than {LONGEST / 1e9:.1f} GB")
        with np.load(BytesIO(content), allow_pickle=False) as arrays:
            names = set(arrays.files)
            found = [name for name in ("x", "images", "x_test") if name in names]
            found = found or ([*names] if len(names) == 1 else [])
            if not found:
                raise KeyError(f"x among {', '.join(sorted(names))}")
            y = arrays.get({"x": "y", "images": "labels", "x_test": "y_test"}.get(found[0], ""))
            return intake.samples(arrays[found[0]]), y
    except RclCpbError:
        raise
    except Exception as error:  # whatever the format can be wrong in
        raise RclCpbError(
            f"{path} holds no images ({plain(error)}): write them with np.savez(path, x=images)."
        ) from error


def write_answers(path: Path, answers: Answers) -> None:
    """A line an image."""
    columns = {"image": range(len(answers.label))} | answers._asdict()
    if not any(answers.task):
        del columns["task"]
    with replacing(path) as part, open(part, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        for row in zip(*columns.values(), strict=True):
            writer.writerow([f"{v:.6f}" if isinstance(v, np.floating) else v for v in row])


def ask_file(path: Path, images: np.ndarray, task: str | None, seed: int) -> Answers:
    """The answers of a kept network; a saved classifier answers as it would itself."""
    _, facts = load_tensors(path, "a kept network")
    if "given" not in facts:
        opened = open_kept(path)
        if opened.about["inputs"].get("shuffled"):
            raise RclCpbError(
                f"{path} learned images whose pixels are shuffled, each task's in its own way: ask"
                " it from Python, with core.samples of its scenario."
            )
        return opened.ask(images, task, seed)
    classifier = ContinualClassifier.load(path)
    names: Sequence[Any] = classifier.known_.names
    name = next((one for one in names if str(one) == task), task)
    p, doubt = classifier.predict_proba(images, name), classifier.uncertainty(images, name)
    told = classifier.classes_[p.argmax(1)], p.max(1), doubt.total, doubt.epistemic
    return Answers(*told, np.array([task or ""] * len(p)))
