"""A task happened or did not: one at a time of a method, and back to before it if it failed."""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch

from rclcpb.files import RclCpbError
from rclcpb.method import Method, full_precision

GO_ON = "Nothing of this task has happened: iterate over the run again, and it is learned anew."


class _Before(NamedTuple):
    """A run and its method before a task, which can be brought back more than once."""

    run: Any
    state: dict[str, Any]
    learned: int
    stage: Any
    spent: float

    def bring_back(self) -> None:
        run = self.run
        del run.stages[self.learned :]  # a hook may have failed after it
        run.stage, run.spent = copy.deepcopy(self.stage), self.spent
        run.method.load(self.state)


class _Turn:
    """Of one method: is a task under way, and what comes back if it is interrupted."""

    before: _Before | None = None

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def undo(self) -> None:
        """Back to before the task, if one was interrupted."""
        if self.before is not None:
            self.before.bring_back()
            self.before = None


_turns: WeakKeyDictionary[Method, _Turn] = WeakKeyDictionary()


def check_idle(method: Method) -> None:
    """A learner in the midst of a task can neither learn another nor answer."""
    if _turns.setdefault(method, _Turn()).lock.locked():
        raise RclCpbError("this learner is in the midst of a task: wait until that has ended.")


@contextmanager
def alone(method: Method) -> Iterator[None]:
    """Within it, nobody else has this method learn."""
    check_idle(method)
    with _turns[method].lock:
        yield


@contextmanager
def a_whole_task(run: Any) -> Iterator[None]:
    """Within it, which is within `alone`, a task of the method happens, or nothing does."""
    turn = _turns[run.method]
    with full_precision(), torch.enable_grad():
        turn.undo()  # a second interruption may have come while the first was undone
        state = run.method.state()
        check_place(run, state)
        stage = copy.deepcopy(run.stage)
        turn.before = _Before(run, state, len(run.stages), stage, run.spent)
        try:
            yield
            turn.before = None  # from here on it has happened
        except BaseException as error:
            nothing = turn.before is not None
            turn.undo()
            if nothing and type(error) is KeyboardInterrupt:
                error.add_note(GO_ON)
            for hook in run.hooks:
                hook.on_stop(run)
            raise


def check_place(run: Any, state: dict[str, Any]) -> None:
    """Is the method where its run is?"""
    tasks, here, learned = len(run.scenario.tasks), len(run.stages), run.method.learned
    if learned not in (None, here):
        raise RclCpbError(
            f"this learner has {learned} of {tasks} tasks behind it, and this run {here}: go on"
            " with the run in which they were learned, or make a new learner."
        )
    if here == tasks:
        raise RclCpbError(f"all {tasks} tasks are learned: make a new learner to start over.")
    if run.stage is None and state.get("rounds"):
        raise RclCpbError(
            "this learner is between two rounds of a fit that this run did not begin: end that"
            " fit, or make a new learner."
        )
