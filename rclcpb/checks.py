"""What public functions ask of what they are given: it is right, or one sentence says how."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rclcpb.files import RclCpbError
from rclcpb.settings import Settings, checked

SPREAD = 50  # times; more between two tasks' brightest pixels is another unit, not another light


def instance(name: str, value: Any, kind: type) -> None:
    if not isinstance(value, kind):
        given = value.__name__ if isinstance(value, type) else type(value).__name__
        a = "the class" if isinstance(value, type) else "a"
        raise RclCpbError(f"{name} is {a} {given}: give a {kind.__name__}.")


def whole(name: str, value: Any, least: int = 0, most: int | None = None) -> int:
    """A whole number of at least and at most so much."""
    number: int = checked(name, value, int)
    if number < least or (most is not None and number > most):
        wanted = f"{least} or more" if most is None else f"from {least} to {most}"
        raise RclCpbError(f"{name}={number}: must be {wanted}.")
    return number


def device(value: Any) -> torch.device:
    """A device that is there."""
    try:
        found = torch.device(value)
        torch.empty(0, device=found)
    except (RuntimeError, TypeError, ValueError, AssertionError, NotImplementedError) as error:
        raise RclCpbError(f"device={value!r} is not to be had here: try device='cpu'.") from error
    return found


# ------------------------------------------------------------------- images and labels


def frozen(array: np.ndarray) -> np.ndarray:
    """What no later change of the caller's reaches: a copy, unless it can be none already."""
    owner: Any = array
    while isinstance(owner, np.ndarray):
        if owner.flags.writeable:
            return own(array.copy())
        owner = owner.base
    return array


def own(array: np.ndarray) -> np.ndarray:
    """An array that was made here, from now on as it is."""
    array.flags.writeable = False
    return array


def array(where: str, value: Any) -> np.ndarray:
    """An array of what was given: lists and tensors are welcome, masks and ragged rows not."""
    if isinstance(value, np.ma.MaskedArray):
        raise RclCpbError(f"{where}: a masked array; leave out or fill in what is masked.")
    try:
        return np.asarray(value.detach().cpu() if isinstance(value, Tensor) else value)
    except (ValueError, TypeError, RuntimeError) as error:
        raise RclCpbError(f"{where}: not an array ({error}).") from error


def images(where: str, x: np.ndarray) -> None:
    """uint8 or floats, whatever their shape."""
    if not (x.dtype == np.uint8 or (x.dtype.kind == "f" and x.dtype.itemsize <= 8)):
        raise RclCpbError(f"{where}: images are {x.dtype}; give uint8 (0-255) or floats.")


def labels(where: str, y: np.ndarray) -> None:
    """Integers, none too large to count with."""
    if y.dtype.kind not in "iu":
        raise RclCpbError(f"{where}: labels are {y.dtype}; give integers.")
    if y.dtype == np.uint64 and y.size and int(y.max()) > np.iinfo(np.int64).max:
        raise RclCpbError(f"{where}: label {int(y.max())} is 2**63 or more; number them from 0.")


def split(where: str, x: np.ndarray, y: np.ndarray, shape: tuple, classes: Sequence[int]) -> None:
    """Images and labels of one task, for training or for its test."""
    if x.ndim < 2 or not x.size or y.shape != x.shape[:1] or x.shape[1:] != shape:
        raise RclCpbError(
            f"{where}: images {x.shape} with labels {y.shape}; wanted (N, ...)"
            f" of one shape {shape} with N labels."
        )
    images(where, x)
    labels(where, y)
    with np.errstate(over="ignore"):
        single = x.astype(np.float32, copy=False) if x.dtype.kind == "f" else np.zeros(1)
    if not np.isfinite(single).all():
        raise RclCpbError(f"{where}: NaN or infinite pixels; clean or drop them.")
    present = set(np.unique(y).tolist())
    if odd := sorted(present - set(classes)):
        raise RclCpbError(f"{where}: labels {odd} are outside its classes {tuple(classes)}.")
    if empty := sorted(set(classes) - present):
        raise RclCpbError(f"{where}: classes {empty} have no samples; add some or drop them.")


def arrays(tasks: Any, names: Sequence[str]) -> list[list[np.ndarray]]:
    """Each task's arrays, of kinds that can be padded and counted; one given twice is one."""
    try:
        given = [list(task) for task in tasks]
    except TypeError:
        given = []
    if not given or any(len(task) != len(names) for task in given):
        raise RclCpbError(f"give each task as ({', '.join(names)}).")
    found: dict[int, np.ndarray] = {}
    for t, task in enumerate(given):
        for name, value in zip(names, task, strict=True):
            where = f"task {t}, {name}"
            if id(value) not in found:
                found[id(value)] = frozen(array(where, value))
            kind = images if name.startswith("x") else labels
            kind(where, found[id(value)])
    return [[found[id(value)] for value in task] for task in given]


def permutation(where: str, value: Any, pixels: int) -> None:
    instance(f"{where}: its permutation", value, np.ndarray)
    whole_numbers = value.dtype.kind in "iu" and value.shape == (pixels,)
    if not whole_numbers or not np.array_equal(np.sort(value), np.arange(pixels)):
        raise RclCpbError(f"{where}: its permutation must hold each of 0 to {pixels - 1} once.")


def together(where: str, tasks: Any, heads: str, trunk: bool) -> None:
    """What the tasks of a scenario must share, and what its network must see of them."""
    shapes = {task.x_train.shape[1:] for task in tasks}
    if len(shapes) != 1:
        raise RclCpbError(
            f"{where}: its tasks have images of shapes"
            f" {sorted(shapes)}; from_arrays pads them to one shape."
        )
    (shape,) = shapes
    if len(shape) > 3:
        raise RclCpbError(f"{where}: images of shape {shape}; wanted (H, W, C) at the most.")
    if trunk and (len(shape) != 3 or min(shape[:2]) < 4):
        raise RclCpbError("a convolutional trunk needs images (N, H, W, C) of 4 x 4 or more.")
    for task in tasks:
        if trunk and task.permutation is not None:
            raise RclCpbError(f"{where}: shuffled pixels are no images for convolutions.")
        if heads == "multi" and len(task.classes) == 1:
            raise RclCpbError(
                f"{where}, task {task.name!r}: a head with one class is always right;"
                " give the task two classes or set heads='single'."
            )
    ranges(
        (f"task {task.name!r}, {kind} data", getattr(task, f"x_{kind}"))
        for task in tasks
        for kind in ("train", "test")
    )


def ranges(splits: Iterable[tuple[str, np.ndarray]]) -> None:
    """Pixels in one unit: 0-255 as floats beside 0-1, or beside uint8, would spoil a run."""
    brightest: dict[int, tuple[float, str]] = {}
    for where, x in splits:
        if x.size and id(x) not in brightest:  # tasks may share their images
            top = max(float(x.max()), -float(x.min())) / (255 if x.dtype == np.uint8 else 1)
            brightest[id(x)] = top, where
    found = sorted(one for one in brightest.values() if one[0])
    if found and found[-1][0] > SPREAD * found[0][0]:
        (low, faint), (high, bright) = found[0], found[-1]
        raise RclCpbError(
            f"{bright}: pixels reach {high:.4g}, those of {faint} only {low:.4g} (uint8 is read"
            " as 0-1): give all tasks one range."
        )


def like(x: Any, known: np.ndarray) -> None:
    """Images of the shape and kind that a task has."""
    if not isinstance(x, np.ndarray) or x.ndim < 2 or x.shape[1:] != known.shape[1:]:
        shape = getattr(x, "shape", type(x).__name__)
        raise RclCpbError(f"images {shape}: wanted an array (N, {_inner(known.shape[1:])}).")
    images("images", x)


def _inner(shape: Sequence[int]) -> str:
    return ", ".join(map(str, shape))


# ----------------------------------------------------------------- networks, stored images


def prediction(net: Any, x: Any, head: Any, samples: Any, mirror: Any) -> None:
    """What a network is asked."""
    instance("x", x, Tensor)
    whole("head", head, 0, len(net.heads) - 1)
    whole("samples", samples, 1)
    pixels = math.prod(net.image_shape)
    wanted = tuple(net.image_shape) if net.trunk else (pixels,)
    flat = not net.trunk and math.prod(x.shape[1:]) == pixels  # as the first layer makes them
    if x.dim() < 2 or not len(x) or not (flat or x.shape[1:] == wanted):
        raise RclCpbError(f"inputs {tuple(x.shape)}: wanted (N, {_inner(wanted)}).")
    if x.dtype != torch.float32:
        raise RclCpbError(f"inputs are {x.dtype}: give float32, scaled as in training.")
    if mirror and not net.trunk:
        raise RclCpbError("mirror=True needs a network with convolutions, which sees images.")


def finite(told: Any) -> Any:
    """A prediction of numbers: what is far from all that was learned may end in none."""
    if not (told.probabilities.isfinite().all() and told.entropy.isfinite().all()):
        raise RclCpbError(
            "an answer is not finite: the network's numbers have run away, or some of these"
            " inputs are far from all that it learned; scale or drop those."
        )
    return told


def vector(name: str, value: Tensor) -> Tensor:
    """A layer's numbers, as files have them."""
    if value.dim() != 1 or value.dtype != torch.float32:
        raise RclCpbError(f"{name}: {value.dtype} {tuple(value.shape)} is no layer's vector.")
    return value


def stored(index: Tensor, samples: int, most: int) -> Tensor:
    """Which of a task's samples are stored, as files have it."""
    whole_numbers = index.dtype == torch.int64 and index.dim() == 1 and len(index) <= most
    if not whole_numbers or len(index.unique()) < len(index):
        raise RclCpbError(f"stored samples: {index.dtype} {tuple(index.shape)} are no indices.")
    if len(index) and not 0 <= int(index.min()) <= int(index.max()) < samples:
        raise RclCpbError(f"stored samples: there are {samples}, and not all of these.")
    return index


def thresholds(net: Any, config: Any) -> None:
    """beta and gamma: one, or no more than this network has layers."""
    instance("config", config, Settings)
    for name in ("beta", "gamma"):
        if (values := len(getattr(config, name))) > len(net.growable):
            raise RclCpbError(f"{name} has {values} values for {len(net.growable)} layers.")


def growth(net: Any, alpha: Any) -> None:
    layers = len(net.growable)
    if len(alpha) != layers:
        raise RclCpbError(f"alpha={list(alpha)}: give one number for each of {layers} layers.")
    for units in alpha:
        whole("alpha", units)


def coreset(x: Tensor, y: Tensor, size: Any, choice: str, choices: Sequence[str]) -> None:
    """So many of these samples may be stored: one of every class is left to train on."""
    if len(x) != len(y):
        raise RclCpbError(f"{len(x)} samples with {len(y)} labels: give each its own.")
    if choice not in choices:
        raise RclCpbError(f"choice={choice!r}: choose from {', '.join(choices)}.")
    classes = 1 if y.is_meta else len(y.unique())  # what has no numbers has no classes
    if whole("size", size) > len(x) - classes:
        raise RclCpbError(
            f"a coreset of {size} from {len(x)} samples of {classes} classes leaves some class"
            " none to train on: choose a smaller coreset."
        )
