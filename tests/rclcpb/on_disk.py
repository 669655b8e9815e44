"""Image sets of random pixels as files, and what an error may say."""

from __future__ import annotations

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
