"""Runs that are killed, interrupted and cut off from their power: each ends as it would have."""

from __future__ import annotations

import copy
import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from queue import Empty
from typing import Any

import pytest
import tiny
from jupyter_client.manager import start_new_kernel
from outcomes import RIGHT, TRACEBACK, WRONG, Tally
from power import Disk
from running import KINDS, content, files, killed_after

from rclcpb import ContinualClassifier
from rclcpb import files as files_of_ours
from rclcpb.files import load_tensors
from rclcpb.jobs import Job, run_job

pytestmark = pytest.mark.long
JobMaker = Callable[..., Job]
KILLS, INTERRUPTS = 200, 50
PACKAGE = Path(files_of_ours.__file__ or "").parent


def kept(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Tensors and facts; in which order a file has them is the library's whim."""
    return load_tensors(path, "a kept network")


def test_kill_9(tally: Tally, job: JobMaker, monkeypatch: pytest.MonkeyPatch) -> None:
    """At random moments; record and network are bit for bit those of a run that was left alone."""
    monkeypatch.setattr(os, "fsync", lambda _: None)  # a kill leaves the system's memory alone
    rng = random.Random(18)
    for name, kind in KINDS.items():
        whole, killed = (job(kind, f"{of}/{name}", epochs=3) for of in ("whole", "killed"))
        began = time.monotonic()
        record = content(run_job(whole))
        network, most = kept(whole.network), time.monotonic() - began
        left, kills = -(-KILLS // len(KINDS)), 0  # since it was last done
        while left:
            killing = killed_after(rng.uniform(0, most), partial(run_job, killed))
            left, kills = left - killing, kills + killing
            if not killed.path.exists() and left and rng.random() < 0.7:
                continue  # killed again before it is done
            good = content(run_job(killed)) == record
            found = kept(killed.network)
            good &= tiny.same(found[0], network[0]) and found[1] == network[1]
            for _ in range(kills):
                tally.add(RIGHT if good else WRONG, name)
            kills = 0
            left_over = set(files(killed.path.parent)) ^ set(files(whole.path.parent))
            assert not left_over, left_over  # neither a checkpoint nor a half of a file
            for one in files(killed.path.parent):
                (killed.path.parent / one).unlink()
    assert tally.total() >= KILLS


SET_UP = """
import sys
sys.path[:0] = {folders!r}
import torch
torch.set_num_threads(1)
from running import KINDS, Outcome
kinds = [KINDS[name] for name in {names!r}]
wholes = [Outcome.of(kind.run(epochs=8)) for kind in kinds]
"""
LEARN = "for stage in run: pass"
GO_ON = """
assert len(run.stages) == run.method.learned
print(Outcome.of(run).equals(wholes[{k}]))
"""


@pytest.fixture(scope="module")
def kernel() -> Iterator[tuple[Any, Any]]:
    manager, client = start_new_kernel(kernel_name="python3")
    yield manager, client
    client.stop_channels()
    manager.shutdown_kernel(now=True)


def executed(client: Any, code: str) -> tuple[str, str]:
    """What a cell printed, and the name of its error."""
    said: list[str] = []

    def hear(message: Any) -> None:
        if message["msg_type"] == "stream" and message["content"]["name"] == "stdout":
            said.append(message["content"]["text"])

    reply = client.execute_interactive(code, output_hook=hear, timeout=600)
    if reply["content"]["status"] == "aborted":  # what comes just after an interrupt
        return executed(client, code)
    return "".join(said).strip(), reply["content"].get("ename", "")


def test_ctrl_c_in_a_kernel(tally: Tally, kernel: Any) -> None:
    """As the stop button does it; the same learner goes on, in the next cell."""
    manager, client = kernel
    here = Path(__file__).resolve().parents[1]
    names = ["one head", "heads", "natural, one head"]
    _, error = executed(client, SET_UP.format(folders=[str(here), str(here.parent)], names=names))
    assert not error, error
    rng, most, lost = random.Random(18), 0.5, 0
    while tally.total() < INTERRUPTS:
        k = rng.randrange(len(names))
        executed(client, f"run = kinds[{k}].run(epochs=8)")
        asked = client.execute(LEARN)
        time.sleep(rng.uniform(0, most))
        manager.interrupt_kernel()
        try:
            reply = client.get_shell_msg(timeout=60)
            while reply["parent_header"].get("msg_id") != asked:
                reply = client.get_shell_msg(timeout=60)
        except Empty:  # it met the kernel itself, between two cells
            lost += 1
            assert lost < INTERRUPTS // 5
            continue
        if reply["content"]["status"] == "ok":
            most = max(0.05, 0.8 * most)  # it was done already
            continue
        assert reply["content"]["ename"] in ("KeyboardInterrupt", "Stopped"), reply["content"]
        said, error = executed(client, GO_ON.format(k=k))
        outcome = RIGHT if said.endswith("True") else TRACEBACK if error else WRONG
        tally.add(outcome, f"{names[k]}: {said} {error}")


class AtLine:
    """Raises KeyboardInterrupt before a line of the package, counted from the start."""

    def __init__(self, number: int) -> None:
        self.left, self.met, self.where = number, 0, ""

    def __call__(self, frame: Any, event: str, _: Any) -> Any:
        if Path(frame.f_code.co_filename).parent != PACKAGE:
            return None
        if event == "line":
            self.met, self.left = self.met + 1, self.left - 1
            if not self.left:
                self.where = f"{Path(frame.f_code.co_filename).name}, line {frame.f_lineno}"
                raise KeyboardInterrupt
        return self


def between_lines(action: Callable[[], Any], number: int) -> AtLine:
    place = AtLine(number)
    before = sys.gettrace()
    sys.settrace(place)
    try:
        action()
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(before)
    return place


@pytest.mark.parametrize("heads", ["single", "multi"])
def test_ctrl_c_between_the_lines_of_a_classifier(heads: Any, tally: Tally) -> None:
    """Its task has happened, or has not, wherever it comes; and it goes on all the same."""
    tasks = tiny.scenario(n=10).tasks
    small = {"hidden": (4, 4), "coreset": 4, "test_samples": 1, "epochs": 1, "replay_steps": 1}
    first = ContinualClassifier(tiny.config(**small), heads, memory=6)

    def learn(one: ContinualClassifier, t: int) -> ContinualClassifier:
        task = tasks[t]
        return one.learn(task.x_train, task.y_train, test=(task.x_test, task.y_test))

    def answers(one: ContinualClassifier) -> list[Any]:
        return one.predict_proba(tasks[0].x_test).tolist()

    learn(first, 0)
    whole = copy.deepcopy(first)
    wanted = [answers(first), answers(learn(whole, 1)), answers(learn(whole, 2))]
    lines = between_lines(partial(learn, copy.deepcopy(first), 1), 0).met
    assert lines > 1000
    for number in range(1, lines + 1, lines // 40):
        one = copy.deepcopy(first)
        where = between_lines(partial(learn, one, 1), number).where
        learned = len(one.run_.stages)
        try:
            good = answers(one) == wanted[learned - 1]
            for t in range(learned, 3):
                good &= answers(learn(one, t)) == wanted[t]
        except Exception as error:
            tally.add(TRACEBACK, f"{where}: {error!r}")
            continue
        tally.add(RIGHT if good else WRONG, f"{where}, {learned} tasks")


def test_power_cuts(
    tally: Tally, job: JobMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before and after every call that a disk is asked for, on two kinds of disk."""
    for name in ("one head", "heads", "natural, one head"):
        folder = tmp_path / "disk" / name
        folder.mkdir(parents=True)
        todo = job(KINDS[name], f"disk/{name}/new", epochs=2)
        with Disk(folder) as disk:
            record = content(run_job(todo))
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", lambda _: None)  # which takes its time
            for state in disk.states:
                state.restore(folder)
                good = content(run_job(todo)) == record
                tally.add(RIGHT if good else WRONG, f"{name}, {state.moment}")
    assert tally.total() > 60
