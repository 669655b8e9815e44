"""Records: what a finished run was and what came out, one JSON file each."""

from __future__ import annotations

import hashlib
import json
import math
import re
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from rclcpb.files import Damaged, RclCpbError, plain, read_whole, replacing

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
    version: int = 1  #: of the method, see rclcpb_core.VERSION
    identity: str = ""  #: checksum of the scenario: its arrays, their shapes, its heads
    cpu: str = ""
    kernels: str = ""  #: which instructions computed, see rclcpb.machine


def save_record(record: Record, path: Path) -> None:
    """Write it with a checksum; one that is not right is not written."""
    values = json.loads(json.dumps(asdict(record), allow_nan=False))
    examine(values)
    values["sha256"] = _digest(values)
    with replacing(path) as part:
        part.write_text(json.dumps(values, indent=1, allow_nan=False) + "\n")


def load_record(path: Path) -> Record:
    """A record whose checksum and numbers are right; the oldest have no checksum."""
    content = read_whole(path, LONGEST)
    try:
        values = json.loads(content, parse_constant=_refuse)
        if not isinstance(values, dict):
            raise ValueError("no object")
        found = values.pop("sha256", None)
        if found != _digest(values) and (found is not None or "identity" in values):
            raise ValueError("its checksum differs")
        examine(values)
        return Record(**values)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise Damaged(
            f"{path} is not a record of this version ({plain(error)}): move it away and run again."
        ) from error


def _digest(values: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def _refuse(constant: str) -> None:
    raise ValueError(f"a number is {constant}")


# ------------------------------------------------------------------------------- schema

WORDS = ("scenario", "method", "device", "data_sha256", "core_sha256", "started")
COUNTS = ("seed", "coreset_total", "parameters", "peak_mib", "threads")
SHARES = ("zero_shot", "chance")  # a number a task
LOSSES = ("train_nll", "train_kl", "seconds", "structure_seconds")
TRIANGLES = ("accuracy", "nll", "ece")  # a row a task, a number for it and each before it
SIZES = ("hidden", "pruned", "shared", "added", "utilisation")  # a number a layer


def examine(values: dict[str, Any]) -> None:
    """Is each field there, of its kind, as long as there are tasks, and in its range?"""
    known = {field.name for field in fields(Record)}
    if odd := sorted(set(values) - known):
        raise ValueError(f"fields {', '.join(odd)} are unknown")
    for name in WORDS:
        _must(name, isinstance(values[name], str))
    for name in COUNTS:
        _must(name, _whole(values[name]))
    for name in ("start", "identity", "cpu", "kernels"):  # younger than the oldest records
        _must(name, isinstance(values.get(name, ""), str | None))
    _must("version", _whole(values.get("version", 1)))
    tasks, config, versions = values["tasks"], values["config"], values["versions"]
    _must("tasks", isinstance(tasks, list) and tasks and all(isinstance(t, str) for t in tasks))
    _must("config", isinstance(config, dict))
    _must("versions", isinstance(versions, dict))
    for name in (*SHARES, *LOSSES, *TRIANGLES, *SIZES):
        _must(name, isinstance(values[name], list) and len(values[name]) == len(tasks))
    for name in (*SHARES, *LOSSES):
        top = 1.0 if name in SHARES else math.inf
        _must(name, all(_within(n, top) or (n is None and name in LOSSES) for n in values[name]))
    for name in TRIANGLES:
        top = math.inf if name == "nll" else 1.0
        rows = [row for row in values[name] if isinstance(row, list)]
        _must(name, [len(row) for row in rows] == list(range(1, len(tasks) + 1)))
        _must(name, all(_within(n, top) for row in rows for n in row))
    for name in SIZES:
        good = _share if name == "utilisation" else _whole
        lists = [row for row in values[name] if row is not None]
        _must(name, all(isinstance(row, list) and all(map(good, row)) for row in lists))


def _must(name: str, right: Any) -> None:
    if not right:
        raise ValueError(f"{name} is not what it should be")


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _within(value: Any, top: float) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and math.isfinite(value) and 0 <= value <= top * (1 + 1e-6)


def _share(value: Any) -> bool:
    return _within(value, 1.0)


# ---------------------------------------------------------------------------- by method


def record_path(out: Path, scenario: str, method: str, seed: int) -> Path:
    return out / scenario / f"{method}-seed{seed}.json"


def load_records(results: Path, scenario: str, method: str) -> list[Record]:
    """All seeds of a method on a scenario, or of a sweep's `vcl,kl_weight=0.1`."""
    folder = (results / "sweeps" if "," in method else results) / scenario
    named = re.compile(re.escape(method) + r"-seed(0|[1-9][0-9]*)\.json")
    paths = folder.iterdir() if folder.is_dir() else ()
    found = {p: int(match[1]) for p in paths if (match := named.fullmatch(p.name))}
    records = []
    for path, seed in sorted(found.items(), key=lambda pair: pair[1]):
        record = load_record(path)
        is_named = scenario, method.split(",")[0], seed
        if (record.scenario, record.method, record.seed) != is_named:
            raise RclCpbError(
                f"{path} holds a run of {record.scenario}, {record.method}, seed {record.seed}:"
                " give it the name of what it is."
            )
        records.append(record)
    return records
