"""One run with its files: the record, the checkpoint beside it, the lock, the kept network.

OUT/SCENARIO/METHOD-seedK.json          the record
OUT/SCENARIO/METHOD-seedK.checkpoint    while the run goes on
OUT/SCENARIO/METHOD-seedK.safetensors   its network, if it is to be kept
OUT/SCENARIO/METHOD-seedK.md            and the network's card
"""

from __future__ import annotations

import glob
import hashlib
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from filelock import FileLock, Timeout

import rclcpb_core as core
from rclcpb import machine
from rclcpb.checkpoint import Checkpoint, differing
from rclcpb.files import RclCpbError, make_folder, read_whole
from rclcpb.modelcard import write_card
from rclcpb.presets import METHODS, make_scenario, preset
from rclcpb.records import Record, load_record, record_path, save_record
from rclcpb.runner import Run, make
from rclcpb.scenarios import Scenario
from rclcpb.settings import Settings
from rclcpb.stopping import Asked, politely


class Job(NamedTuple):
    """One run: what, with which seed, and where its record goes."""

    scenario: str
    method: str
    seed: int
    config: Settings
    path: Path  # ends in .json
    data_dir: str | None = None
    device: str = "cpu"
    keep: bool = False  # the trained network, too
    start: Path | None = None  # a kept network to go on from
    threads: int = 1

    def about(self) -> dict[str, Any]:
        """What makes it this run."""
        return {
            "scenario": self.scenario,
            "method": self.method,
            "seed": self.seed,
            "config": self.config.as_json(),
            "start": file_sha256(self.start) if self.start else None,
            "threads": self.threads,
            "device": str(torch.device(self.device)),
            "version": core.VERSION,
        }

    @property
    def network(self) -> Path:
        return self.path.with_suffix(".safetensors")


def file_sha256(path: Path) -> str:
    return hashlib.sha256(read_whole(path)).hexdigest()


def run_job(job: Job, progress: bool = False, patience: float = 0) -> Record:
    """Learn and record; a finished job is read back, a stopped one goes on."""
    try:
        make_folder(job.path.parent)
        held = FileLock(job.path.with_suffix(".lock")).acquire(patience)
    except Timeout:
        raise RclCpbError(
            f"another process is writing {job.path}: wait for it or choose another --out."
        ) from None
    except OSError as error:
        raise RclCpbError(
            f"cannot write {job.path} ({error.strerror}): choose another --out."
        ) from error
    with held, machine.threads(job.threads), politely() as asked:
        record = _run_locked(job, progress, asked)
    asked.obey()  # what is asked for is more than this run's end
    return record


Data = dict[tuple[str, int, str | None], tuple[str, str]]


def recorded(job: Job, data: Data | None = None) -> Record | None:
    """The job's record, if there is one; one of other settings or other data is refused.

    Of many jobs, `data` remembers the digests of what they learn.
    """
    if not job.path.exists():
        return None
    record, wanted = load_record(job.path), job.about()
    found = asdict(record) | {"config": type(job.config).from_json(record.config).as_json()}
    wanted["data"], found["data"] = _digests(job, record, {} if data is None else data)
    if machine.fixed() and wanted["device"] == "cpu":  # else numbers of another machine serve
        wanted["kernels"] = machine.kernels()
    if odd := differing(wanted, found):
        raise RclCpbError(
            f"{job.path} holds a run with other settings ({odd}): choose another --out or move"
            " it away."
        )
    if job.keep and not job.network.exists():
        raise RclCpbError(
            f"{job.path} was recorded without keeping its network: choose another --out or"
            " move it away."
        )
    return record


def _digests(job: Job, record: Record, known: Data) -> tuple[str, str]:
    """Of the data that the job would learn, and of those that were learned."""
    of = job.scenario, job.seed, job.data_dir
    if of not in known:
        scenario = make_scenario(*of)
        known[of] = scenario.identity(), scenario.sha256()
    identity, arrays = known[of]
    return (identity, record.identity) if record.identity else (arrays, record.data_sha256)


def _run_locked(job: Job, progress: bool, asked: Asked) -> Record:
    if (record := recorded(job)) is not None:
        return record
    if (job.start or job.keep) and not issubclass(METHODS[job.method].learner, core.Learner):
        raise RclCpbError(
            f"{job.method} has no network that is kept or started from: leave out --keep and"
            " --start."
        )
    for part in job.path.parent.glob(f".{glob.escape(job.path.stem)}.*.part"):
        part.unlink(missing_ok=True)  # a process was killed while it wrote this
    scenario = make_scenario(job.scenario, job.seed, job.data_dir)
    about = job.about() | {"data": scenario.identity(), "kernels": machine.kernels(job.device)}
    about["torch"] = str(torch.__version__)
    more = {"start": core.load(job.start)} if job.start else {}
    method = make(job.method, scenario, job.config, job.seed, device=job.device, **more)
    checkpoint = Checkpoint(job.path.with_suffix(".checkpoint"), about)
    checkpoint.asked = asked
    run = Run(method, [checkpoint], progress)
    checkpoint.restore(run)
    record = run.finish(job.method)
    record.start = about["start"]
    if job.keep:
        about = card(scenario, record)
        method.keep(job.network, about)
        write_card(job.network, METHODS[job.method].title, about)
    save_record(record, job.path)
    checkpoint.path.unlink(missing_ok=True)
    return record


def card(scenario: Scenario, record: Record) -> dict[str, Any]:
    """What a user of a kept network should know: of its inputs, its outputs, its origin."""
    tasks = range(len(scenario.tasks))
    heads = tasks if scenario.heads == "multi" else tasks[-1:]
    return {
        "scenario": record.scenario,
        "method": record.method,
        "seed": record.seed,
        "tasks": record.tasks,
        "heads": scenario.heads,
        "labels": [list(scenario.columns(t)) for t in heads],  # behind each head's outputs
        "inputs": {
            "shape": list(scenario.tasks[0].x_train.shape[1:]),
            "center": scenario.center,
            "scale": scenario.scale,
            "flat": not scenario.trunk,
            "shuffled": any(task.permutation is not None for task in scenario.tasks),
        },
        "accuracy": record.accuracy[-1],  # of the run, with all that it does at evaluation
        "chance": record.chance,
        "config": record.config,
        "hidden": record.hidden[-1],
        "parameters": record.parameters,
        "stored": record.coreset_total,
        "data_sha256": record.data_sha256,
        "versions": record.versions,
    }


def sized(job: Job, results: Path, method: str) -> Job:
    """The job at the size at which the method's record of its seed ended."""
    config: Any = job.config
    if config.hidden != preset(job.scenario, job.method).hidden:
        raise RclCpbError("--hidden and --size-of both set the size: give one.")
    path = record_path(results, job.scenario, method, job.seed)
    if not path.exists():
        raise RclCpbError(f"--size-of {method}: no record {path}; run that first.")
    return job._replace(config=replace(config, hidden=tuple(load_record(path).hidden[-1])))


def done_of(jobs: list[Job]) -> dict[str, list[Record]]:
    """The records of those jobs that have one, by the label in their files' names."""
    done: dict[str, list[Record]] = {}
    data: Data = {}
    for job in jobs:
        with suppress(RclCpbError):  # a record of other settings is somebody else's
            if (record := recorded(job, data)) is not None:
                done.setdefault(job.path.stem.rsplit("-seed", 1)[0], []).append(record)
    return done
