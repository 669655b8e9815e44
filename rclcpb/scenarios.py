"""Scenarios: what a method is given, one task after another.

permuted_mnist(images) -> Scenario, a tuple of Task
from_arrays([(x_train, y_train, x_test, y_test), ...]) -> your own
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from rclcpb.files import RclCpbError
from rclcpb.images import ARRAYS, Images


@dataclass(frozen=True, eq=False)
class Task:
    """One task's images and labels; `classes` are the labels it may hold."""

    name: str
    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    classes: tuple[int, ...]
    permutation: np.ndarray | None = None  # of the pixels, for permuted MNIST
    inputs: int = 0  # input size before padding (0: that of an image)
    mirror: bool = True  # a mirrored image keeps its class, as a digit's does not

    def __post_init__(self) -> None:
        object.__setattr__(self, "inputs", self.inputs or math.prod(self.x_train.shape[1:]))
        for split in ("train", "test"):
            x, y = getattr(self, f"x_{split}"), getattr(self, f"y_{split}")
            where = f"task {self.name!r}, {split} data"
            if (
                x.ndim < 2
                or not len(x)
                or y.shape != x.shape[:1]
                or x.shape[1:] != self.x_train.shape[1:]
            ):
                raise RclCpbError(
                    f"{where}: images {x.shape} with labels {y.shape}; wanted (N, ...)"
                    f" of one shape {self.x_train.shape[1:]} with N labels."
                )
            if not (x.dtype == np.uint8 or np.issubdtype(x.dtype, np.floating)):
                raise RclCpbError(f"{where}: images are {x.dtype}; give uint8 (0-255) or floats.")
            if not np.issubdtype(y.dtype, np.integer):
                raise RclCpbError(f"{where}: labels are {y.dtype}; give integers.")
            if np.issubdtype(x.dtype, np.floating) and not np.isfinite(x).all():
                raise RclCpbError(f"{where}: NaN or infinite pixels; clean or drop them.")
            present = set(np.unique(y).tolist())
            if not present <= set(self.classes):
                odd = sorted(present - set(self.classes))
                raise RclCpbError(f"{where}: labels {odd} are outside its classes {self.classes}.")
            if present != set(self.classes):
                empty = sorted(set(self.classes) - present)
                raise RclCpbError(
                    f"{where}: classes {empty} have no samples; add some or drop them."
                )


@dataclass(frozen=True, eq=False)
class Scenario:
    """A sequence of tasks; `heads` is "multi" (one a task) or "single" (it widens)."""

    name: str
    tasks: tuple[Task, ...]
    heads: Literal["multi", "single"]
    trunk: bool = False  # two Bayesian convolutions before the hidden layers
    center: float = 0.0  # pixels / 255 become (p - center) / scale
    scale: float = 1.0

    def __post_init__(self) -> None:
        shapes = {task.x_train.shape[1:] for task in self.tasks}
        if len(shapes) != 1:
            raise RclCpbError(
                f"scenario {self.name!r}: its tasks have images of shapes"
                f" {sorted(shapes)}; from_arrays pads them to one shape."
            )
        (shape,) = shapes
        if self.trunk and (len(shape) != 3 or min(shape[:2]) < 4):
            raise RclCpbError("a convolutional trunk needs images (N, H, W, C) of 4 x 4 or more.")

    def image_shape(self) -> tuple[int, int, int]:
        """(C, H, W) of the images; a flat vector counts as (1, 1, n)."""
        shape = self.tasks[0].x_train.shape[1:]
        if len(shape) == 3:
            return shape[2], shape[0], shape[1]
        return (1, *shape) if len(shape) == 2 else (1, 1, shape[0])

    def inputs(self, images: np.ndarray, task: Task, device: torch.device) -> Tensor:
        """Images as the network reads them: (N, C, H, W) or (N, pixels)."""
        x = torch.from_numpy(np.ascontiguousarray(images)).to(device)
        x = x.float().div_(255) if x.dtype == torch.uint8 else x.float()
        if self.center or self.scale != 1:
            x = x.sub(self.center).div_(self.scale)
        if x.ndim == 4:
            x = x.permute(0, 3, 1, 2)  # memory stays (N, H, W, C): channels last
        if self.trunk:
            return x
        x = x.flatten(1)
        if task.permutation is not None:
            x = x[:, torch.from_numpy(task.permutation).to(device)]
        return x

    def sha256(self) -> str:
        """A digest of every task's arrays; arrays that tasks share count once."""
        digest, met = hashlib.sha256(self.name.encode()), set()
        for task in self.tasks:
            arrays = [getattr(task, name) for name in ARRAYS]
            for array in [*arrays, task.permutation]:
                if array is not None and id(array) not in met:
                    met.add(id(array))
                    digest.update(array.tobytes())
        return digest.hexdigest()

    def columns(self, t: int) -> tuple[int, ...]:
        """The labels behind the outputs that task t's head has once t is learned."""
        if self.heads == "multi":
            return self.tasks[t].classes
        seen: dict[int, None] = {}
        for task in self.tasks[: t + 1]:
            seen |= dict.fromkeys(task.classes)
        return tuple(seen)

    def targets(self, labels: np.ndarray, t: int, device: torch.device) -> Tensor:
        """Labels of task t as columns of its head."""
        columns = np.array(self.columns(t))
        order = columns.argsort()
        places = order[np.searchsorted(columns, labels, sorter=order)]
        return torch.from_numpy(places).to(device)


def permuted_mnist(
    images: Images,
    tasks: int = 10,
    seed: int = 0,
    heads: Literal["multi", "single"] = "multi",
    name: str = "pmnist",
) -> Scenario:
    """Ten tasks of ten classes, each with its own fixed shuffle of the pixels."""
    rng = np.random.default_rng(seed)
    pixels = math.prod(images.x_train.shape[1:])
    classes = tuple(int(c) for c in np.unique(images.y_train))
    made = [
        Task(f"permutation {t}", *images, classes, rng.permutation(pixels), mirror=False)
        for t in range(tasks)
    ]
    return Scenario(name, tuple(made), heads)


def _by_class(images: Images, name: str, classes: Sequence[int], mirror: bool) -> Task:
    train, test = np.isin(images.y_train, classes), np.isin(images.y_test, classes)
    return Task(
        name,
        images.x_train[train],
        images.y_train[train],
        images.x_test[test],
        images.y_test[test],
        tuple(classes),
        mirror=mirror,
    )


def split_mnist(
    images: Images, heads: Literal["multi", "single"] = "single", name: str = "ta-smnist"
) -> Scenario:
    """0/1, 2/3, 4/5, 6/7, 8/9."""
    tasks = [_by_class(images, f"{c}/{c + 1}", (c, c + 1), False) for c in range(0, 10, 2)]
    return Scenario(name, tuple(tasks), heads)


def split_cifar100(
    images: Images,
    heads: Literal["multi", "single"] = "multi",
    seed: int = 0,
    name: str = "mh-cifar100",
) -> Scenario:
    """Twenty tasks of five classes, the order of the classes drawn from the seed."""
    order = np.random.default_rng(seed).permutation(100).tolist()
    tasks = [
        _by_class(images, f"classes {k // 5}", order[k : k + 5], True) for k in range(0, 100, 5)
    ]
    return Scenario(name, tuple(tasks), heads, trunk=True, center=0.5, scale=0.25)


def mnist_svhn_cifar10(
    mnist: Images, svhn: Images, cifar10: Images, name: str = "mnist-svhn-cifar10"
) -> Scenario:
    """Three tasks of ten classes; MNIST padded to 32 x 32 x 3 channels."""

    def colour(x: np.ndarray) -> np.ndarray:
        return np.repeat(np.pad(x, ((0, 0), (2, 2), (2, 2)))[..., None], 3, axis=3)

    digits = Images(colour(mnist.x_train), mnist.y_train, colour(mnist.x_test), mnist.y_test)
    sets = {"MNIST": digits, "SVHN": svhn, "CIFAR-10": cifar10}
    tasks = [
        Task(label, *images, tuple(range(10)), mirror=label == "CIFAR-10")
        for label, images in sets.items()
    ]
    return Scenario(name, tuple(tasks), "multi", trunk=True, center=0.5, scale=0.25)


def from_arrays(
    tasks: Sequence[Sequence[np.ndarray]],
    heads: Literal["multi", "single"] = "single",
    trunk: bool = False,
    name: str = "arrays",
) -> Scenario:
    """Your own data: a sequence of (x_train, y_train, x_test, y_test), one a task.

    Images may be uint8 (0-255) or floating point; smaller ones are padded with zeros to
    the largest task's shape, and Eq. 7 goes by the size they had.
    """
    made = []
    arrays = [[np.asarray(a) for a in task] for task in tasks]
    if not arrays or any(len(task) != 4 for task in arrays):
        raise RclCpbError("give each task as (x_train, y_train, x_test, y_test).")
    if len({task[0].ndim for task in arrays}) != 1:
        raise RclCpbError("all tasks' images must have the same number of dimensions.")
    largest = np.max([task[0].shape[1:] for task in arrays], axis=0)
    for t, (x, y, x_test, y_test) in enumerate(arrays):
        if x.shape[1:] != x_test.shape[1:]:
            raise RclCpbError(f"task {t}: training images {x.shape[1:]}, test {x_test.shape[1:]}.")
        room = [(0, 0)] + [(0, int(r)) for r in largest - x.shape[1:]]
        classes = tuple(np.unique(y).tolist())
        made.append(
            Task(
                f"task {t}",
                np.pad(x, room),
                y,
                np.pad(x_test, room),
                y_test,
                classes,
                inputs=math.prod(x.shape[1:]),
            )
        )
    return Scenario(name, tuple(made), heads, trunk)


def holdout(scenario: Scenario, every: int = 6) -> Scenario:
    """Every sixth training image is the test set instead: for choosing regimes."""

    def validation(task: Task) -> Task:
        held = np.arange(len(task.x_train)) % every == every - 1
        return replace(
            task,
            x_train=task.x_train[~held],
            y_train=task.y_train[~held],
            x_test=task.x_train[held],
            y_test=task.y_train[held],
        )

    return replace(scenario, tasks=tuple(validation(task) for task in scenario.tasks))
