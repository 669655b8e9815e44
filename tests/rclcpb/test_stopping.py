"""Stops that are asked for: a round ends and is saved; the second signal does not wait."""

from __future__ import annotations

import os
import signal
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import tiny
from running import KINDS, AtEveryRound, content, files

from rclcpb import jobs, stopping
from rclcpb.checkpoint import Checkpoint
from rclcpb.files import load_tensors
from rclcpb.jobs import Job, run_job
from rclcpb.runner import Run
from rclcpb.stopping import Stopped, politely, terminable

KIND = KINDS["one head"]


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    """One that saves itself a minute after its start, which never comes."""
    scenario = tiny.scenario(**KIND.scenario)
    monkeypatch.setattr(jobs, "make_scenario", lambda *_: scenario)
    config = tiny.config(**({"epochs": 3} | KIND.config))
    return Job(scenario.name, KIND.method, 5, config, tmp_path / "run.json")


def signalled(
    monkeypatch: pytest.MonkeyPatch, number: int, task: int, epoch: int, times: int = 1
) -> None:
    """Within a round of runs to come, this process gets a signal, or more than one."""

    def kill(run: Run, done: int) -> None:
        if (len(run.stages), done) == (task, epoch):
            for _ in range(times):
                os.kill(os.getpid(), number)

    def made(method: Any, hooks: Any, progress: bool) -> Run:
        return Run(method, [AtEveryRound(kill), *hooks], progress)

    monkeypatch.setattr(jobs, "Run", made)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_the_round_end_and_be_saved(
    number: int, job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    before = [signal.getsignal(n) for n in (*stopping.SIGNALS, signal.SIGALRM)]
    with monkeypatch.context() as patch:
        signalled(patch, number, task=1, epoch=2)
        with pytest.raises(Stopped, match="goes on from its last save") as stopped:
            run_job(job)
    assert stopped.value.number == number and isinstance(stopped.value, KeyboardInterrupt)
    assert "stopping when this round is over" in capfd.readouterr().err
    assert [signal.getsignal(n) for n in (*stopping.SIGNALS, signal.SIGALRM)] == before
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0
    _, state = load_tensors(tmp_path / "run.checkpoint", "")
    assert len(state["stages"]) == 1 and state["method_facts"]["rounds"] == 2
    assert content(run_job(job)) == content(KIND.run(epochs=3).finish("rcl-cpb"))


def test_the_second_signal_does_not_wait(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        signalled(patch, signal.SIGTERM, task=1, epoch=2, times=2)
        with pytest.raises(Stopped):
            run_job(job)
    _, state = load_tensors(tmp_path / "run.checkpoint", "")
    assert len(state["stages"]) == 1 and state["method_facts"]["rounds"] == 0  # after a task
    assert content(run_job(job)) == content(KIND.run(epochs=3).finish("rcl-cpb"))


def test_a_signal_in_the_last_round_stops_what_comes_after(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run may end, if it is quick; the next seed does not begin."""
    monkeypatch.setattr(jobs, "Checkpoint", partial(Checkpoint, every=0.0))
    checkpoint_round = Checkpoint.on_round
    monkeypatch.setattr(
        Checkpoint,
        "on_round",
        lambda self, run, done: None if done.done == 3 else checkpoint_round(self, run, done),
    )
    signalled(monkeypatch, signal.SIGTERM, task=2, epoch=3)
    with pytest.raises(Stopped):
        run_job(job)
    assert set(files(tmp_path)) == {"run.json"}


def test_a_round_that_takes_too_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopping, "GRACE", 0.05)
    began = time.monotonic()

    def slow_round() -> None:
        with politely() as asked:
            os.kill(os.getpid(), signal.SIGTERM)
            assert asked.number == signal.SIGTERM
            time.sleep(60)

    with pytest.raises(Stopped):
        slow_round()
    assert time.monotonic() - began < 30


def test_threads_hear_nothing_and_disturb_nothing() -> None:
    before, seen = signal.getsignal(signal.SIGTERM), []

    def work() -> None:
        with politely() as asked, terminable():
            seen.append(asked.number)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [0] and signal.getsignal(signal.SIGTERM) == before


def test_the_command_ends_with_the_signals_code_and_says_how_to_go_on(
    command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["run", "ta-smnist-5k", "--hidden", "4", "--epochs", "2", "--batch-size", "256"]
    with monkeypatch.context() as patch:
        signalled(patch, signal.SIGTERM, task=0, epoch=1)
        code, _, err = command(*words)
    assert code == 128 + signal.SIGTERM and "Traceback" not in err
    assert err.endswith("\nstopped; the same command goes on from the last save.\n")
    assert [Path(name).suffix for name in files(tmp_path)] == [".checkpoint"]
    assert command(*words)[0] == 0
