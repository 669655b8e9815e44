"""Small files, good and bad: image sets of random pixels, and a pickle that does harm."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from rclcpb.images import Images


def small_images(shape: tuple = (28, 28), classes: int = 10, n: int = 40) -> Images:
    rng = np.random.default_rng(0)
    y = (np.arange(n) % classes).astype(np.uint8)
    x = rng.integers(0, 256, (2, n, *shape), dtype=np.uint8)
    return Images(x[0], y, x[1], y[::-1].copy())


def save(root: Path, name: str, images: Any) -> Path:
    path = root / f"{name}.npz"
    np.savez_compressed(path, **images._asdict())
    return path


def one_sentence(error: BaseException) -> str:
    """What an error says, which is one sentence that fits a terminal."""
    text = str(error)
    assert "\n" not in text and text.endswith(".") and len(text) < 400
    return text


class Harm:
    """Unpickling this leaves a trace."""

    def __init__(self, trace: Path) -> None:
        self.trace = str(trace)

    def __reduce__(self) -> tuple:
        return os.mkdir, (self.trace,)
