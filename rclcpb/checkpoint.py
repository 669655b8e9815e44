"""A run on disk while it goes on: what is needed to continue after a stop, bit for bit."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import Tensor

from rclcpb.files import Damaged, RclCpbError, load_tensors, save_tensors
from rclcpb.method import Round, below
from rclcpb.records import Stage
from rclcpb.runner import Hook, Run


class Checkpoint(Hook):
    """Saves a run after each task, and every `every` seconds within one.

    The method's state has all that was learned and stored; coresets' order, noise and batches
    follow from the seed, see method.seeded. Nothing here reads pickle: a file from a stranger
    cannot run code.
    """

    def __init__(self, path: Path, about: dict[str, Any], every: float = 60.0) -> None:
        self.path, self.about, self.every = path, about, every
        self.saved = time.monotonic()

    def on_round(self, run: Run, done: Round) -> None:
        if time.monotonic() - self.saved >= self.every:
            self.save(run)

    def on_task(self, run: Run, stage: Stage) -> None:
        self.save(run)

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
        if {k: state.get(k) for k in self.about} != self.about:
            raise RclCpbError(
                f"{self.path} belongs to a run with another config or other data:"
                " choose another --out, or delete it to start over."
            )
        try:
            stages = [Stage(**stage) for stage in state["stages"]]
            stage = Stage(**state["stage"]) if state["stage"] else None
            run.method.load(below("method.", tensors) | state["method_facts"])
            run.spent, run.started = state["spent"], state["started"]
        except (KeyError, TypeError, RuntimeError) as error:
            raise RclCpbError(
                f"{self.path} is from another version: delete it to start this run over."
            ) from error
        run.stages, run.stage = stages, stage
        return True
