"""Sweeps: over the processes of this machine, and over a real Dask cluster on it."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from concurrent.futures.process import BrokenProcessPool
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_type_hints

import nbformat
import psutil
import pytest
import torch
from nbclient import NotebookClient
from processes import SCRIPT, cluster, made_up_mnist, meanwhile, running_in, started, wait_for
from running import content, files, one_line

import rclcpb.sweep as module
import rclcpb_core as core
from rclcpb import cli
from rclcpb.files import RclCpbError
from rclcpb.jobs import Job
from rclcpb.presets import preset
from rclcpb.records import RESULTS, load_record, load_records, save_record

TINY = ["--hidden", "4", "--coreset", "4", "--replay-steps", "5", "--batch-size", "16"]
RUNS = ["--seeds", "0", "1", "--gamma", "0.05", "0.5", *TINY]  # four runs
QUICK = [*RUNS, "--epochs", "2"]
SLOW = [*RUNS, "--epochs", "60"]  # enough to be stopped half way
ONE = ["--hidden", "4", "--epochs", "1", "--coreset", "4"]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with made_up_mnist(tmp_path_factory.mktemp("data")) as folder:
        yield folder


@pytest.fixture
def sweep(data: Path) -> Callable[..., list[str]]:
    """The words of a small sweep on that data."""
    fixed = ["sweep", "ta-smnist", "--data-dir", str(data)]
    return lambda *words: [*fixed, *words]


def records(folder: Path) -> dict[str, Any]:
    """What every record below a folder says, by file name."""
    return {p.name: content(load_record(p)) for p in folder.rglob("*.json")}


def call(words: list[str]) -> int:
    """The command within this process: its exit code."""
    try:
        cli.main(words)
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


# ------------------------------------------------------------------------- which runs


def jobs_of(monkeypatch: pytest.MonkeyPatch, *words: str) -> list[Job]:
    """The jobs that a sweep command would run."""
    seen: list[Job] = []
    with monkeypatch.context() as patch:
        patch.setattr(cli, "sweep", lambda jobs, *rest: seen.extend(jobs) or [])
        assert call(["sweep", *words]) == 0
    return seen


def test_the_papers_two_studies(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds, base = ["--seeds", *"01234"], preset("ta-smnist")
    gammas = ["0.02", "0.05", "0.1", "0.2", "0.3", "0.5"]
    jobs = jobs_of(monkeypatch, "ta-smnist", "--gamma", *gammas, *seeds)
    assert [(job.config, job.seed) for job in jobs] == [
        (dataclasses.replace(base, gamma=float(g)), seed) for g in gammas for seed in range(5)
    ]
    assert jobs[-1].path == Path("runs/sweeps/ta-smnist/rcl-cpb,gamma=0.5-seed4.json")
    sizes = [16, 32, 64, 128, 256]
    jobs = jobs_of(monkeypatch, "ta-smnist", "--hidden", *map(str, sizes), *seeds)
    assert [job.config.hidden for job in jobs[::5]] == [(n, n) for n in sizes]
    assert len({job.path for job in jobs}) == 25


def test_any_config_field_can_be_swept(monkeypatch: pytest.MonkeyPatch) -> None:
    hints, base = get_type_hints(core.Config), preset("ta-smnist", "rcl-cpb-A")
    for field in dataclasses.fields(core.Config):
        value, choices = getattr(base, field.name), get_args(hints[field.name])
        if isinstance(value, bool):
            expected: list[Any] = [True, False]
        elif isinstance(value, str):
            expected = list(choices)
        elif field.name in ("beta", "gamma"):
            expected = [(0.5,), (0.25, 0.75)]  # one for all layers, or one for each
        elif field.name == "hidden":
            expected = [(7, 9), (8, 8, 8)]
        else:
            expected = [type(value)(2), type(value)(3)]
        words = [",".join(map(str, v)) if isinstance(v, tuple) else str(v) for v in expected]
        option = "--" + field.name.replace("_", "-")
        jobs = jobs_of(monkeypatch, "ta-smnist", "--method", "rcl-cpb-A", option, *words)
        assert [getattr(job.config, field.name) for job in jobs] == expected
        assert len({job.path for job in jobs}) == len(expected)


def test_a_sweep_at_another_methods_final_size(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Seed by seed, as `run --size-of`; with --hidden it would be labelled wrongly."""
    words = ["ta-smnist", "--method", "vcl", "--size-of", "rcl-cpb", "--seeds", *"01"]
    words += ["--kl-weight", "0.1", "0.3", "--out", str(RESULTS)]
    ends = [r.hidden[-1] for r in load_records(RESULTS, "ta-smnist", "rcl-cpb")]
    jobs = jobs_of(monkeypatch, *words)
    assert [list(job.config.hidden) for job in jobs] == ends[:2] * 2
    assert ends[0] != ends[1]
    assert {job.path.name for job in jobs[::2]} == {
        "vcl,kl_weight=0.1-seed0.json",
        "vcl,kl_weight=0.3-seed0.json",
    }
    for verb in ("sweep", "run"):
        assert call([verb, *words[:5], "--hidden", "9", "9"]) == 2
        assert "--hidden and --size-of both" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "name a field of the settings and its values"),
        ("--gamma", "name a field of the settings and its values"),
        ("0.1 0.2", "not understood: 0.1"),
        ("--gamma 0.1 --workers 0", "--workers"),
        ("--gamma 0.1 --seeds", "--seeds"),
        ("--gamma 0.1 --dask nowhere:x", "no Dask scheduler answers at nowhere:x"),
    ],
)
def test_a_mistake_is_one_sentence(
    words: str,
    message: str,
    sweep: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert call(sweep(*words.split())) == 2
    err = capsys.readouterr().err
    assert message in err and one_line(err) and not files(tmp_path)


# ------------------------------------------------------------ processes of this machine


@pytest.fixture(scope="module")
def alone(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., dict[str, Any]]:
    """The records of four runs, each alone and in this process."""

    @cache
    def recorded(*words: str) -> dict[str, Any]:
        out = tmp_path_factory.mktemp("alone")
        torch.set_num_threads(2)  # a sweep gives each run one nevertheless
        command = ["sweep", "ta-smnist", "--data-dir", str(data), *words, "--workers", "1"]
        assert call([*command, "--out", str(out)]) == 0
        found = records(out)
        assert len(found) == 4 and len({str(r["accuracy"]) for r in found.values()}) > 1
        assert {r["threads"] for r in found.values()} == {1}
        return found

    return recorded


def test_a_sweep_gives_the_same_records_with_any_number_of_workers(
    sweep: Any, alone: Any, tmp_path: Path
) -> None:
    """The real command; one bar over all runs, and a row of the table a setting."""
    words = sweep(*QUICK, "--workers", "2", "--out", ".")
    with started(str(SCRIPT), *words, cwd=tmp_path) as process:
        out, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    assert records(tmp_path) == alone(*QUICK)
    assert "4/4" in err and "epoch" not in err and "Traceback" not in err
    rows = [line.split() for line in out.splitlines() if " recorded " in line]
    assert [(row[1].split(",")[1], row[-2]) for row in rows] == [
        ("gamma=0.05", "2"),
        ("gamma=0.5", "2"),
    ]


def test_a_finished_run_is_never_done_again(
    sweep: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = sweep(*ONE, "--out", str(tmp_path), "--workers", "1")
    assert call([*words, "--seeds", "0", "0"]) == 0  # named twice, run once
    before, ran, run_job = files(tmp_path), [], module.run_job
    assert len(before) == 1
    monkeypatch.setattr(
        module, "run_job", lambda job, **how: ran.append(job.seed) or run_job(job, **how)
    )
    assert call([*words, "--seeds", "0", "1", "0"]) == 0
    assert ran == [1] and before.items() < files(tmp_path).items()
    assert capsys.readouterr().out.split()[-2] == "2"  # seeds, before the kB held


def test_a_failed_run_is_named_and_the_rest_go_on(
    sweep: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = sweep(*ONE, "--lr-mu", "0.01", "1e30", "0.02", "--out", str(tmp_path))
    assert call([*words, "--workers", "1"]) == 2
    out, err = capsys.readouterr()
    assert "error: 1 of 3 runs failed: rcl-cpb," in err and one_line(err)
    assert "lr_mu=1e30-seed0.json: RclCpbError: task 1, train, epoch 1" in err
    assert "not finite" in err and "3/3" in err
    assert out.count(" recorded ") == 2
    found = records(tmp_path).values()
    assert sorted(r["config"]["lr_mu"] for r in found) == [0.01, 0.02]


def test_a_record_of_other_settings_is_named_and_not_in_the_table(
    sweep: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = sweep(*ONE, "--out", str(tmp_path), "--workers", "1", "--seeds")
    assert call([*words, "0", "1"]) == 0
    path = next(tmp_path.rglob("*-seed0.json"))
    record = load_record(path)
    record.config["gamma"] = [0.7]
    save_record(record, path)
    before = files(tmp_path)
    capsys.readouterr()
    assert call([*words, "0", "1"]) == 2
    out, err = capsys.readouterr()
    assert (
        f"1 of 2 runs failed: {path} holds a run with other settings (gamma: [0.7], now [0.1])"
        in err
    )
    assert one_line(err) and files(tmp_path) == before
    assert out.split()[-2] == "1"  # seed


def test_two_runs_never_share_a_file(tmp_path: Path) -> None:
    config = core.Config(hidden=(4, 4))
    job = Job("ta-smnist", "rcl-cpb", 0, config, tmp_path / "a.json")
    with pytest.raises(RclCpbError, match="give each its own path"):
        module.sweep([job, job, job._replace(seed=1)])
    assert not files(tmp_path)


NOTEBOOK = """
import sys
from pathlib import Path

sys.path.insert(0, {folder!r})
from rclcpb.jobs import Job
from rclcpb.sweep import sweep, sweep_jobs
from rclcpb_core import Config

config = Config(hidden=(4, 4), epochs=1, coreset=4)
base = Job("ta-smnist", "rcl-cpb", 0, config, Path("found"), {data!r})
jobs = sweep_jobs(base, {{"gamma": [0.1, "0.2,0.3"], "decay": [True]}}, range(2))
jobs.append(base._replace(path=Path("mine.json")))
assert sweep(jobs) == []
"""


@pytest.mark.long
def test_a_sweep_from_a_notebook(data: Path, tmp_path: Path) -> None:
    """In a real kernel, over all cores."""
    code = NOTEBOOK.format(folder=str(SCRIPT.parent), data=str(data))
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
    resources = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=600, resources=resources).execute()
    found = records(tmp_path)
    name = "rcl-cpb,gamma={},decay=True-seed{}.json"
    assert found.keys() == {"mine.json"} | {
        name.format(gamma, seed) for gamma in ("0.1", "0.2,0.3") for seed in (0, 1)
    }
    assert found[name.format("0.2,0.3", 1)]["config"]["gamma"] == [0.2, 0.3]
    said = "".join(o.get("text", "") for o in notebook.cells[0].outputs)
    assert "5/5" in said


# ------------------------------------------------------------------- stops of all kinds


def half_way(folder: Path) -> bool:
    """A run has saved its first task, and some are not done."""
    return any(folder.rglob("*.checkpoint")) and len(records(folder)) < 4


@pytest.mark.long
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_the_same_command_goes_on_after_a_stop(
    how: signal.Signals, sweep: Any, alone: Any, tmp_path: Path
) -> None:
    """Ctrl-C, which a terminal sends to all its processes, or kill -9 of the sweep."""
    words = sweep(*SLOW, "--out", str(tmp_path))
    with started(str(SCRIPT), *words, "--workers", "2", cwd=tmp_path) as process:
        wait_for(lambda: half_way(tmp_path), process)
        if how == signal.SIGINT:
            os.killpg(process.pid, how)
            _, err = process.communicate(timeout=600)
            assert process.returncode == 130, err
            assert "stopped; the same command goes on from the last save." in err
            assert "Traceback" not in err, err
        else:
            process.kill()
            process.wait()
        assert len(records(tmp_path)) < 4
        assert call([*words, "--workers", "1"]) == 0
    assert records(tmp_path) == alone(*SLOW)
    assert not list(tmp_path.rglob("*.checkpoint"))


@pytest.mark.long
def test_the_processes_of_a_killed_sweep_end_and_free_their_runs(
    sweep: Any, tmp_path: Path
) -> None:
    """Not only when their runs are done, which may be hours later."""
    words = sweep("--epochs", "1000000", "--gamma", "0.1", "0.2", "--workers", "2")
    with started(str(SCRIPT), *words, cwd=tmp_path) as process:
        wait_for(lambda: len(running_in(tmp_path, process.pid)) == 2, process)
        workers = running_in(tmp_path, process.pid)
        process.kill()
        process.wait()
        assert not psutil.wait_procs(workers, timeout=60)[1]


@pytest.mark.long
def test_a_sweep_survives_a_killed_worker(sweep: Any, alone: Any, tmp_path: Path) -> None:
    words = sweep(*SLOW, "--workers", "2", "--out", ".")
    with started(str(SCRIPT), *words, cwd=tmp_path) as process:
        wait_for(lambda: half_way(tmp_path), process)
        running_in(tmp_path, process.pid)[0].kill()
        assert len(records(tmp_path)) < 4
        _, err = process.communicate(timeout=600)
        assert process.returncode == 0, err
    assert records(tmp_path) == alone(*SLOW)
    assert not list(tmp_path.rglob("*.checkpoint"))


@pytest.mark.long
def test_a_run_whose_process_always_dies_is_named_and_the_rest_go_on(
    data: Path, tmp_path: Path
) -> None:
    """As one does that needs too much memory; it takes its neighbours along."""
    config = core.Config(hidden=(4, 4), epochs=1, coreset=4)
    job = Job("ta-smnist", "rcl-cpb", 0, config, tmp_path, str(data))
    jobs = [job._replace(seed=k, path=tmp_path / f"{k}.json") for k in range(5)]
    bad: Any = Rebuilt(os._exit, 1)
    jobs[1] = jobs[1]._replace(data_dir=bad)
    assert module.sweep(jobs, workers=2) == ["1.json: its process died (out of memory?)"]
    assert records(tmp_path).keys() == {"0.json", "2.json", "3.json", "4.json"}


def test_thousands_of_jobs_that_all_die_are_all_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One after another, and not one within another."""

    def die(batch: dict[int, Job], many: int) -> Iterator[Any]:
        raise BrokenProcessPool
        yield

    monkeypatch.setattr(module, "_in_processes", die)
    base = Job("ta-smnist", "rcl-cpb", 0, core.Config(hidden=(4, 4)), tmp_path)
    jobs = [base._replace(seed=k, path=tmp_path / f"{k}.json") for k in range(2500)]
    failed = module.sweep(jobs, workers=2)
    assert sorted(failed) == sorted(
        f"{k}.json: its process died (out of memory?)" for k in range(2500)
    )


@pytest.mark.parametrize(
    ("cores", "jobs", "processes"), [(64, 3, 3), (2, 9, 2), (64, 1, 2), (1, 9, 1)]
)
def test_no_more_processes_than_runs(
    cores: int, jobs: int, processes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one, joblib would learn in this process, which a run may take along."""
    asked: list[int] = []

    def note(batch: dict[int, Job], many: int) -> Iterator[Any]:
        asked.append(many)
        yield from ((i, "no") for i in list(batch))

    monkeypatch.setattr(module, "_in_processes", note)
    monkeypatch.setattr(module.joblib, "effective_n_jobs", lambda _: cores)
    base = Job("ta-smnist", "rcl-cpb", 0, core.Config(hidden=(4, 4)), tmp_path)
    module.sweep(base._replace(seed=k, path=tmp_path / f"{k}.json") for k in range(jobs))
    assert asked == [processes]


class Rebuilt:
    """What does something in the process that reads it."""

    def __init__(self, action: Callable[..., Any], *words: Any) -> None:
        self.action, self.words = action, words

    def __reduce__(self) -> tuple:
        return self.action, self.words


# -------------------------------------------------------------------------------- Dask


def test_a_dask_cluster_gives_the_records_of_the_local_run(
    sweep: Any, alone: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They come back over the network; threads of a worker do not mix their noise."""
    there, here = tmp_path / "there", tmp_path / "here"
    there.mkdir(), here.mkdir()
    monkeypatch.chdir(here)
    with cluster(there, 1) as (address, _):
        assert call(sweep(*QUICK, "--dask", address)) == 0
    assert records(here) == alone(*QUICK)
    assert not list(here.rglob("*.lock"))
    assert len(list((there / "runs").rglob("*.lock"))) == 4


@pytest.fixture(scope="module")
def dask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Two workers in a folder of their own, as on another machine."""
    with cluster(tmp_path_factory.mktemp("there"), 2) as (address, processes):
        yield address, processes


@pytest.mark.long
def test_a_run_that_dask_gives_up_is_named_and_the_rest_go_on(
    data: Path, dask: Any, tmp_path: Path
) -> None:
    config = core.Config(hidden=(4, 4), epochs=1, coreset=4)
    job = Job("ta-smnist", "rcl-cpb", 0, config, tmp_path / "a.json", str(data))
    unreadable: Any = Rebuilt(json.loads, "{")  # there
    jobs = [job._replace(data_dir=unreadable, path=tmp_path / "bad.json"), job]
    (said,) = module.sweep(jobs, dask=dask[0])
    assert said.startswith("bad.json: ") and records(tmp_path).keys() == {"a.json"}


@pytest.mark.long
def test_a_run_that_fails_on_a_cluster_is_named_and_the_rest_go_on(
    sweep: Any, dask: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = sweep(*ONE, "--lr-mu", "0.01", "1e30", "--out", str(tmp_path))
    assert call([*words, "--dask", dask[0]]) == 2
    err = capsys.readouterr().err
    assert "lr_mu=1e30-seed0.json: RclCpbError: task 1, train, epoch 1" in err and one_line(err)
    assert [r["config"]["lr_mu"] for r in records(tmp_path).values()] == [0.01]


@pytest.mark.long
def test_a_sweep_survives_a_dask_worker_killed_half_way(
    sweep: Any, alone: Any, dask: Any, tmp_path: Path
) -> None:
    """The other worker goes on from its checkpoint; must be the cluster's last test."""
    address, (_, worker, other) = dask

    def kill() -> None:
        wait_for(lambda: half_way(tmp_path) and running_in(tmp_path, worker.pid), other)
        worker.kill()
        assert len(records(tmp_path)) < 4

    with meanwhile(kill):
        assert call(sweep(*SLOW, "--dask", address, "--out", str(tmp_path))) == 0
    assert worker.wait() < 0 and other.poll() is None
    assert records(tmp_path) == alone(*SLOW)
    assert not list(tmp_path.rglob("*.checkpoint"))


@pytest.mark.long
@pytest.mark.parametrize(
    ("lacking", "workers"), [(("scheduler",), 0), (("worker",), 1), ((), 0)], ids=str
)
def test_a_cluster_that_lacks_something_is_refused(
    lacking: tuple[str, ...],
    workers: int,
    sweep: Any,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The package, on the scheduler or on the workers, or any worker: no wait for ever."""
    out = tmp_path / "out"
    monkeypatch.setattr(module, "PATIENCE", 20)
    with cluster(tmp_path / "there", workers, lacking) as (address, _):
        assert call(sweep(*ONE, "--dask", address, "--out", str(out))) == 2
    err = capsys.readouterr().err
    assert f"the Dask cluster at {address} cannot run this" in err and one_line(err)
    assert "start scheduler and workers where rclcpb can be imported" in err
    assert not out.exists()


def test_without_dask_installed_it_says_what_to_install(
    sweep: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert call(sweep(*ONE, "--dask", "tcp://x:8786", "--out", str(tmp_path))) == 2
    err = capsys.readouterr().err
    assert "pip install distributed" in err and one_line(err)
