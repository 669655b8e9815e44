"""The command line: `rclcpb ...`, or `python rclcpb_core.py ...` in the repository.

rclcpb run ta-smnist-5k --method rcl-cpb --seeds 0 1
rclcpb sweep ta-smnist-5k --gamma 0.1 0.3 --seeds 0 1
rclcpb table mnist
rclcpb data
rclcpb predict NETWORK.safetensors IMAGES.npz --out answers.csv
rclcpb export NETWORK.safetensors --keep 0.1 --to onnx
rclcpb tasks NETWORK.safetensors
rclcpb doctor RECORD.json
"""

from __future__ import annotations

import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import torch
import tyro

from rclcpb import machine
from rclcpb.commands import Doctor, Export, Predict, Tasks, refuse
from rclcpb.files import RclCpbError
from rclcpb.images import IMAGE_SETS, SHA256, data_root, load_images
from rclcpb.jobs import Job, done_of, run_job, sized
from rclcpb.memory import keep_freed_memory
from rclcpb.presets import METHODS, NAMES, PAIRS, SMALL, TABLES, preset
from rclcpb.records import RESULTS, Record, record_path
from rclcpb.settings import Settings
from rclcpb.stopping import terminable
from rclcpb.streams import drop_output, one_line, open_streams, say
from rclcpb.sweep import parse_settings, sweep, sweep_jobs
from rclcpb.tables import format_table, paired, summary, table_rows

if TYPE_CHECKING:
    from builtins import str as Method
    from builtins import str as ScenarioName
    from builtins import str as TableName
else:  # the registry's names, which the shell completes
    Method, ScenarioName, TableName = (Literal[tuple(of)] for of in (METHODS, NAMES, TABLES))


@dataclass
class Run:
    """Learn a scenario and record it. Any field of the settings may follow: --gamma 0.2."""

    scenario: tyro.conf.Positional[ScenarioName]
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
    keep: bool = False
    """Keep the trained network, too: OUT/SCENARIO/METHOD-seedK.safetensors."""
    start: Path | None = None
    """Go on from a kept network."""
    portable: bool = False
    """Fix the instructions that compute, so that x86 machines end alike; a third slower."""

    def __call__(self, rest: list[str]) -> None:
        if self.threads < 1 or not self.seeds:
            raise RclCpbError("give at least one of --threads and of --seeds.")
        machine.check_threads(self.threads)
        settings = parse_settings(rest, preset(self.scenario, self.method))
        records = []
        for job in [self.job(seed, settings) for seed in dict.fromkeys(self.seeds)]:
            print(f"{job.scenario}, {job.method}, seed {job.seed} -> {job.path}")
            records.append(run_job(job, progress=True))
            if job.keep:
                print(f"its network -> {job.network}")
            note_kernels(records[-1], job)
        for record in records:
            last = " ".join(f"{100 * a:.1f}" for a in record.accuracy[-1])
            print(f"seed {record.seed}: accuracy after the last task, by task: {last}")
        scenario = self.scenario.removesuffix(SMALL)
        rows = [summary(records)]
        for row in table_rows(self.out, [self.scenario]):
            if row[1] != self.method and row[2].startswith("recorded"):
                rows.append(row)
        rows += [row for row in table_rows(Path(), [scenario]) if row[2].startswith("paper")]
        print(format_table(rows))
        if scenario != self.scenario:
            print("(the paper's numbers are for all of MNIST, not for these 5,000 digits)")

    def job(self, seed: int, settings: Settings) -> Job:
        path = record_path(self.out, self.scenario, self.method, seed)
        where = self.data_dir, choose_device(self.device)
        about = self.scenario, self.method, seed, settings, path
        job = Job(*about, *where, keep=self.keep, start=self.start, threads=self.threads)
        return sized(job, self.out, self.size_of) if self.size_of else job


@dataclass
class Sweep:
    """Run all combinations of settings, e.g. --gamma 0.05 0.1 --hidden 64 128."""

    scenario: tyro.conf.Positional[ScenarioName]
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
    portable: bool = False
    """Fix the instructions that compute, so that x86 machines end alike; a third slower."""

    def __call__(self, rest: list[str]) -> None:
        if not self.workers or not self.seeds:
            raise RclCpbError("give at least one of --workers and of --seeds.")
        if self.dask and self.portable:
            raise RclCpbError(
                "--portable is for this machine: leave it out, and start the Dask workers with"
                f" {machine.as_words()}."
            )
        settings = preset(self.scenario, self.method)
        folder = self.out / "sweeps" / self.scenario
        base = Job(self.scenario, self.method, 0, settings, folder, self.data_dir)
        jobs = list(dict.fromkeys(sweep_jobs(base, swept_values(rest), self.seeds)))
        if self.size_of:
            jobs = [sized(job, self.out, self.size_of) for job in jobs]
        failed = sweep(jobs, self.workers, self.dask)
        rows = [
            (row[0], label, *row[2:])
            for label, records in done_of(jobs).items()
            for row in [summary(records)]
        ]
        print(format_table(rows))
        if failed:
            raise RclCpbError(f"{len(failed)} of {len(jobs)} runs failed: {'; '.join(failed)}")


@dataclass
class Table:
    """Print recorded runs beside the paper's tables."""

    group: tyro.conf.Positional[TableName] = "mnist"
    results: Path = RESULTS

    def __call__(self, rest: list[str]) -> None:
        refuse(rest)
        if not self.results.is_dir():
            raise RclCpbError(f"{self.results} is not a folder: give the --out of a run.")
        rows = table_rows(self.results, TABLES[self.group])
        print(format_table(rows) if rows else f"no run of {self.group} is in {self.results} yet.")
        for scenario in TABLES[self.group]:
            for a, b in PAIRS:
                if line := paired(self.results, scenario, a, b):
                    print(line)


@dataclass
class Data:
    """Say which image sets are on disk, verify them by checksum, or download them."""

    names: tyro.conf.Positional[tuple[str, ...]] = IMAGE_SETS
    download: bool = False
    data_dir: str | None = None

    def __call__(self, rest: list[str]) -> None:
        refuse(rest)
        root, bad = data_root(self.data_dir), False
        for name in self.names:
            known = name in IMAGE_SETS and name != "mnist5k"
            if known and not self.download and not (root / f"{name}.npz").exists():
                print(f"{name:9} not in {root} (add --download to fetch it)")
                continue
            images = load_images(name, root, published=False)
            verdict = "no published checksum to compare with"
            if name in SHA256:
                good = images.sha256() == SHA256[name]
                verdict, bad = "checksum ok" if good else "CHECKSUM DIFFERS", bad or not good
            shape = "x".join(map(str, images.x_train.shape[1:]))
            print(
                f"{name:9} {len(images.y_train):,} + {len(images.y_test):,} images of"
                f" {shape}, {verdict}"
            )
        if bad:
            raise RclCpbError(
                f"an image set in {root} is not the published one: delete it and run"
                " `rclcpb data --download`."
            )


def swept_values(rest: list[str]) -> dict[str, list[str]]:
    """`--gamma 0.1 0.2 --hidden 8` as {"gamma": ["0.1", "0.2"], "hidden": ["8"]}."""
    values: dict[str, list[str]] = {}
    for word in rest:
        if word.startswith("--"):
            name = word[2:].replace("-", "_")
            values[name] = []
        elif not values:
            raise RclCpbError(f"not understood: {word}; see sweep --help.")
        else:
            values[name].append(word)
    if not values or not all(values.values()):
        raise RclCpbError("name a field of the settings and its values: --gamma 0.1 0.2")
    return values


def note_kernels(record: Record, job: Job) -> None:
    """A run that was recorded on a machine with other instructions is read back, and says so."""
    if record.kernels not in ("", here := machine.kernels(job.device)):
        print(
            f"note: {job.path} was recorded with other instructions ({record.kernels}; here"
            f" {here}): learned here, it would end in other digits.",
            file=sys.stderr,
        )


def choose_device(name: str) -> str:
    """auto: a GPU if there is one."""
    here = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if name == "auto":
        return next((device for device, there in here.items() if there), "cpu")
    if not here.get(name, True):
        raise RclCpbError(f"no {name} device here: use --device cpu or --device auto.")
    return name


def main(args: list[str] | None = None) -> None:
    """A mistake ends in one sentence and exit code 2."""
    open_streams()
    keep_freed_memory()
    try:
        with terminable():
            _run(args)
            sys.stdout.flush()
    except RclCpbError as error:
        say(f"error: {one_line(error)}")
        raise SystemExit(2) from None
    except BrokenPipeError:  # `table | head` has read enough
        drop_output()
        raise SystemExit(141) from None
    except OSError as error:  # of a path given, or of a full disk that is written to
        drop_output()
        where, why = error.filename or "the output", error.strerror or error
        say(f"error: {one_line(where)}: {one_line(why)}.")
        raise SystemExit(2) from None
    except MemoryError:
        say("error: there is not enough memory for this: make it smaller.")
        raise SystemExit(2) from None
    except KeyboardInterrupt as error:
        say("\nstopped; the same command goes on from the last save.")
        raise SystemExit(128 + getattr(error, "number", signal.SIGINT)) from None


def _run(args: list[str] | None) -> None:
    command, rest = tyro.cli(
        Annotated[Run, tyro.conf.subcommand("run")]
        | Annotated[Sweep, tyro.conf.subcommand("sweep")]
        | Annotated[Table, tyro.conf.subcommand("table")]
        | Annotated[Data, tyro.conf.subcommand("data")]
        | Annotated[Predict, tyro.conf.subcommand("predict")]
        | Annotated[Export, tyro.conf.subcommand("export")]
        | Annotated[Tasks, tyro.conf.subcommand("tasks")]
        | Annotated[Doctor, tyro.conf.subcommand("doctor")],
        args=args,
        prog="rclcpb",
        return_unknown_args=True,
        config=(tyro.conf.OmitSubcommandPrefixes,),
    )
    if getattr(command, "portable", False):
        machine.fix_kernels(as_command=args is None)
    command(rest)
