"""Scenarios: what a method is given, one task after another.

permuted_mnist(images) -> Scenario, a tuple of Task
from_arrays([(x_train, y_train, x_test, y_test), ...]) -> your own
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor

from rclcpb import checks
from rclcpb.files import RclCpbError
from rclcpb.images import ARRAYS, Images
from rclcpb.settings import checked

Heads: TypeAlias = Literal["multi", "single"]


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
        checks.instance("name", self.name, str)
        classes, where = checked("classes", self.classes, tuple[int, ...]), f"task {self.name!r}"
        for name in (*ARRAYS, "permutation"):
            if (array := getattr(self, name)) is not None or name in ARRAYS:
                checks.instance(f"{where}, {name}", array, np.ndarray)
                object.__setattr__(self, name, checks.frozen(array))
        shape = self.x_train.shape[1:]
        for split in ("train", "test"):
            x, y = getattr(self, f"x_{split}"), getattr(self, f"y_{split}")
            checks.split(f"{where}, {split} data", x, y, shape, classes)
        if len(set(classes)) < len(classes):
            raise RclCpbError(f"{where}: its classes {classes} must differ.")
        if self.permutation is not None:
            checks.permutation(where, self.permutation, math.prod(shape))
        inputs = checks.whole("inputs", self.inputs) or math.prod(shape)
        for name, value in (("classes", classes), ("inputs", inputs)):
            object.__setattr__(self, name, value)
        checked("mirror", self.mirror, bool)


@dataclass(frozen=True, eq=False)
class Scenario:
    """A sequence of tasks; `heads` is "multi" (one a task) or "single" (it widens)."""

    name: str
    tasks: tuple[Task, ...]
    heads: Heads
    trunk: bool = False  # two Bayesian convolutions before the hidden layers
    center: float = 0.0  # pixels / 255 become (p - center) / scale
    scale: float = 1.0

    def __post_init__(self) -> None:
        checks.instance("name", self.name, str)
        if not isinstance(self.tasks, Sequence) or not self.tasks:
            raise RclCpbError(f"scenario {self.name!r}: give its tasks, one or more.")
        for task in self.tasks:
            checks.instance(f"scenario {self.name!r}: a task", task, Task)
        object.__setattr__(self, "tasks", tuple(self.tasks))
        for name, hint in (("heads", Heads), ("trunk", bool), ("center", float), ("scale", float)):
            object.__setattr__(self, name, checked(name, getattr(self, name), hint))
        if self.scale <= 0:
            raise RclCpbError(f"scale={self.scale}: must be above 0.")
        checks.together(f"scenario {self.name!r}", self.tasks, self.heads, self.trunk)

    def image_shape(self) -> tuple[int, int, int]:
        """(C, H, W) of the images; a flat vector counts as (1, 1, n)."""
        shape = self.tasks[0].x_train.shape[1:]
        if len(shape) == 3:
            return shape[2], shape[0], shape[1]
        return (1, *shape) if len(shape) == 2 else (1, 1, shape[0])

    def inputs(self, images: np.ndarray, task: Task, device: torch.device) -> Tensor:
        """Images as the network reads them: (N, C, H, W) or (N, pixels)."""
        checks.like(images, task.x_train)
        native = images.astype(images.dtype.newbyteorder("="), copy=False)
        x = torch.tensor(np.ascontiguousarray(native), device=device)  # a copy
        x = x.float().div_(255) if x.dtype == torch.uint8 else x.float()
        if self.center or self.scale != 1:
            x = x.sub(self.center).div_(self.scale)
        if x.ndim == 4:
            x = x.permute(0, 3, 1, 2)  # memory stays (N, H, W, C): channels last
        if self.trunk:
            return x
        x = x.flatten(1)
        if task.permutation is not None:
            x = x[:, torch.tensor(task.permutation, device=device)]
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

    def identity(self) -> str:
        """A digest of all that a method is given: arrays, shapes, kinds, classes, heads."""
        about: list[object] = [self.name, self.heads, self.trunk, self.center, self.scale]
        for task in self.tasks:
            about.append([task.name, task.classes, task.inputs, task.mirror])
            arrays = [getattr(task, name) for name in ARRAYS]
            about.append([(array.shape, array.dtype.str) for array in arrays])
        return hashlib.sha256(f"{about} {self.sha256()}".encode()).hexdigest()

    def columns(self, t: int) -> tuple[int, ...]:
        """The labels behind the outputs that task t's head has once t is learned."""
        checks.whole("t", t, 0, len(self.tasks) - 1)
        if self.heads == "multi":
            return self.tasks[t].classes
        seen: dict[int, None] = {}
        for task in self.tasks[: t + 1]:
            seen |= dict.fromkeys(task.classes)
        return tuple(seen)

    def targets(self, labels: np.ndarray, t: int, device: torch.device) -> Tensor:
        """Labels of task t as columns of its head."""
        checks.labels(f"task {t + 1}", labels)
        columns, labels = np.array(self.columns(t)), labels.astype(np.int64)
        order = columns.argsort()
        places = order[np.searchsorted(columns, labels, sorter=order).clip(max=len(order) - 1)]
        if (columns[places] != labels).any():
            odd = sorted(set(labels[columns[places] != labels].tolist()))
            raise RclCpbError(f"task {t + 1}: labels {odd} are not among {self.columns(t)}.")
        return torch.from_numpy(places).to(device)


def permuted_mnist(
    images: Images,
    tasks: int = 10,
    seed: int = 0,
    heads: Heads = "multi",
    name: str = "pmnist",
) -> Scenario:
    """Ten tasks of ten classes, each with its own fixed shuffle of the pixels."""
    checks.instance("images", images, Images)
    images = Images(*map(checks.frozen, images))  # once, not a task
    rng = np.random.default_rng(checks.whole("seed", seed))
    pixels = math.prod(images.x_train.shape[1:])
    classes = tuple(int(c) for c in np.unique(images.y_train))
    made = [
        Task(
            f"permutation {t}", *images, classes, checks.own(rng.permutation(pixels)), mirror=False
        )
        for t in range(checks.whole("tasks", tasks, 1))
    ]
    return Scenario(name, tuple(made), heads)


def _by_class(images: Images, name: str, classes: Sequence[int], mirror: bool) -> Task:
    checks.instance("images", images, Images)
    train, test = np.isin(images.y_train, classes), np.isin(images.y_test, classes)
    chosen = Images(
        *map(
            checks.own,
            (a[rows] for a, rows in zip(images, (train, train, test, test), strict=True)),
        )
    )
    return Task(name, *chosen, tuple(classes), mirror=mirror)


def split_mnist(images: Images, heads: Heads = "single", name: str = "ta-smnist") -> Scenario:
    """0/1, 2/3, 4/5, 6/7, 8/9."""
    tasks = [_by_class(images, f"{c}/{c + 1}", (c, c + 1), False) for c in range(0, 10, 2)]
    return Scenario(name, tuple(tasks), heads)


def split_cifar100(
    images: Images,
    heads: Heads = "multi",
    seed: int = 0,
    name: str = "mh-cifar100",
) -> Scenario:
    """Twenty tasks of five classes, the order of the classes drawn from the seed."""
    order = np.random.default_rng(checks.whole("seed", seed)).permutation(100).tolist()
    tasks = [
        _by_class(images, f"classes {k // 5}", order[k : k + 5], True) for k in range(0, 100, 5)
    ]
    return Scenario(name, tuple(tasks), heads, trunk=True, center=0.5, scale=0.25)


def mnist_svhn_cifar10(
    mnist: Images, svhn: Images, cifar10: Images, name: str = "mnist-svhn-cifar10"
) -> Scenario:
    """Three tasks of ten classes; MNIST padded to 32 x 32 x 3 channels."""

    def colour(x: np.ndarray) -> np.ndarray:
        return checks.own(np.repeat(np.pad(x, ((0, 0), (2, 2), (2, 2)))[..., None], 3, axis=3))

    for images in (mnist, svhn, cifar10):
        checks.instance("images", images, Images)
    digits = Images(colour(mnist.x_train), mnist.y_train, colour(mnist.x_test), mnist.y_test)
    sets = {"MNIST": digits, "SVHN": svhn, "CIFAR-10": cifar10}
    tasks = [
        Task(label, *images, tuple(range(10)), mirror=label == "CIFAR-10")
        for label, images in sets.items()
    ]
    return Scenario(name, tuple(tasks), "multi", trunk=True, center=0.5, scale=0.25)


def from_arrays(
    tasks: Sequence[Sequence[np.ndarray]],
    heads: Heads = "single",
    trunk: bool = False,
    name: str = "arrays",
) -> Scenario:
    """Your own data: a sequence of (x_train, y_train, x_test, y_test), one a task.

    Images may be uint8 (0-255) or floating point; smaller ones are padded with zeros to
    the largest task's shape, and Eq. 7 goes by the size they had.
    """
    arrays = [Images(*task) for task in checks.arrays(tasks, ARRAYS)]
    if len({images.x_train.ndim for images in arrays}) != 1:
        raise RclCpbError("all tasks' images must have the same number of dimensions.")
    largest, made = np.max([images.x_train.shape[1:] for images in arrays], axis=0), []
    for t, images in enumerate(arrays):
        shape, test = images.x_train.shape[1:], images.x_test.shape[1:]
        if shape != test:
            raise RclCpbError(f"task {t}: training images {shape}, test {test}.")
        room = [(0, 0)] + [(0, int(r)) for r in largest - shape]
        if largest.tolist() != list(shape):
            x, x_test = (checks.own(np.pad(x, room)) for x in (images.x_train, images.x_test))
            images = images._replace(x_train=x, x_test=x_test)
        classes = tuple(np.unique(images.y_train).tolist())
        made.append(Task(f"task {t}", *images, classes, inputs=math.prod(shape)))
    return Scenario(name, tuple(made), heads, trunk)


def holdout(scenario: Scenario, every: int = 6) -> Scenario:
    """Every sixth training image is the test set instead: for choosing regimes."""
    checks.instance("scenario", scenario, Scenario)
    checks.whole("every", every, 2)

    def validation(task: Task) -> Task:
        held = np.arange(len(task.x_train)) % every == every - 1
        return replace(
            task,
            x_train=checks.own(task.x_train[~held]),
            y_train=checks.own(task.y_train[~held]),
            x_test=checks.own(task.x_train[held]),
            y_test=checks.own(task.y_train[held]),
        )

    return replace(scenario, tasks=tuple(validation(task) for task in scenario.tasks))
