"""Records: what a finished run was and what came out, one JSON file each."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rclcpb.files import Damaged, read_whole, replacing

HERE = Path(__file__).resolve().parent
# the records the book shows: in the repository, or in the installed copy of the book
BOOK = HERE / "_book" if (HERE / "_book").exists() else HERE.parent / "book"
RESULTS = BOOK / "results"
LONGEST = 10**8  # bytes of a record, far more than any has


@dataclass
class Stage:
    """What happened at one task; lists have an entry a growable layer or a task.

    A field that does not apply to a method is None.
    """

    task: str
    pruned: list[int] | None = None  #: delta_k
    shared: list[int] | None = None  #: alpha_share
    added: list[int] | None = None  #: alpha
    hidden: list[int] | None = None  #: sizes after growing
    utilisation: list[float] | None = None  #: significant weights' share
    zero_shot: float = 0.0  #: accuracy on the task before learning it
    train_nll: float | None = None  #: of the last epoch
    train_kl: float | None = None
    accuracy: list[float] | None = None  #: R[t]: on tasks 1..t
    nll: list[float] | None = None
    ece: list[float] | None = None
    seconds: float = 0.0  #: of one CPU core; of wall time with more threads or a GPU
    structure_seconds: float = 0.0  #: of these, pruning and growing


@dataclass
class Record:
    """A finished run, as JSON keeps it: what was run, and what came out a task."""

    scenario: str
    method: str
    seed: int
    config: dict[str, Any]
    tasks: list[str]
    accuracy: list[list[float]]  #: R[i][j]: on task j after task i, fractions of 1
    nll: list[list[float]]
    ece: list[list[float]]
    zero_shot: list[float]  #: on each task just before learning it
    chance: list[float]
    hidden: list[list[int]]  #: sizes after each task
    pruned: list[list[int]]
    shared: list[list[int]]
    added: list[list[int]]
    utilisation: list[list[float]]
    train_nll: list[float]
    train_kl: list[float]
    seconds: list[float]
    structure_seconds: list[float]
    coreset_total: int  #: images stored
    parameters: int
    peak_mib: int  #: of the process that ran it
    device: str
    threads: int
    versions: dict[str, str]
    data_sha256: str
    core_sha256: str
    started: str
    start: str | None = None  #: checksum of the network it started from


def save_record(record: Record, path: Path) -> None:
    with replacing(path) as part:
        part.write_text(json.dumps(asdict(record), indent=1, allow_nan=False) + "\n")


def load_record(path: Path) -> Record:
    content = read_whole(path, LONGEST)
    try:
        return Record(**json.loads(content))
    except (ValueError, TypeError, RecursionError) as error:
        raise Damaged(
            f"{path} is not a record of this version ({error}): move it away and run again."
        ) from error


def record_path(out: Path, scenario: str, method: str, seed: int) -> Path:
    return out / scenario / f"{method}-seed{seed}.json"


def load_records(results: Path, scenario: str, method: str) -> list[Record]:
    """All seeds of a method on a scenario, or of a sweep's `vcl,kl_weight=0.1`."""
    folder = results / "sweeps" if "," in method else results
    paths = (folder / scenario).glob(f"{method}-seed*.json")
    return sorted((load_record(p) for p in paths), key=lambda r: r.seed)
