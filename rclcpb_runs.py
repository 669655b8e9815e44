"""Records, checkpoints, tables and the command line of RCL-CPB.

    python rclcpb_core.py run ta-smnist-5k --method rcl-cpb --seeds 0 1
    python rclcpb_core.py sweep ta-smnist-5k --gamma 0.1 0.3 --seeds 0 1
    python rclcpb_core.py table mnist
    python rclcpb_core.py data

A record is one JSON file, OUT/SCENARIO/METHOD-seedK.json. While a run goes on, a file
of safetensors beside it holds what is needed to go on after a stop. Nothing here reads
pickle: a file from a stranger cannot run code.
"""

from __future__ import annotations

import glob
import hashlib
import itertools
import json
import os
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import joblib
import numpy as np
import torch
import tyro
from filelock import FileLock, Timeout
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from scipy.stats import ttest_rel
from torch import Tensor
from tqdm import tqdm

import rclcpb_core as core
from rclcpb_data import SHA256, replacing

RESULTS = Path(__file__).parent / "book" / "results"  # the records the book shows

# ------------------------------------------------------------------------------ records


def save_record(record: core.Record, path: Path) -> None:
    with replacing(path) as part:
        part.write_text(json.dumps(asdict(record), indent=1, allow_nan=False) + "\n")


def load_record(path: Path) -> core.Record:
    try:
        return core.Record(**json.loads(path.read_text()))
    except (ValueError, TypeError, OSError) as error:
        raise core.RclCpbError(
            f"{path} is not a record of this version ({error}): move it away and run again."
        ) from error


def record_path(out: Path, scenario: str, method: str, seed: int) -> Path:
    return out / scenario / f"{method}-seed{seed}.json"


def load_records(results: Path, scenario: str, method: str) -> list[core.Record]:
    """All seeds of a method on a scenario, or of a sweep's `vcl,kl_weight=0.1`."""
    folder = results / "sweeps" if "," in method else results
    paths = (folder / scenario).glob(f"{method}-seed*.json")
    return sorted((load_record(p) for p in paths), key=lambda r: r.seed)


# -------------------------------------------------------------------------- checkpoints


class Checkpoint:
    """A run on disk: the network after the last whole task, and a half-learned one.

    Everything else (coresets, noise, batches) follows from the seed, see core.seeded.
    """

    def __init__(self, path: Path, about: dict[str, Any], every: float = 60.0) -> None:
        self.path, self.about, self.every = path, about, every
        self.saved, self.whole = time.monotonic(), dict[str, Tensor]()
        self.stages = 0

    def keep(self, learner: core.Learner) -> None:
        """Save after each task, and every `every` seconds within one."""
        if len(learner.stages) > self.stages:
            state = learner.net.state_dict()
            self.whole = {f"net.{k}": v.detach().cpu().clone() for k, v in state.items()}
            self.stages = len(learner.stages)
        elif time.monotonic() - self.saved < self.every:
            return
        self.save(learner)

    def save(self, learner: core.Learner) -> None:
        partial = dict(learner.partial)
        tensors = dict(self.whole)
        for name, value in partial.pop("tensors", {}).items():
            tensors[f"partial.{name}"] = value.detach().cpu().clone()
        state = self.about | {
            "stages": [asdict(s) for s in learner.stages],
            "partial": partial,
        }
        text = json.dumps(state)
        metadata = {"state": text, "sha256": _digest(tensors, text)}
        with replacing(self.path) as part:  # bytes, so that a full disk is an OSError
            part.write_bytes(save(tensors, metadata))
        self.saved = time.monotonic()

    def restore(self, learner: core.Learner) -> bool:
        """Bring a new learner to where the file left off; False if there is no file."""
        if not self.path.exists():
            return False
        state, tensors = self._read()
        if {k: state.get(k) for k in self.about} != self.about:
            raise core.RclCpbError(
                f"{self.path} belongs to a run with another config or other data:"
                " choose another --out, or delete it to start over."
            )
        try:
            stages = [core.Stage(**stage) for stage in state["stages"]]
            self.whole = {k: v for k, v in tensors.items() if k.startswith("net.")}
            net = _network(learner, stages, _below("net.", tensors))
            halves, partial = _below("partial.", tensors), state["partial"]
        except (KeyError, TypeError, RuntimeError) as error:
            raise core.RclCpbError(
                f"{self.path} is from another version: delete it to start this run over."
            ) from error
        learner.stages, learner.net, self.stages = stages, net, len(stages)
        learner.partial = partial | ({"tensors": halves} if halves else {})
        learner.coreset = [learner.split_task(t)[1] for t in range(len(stages))]
        return True

    def _read(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        try:
            with safe_open(self.path, "pt") as file:
                metadata = file.metadata() or {}
                names = file.keys()  # the file itself cannot be iterated over
                tensors = {name: file.get_tensor(name) for name in names}
            if _digest(tensors, metadata["state"]) != metadata["sha256"]:
                raise KeyError("checksum")
            return json.loads(metadata["state"]), tensors
        except (SafetensorError, KeyError, ValueError, OSError) as error:
            raise core.RclCpbError(
                f"{self.path} is damaged or not a checkpoint ({error}): delete it to"
                " start this run over."
            ) from error


def _digest(tensors: dict[str, Tensor], text: str) -> str:
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        digest.update(name.encode())
        digest.update(tensors[name].contiguous().numpy().tobytes())
    return digest.hexdigest()


def _below(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors whose names begin so, by the rest of their names."""
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}


def _network(
    learner: core.Learner, stages: list[core.Stage], state: dict[str, Tensor]
) -> core.ProgressiveBNN:
    """The network after these stages; a run's first network before any."""
    if not stages:
        return learner.net
    with core.seeded("rebuild"):  # its draws are overwritten, and not the caller's
        net = learner.new_network(stages[-1].hidden)
        width, head = net.sizes()[-1], 0
        while f"heads.{head}.mu" in state:
            net.add_head(len(state[f"heads.{head}.mu"]) // (width + 1))
            head += 1
    net.load_state_dict(state)
    return net


# --------------------------------------------------------------------------------- runs


class Job(NamedTuple):
    """One run: what, with which seed, and where its record goes."""

    scenario: str
    method: str
    seed: int
    config: core.Config
    path: Path  # ends in .json; checkpoint and lock are beside it
    data_dir: str | None = None
    device: str = "cpu"

    def about(self) -> dict[str, Any]:
        """What makes it this run."""
        return {
            "scenario": self.scenario,
            "method": self.method,
            "seed": self.seed,
            "config": as_json(self.config),
        }


def as_json(config: core.Config) -> dict[str, Any]:
    """A config as a record has it: lists for tuples."""
    return json.loads(json.dumps(asdict(config)))


def run_job(job: Job, progress: bool = False, patience: float = 0) -> core.Record:
    """Learn and record; a finished job is read back, a stopped one goes on."""
    try:
        job.path.parent.mkdir(parents=True, exist_ok=True)
        held = FileLock(job.path.with_suffix(".lock")).acquire(patience)
    except Timeout:
        raise core.RclCpbError(
            f"another process is writing {job.path}: wait for it or choose another --out."
        ) from None
    except OSError as error:
        raise core.RclCpbError(
            f"cannot write {job.path} ({error.strerror}): choose another --out."
        ) from error
    with held:
        return _run_locked(job, progress)


def recorded(job: Job) -> core.Record | None:
    """The job's record, if there is one; one of other settings is refused."""
    if not job.path.exists():
        return None
    record, about = load_record(job.path), job.about()
    wanted = about.pop("config") | about
    found = as_json(core.Config()) | record.config  # a younger field has its default
    found |= {name: getattr(record, name) for name in about}
    if odd := sorted(k for k in found | wanted if found.get(k) != wanted.get(k)):
        raise core.RclCpbError(
            f"{job.path} holds a run with other settings ({', '.join(odd)}): choose"
            " another --out or move it away."
        )
    return record


def _run_locked(job: Job, progress: bool) -> core.Record:
    if (record := recorded(job)) is not None:
        return record
    for part in job.path.parent.glob(f".{glob.escape(job.path.stem)}.*.part"):
        part.unlink(missing_ok=True)  # a process was killed while it wrote this
    scenario = core.make_scenario(job.scenario, job.seed, job.data_dir)
    about = job.about() | {"data": scenario.sha256()}
    checkpoint = Checkpoint(job.path.with_suffix(".safetensors"), about)
    learner = core.Learner(scenario, job.config, job.seed, job.device, progress, checkpoint.keep)
    with closing(learner.bar):  # what is said after it gets a line of its own
        checkpoint.restore(learner)
        record = core.learn(scenario, job.config, job.seed, job.method, learner=learner)
    save_record(record, job.path)
    checkpoint.path.unlink(missing_ok=True)
    return record


# ------------------------------------------------------------------------------- sweeps


def sweep_jobs(base: Job, values: Mapping[str, Iterable[Any]], seeds: Iterable[int]) -> list[Job]:
    """A job for every combination of the values and every seed; its file says which.

    Values are as on the command line: 0.1, or "0.1,0.3" for a field with several.
    """
    jobs, seeds = [], list(seeds)
    for combination in itertools.product(*values.values()):
        pairs = {k: str(v) for k, v in zip(values, combination, strict=True)}
        words = []
        for name, text in pairs.items():
            parts = text.split(",")
            if name == "hidden" and len(parts) == 1:  # one number for every layer
                parts *= len(base.config.hidden)
            words += ["--" + name.replace("_", "-"), *parts]
        config = parse_config(words, base.config, tyro.conf.FlagConversionOff)
        label = ",".join([base.method, *(f"{k}={v}" for k, v in pairs.items())])
        for seed in seeds:
            path = base.path / f"{label}-seed{seed}.json"
            jobs.append(base._replace(seed=seed, config=config, path=path))
    return jobs


def sweep(jobs: Iterable[Job], workers: int = -1, dask: str | None = None) -> list[str]:
    """Run all jobs through joblib, one thread each; the failed ones, named.

    Local processes by default; with `dask` the workers of an existing cluster. Records
    come back to this process, which writes them; what is recorded is not run again.
    """
    unique = dict.fromkeys(jobs)  # a run named twice is done once
    if len({job.path for job in unique}) < len(unique):
        raise core.RclCpbError("two runs would write one file: give each its own path.")
    todo, failed = [], []
    for job in unique:
        try:
            if recorded(job) is None:
                todo.append(job)
        except core.RclCpbError as error:
            failed.append(str(error))
    with _backend(workers, dask), tqdm(total=len(todo), unit="run") as bar:
        for job, outcome in _outcomes(todo, parent=None if dask else os.getpid()):
            bar.update()
            if isinstance(outcome, str):
                failed.append(f"{job.path.name}: {outcome}")
            elif not job.path.exists():
                save_record(outcome, job.path)
    return failed


def _outcomes(todo: Sequence[Job], parent: int | None) -> Iterator[tuple[Job, core.Record | str]]:
    """Each job with its record or its error, as they come.

    A process that dies takes all others of its pool along. The runs they had go on
    after the rest, one at a time: that spares memory, and shows which one kills.
    """
    attempt, left = joblib.delayed(_attempt), dict(enumerate(todo))
    parallel = joblib.Parallel(return_as="generator_unordered", batch_size=1, pre_dispatch="all")
    try:
        calls = (attempt(i, job, parent) for i, job in enumerate(todo))
        for i, outcome in parallel(calls):
            yield left.pop(i), outcome
    except BrokenProcessPool:
        pass
    unfinished = list(left.values())
    if len(todo) == 1:
        yield from ((job, "its process died (out of memory?)") for job in unfinished)
    elif unfinished:
        running = joblib.effective_n_jobs(None)  # the first ones: they start in order
        yield from _outcomes(unfinished[running:], parent)
        for job in unfinished[:running]:
            yield from _outcomes([job], parent)


_ONE_RUN = threading.Lock()  # torch's generator belongs to the whole process


def _attempt(i: int, job: Job, parent: int | None) -> tuple[int, core.Record | str]:
    _end_with(parent)
    with _ONE_RUN:  # a Dask worker may have several threads
        torch.set_num_threads(1)
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
        os._exit(1)

    if os.getppid() == parent:
        threading.Thread(target=watch, daemon=True).start()


@contextmanager
def _backend(workers: int, dask: str | None) -> Iterator[None]:
    """Where joblib runs what is given to it."""
    if dask is None:
        with joblib.parallel_config("loky", n_jobs=workers):
            yield
    else:
        with _connected(dask) as client:
            backend = _dask_backend()(client=client)
            with joblib.parallel_config(backend, n_jobs=-1):
                yield


PATIENCE = 120  # seconds for a cluster to import this module and do nothing


def _connected(address: str) -> Any:
    """A client of a Dask cluster that has this module and a worker."""
    try:
        from distributed import Client
    except ImportError:
        raise core.RclCpbError(
            "--dask needs the package distributed: pip install -r requirements-cluster.txt."
        ) from None
    try:
        client = Client(address, timeout=PATIENCE)
    except (OSError, ValueError) as error:
        raise core.RclCpbError(
            f"no Dask scheduler answers at {address} ({error}): start one, or leave"
            " --dask out to use this machine."
        ) from error
    try:
        client.submit(_ready, pure=False).result(timeout=PATIENCE)
    except Exception as error:
        client.close()
        raise core.RclCpbError(
            f"the Dask cluster at {address} cannot run this ({error!r}): give it a"
            " worker, and start scheduler and workers in the folder of rclcpb_runs.py."
        ) from error
    return client


def _ready() -> None:
    """What a cluster can run if it has this module and a worker."""


def _dask_backend() -> Any:
    """joblib's Dask backend; alone, it waits for ever for a run that Dask gave up."""
    from joblib._dask import DaskDistributedBackend

    class Backend(DaskDistributedBackend):
        def submit(self, func: Any, callback: Any = None) -> Any:
            ((_, (i, *_), _),) = func.items  # one call of _attempt
            future = super().submit(func, callback)

            def report(done: Any) -> None:
                if error := done.exception():
                    callback([(i, f"{type(error).__name__}: {error}")])

            future.add_done_callback(report)
            return future

    return Backend


# ------------------------------------------------------------------------------- tables


class PaperRow(NamedTuple):
    """A number the paper prints; `source` is "own" or the paper it quotes."""

    method: str
    accuracy: float
    deviation: float | None
    hidden: tuple[int, int] | None
    source: str = "own"


PAPER: dict[str, list[PaperRow]] = {
    "pmnist": [
        PaperRow("rcl-cpb, gamma 0.3", 94.2, 0.23, (126, 139)),
        PaperRow("rcl-cpb, gamma 0.12", 92.7, 0.14, (58, 93)),
        PaperRow("vcl", 93.0, None, (100, 100), "quoted"),
    ],
    "mh-smnist": [
        PaperRow("rcl-cpb", 99.3, 0.13, (116, 112)),
        PaperRow("vcl", 98.4, None, (256, 256), "quoted"),
    ],
    "ta-smnist": [
        PaperRow("rcl-cpb", 83.8, 0.38, (160, 128)),
        PaperRow("vcl", 60.6, 4.41, (160, 128)),
    ],
    "mh-cifar100": [
        PaperRow("rcl-cpb", 72.4, 0.40, (733, 789)),
        PaperRow("vcl", 67.6, 0.74, (733, 789)),
    ],
    "ta-cifar100": [
        PaperRow("rcl-cpb", 23.0, 0.38, (463, 292)),
        PaperRow("vcl", 21.3, 0.79, (463, 292)),
    ],
    "mnist-svhn-cifar10": [
        PaperRow("rcl-cpb", 81.5, 0.13, (636, 758)),
        PaperRow("vcl", 75.7, 0.90, (636, 758)),
    ],
}
GROUPS = {
    "mnist": ("pmnist", "pmnist-shared", "mh-smnist", "ta-smnist"),
    "mnist-5k": ("pmnist-5k", "pmnist-shared-5k", "mh-smnist-5k", "ta-smnist-5k"),
    "cifar100": ("mh-cifar100", "ta-cifar100"),
    "sequence": ("mnist-svhn-cifar10",),
}
PAIRS = (
    ("rcl-cpb", "vcl"),
    ("rcl-cpb", "rcl-cpb-A"),
    ("rcl-cpb-plus", "vcl-plus"),
    ("rcl-cpb-plus", "coreset-only"),
)
HEADER = (
    "scenario",
    "method",
    "from",
    "accuracy %",
    "forgetting",
    "hidden",
    "neurons",
    "parameters",
    "stored",
    "minutes",
    "seeds",
)


def spread(values: list[float], digits: int = 2) -> str:
    """mean ± standard deviation over seeds."""
    text = f"{np.mean(values):.{digits}f}"
    return text + (f" ± {np.std(values, ddof=1):.{digits}f}" if len(values) > 1 else "")


def summary(records: list[core.Record]) -> tuple[str, ...]:
    """One method's row of the table."""
    r = records[0]
    final = np.mean([r.hidden[-1] for r in records], axis=0)
    return (
        r.scenario,
        r.method,
        "recorded",
        spread([100 * core.average_accuracy(r.accuracy) for r in records]),
        spread([100 * core.forgetting(r.accuracy) for r in records], 1),
        str([round(n) for n in final]),
        f"{final.sum():.0f}",
        f"{np.mean([r.parameters for r in records]):,.0f}",
        str(r.coreset_total),
        f"{np.mean([sum(r.seconds) for r in records]) / 60:.1f}",
        str(len(records)),
    )


def table_rows(results: Path, scenarios: Iterable[str]) -> list[tuple[str, ...]]:
    """Recorded methods of each scenario, then the paper's rows, labelled as such."""
    rows: list[tuple[str, ...]] = []
    for scenario in scenarios:
        for method in core.METHODS:
            if records := load_records(results, scenario, method):
                rows.append(summary(records))
        for p in PAPER.get(scenario, []):
            accuracy = f"{p.accuracy}" + (f" ± {p.deviation}" if p.deviation else "")
            size = (str(list(p.hidden)), str(sum(p.hidden))) if p.hidden else ("", "")
            rows.append(
                (scenario, p.method, f"paper ({p.source})", accuracy, "", *size, "", "", "", "")
            )
    return rows


def paired(results: Path, scenario: str, a: str, b: str) -> str:
    """Method a against method b over the seeds both have: a sentence."""
    first = {
        r.seed: 100 * core.average_accuracy(r.accuracy) for r in load_records(results, scenario, a)
    }
    second = {
        r.seed: 100 * core.average_accuracy(r.accuracy) for r in load_records(results, scenario, b)
    }
    seeds = sorted(set(first) & set(second))
    if len(seeds) < 2:
        return ""
    x, y = [first[s] for s in seeds], [second[s] for s in seeds]
    wins = sum(p > q for p, q in zip(x, y, strict=True))
    p = float(ttest_rel(x, y).pvalue)
    return (
        f"{scenario}: {a} - {b} = {np.mean(x) - np.mean(y):+.2f} points, better in"
        f" {wins} of {len(seeds)} seeds (paired t-test p = {p:.2g})"
    )


def format_table(rows: list[tuple[str, ...]], header: tuple[str, ...] = HEADER) -> str:
    """Columns side by side, for a terminal."""
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    ruled = [header, tuple("-" * w for w in widths), *rows]
    padded = ([c.ljust(w) for c, w in zip(r, widths, strict=True)] for r in ruled)
    return "\n".join("  ".join(cells).rstrip() for cells in padded)


# ------------------------------------------------------------------------- command line

Method = Literal["rcl-cpb", "rcl-cpb-A", "vcl", "rcl-cpb-plus", "vcl-plus", "coreset-only"]


def sized(job: Job, results: Path, method: str) -> Job:
    """The job at the size at which the method's record of its seed ended."""
    if job.config.hidden != core.preset(job.scenario, job.method).hidden:
        raise core.RclCpbError("--hidden and --size-of both set the size: give one.")
    path = record_path(results, job.scenario, method, job.seed)
    if not path.exists():
        raise core.RclCpbError(f"--size-of {method}: no record {path}; run that first.")
    hidden = tuple(load_record(path).hidden[-1])
    return job._replace(config=replace(job.config, hidden=hidden))


@dataclass
class Run:
    """Learn a scenario and record it. Any Config field may follow, e.g. --gamma 0.2."""

    scenario: tyro.conf.Positional[str]
    """Which scenario, e.g. ta-smnist-5k (no download needed) or ta-smnist."""
    method: Method = "rcl-cpb"
    seeds: tuple[int, ...] = (0,)
    size_of: str | None = None
    """Start at the size this method's record ended at, seed by seed."""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    threads: int = 1
    """CPU threads; networks this small gain nothing from more."""
    data_dir: str | None = None
    """Folder of NAME.npz files (else $RCLCPB_DATA, else data/)."""
    out: Path = Path("runs")

    def __call__(self, rest: list[str]) -> None:
        if self.threads < 1 or not self.seeds:
            raise core.RclCpbError("give at least one of --threads and of --seeds.")
        torch.set_num_threads(self.threads)
        base = core.preset(self.scenario, self.method)
        base = parse_config(rest, base)
        jobs = [self.job(seed, base) for seed in self.seeds]
        records = []
        for job in jobs:
            print(f"{job.scenario}, {job.method}, seed {job.seed} -> {job.path}")
            records.append(run_job(job, progress=True))
        for record in records:
            last = " ".join(f"{100 * a:.1f}" for a in record.accuracy[-1])
            print(f"seed {record.seed}: accuracy after the last task, by task: {last}")
        scenario = self.scenario.removesuffix("-5k")
        rows = [summary(records)]
        rows += [
            row
            for row in table_rows(self.out, [self.scenario])
            if row[1] != self.method and row[2] == "recorded"
        ]
        rows += [row for row in table_rows(Path(), [scenario]) if row[2] != "recorded"]
        print(format_table(rows))
        if scenario != self.scenario:
            print("(the paper's numbers are for all of MNIST, not for these 5,000 digits)")

    def job(self, seed: int, config: core.Config) -> Job:
        path = record_path(self.out, self.scenario, self.method, seed)
        job = Job(
            self.scenario,
            self.method,
            seed,
            config,
            path,
            self.data_dir,
            choose_device(self.device),
        )
        return sized(job, self.out, self.size_of) if self.size_of else job


@dataclass
class Sweep:
    """Run all combinations of Config values, e.g. --gamma 0.05 0.1 --hidden 64 128."""

    scenario: tyro.conf.Positional[str]
    method: Method = "rcl-cpb"
    seeds: tuple[int, ...] = (0,)
    size_of: str | None = None
    """Start at the size this method's record in OUT ended at, seed by seed."""
    workers: int = -1
    """Processes on this machine, one thread each; -1 is one a core."""
    dask: str | None = None
    """Address of a Dask scheduler, tcp://HOST:8786, to run on its workers."""
    data_dir: str | None = None
    out: Path = Path("runs")

    def __call__(self, rest: list[str]) -> None:
        if not self.workers or not self.seeds:
            raise core.RclCpbError("give at least one of --workers and of --seeds.")
        config = core.preset(self.scenario, self.method)
        folder = self.out / "sweeps" / self.scenario
        base = Job(self.scenario, self.method, 0, config, folder, self.data_dir)
        jobs = list(dict.fromkeys(sweep_jobs(base, swept_values(rest), self.seeds)))
        if self.size_of:
            jobs = [sized(job, self.out, self.size_of) for job in jobs]
        failed = sweep(jobs, self.workers, self.dask)
        done: dict[str, list[core.Record]] = {}
        for job in jobs:
            with suppress(core.RclCpbError):  # a record that `failed` says is another's
                if (record := recorded(job)) is not None:
                    label = job.path.stem.rsplit("-seed", 1)[0]
                    done.setdefault(label, []).append(record)
        rows = [(r[0], label, *r[2:]) for label, rs in done.items() for r in [summary(rs)]]
        print(format_table(rows))
        if failed:
            raise core.RclCpbError(f"{len(failed)} of {len(jobs)} runs failed: {'; '.join(failed)}")


@dataclass
class Table:
    """Print recorded runs beside the paper's tables."""

    group: tyro.conf.Positional[Literal["mnist", "mnist-5k", "cifar100", "sequence"]] = "mnist"
    results: Path = RESULTS

    def __call__(self, rest: list[str]) -> None:
        refuse(rest)
        print(format_table(table_rows(self.results, GROUPS[self.group])))
        for scenario in GROUPS[self.group]:
            for a, b in PAIRS:
                if line := paired(self.results, scenario, a, b):
                    print(line)


@dataclass
class Data:
    """Say which image sets are on disk, verify them by checksum, or download them."""

    names: tyro.conf.Positional[tuple[str, ...]] = core.IMAGE_SETS
    download: bool = False
    data_dir: str | None = None

    def __call__(self, rest: list[str]) -> None:
        refuse(rest)
        root, bad = core.data_root(self.data_dir), False
        for name in self.names:
            known = name in core.IMAGE_SETS and name != "mnist5k"
            if known and not self.download and not (root / f"{name}.npz").exists():
                print(f"{name:9} not in {root} (add --download to fetch it)")
                continue
            images = core.load_images(name, root)
            digest = images.sha256()
            verdict = "no published checksum to compare with"
            if name in SHA256:
                verdict = "checksum ok" if digest == SHA256[name] else "CHECKSUM DIFFERS"
                bad |= digest != SHA256[name]
            shape = "x".join(map(str, images.x_train.shape[1:]))
            print(
                f"{name:9} {len(images.y_train):,} + {len(images.y_test):,} images of"
                f" {shape}, {verdict}"
            )
        if bad:
            raise core.RclCpbError(
                f"an image set in {root} is not the published one: delete it and run"
                " `python rclcpb_core.py data --download`."
            )


def parse_config(rest: list[str], default: core.Config, *options: Any) -> core.Config:
    """The Config fields on the command line, over a preset."""
    if not rest:
        return default
    return tyro.cli(
        core.Config,
        args=rest,
        default=default,
        prog="rclcpb_core.py run SCENARIO",
        config=options,
    )


def swept_values(rest: list[str]) -> dict[str, list[str]]:
    """`--gamma 0.1 0.2 --hidden 8` as {"gamma": ["0.1", "0.2"], "hidden": ["8"]}."""
    values: dict[str, list[str]] = {}
    for word in rest:
        if word.startswith("--"):
            name = word[2:].replace("-", "_")
            values[name] = []
        elif not values:
            raise core.RclCpbError(f"not understood: {word}; see sweep --help.")
        else:
            values[name].append(word)
    if not values or not all(values.values()):
        raise core.RclCpbError("name a Config field and its values: --gamma 0.1 0.2")
    return values


def refuse(rest: list[str]) -> None:
    if rest:
        raise core.RclCpbError(f"not understood: {' '.join(rest)}; see --help.")


def choose_device(name: str) -> str:
    """auto: a GPU if there is one."""
    if name == "auto":
        if torch.cuda.is_available():
            return "cuda"
        return "mps" if torch.backends.mps.is_available() else "cpu"
    if (name == "cuda" and not torch.cuda.is_available()) or (
        name == "mps" and not torch.backends.mps.is_available()
    ):
        raise core.RclCpbError(f"no {name} device here: use --device cpu or --device auto.")
    return name


def main(args: list[str] | None = None) -> None:
    """`python rclcpb_core.py ...`; a mistake ends in one sentence and exit code 2."""
    try:
        command, rest = tyro.cli(
            Annotated[Run, tyro.conf.subcommand("run")]
            | Annotated[Sweep, tyro.conf.subcommand("sweep")]
            | Annotated[Table, tyro.conf.subcommand("table")]
            | Annotated[Data, tyro.conf.subcommand("data")],
            args=args,
            prog="rclcpb_core.py",
            return_unknown_args=True,
            config=(tyro.conf.OmitSubcommandPrefixes,),
        )
        command(rest)
    except core.RclCpbError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        print("\nstopped; the same command goes on from the last save.", file=sys.stderr)
        raise SystemExit(130) from None
    except BrokenPipeError:  # `table | head` has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(141) from None
