"""From what people have - numpy, torch, pandas, lists - to arrays that a task is made of."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch

from rclcpb.files import RclCpbError


def array(values: Any, what: str) -> np.ndarray:
    """Anything like an array as one of numpy."""
    if hasattr(values, "toarray"):
        raise RclCpbError(f"{what} is sparse: give {what}.toarray().")
    if hasattr(values, "detach"):  # torch
        values = values.detach().cpu().numpy()
    elif hasattr(values, "to_numpy"):  # pandas
        values = values.to_numpy()
    try:
        return np.asarray(values)
    except ValueError as error:
        raise RclCpbError(f"{what} is not an array ({error}): give rows of one length.") from error


def samples(values: Any) -> np.ndarray:
    """Samples (N, ...) as the images of a task: bytes as they are, other numbers as floats."""
    x = array(values, "x")
    if x.dtype.kind == "O":
        try:
            x = x.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise RclCpbError(
                f"x holds what is no number ({error}): encode words as numbers, one-hot for"
                " example."
            ) from error
    if x.ndim < 2:
        raise RclCpbError(
            f"x has shape {x.shape}; wanted (N, ...). Reshape your data: x.reshape(-1, 1) if it"
            " has one feature, x.reshape(1, -1) if it is one sample."
        )
    if not x.size:
        raise RclCpbError(
            f"0 feature(s) (shape={x.shape}) while a minimum of 1 is required: x is empty."
        )
    if x.dtype.kind not in "buif":
        names = {"c": "Complex data not supported"}
        raise RclCpbError(f"{names.get(x.dtype.kind, f'x is {x.dtype}')}: give numbers.")
    if x.dtype.kind == "f" and not np.isfinite(x).all():
        raise RclCpbError("x holds NaN or infinity: clean or drop these samples.")
    return x if x.dtype == np.uint8 or x.dtype.kind == "f" else x.astype(np.float64)


def labels(values: Any, count: int) -> np.ndarray:
    """Labels (N,): whole numbers, words or truth values, one a sample."""
    if values is None:
        raise RclCpbError("y should be a 1d array of labels, one a sample; got None.")
    y = array(values, "y")
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]  # a table of one column
    if y.shape != (count,):
        raise RclCpbError(f"{count} samples with labels {y.shape}: give one label a sample.")
    if y.dtype.kind == "O":
        y = np.array(y.tolist())  # words, or numbers, if all are of one kind
    if y.dtype.kind == "f" and np.isfinite(y).all() and (y == np.round(y)).all():
        return y.astype(np.int64)
    if y.dtype.kind not in "buiU":
        raise RclCpbError(
            f"Unknown label type: {y.dtype}, not whole numbers, words or truth values; for"
            " quantities, make classes of them first."
        )
    return y


def pair(x: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
    """Samples and their labels."""
    x = samples(x)
    return x, labels(y, len(x))


class Scale(NamedTuple):
    """Standardisation of a table's columns by the first task's mean and deviation."""

    mean: np.ndarray
    deviation: np.ndarray

    @staticmethod
    def of(x: np.ndarray) -> Scale:
        x = x.astype(np.float64)
        deviation = x.std(0)
        constant = deviation <= 1e-12 * np.abs(x).max(0)
        return Scale(x.mean(0), np.where(constant, 1.0, deviation))

    def __call__(self, x: np.ndarray) -> np.ndarray:
        return ((x - self.mean) / self.deviation).astype(np.float32)


@dataclass(frozen=True)
class Known:
    """What is known of the data: the shape of a sample, each label's code, each piece's task."""

    shape: tuple[int, ...]
    scale: Scale | None
    labels: tuple[Any, ...] = ()  # by code, in the order met
    names: tuple[Any, ...] = ()  # of each piece's task

    @staticmethod
    def of(tensors: dict[str, Any], facts: dict[str, Any]) -> Known:
        """What `state` was taken of."""
        scale = [tensors[f"scale.{i}"].numpy() for i in range(2) if "scale.0" in tensors]
        shape, labels, names = (tuple(facts[key]) for key in ("shape", "labels", "names"))
        return Known(shape, Scale(*scale) if scale else None, labels, names)

    def state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Tensors and JSON values."""
        tensors = {f"scale.{i}": torch.from_numpy(part) for i, part in enumerate(self.scale or ())}
        return tensors, {"shape": self.shape, "labels": self.labels, "names": self.names}

    def inputs(self, x: np.ndarray) -> np.ndarray:
        """Samples as the network gets them; of another shape, they are refused."""
        if x.shape[1:] != self.shape:
            if len(self.shape) == x.ndim - 1 == 1:
                raise RclCpbError(
                    f"X has {x.shape[1]} features, but ContinualClassifier is expecting"
                    f" {self.shape[0]} features as input."
                )
            raise RclCpbError(f"samples of shape {x.shape[1:]}; those before had {self.shape}.")
        if self.scale:
            return self.scale(x)
        return x if x.dtype == np.uint8 else x.astype(np.float32)

    def having(self, name: Any, y: np.ndarray) -> Known:
        """With one more piece and the labels that are new in it."""
        if not isinstance(name, str | int):
            raise RclCpbError(f"task={name!r}: name it with a word or a whole number.")
        found = np.unique(y).tolist()
        if self.labels and type(found[0]) is not type(self.labels[0]):
            raise RclCpbError(
                f"labels like {found[0]!r}; those before were like {self.labels[0]!r}: give"
                " labels of one kind."
            )
        new = tuple(label for label in found if label not in self.labels)
        return replace(self, labels=self.labels + new, names=(*self.names, name))

    def codes(self, y: np.ndarray) -> np.ndarray:
        code = {label: i for i, label in enumerate(self.labels)}
        try:
            return np.array([code[label] for label in y.tolist()], dtype=np.int64)
        except KeyError as error:
            raise RclCpbError(f"label {error.args[0]!r} is in no task learned so far.") from None

    def classes(self, codes: np.ndarray) -> tuple[int, ...]:
        """The codes there are, in the order of their labels."""
        return tuple(sorted(np.unique(codes).tolist(), key=lambda code: self.labels[code]))
