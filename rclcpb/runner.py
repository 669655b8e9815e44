"""The runner: the loop over tasks, evaluation, clocks and the record, for any method.

run = Run(core.Learner(scenario, config), progress=True)
for stage in run:
    print(stage.accuracy)
"""

from __future__ import annotations

import dataclasses
import platform
import sys
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

import rclcpb_core as core
from rclcpb import __version__, checks, machine, metrics
from rclcpb.files import RclCpbError
from rclcpb.method import Method, Round, Samples, samples, seeded
from rclcpb.presets import METHODS, preset
from rclcpb.records import Record, Stage
from rclcpb.scenarios import Scenario
from rclcpb.undo import a_whole_task, alone


class Hook:
    """What is told how a run goes on: a progress bar, a checkpoint, a metrics writer."""

    def on_start(self, run: Run) -> None:
        """Before the first task, or the one at which a stopped run goes on."""

    def on_round(self, run: Run, done: Round) -> None:
        """After a round of training."""

    def on_task(self, run: Run, stage: Stage) -> None:
        """After a task is learned and evaluated."""

    def on_stop(self, run: Run) -> None:
        """Where a task is interrupted, by an error or by Ctrl-C."""


def checked_hooks(hooks: Any) -> Sequence[Hook]:
    if not isinstance(hooks, Sequence):
        raise RclCpbError("hooks: give a list of them, if only of one.")
    for hook in hooks:
        checks.instance("hook", hook, Hook)
    return hooks


class Run:
    """A method learns a scenario; iterate over it: a `Stage` comes out after each task.

    A task either happened or did not: where it is interrupted, the method and `stages` are
    what they were before it, and iterating again goes on there.
    """

    def __init__(self, method: Method, hooks: Sequence[Hook] = (), progress: bool = False) -> None:
        checks.instance("method", method, Method)
        self.method, self.seed = method, method.seed
        self.hooks = [*([Bar()] if progress else []), *checked_hooks(hooks)]
        self.stages: list[Stage] = []
        self.stage: Stage | None = None  # of a task under way
        self.spent = 0.0  # seconds, of that task
        alone = method.device.type == "cpu" and torch.get_num_threads() == 1
        # a core's own time says what a run costs, whatever else the machine does
        self.clock = time.process_time if alone else time.perf_counter
        self.started = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())

    @property
    def scenario(self) -> Scenario:
        return self.method.scenario

    def __iter__(self) -> Iterator[Stage]:
        tasks = len(self.scenario.tasks)
        if len(self.stages) < tasks:  # else there is nothing to tell of
            for hook in self.hooks:
                hook.on_start(self)
        while len(self.stages) < tasks:
            yield self.learn_task()

    def learn_task(self) -> Stage:
        """The next task as a whole, or nothing of it."""
        with alone(self.method), a_whole_task(self):
            return self._learn_task(len(self.stages))

    def _learn_task(self, t: int) -> Stage:
        method, began = self.method, self.clock() - self.spent
        data = method.store(t, samples(self.scenario, t, "train", method.device))
        if self.stage is None:  # or it was under way when the run was stopped
            self.stage, ready = Stage(self.scenario.tasks[t].name), self.clock()
            method.begin(t, data)
            self.stage.structure_seconds = self.clock() - ready
            self.stage.zero_shot = self.evaluate(t)[0]
        stage = self.stage
        with closing(self.rounds(t, data)) as rounds:
            for done in rounds:
                stage.train_nll, stage.train_kl = done.nll, done.kl
                self.spent = self.clock() - began
                for hook in self.hooks:
                    hook.on_round(self, done)
        method.end(t)
        for name, value in method.notes().items():
            setattr(stage, name, value)
        scores = [self.scores(j) for j in range(t + 1)]
        stage.accuracy, stage.nll, stage.ece = map(list, zip(*scores, strict=True))
        stage.seconds = self.clock() - began
        self.stages.append(stage)
        self.stage, self.spent = None, 0.0
        for hook in self.hooks:
            hook.on_task(self, stage)
        return stage

    def rounds(self, t: int, data: Samples) -> Generator[Round]:
        """Those of the fit, which is closed with this: it may hold the generator of `seeded`."""
        yield from self.method.fit(t, data)

    def scores(self, j: int) -> tuple[float, float, float]:
        """Those of a task whose answers cannot have changed stand."""
        if self.stages and j < len(self.stages) and self.method.unchanged(j):
            before: Any = self.stages[-1]
            return before.accuracy[j], before.nll[j], before.ece[j]
        return self.evaluate(j)

    def evaluate(self, j: int) -> tuple[float, float, float]:
        """Accuracy, NLL and calibration error on task j's test data."""
        data = samples(self.scenario, j, "test", self.method.device)
        with seeded(self.seed, len(self.stages), "evaluate", j):
            probabilities = self.method.answer(j, data.x)
        if not probabilities.isfinite().all():
            raise RclCpbError(
                f"task {j + 1}, evaluation: a prediction is not finite: lower lr_mu and"
                " lr_rho, or rho_init, or scale the images."
            )
        return metrics.score(probabilities, data.y)

    def finish(self, name: str) -> Record:
        """Learn what is left and report, under the method's name."""
        for _ in self:
            pass
        scenario, method = self.scenario, self.method
        per_task: dict[str, Any] = {
            field.name: [getattr(stage, field.name) for stage in self.stages]
            for field in dataclasses.fields(Stage)
            if field.name != "task"
        }
        columns = [len(scenario.columns(t)) for t in range(len(scenario.tasks))]
        return Record(
            scenario=scenario.name,
            method=name,
            seed=self.seed,
            config=dataclasses.asdict(method.config),
            tasks=[task.name for task in scenario.tasks],
            **per_task,
            chance=[1 / n for n in columns],
            coreset_total=method.stored(),
            parameters=method.parameters(),
            peak_mib=_peak_mib(),
            device=str(method.device),
            threads=torch.get_num_threads(),
            versions=_versions(),
            data_sha256=scenario.sha256(),
            core_sha256=core.CORE_SHA256,
            started=self.started,
            version=core.VERSION,
            identity=scenario.identity(),
            cpu=machine.cpu(),
            kernels=machine.kernels(method.device),
        )


def make(method: str, scenario: Scenario, config: Any, seed: int = 0, **more: Any) -> Method:
    """A method by its name in the registry."""
    if method not in METHODS:
        raise RclCpbError(f"no method {method!r}: choose from {', '.join(METHODS)}.")
    return METHODS[method].learner(scenario, config, seed, **more)


def learn(
    scenario: Scenario,
    config: Any = None,
    seed: int = 0,
    method: str = "rcl-cpb",
    device: str = "cpu",
    progress: bool = False,
    hooks: Sequence[Hook] = (),
) -> Record:
    """A whole run in one call; without a config, the method's preset for the scenario."""
    checks.instance("scenario", scenario, Scenario)
    config = preset(scenario.name, method) if config is None else config
    learner = make(method, scenario, config, seed, device=device)
    return Run(learner, hooks, progress).finish(method)


class Bar(Hook):
    """A progress bar: epochs, or tasks of a method that has none."""

    def on_start(self, run: Run) -> None:
        self.rounds = run.method.rounds_a_task()
        tasks, done = len(run.scenario.tasks), len(run.stages)
        unit = "epoch" if self.rounds else "task"
        self.bar = tqdm(
            total=tasks * (self.rounds or 1),
            initial=done * (self.rounds or 1),
            unit=unit,
            dynamic_ncols=True,
        )

    def on_round(self, run: Run, done: Round) -> None:
        last = run.stages[-1].accuracy if run.stages else []
        known = f"{100 * np.mean(last):.1f}%" if last else "-"
        sizes = run.method.sizes()
        kl = "" if done.kl is None else f"kl {done.kl:.0f}, "
        t, tasks = len(run.stages) + 1, len(run.scenario.tasks)
        self.bar.set_description(f"task {t}/{tasks}", refresh=False)
        self.bar.set_postfix_str(
            f"nll {done.nll:.3f}, {kl}accuracy {known}, sizes {sizes}", refresh=False
        )
        place = len(run.stages) * self.rounds + done.done
        self.bar.update(place - self.bar.n)

    def on_task(self, run: Run, stage: Stage) -> None:
        if not self.rounds:
            self.bar.update()
        if len(run.stages) == len(run.scenario.tasks):
            self.bar.close()

    def on_stop(self, run: Run) -> None:
        self.bar.close()  # what is said next gets a line of its own


def _versions() -> dict[str, str]:
    return {
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": np.__version__,
        "rclcpb": __version__,
    }


def _peak_mib() -> int:
    """The largest memory this process has had; 0 where the system does not tell."""
    try:
        import resource
    except ImportError:
        return 0
    unit = 2**20 if sys.platform == "darwin" else 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // unit
