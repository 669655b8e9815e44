"""What is known of data that come a task at a time: shape, unit, columns, labels, tasks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch

from rclcpb import checks
from rclcpb.checks import SPREAD
from rclcpb.files import RclCpbError
from rclcpb.intake import brightest, columns, pair


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
    columns: tuple[str, ...] = ()  # of a table whose columns have names

    @staticmethod
    def of(tensors: dict[str, Any], facts: dict[str, Any]) -> Known:
        """What `state` was taken of."""
        scale = [tensors[f"scale.{i}"].numpy() for i in range(2) if "scale.0" in tensors]
        shape, labels, names = (tuple(facts[key]) for key in ("shape", "labels", "names"))
        top, named = facts.get("top", 0.0), tuple(facts.get("columns", ()))
        if named and (len(named) != shape[0] or not all(isinstance(one, str) for one in named)):
            raise ValueError("its columns have other names")
        return Known(shape, Scale(*scale) if scale else None, labels, names, top, named)

    def state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Tensors and JSON values."""
        tensors = {f"scale.{i}": torch.from_numpy(part) for i, part in enumerate(self.scale or ())}
        facts = "shape", "labels", "names", "top", "columns"
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
        if not isinstance(test, list | tuple) or len(test) != 2:
            raise RclCpbError("test: give a pair (x, y) of samples and their labels.")
        self.same_columns(columns(test[0]))
        x, y = pair(*test)
        return checks.frozen(self.inputs(x)), self.codes(y)

    def having(self, name: Any, y: np.ndarray, x: np.ndarray) -> Known:
        """With one more piece and the labels that are new in it."""
        number = len(self.names) + 1
        while name is None and f"task {number}" in self.names:
            number += 1
        name = f"task {number}" if name is None else name
        name = name.item() if isinstance(name, np.generic) else name
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
