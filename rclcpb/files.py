"""The one error for what a user can put right, and files that are whole or not there.

A file that was written stays, also through a power cut: it and its folder are synced.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor


class RclCpbError(ValueError):
    """Something the user can put right; the message says what and how."""


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Write to a file beside `path` that takes its place only when it is whole, on disk."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        make_folder(path.parent)
        yield part
        _sync(part)  # before the rename, which may reach the disk before what was written
        os.replace(part, path)
        _sync(path.parent)
    except OSError as error:
        raise RclCpbError(
            f"cannot write {path} ({error.strerror or error}): free some space or"
            " choose another folder with --out or --data-dir."
        ) from error
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


def make_folder(folder: Path) -> None:
    """A folder, and those it is in, that a power cut does not take away."""
    missing = [one for one in (folder, *folder.parents) if not one.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for made in missing:
        _sync(made.parent)


def _sync(path: Path) -> None:
    """Wait until a file's content, or a folder's list of names, is on disk."""
    folder = path.is_dir()
    try:
        place = os.open(path, os.O_RDONLY if folder else os.O_RDWR)
        try:
            os.fsync(place)
        finally:
            os.close(place)
    except OSError as error:
        unable = (errno.EINVAL, errno.ENOTSUP, errno.EACCES)  # Windows, some network systems
        if not folder or error.errno not in unable:
            raise


def save_tensors(path: Path, tensors: Mapping[str, Tensor], facts: dict[str, Any]) -> None:
    """Tensors and JSON values as one file of safetensors, with a checksum over both."""
    arrays = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    text = json.dumps(facts)
    metadata = {"state": text, "sha256": _digest(arrays, text)}
    with replacing(path) as part:  # bytes, so that a full disk is an OSError
        part.write_bytes(save(arrays, metadata))


def load_tensors(path: Path, what: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """What `save_tensors` wrote; `what` names the file and the way on if it is damaged."""
    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if _digest(tensors, metadata["state"]) != metadata["sha256"]:
            raise KeyError("checksum")
        return tensors, json.loads(metadata["state"])
    except (SafetensorError, KeyError, ValueError, OSError) as error:
        raise RclCpbError(f"{path} is damaged or not {what} ({error})") from error


def _digest(tensors: Mapping[str, Tensor], text: str) -> str:
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        digest.update(name.encode())
        digest.update(tensors[name].contiguous().numpy().tobytes())
    return digest.hexdigest()
