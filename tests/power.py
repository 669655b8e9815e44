"""A disk that loses its power: what is left of a folder if only synced things were written.

with Disk(folder) as disk:
    ...
for state in disk.states:
    state.restore(somewhere)

The standard library's calls are watched, the files are real ones. Two kinds of disk bound what
file systems do: one forgets every name and every byte that was not synced; the other, as ext4
and XFS, has all names in order, and files of no bytes where content was not synced.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest


class State(NamedTuple):
    """What a cut leaves: files by their places below the folder."""

    moment: str
    files: dict[str, bytes]

    def restore(self, folder: Path) -> None:
        """Make the folder what it is when the power is back."""
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for name, content in self.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


class Disk:
    """Watches a folder; `states` are what cuts before and after each call would leave."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.states = folder, list[State]()
        self.content: dict[int, bytes] = {}  # of synced files, by their number
        self.names: dict[Path, dict[str, int]] = {}  # of synced folders
        self.held: list[int] = []  # so that the system gives no number twice
        self.patch = pytest.MonkeyPatch()
        for path in [folder, *folder.rglob("*")]:  # what was there is there
            self.sync(path)

    def __enter__(self) -> Disk:
        for module, name in ((os, "fsync"), (os, "replace"), (os, "unlink"), (os, "mkdir")):
            self.patch.setattr(module, name, self.watched(name, getattr(module, name)))
        return self

    def __exit__(self, *error: Any) -> None:
        self.patch.undo()
        self.cut("at the end")
        for place in self.held:
            os.close(place)

    def watched(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def watching(*args: Any, **options: Any) -> Any:
            what = os.readlink(f"/proc/self/fd/{args[0]}") if name == "fsync" else args[0]
            mine = self.folder in (Path(what), *Path(what).parents)
            if mine:
                self.cut(f"before {name} {Path(what).name}")
            done = call(*args, **options)
            if mine and name == "fsync":
                self.sync(Path(what))
            if mine:
                self.cut(f"after {name} {Path(what).name}")
            return done

        return watching

    def sync(self, path: Path) -> None:
        if path.is_dir():
            self.names[path] = {p.name: p.stat().st_ino for p in path.iterdir()}
            return
        self.held.append(os.open(path, os.O_RDONLY))
        self.content[path.stat().st_ino] = path.read_bytes()

    def cut(self, moment: str) -> None:
        """What both kinds of disk have at this moment, if it is not what they had before."""
        for kind, files in zip(("synced names", "all names"), self.left(), strict=True):
            if files not in [state.files for state in self.states]:
                self.states.append(State(f"{moment}, {kind}", files))

    def left(self) -> list[dict[str, bytes]]:
        """What both kinds of disk have now."""
        here = (path for path in self.folder.rglob("*") if path.is_file())
        named = {
            str(path.relative_to(self.folder)): self.content.get(path.stat().st_ino, b"")
            for path in here
        }
        return [self.durable(self.folder), named]

    def durable(self, folder: Path) -> dict[str, bytes]:
        """All that can be reached by synced names."""
        found: dict[str, bytes] = {}
        for name, number in self.names.get(folder, {}).items():
            path = folder / name
            if path.is_dir():
                found |= self.durable(path)
            else:
                content = self.content.get(number, b"")
                found[str(path.relative_to(self.folder))] = content
        return found
