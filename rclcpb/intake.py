"""From what people have - numpy, torch, pandas, lists - to arrays that a task is made of."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from rclcpb import checks
from rclcpb.checks import SPREAD
from rclcpb.files import RclCpbError

EXACT = 2**53  # above it, one float stands for several whole numbers
MISSING = ("None", "nan", "<NA>", "NaT")  # what stands where there is no label


def array(values: Any, what: str) -> np.ndarray:
    """Anything like an array as one of numpy."""
    if hasattr(values, "toarray"):
        raise RclCpbError(f"{what} is sparse: give {what}.toarray().")
    if isinstance(values, np.ma.MaskedArray):
        raise RclCpbError(f"{what} is masked: leave out or fill in what is masked.")
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
    y = array(values, "y")
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]  # a table of one column
    if y.shape != (count,):
        raise RclCpbError(f"{count} samples with labels {y.shape}: give one label a sample.")
    if isinstance(values, list | tuple):  # numpy would make words of numbers among words
        y = np.array(values, dtype=object).reshape(y.shape)
    if y.dtype.kind in "Of":
        y = of_one_kind(y.tolist())
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


def of_one_kind(values: list[Any]) -> np.ndarray:
    """A label that is missing is no class of its own, and a number is no word."""
    scalar = np.generic | torch.Tensor
    values = [one.item() if isinstance(one, scalar) and one.ndim == 0 else one for one in values]
    for i, one in enumerate(values):
        if not isinstance(one, str) and str(one) in MISSING:
            raise RclCpbError(
                f"sample {i} has no label ({one}): leave out the samples that have none."
            )
    if len(kinds := sorted({_kind(one) for one in values})) > 1:
        raise RclCpbError(f"y holds {' and '.join(kinds)}: give labels of one kind.")
    return np.array(values)


def _kind(label: Any) -> str:
    if isinstance(label, str):
        return "words"
    if isinstance(label, bool):
        return "truth values"
    return "numbers" if isinstance(label, int | float) else type(label).__name__


def columns(values: Any) -> tuple[str, ...]:
    """The names of a table's columns, if it has names."""
    names = tuple(getattr(values, "columns", ()))
    return names if all(isinstance(name, str) for name in names) else ()


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
