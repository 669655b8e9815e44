"""Downloads of image sets: over https only, said before they start, verified before they are kept.

torchvision says where each file lies and what its checksum is, and unpacks it. It does not
fetch: what https refuses it would ask for over http.
"""

from __future__ import annotations

import hashlib
import http.client
import shutil
import sys
import urllib.request
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import torch

from rclcpb.files import RclCpbError

SECONDS = 60  # without a byte, and a download is given up
KINDS = {"mnist": "MNIST", "svhn": "SVHN", "cifar10": "CIFAR10", "cifar100": "CIFAR100"}


class Part(NamedTuple):
    """One file of a download."""

    url: str
    path: str  # below the set's folder, where torchvision looks for it
    md5: str  # torchvision's


def download(name: str, root: Path) -> list[np.ndarray]:
    """An image set's x_train, y_train, x_test and y_test; files of it in `root` serve, too."""
    try:
        root.mkdir(parents=True, exist_ok=True)
        kind = getattr(import_torchvision(), KINDS[name])
        with TemporaryDirectory(prefix=f".{name}.", dir=root) as folder:
            for part in parts_of(name, kind):
                _provide(part, root, Path(folder))
            key, values = ("split", ("train", "test")) if name == "svhn" else ("train", (1, 0))
            made = [kind(folder, **{key: value}, download=True) for value in values]  # unpacks
    except (OSError, RuntimeError, ImportError, http.client.HTTPException) as error:
        raise RclCpbError(
            f"{name} is not at {root / name}.npz and could not be downloaded"
            f" ({type(error).__name__}: {error}): put the file there, name its folder"
            " with --data-dir or RCLCPB_DATA, or use a ...-5k scenario, which needs no"
            " download."
        ) from error
    if name == "svhn":
        pairs = [(one.data.transpose(0, 2, 3, 1), one.labels) for one in made]
    else:
        pairs = [(np.asarray(one.data), np.asarray(one.targets)) for one in made]
    return [array.astype(np.uint8) for pair in pairs for array in pair]


def parts_of(name: str, kind: Any) -> list[Part]:
    """The files of a set, as torchvision knows them."""
    if name == "mnist":
        mirror = next(m for m in kind.mirrors if m.startswith("https:"))
        return [Part(mirror + file, f"MNIST/raw/{file}", md5) for file, md5 in kind.resources]
    if name == "svhn":
        splits = [kind.split_list[split] for split in ("train", "test")]
        return [Part(_secure(url), file, md5) for url, file, md5 in splits]
    return [Part(_secure(kind.url), kind.filename, kind.tgz_md5)]


def _secure(url: str) -> str:
    return "https:" + url.partition(":")[2]


def _provide(part: Part, root: Path, folder: Path) -> None:
    """Put a file where it will be unpacked: from `root` if it is there and whole, or fetched."""
    target, source = folder / part.path, root / part.path
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_file():
        shutil.copyfile(source, target)
    else:
        print(f"downloading {part.url} (for {root})", file=sys.stderr, flush=True)
        with (
            urllib.request.build_opener(SecureOnly).open(part.url, timeout=SECONDS) as response,
            open(target, "wb") as file,
        ):
            shutil.copyfileobj(response, file)
    with open(target, "rb") as file:
        if hashlib.file_digest(file, "md5").hexdigest() != part.md5:
            where = source if source.is_file() else part.url
            raise OSError(f"{where} was cut short or is another file: its checksum differs")


class SecureOnly(urllib.request.HTTPRedirectHandler):
    """Nor is a server followed that sends us on to http."""

    def redirect_request(
        self, req: Any, fp: Any, code: Any, msg: Any, headers: Any, url: str
    ) -> Any:
        if not url.startswith("https:"):
            raise OSError(f"sent on to {url}, which is not https")
        return super().redirect_request(req, fp, code, msg, headers, url)


_KEEP: list[Any] = []  # a Library that is collected takes its operators with it


def import_torchvision() -> Any:
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
