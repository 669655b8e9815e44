"""A run on disk while it goes on: what is needed to continue after a stop, bit for bit."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import Tensor

from rclcpb.files import DAMAGE, Damaged, RclCpbError, load_tensors, save_tensors
from rclcpb.method import Round, below
from rclcpb.records import Stage
from rclcpb.runner import Hook, Run
from rclcpb.stopping import Asked


class Checkpoint(Hook):
    """Saves a run after each task, every `every` seconds within one, and when asked to stop.

    The method's state has all that was learned and stored; coresets' order, noise and batches
    follow from the seed, see method.seeded. Nothing here reads pickle: a file from a stranger
    cannot run code.
    """

    def __init__(self, path: Path, about: dict[str, Any], every: float = 60.0) -> None:
        self.path, self.about, self.every = path, about, every
        self.saved, self.asked = time.monotonic(), Asked()

    def on_round(self, run: Run, done: Round) -> None:
        if self.asked.number or time.monotonic() - self.saved >= self.every:
            self.save(run)
        self.asked.obey()

    def on_task(self, run: Run, stage: Stage) -> None:
        self.save(run)
        if len(run.stages) < len(run.scenario.tasks):  # else its record is all that is left to do
            self.asked.obey()

    def save(self, run: Run) -> None:
        state = run.method.state()
        tensors = {f"method.{k}": v for k, v in state.items() if isinstance(v, Tensor)}
        facts = {k: v for k, v in state.items() if not isinstance(v, Tensor)}
        about = self.about | {
            "stages": [asdict(stage) for stage in run.stages],
            "stage": asdict(run.stage) if run.stage else None,
            "spent": run.spent,
            "started": run.started,
            "method_facts": facts,
        }
        save_tensors(self.path, tensors, about)
        self.saved = time.monotonic()

    def restore(self, run: Run) -> bool:
        """Bring a new run to where the file left off; False if there is no file."""
        if not self.path.exists():
            return False
        try:
            tensors, state = load_tensors(self.path, "a checkpoint")
        except Damaged as error:
            raise Damaged(f"{error}: delete it to start this run over.") from error
        if odd := differing(self.about, state):
            raise RclCpbError(
                f"{self.path} was begun with other settings ({odd}): give those, choose another"
                " --out, or delete it to start over."
            )
        try:
            stages = [Stage(**stage) for stage in state["stages"]]
            stage = Stage(**state["stage"]) if state["stage"] else None
            if stage is None and state["method_facts"].get("rounds"):
                raise ValueError("a fit of no task")
            run.method.load(below("method.", tensors) | state["method_facts"])
            run.spent, run.started = float(state["spent"]), str(state["started"])
        except DAMAGE as error:
            raise RclCpbError(
                f"{self.path} is from another version: delete it to start this run over."
            ) from error
        run.stages, run.stage = stages, stage
        return True


def differing(wanted: dict[str, Any], found: dict[str, Any]) -> str:
    """What of a run is not what is wanted: names, and short values of both."""
    config = wanted.get("config", {})
    pairs = [(k, found.get(k), v) for k, v in wanted.items() if k != "config"]
    pairs += [(k, (found.get("config") or {}).get(k), v) for k, v in config.items()]
    odd = [(name, there, here) for name, there, here in pairs if there != here]
    return ", ".join(
        name if len(f"{there}{here}") > 80 else f"{name}: {there}, now {here}"
        for name, there, here in sorted(odd, key=lambda one: one[0])
    )
