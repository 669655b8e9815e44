"""From what people have - numpy, torch, pandas, lists - to arrays that a task is made of."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch

from rclcpb.files import RclCpbError

LARGEST = 10.0  # of numbers that a network reads as they are


def array(values: Any, what: str) -> np.ndarray:
    """Anything like an array as one of numpy."""
    if hasattr(values, "toarray"):
        raise RclCpbError(f"{what} is sparse: give {what}.toarray().")
    if hasattr(values, "detach"):  # torch
        values = values.detach().cpu()
        values = (values.float() if values.dtype == torch.bfloat16 else values).numpy()
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
    if isinstance(values, list | tuple):  # numpy would make words of numbers among words
        values = np.array(values, dtype=object)
    y = array(values, "y")
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]  # a table of one column
    if y.shape != (count,):
        raise RclCpbError(f"{count} samples with labels {y.shape}: give one label a sample.")
    if y.dtype.kind in "Of":
        y = of_one_kind([one.item() if hasattr(one, "item") else one for one in y])
    if y.dtype.kind == "f" and np.isfinite(y).all() and (y == np.round(y)).all():
        return y.astype(np.int64)
    if y.dtype.kind not in "buiU":
        raise RclCpbError(
            f"Unknown label type: {y.dtype}, not whole numbers, words or truth values; for"
            " quantities, make classes of them first."
        )
    return y


def of_one_kind(values: list[Any]) -> np.ndarray:
    """Words, or numbers; a label that is missing is not a class of its own."""
    for i, one in enumerate(values):
        if one is None or str(one) in ("<NA>", "NaT") or one != one:
            raise RclCpbError(f"sample {i} has no label ({one}): drop such samples, or name them.")
    words = [isinstance(one, str) for one in values]
    if any(words) and not all(words):
        number = values[words.index(False)]
        raise RclCpbError(f"words and {number!r} among the labels: give labels of one kind.")
    return np.array(values)


def columns(values: Any) -> tuple[str, ...]:
    """The names of a table's columns, if it has names."""
    names = tuple(getattr(values, "columns", ()))
    return names if all(isinstance(name, str) for name in names) else ()


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
    columns: tuple[str, ...] = ()  # of a table whose columns have names

    @staticmethod
    def of(tensors: dict[str, Any], facts: dict[str, Any]) -> Known:
        """What `state` was taken of."""
        scale = [tensors[f"scale.{i}"].numpy() for i in range(2) if "scale.0" in tensors]
        shape, *rest = (tuple(facts[key]) for key in ("shape", "labels", "names", "columns"))
        return Known(shape, Scale(*scale) if scale else None, *rest)

    def state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Tensors and JSON values."""
        tensors = {f"scale.{i}": torch.from_numpy(part) for i, part in enumerate(self.scale or ())}
        facts = ("shape", "labels", "names", "columns")
        return tensors, {name: getattr(self, name) for name in facts}

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
        if x.dtype == np.uint8:
            return x
        if x.ndim > 2 and x.size and (largest := np.abs(x).max()) > LARGEST:
            raise RclCpbError(
                f"samples with values up to {largest:g} that are no bytes: give"
                " x.astype(np.uint8) if they are grey levels, divide them, or learn with"
                " standardise=True."
            )
        return x.astype(np.float32)

    def same_columns(self, names: tuple[str, ...]) -> None:
        """A table's columns in another order would be other numbers: they are refused."""
        if names and self.columns and names != self.columns:
            raise RclCpbError(
                f"columns {', '.join(names)}; those learned are {', '.join(self.columns)}: give"
                " x[list(classifier.feature_names_in_)]."
            )

    def tested(self, test: Any, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What a task is to be tested on, as the network gets it: perhaps none like x."""
        if test is None:
            return self.inputs(x[:0]), np.zeros(0, dtype=np.int64)
        try:
            x, y = test
        except (TypeError, ValueError) as error:
            raise RclCpbError("test is no pair: give test=(x, y).") from error
        self.same_columns(columns(x))
        x, y = pair(x, y)
        return self.inputs(x), self.codes(y)

    def having(self, name: Any, y: np.ndarray) -> Known:
        """With one more piece and the labels that are new in it."""
        name = name.item() if isinstance(name, np.generic) else name
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
