"""Four deaths on a Dask cluster: all ends in records that are right, or in one sentence."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from outcomes import REFUSED, RIGHT, WRONG, Tally
from processes import cluster, made_up_mnist, meanwhile, running_in, wait_for
from running import content, one_line

import rclcpb.sweep as module
from rclcpb import cli
from rclcpb.records import load_record

pytestmark = pytest.mark.long
RUNS = ["--seeds", "0", "1", "--gamma", "0.05", "0.5"]
TINY = ["--hidden", "4", "--coreset", "4", "--replay-steps", "5", "--batch-size", "16"]
Sweep = Callable[..., tuple[int, str]]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with made_up_mnist(tmp_path_factory.mktemp("data")) as folder:
        yield folder


@pytest.fixture
def sweep(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Sweep:
    """Four runs into tmp_path/out: the exit code, and what was said."""

    def call(epochs: int, *words: str, out: str = "out") -> tuple[int, str]:
        fixed = ["sweep", "ta-smnist", "--data-dir", str(data), "--out", str(tmp_path / out)]
        code = 0
        try:
            cli.main([*fixed, *RUNS, *TINY, "--epochs", str(epochs), *words])
        except SystemExit as stop:
            code = int(stop.code or 0)
        return code, capsys.readouterr().err

    return call


def found(folder: Path) -> dict[str, Any]:
    return {path.name: content(load_record(path)) for path in folder.rglob("*.json")}


def half_way(out: Path) -> bool:
    """A run has saved its first task, and some are not done."""
    return any(out.rglob("*.checkpoint")) and len(list(out.rglob("*.json"))) < 4


def judge(tally: Tally, code: int, err: str, said: str) -> None:
    fine = code == 2 and said in err and one_line(err)
    tally.add(REFUSED if fine else WRONG, f"{code}: {err[-600:]}")


def test_dask_a_worker_dies(tally: Tally, sweep: Sweep, tmp_path: Path) -> None:
    """The other goes on from its checkpoints, to the records that a run alone has."""
    with cluster(tmp_path / "there", 2) as (address, (_, worker, other)):

        def kill() -> None:
            out = tmp_path / "out"
            wait_for(lambda: half_way(out) and running_in(out, worker.pid), other)
            worker.kill()

        with meanwhile(kill):
            code, err = sweep(60, "--dask", address)
    assert sweep(60, "--workers", "1", out="alone")[0] == 0
    same = code == 0 and found(tmp_path / "out") == found(tmp_path / "alone")
    tally.add(RIGHT if same else WRONG, f"{code}: {err[-600:]}")


def test_dask_every_worker_dies_of_one_run(tally: Tally, sweep: Sweep, tmp_path: Path) -> None:
    """As where memory is short: the cluster tries it some times, and names it."""
    with cluster(tmp_path / "there", 4) as (address, (scheduler, *workers)):

        def kill() -> None:
            left, here = list(workers), tmp_path / "out"
            while left:
                wait_for(lambda: any(running_in(here, w.pid) for w in left), scheduler)
                for worker in [w for w in left if running_in(here, w.pid)]:
                    worker.kill()
                    left.remove(worker)

        with meanwhile(kill):
            code, err = sweep(1000000, "--dask", address)
    judge(tally, code, err, "of 4 runs failed: ")


def test_dask_the_scheduler_dies(tally: Tally, sweep: Sweep, tmp_path: Path) -> None:
    with cluster(tmp_path / "there", 1) as (address, (scheduler, worker)):

        def kill() -> None:
            wait_for(lambda: half_way(tmp_path / "out"), worker)
            scheduler.kill()

        with meanwhile(kill):
            code, err = sweep(60, "--dask", address)
    judge(tally, code, err, "connection to the scheduler")


def test_dask_no_worker_is_left(
    tally: Tally, sweep: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says so, waits for another for a while, and gives up: no wait for ever."""
    with cluster(tmp_path / "there", 1) as (address, (_, worker)):

        def kill() -> None:
            wait_for(lambda: half_way(tmp_path / "out"), worker)
            monkeypatch.setattr(module, "PATIENCE", 6)
            worker.kill()

        with meanwhile(kill):
            code, err = sweep(60, "--dask", address)
    assert "no worker of the cluster is left: waiting 6 seconds for one" in err
    judge(tally, code, err, "no worker of the cluster has been there for 6 seconds")
