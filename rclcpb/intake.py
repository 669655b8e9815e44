"""From what people have - numpy, torch, pandas, lists - to arrays that a task is made of."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch

from rclcpb import checks
from rclcpb.checks import SPREAD
from rclcpb.files import RclCpbError

EXACT = 2**53  # above it, one float stands for several whole numbers


def array(values: Any, what: str) -> np.ndarray:
    """Anything like an array as one of numpy."""
    if hasattr(values, "toarray"):
        raise RclCpbError(f"{what} is sparse: give {what}.toarray().")
    if isinstance(values, np.ma.MaskedArray):
        raise RclCpbError(f"{what} is masked: leave out or fill in what is masked.")
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
    if y.dtype.kind == "O" or isinstance(values, list | tuple):
        given = y.tolist() if y.dtype.kind == "O" else values
        if len(kinds := sorted({_kind(one) for one in given})) > 1:
            raise RclCpbError(
                f"y holds {' and '.join(kinds)}: give labels of one kind, and leave out the"
                " samples that have none."
            )
        y = np.array(given) if y.dtype.kind == "O" else y
    if y.dtype.kind == "f" and (np.abs(y) < EXACT).all() and (y == np.round(y)).all():
        return y.astype(np.int64)
    if y.dtype.kind not in "buiU":
        raise RclCpbError(
            f"Unknown label type: {y.dtype}, not whole numbers, words or truth values; for"
            " quantities, make classes of them first."
        )
    if y.dtype.kind in "iu":
        checks.labels("y", y)
    return y


def _kind(label: Any) -> str:
    """NaN stands for a label that is missing: it would be a number among words, or a word."""
    if isinstance(label, str):
        return "words"
    if isinstance(label, bool | np.bool_):
        return "truth values"
    if isinstance(label, int | float | np.number):
        return "numbers" if label == label else "NaN"
    return type(label).__name__


def to_test_on(test: Any, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What was given to test on, or none of these samples."""
    if test is None:
        return x[:0], y[:0]
    if not isinstance(test, list | tuple) or len(test) != 2:
        raise RclCpbError("test: give a pair (x, y) of samples and their labels.")
    return pair(*test)


def brightest(x: np.ndarray) -> float:
    """The largest number of these samples, as the network reads them: bytes as 0 to 1."""
    return float(np.abs(x).max(initial=0)) / (255 if x.dtype == np.uint8 else 1)


def check_unit(x: np.ndarray) -> None:
    """Images are not standardised: what is far from 1 would hardly be learned."""
    if (top := brightest(x)) > SPREAD:
        raise RclCpbError(
            f"the samples reach {top:.4g}, and images are read as they are: give bytes (uint8,"
            " read as 0 to 1) or floats near 1, or set standardise=True."
        )


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
    top: float = 0.0  # the largest number learned from, where nothing is standardised

    @staticmethod
    def of(tensors: dict[str, Any], facts: dict[str, Any]) -> Known:
        """What `state` was taken of."""
        scale = [tensors[f"scale.{i}"].numpy() for i in range(2) if "scale.0" in tensors]
        shape, labels, names = (tuple(facts[key]) for key in ("shape", "labels", "names"))
        return Known(shape, Scale(*scale) if scale else None, labels, names, facts.get("top", 0.0))

    def state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Tensors and JSON values."""
        tensors = {f"scale.{i}": torch.from_numpy(part) for i, part in enumerate(self.scale or ())}
        names = "shape", "labels", "names", "top"
        return tensors, {name: getattr(self, name) for name in names}

    def inputs(self, x: np.ndarray) -> np.ndarray:
        """Samples as the network gets them; of another shape, they are refused."""
        if x.shape[1:] != self.shape:
            if len(self.shape) == x.ndim - 1 == 1:
                raise RclCpbError(
                    f"X has {x.shape[1]} features, but ContinualClassifier is expecting"
                    f" {self.shape[0]} features as input."
                )
            raise RclCpbError(f"samples of shape {x.shape[1:]}; those before had {self.shape}.")
        if not self.scale:
            self.check_range(x)
        if x.dtype == np.uint8 and not self.scale:
            return x
        with np.errstate(over="ignore"):
            single = self.scale(x) if self.scale else x.astype(np.float32)
        if not np.isfinite(single).all():
            raise RclCpbError("x holds numbers too large to compute with: scale or drop them.")
        return single

    def check_range(self, x: np.ndarray) -> None:
        """In the unit of what was learned: bytes are 0 to 1, and 0-255 as floats is another."""
        top = brightest(x)
        other = x.dtype == np.uint8 and self.top > SPREAD
        if self.top and (top > SPREAD * self.top or other):
            raise RclCpbError(
                f"samples that reach {top:.4g}, and those learned from reached {self.top:.4g}"
                " (bytes are read as 0 to 1): give all in one unit."
            )

    def having(self, name: Any, y: np.ndarray, x: np.ndarray) -> Known:
        """With one more piece and the labels that are new in it."""
        number = len(self.names) + 1
        while name is None and f"task {number}" in self.names:
            number += 1
        name = f"task {number}" if name is None else name
        if not isinstance(name, str | int) or isinstance(name, bool):
            raise RclCpbError(f"task={name!r}: name it with a word or a whole number.")
        self.check_kind(y)
        self.inputs(x)
        new = tuple(label for label in np.unique(y).tolist() if label not in self.labels)
        names, top = (*self.names, name), max(self.top, 0.0 if self.scale else brightest(x))
        return replace(self, labels=self.labels + new, names=names, top=top)

    def check_kind(self, y: np.ndarray) -> None:
        """A number is no word, whatever it looks like."""
        if self.labels and len(y) and type(y[:1].tolist()[0]) is not type(self.labels[0]):
            raise RclCpbError(
                f"labels like {y[:1].tolist()[0]!r}; those before were like {self.labels[0]!r}:"
                " give labels of one kind."
            )

    def codes(self, y: np.ndarray) -> np.ndarray:
        code = {label: i for i, label in enumerate(self.labels)}
        try:
            return np.array([code[label] for label in y.tolist()], dtype=np.int64)
        except KeyError as error:
            raise RclCpbError(f"label {error.args[0]!r} is in no task learned so far.") from None

    def classes(self, codes: np.ndarray) -> tuple[int, ...]:
        """The codes there are, in the order of their labels."""
        return tuple(sorted(np.unique(codes).tolist(), key=lambda code: self.labels[code]))
