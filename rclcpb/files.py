"""The one error for what a user can put right, and files that are whole or not there."""

from __future__ import annotations

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
    """Write to a file beside `path` that takes its place only when it is whole."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield part
        os.replace(part, path)
    except OSError as error:
        raise RclCpbError(
            f"cannot write {path} ({error.strerror or error}): free some space or"
            " choose another folder with --out or --data-dir."
        ) from error
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


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
