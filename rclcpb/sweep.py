"""Many runs: all combinations of some settings, on all cores or on a Dask cluster."""

from __future__ import annotations

import itertools
import os
import signal
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from functools import cache
from typing import Any

import joblib
import tyro
from tqdm import tqdm

from rclcpb.files import RclCpbError
from rclcpb.jobs import Data, Job, recorded, run_job
from rclcpb.records import Record, save_record
from rclcpb.settings import Settings
from rclcpb.stopping import GRACE

ANSWER = 30  # seconds for a scheduler to answer
PATIENCE = 120  # for a cluster to import this module and do nothing, or to have a worker again
LOOK = 2  # and between two looks at whether it has one
Outcome = tuple[int, Record | str]  # of which job, its record or its error


def sweep_jobs(base: Job, values: Mapping[str, Iterable[Any]], seeds: Iterable[int]) -> list[Job]:
    """A job for every combination of the values and every seed; its file says which.

    Values are as on the command line: 0.1, or "0.1,0.3" for a field with several.
    """
    jobs, seeds = [], list(seeds)
    for combination in itertools.product(*values.values()):
        pairs = {k: str(v) for k, v in zip(values, combination, strict=True)}
        words: list[str] = []
        for name, text in pairs.items():
            parts = text.split(",")
            if name == "hidden" and len(parts) == 1:  # one number for every layer
                parts *= len(getattr(base.config, name))
            words += ["--" + name.replace("_", "-"), *parts]
        config = parse_settings(words, base.config, tyro.conf.FlagConversionOff)
        label = ",".join([base.method, *(f"{k}={v}" for k, v in pairs.items())])
        for seed in seeds:
            path = base.path / f"{label}-seed{seed}.json"
            jobs.append(base._replace(seed=seed, config=config, path=path))
    return jobs


def parse_settings(rest: list[str], default: Settings, *options: Any) -> Settings:
    """The fields of the settings given on the command line, over a preset."""
    if not rest:
        return default
    prog = "rclcpb run SCENARIO"
    return tyro.cli(type(default), args=rest, default=default, prog=prog, config=options)


def sweep(jobs: Iterable[Job], workers: int = -1, dask: str | None = None) -> list[str]:
    """Run all jobs, one thread each; the failed ones, named.

    Local processes by default; with `dask` the workers of an existing cluster. Records come
    back to this process, which writes them; what is recorded is not run again.
    """
    unique = list(dict.fromkeys(jobs))  # a run named twice is done once
    if len({job.path for job in unique}) < len(unique):
        raise RclCpbError("two runs would write one file: give each its own path.")
    todo, failed, data = [], [], Data()
    for job in unique:
        try:
            if recorded(job, data) is None:
                todo.append(job)
        except RclCpbError as error:
            failed.append(str(error))
    outcomes = _on_cluster(todo, dask) if dask else _on_this_machine(todo, workers)
    with tqdm(total=len(todo), unit="run") as bar:
        for i, outcome in outcomes:
            bar.update()
            if isinstance(outcome, str):
                failed.append(f"{todo[i].path.name}: {outcome}")
            elif not todo[i].path.exists():
                save_record(outcome, todo[i].path)
    return failed


# ------------------------------------------------------------------------- this machine


def _on_this_machine(todo: Sequence[Job], workers: int) -> Iterator[Outcome]:
    """Each job with its record or its error, as they come.

    A process that dies takes all others of its pool along. The runs they had go on after the
    rest, one at a time: that spares memory, and shows which one kills.
    """
    cores = joblib.effective_n_jobs(workers)
    many = min(cores, max(2, len(todo)))  # with one, joblib would learn in this process
    left, alone = dict(enumerate(todo)), list[tuple[int, Job]]()
    while left or alone:
        batch, left = (left, {}) if left else (dict([alone.pop(0)]), {})
        whole = len(batch)
        try:
            for i, outcome in _in_processes(batch, many):
                del batch[i]
                yield i, outcome
        except BrokenProcessPool:
            if whole == 1:
                yield from ((i, "its process died (out of memory?)") for i in batch)
            else:
                pairs = list(batch.items())  # they start in order
                alone += pairs[:many]
                left = dict(pairs[many:])


def _in_processes(batch: Mapping[int, Job], many: int) -> Iterator[Outcome]:
    attempt = joblib.delayed(_attempt)
    how: dict[str, Any] = {"return_as": "generator_unordered", "batch_size": 1}
    parallel = joblib.Parallel(many, backend="loky", pre_dispatch="all", **how)
    yield from parallel([attempt(i, job, os.getpid()) for i, job in batch.items()])


_ONE_RUN = threading.Lock()  # torch's generator belongs to the whole process


def _attempt(i: int, job: Job, parent: int | None = None) -> Outcome:
    _end_with(parent)
    with _ONE_RUN:  # a Dask worker may have several threads
        try:
            return i, run_job(job, patience=10)  # a killed sweep's worker still ends
        except Exception as error:  # one bad run must not end the others
            return i, f"{type(error).__name__}: {error}"


@cache
def _end_with(parent: int | None) -> None:
    """A worker whose sweep was killed must not go on and keep its run locked."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGTERM)  # a run is saved and ends
        time.sleep(2 * GRACE)
        os._exit(1)

    if parent is not None and os.getppid() == parent:
        threading.Thread(target=watch, daemon=True).start()


# ----------------------------------------------------------------------------- clusters


def _on_cluster(todo: Sequence[Job], address: str) -> Iterator[Outcome]:
    """Each job with its record or its error, from the workers of a Dask cluster."""
    client = _connected(address)
    from distributed import as_completed

    over, abandoned = threading.Event(), threading.Event()
    try:
        futures = {client.submit(_attempt, i, job, pure=False): i for i, job in enumerate(todo)}
        watch = client, list(futures), over, abandoned
        threading.Thread(target=_watch, args=watch, daemon=True).start()
        for future in as_completed(list(futures)):
            try:
                outcome = future.result()
            except Exception as error:  # its workers died, or the scheduler
                said = " ".join(f"{type(error).__name__}: {error}".split())
                no_worker = f"no worker of the cluster has been there for {PATIENCE} seconds"
                outcome = futures[future], no_worker if abandoned.is_set() else said
            yield outcome
    finally:
        over.set()
        client.close()


def _watch(
    client: Any, futures: list[Any], over: threading.Event, abandoned: threading.Event
) -> None:
    """Says so when no worker is left, and gives up when none comes: no wait for ever."""
    lost: float | None = None
    while not over.wait(LOOK):
        try:
            there = client.scheduler_info()["workers"]
        except Exception:  # the scheduler is gone, which every future says itself
            return
        if there:
            lost = None
        elif lost is None:
            lost = time.monotonic()
            tell(f"no worker of the cluster is left: waiting {PATIENCE} seconds for one")
        elif time.monotonic() - lost > PATIENCE:
            abandoned.set()
            client.cancel(futures)
            return


def tell(text: str) -> None:
    tqdm.write(text, file=sys.stderr)


def _connected(address: str) -> Any:
    """A client of a Dask cluster that has this module and a worker."""
    try:
        from distributed import Client
    except ImportError:
        raise RclCpbError(
            "--dask needs the package distributed: pip install distributed."
        ) from None
    tell(f"asking the Dask scheduler at {address}, for {ANSWER} seconds at most")
    try:
        client = Client(address, timeout=ANSWER)
    except (OSError, ValueError) as error:
        raise RclCpbError(
            f"no Dask scheduler answers at {address} ({error}): start one, or leave"
            " --dask out to use this machine."
        ) from error
    try:
        client.submit(_ready, pure=False).result(timeout=PATIENCE)
    except Exception as error:
        client.close()
        raise RclCpbError(
            f"the Dask cluster at {address} cannot run this ({error!r}): give it a"
            " worker, and start scheduler and workers where rclcpb can be imported."
        ) from error
    return client


def _ready() -> None:
    """What a cluster can run if it has this module and a worker."""
