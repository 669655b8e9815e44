"""The one error for what a user can put right, and files that are whole or not there.

A file that was written stays, also through a power cut: it and its folder are synced.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from safetensors.torch import load, save
from torch import Tensor


class RclCpbError(ValueError):
    """Something the user can put right; the message says what and how."""


# What a forged file may lead to where it is taken apart; a file is then refused.
DAMAGE = (LookupError, TypeError, ValueError, RuntimeError, AttributeError, ArithmeticError)


class Damaged(RclCpbError):
    """A file that was read and is not what it should be; any other error says nothing of it."""


def read_whole(path: Path, longest: int = 2**32) -> bytes:
    """A file's content. A pipe or a device, which may never end, is refused; so is a giant.

    What the system cannot do is told apart from what is wrong with a file: one that cannot be
    read today may be a good one.
    """
    try:
        with open(path, "rb", opener=_at_once) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise RclCpbError(f"cannot read {path}: it is not a file but a pipe or a device.")
            if status.st_size > longest:
                size = f"{status.st_size / 1e9:.1f} GB long, at most {longest / 1e9:.1f}"
                raise Damaged(f"{path} is not what it should be: it is {size} would be right.")
            return file.read()
    except (OSError, ValueError) as error:
        if isinstance(error, RclCpbError):
            raise
        why = getattr(error, "strerror", None) or error  # ValueError: no such name can be
        raise RclCpbError(f"cannot read {path} ({why}): put that right and try again.") from error
    except MemoryError as error:
        raise RclCpbError(f"cannot read {path}: there is not enough memory for it.") from error


def _at_once(path: str, flags: int) -> int:
    """A pipe that nobody writes to does not keep its reader waiting."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Write to a file beside `path` that takes its place only when it is whole, on disk."""
    if path.exists() and not path.is_file():  # root could put a file in /dev/null's place
        raise RclCpbError(f"cannot write {path}: it is a folder, a pipe or a device.")
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
    content = read_whole(path)  # not mapped: a disk's error would end the process
    try:
        length = int.from_bytes(content[:8], "little")
        metadata = json.loads(content[8 : 8 + length])["__metadata__"]
        tensors = load(content)
        if _digest(tensors, metadata["state"]) != metadata["sha256"]:
            raise KeyError("checksum")
        return tensors, dict(json.loads(metadata["state"]))
    except MemoryError as error:
        raise RclCpbError(f"cannot read {path}: there is not enough memory for it.") from error
    except Exception as error:  # whatever the format can be wrong in
        raise Damaged(f"{path} is damaged or not {what} ({plain(error)})") from error


def plain(error: Exception) -> str:
    """What an error says, in one line that is not too long."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:120]


def _digest(tensors: Mapping[str, Tensor], text: str) -> str:
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        digest.update(name.encode())
        digest.update(tensors[name].contiguous().numpy().tobytes())
    return digest.hexdigest()
