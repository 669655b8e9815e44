"""The runner: the loop over tasks, hooks, clocks, and what an interruption leaves."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import asdict
from functools import partial
from typing import Any

import pytest
import tiny
import torch
from running import (
    KINDS,
    AtEveryRound,
    Interrupting,
    Kind,
    Outcome,
    content,
    every_kind,
    same_state,
)

import rclcpb_core as core
from rclcpb import runner, undo
from rclcpb.files import RclCpbError
from rclcpb.method import Round
from rclcpb.records import Stage
from rclcpb.runner import Bar, Hook, Run

# -------------------------------------------------------------------------- interruptions


@pytest.mark.parametrize(
    ("kind", "error"),
    [(kind, KeyboardInterrupt) for kind in KINDS.values()] + [(KINDS["heads"], OSError)],
    ids=[*KINDS, "an error"],
)
def test_interrupted_at_every_hook_call_a_run_ends_bit_for_bit_the_same(
    kind: Kind, error: type[BaseException]
) -> None:
    """Each call raises once; what was before the task is there again, and goes on."""
    plain = kind.run()
    states = [plain.method.state(), *(plain.method.state() for _ in plain)]
    interrupting = Interrupting(error)
    run = kind.run([interrupting])
    for _ in range(100):
        try:
            for _ in run:
                pass
            break
        except error:
            assert run.stage is None and len(run.stages) < len(states)
            assert same_state(run.method.state(), states[len(run.stages)])
    tasks, rounds = len(plain.scenario.tasks), plain.method.rounds_a_task()
    learned = [place for place in interrupting.met if place[-1] == "learned"]
    assert learned == [(t + 1, "learned") for t in range(tasks)]
    assert len(interrupting.met) == tasks * (rounds + 2)  # a start and an end a task, too
    assert Outcome.of(run).equals(Outcome.of(plain))


@pytest.mark.parametrize("step", ["store", "begin", "end", "notes", "answer"])
@pytest.mark.parametrize("kind", [KINDS["one head"], KINDS["heads"], KINDS["control, heads"]])
def test_interrupted_before_or_after_any_step_of_a_task(kind: Kind, step: str) -> None:
    """Not only where hooks are: in storing, growing, replaying and answering, too."""
    run, plain = kind.run(), kind.run()
    original, calls = getattr(run.method, step), list[int]()

    def interrupted(*args: Any) -> Any:
        calls.append(len(run.stages))
        if calls.count(len(run.stages)) == 1:
            raise KeyboardInterrupt
        result = original(*args)
        if calls.count(len(run.stages)) == 2:
            raise KeyboardInterrupt
        return result

    setattr(run.method, step, interrupted)
    stops = 0
    while len(run.stages) < 3:
        try:
            for _ in run:
                pass
        except KeyboardInterrupt:
            stops += 1
    assert stops == 6
    assert Outcome.of(run).equals(Outcome.of(plain))


def test_who_is_interrupted_is_told_how_to_go_on() -> None:
    with pytest.raises(KeyboardInterrupt) as stopped:
        KINDS["one head"].run([Interrupting()]).learn_task()
    assert stopped.value.__notes__ == [undo.GO_ON]


def test_two_iterators_over_one_run_share_its_tasks() -> None:
    run = KINDS["heads"].run()
    first, second = iter(run), iter(run)
    tasks = [next(first).task, next(second).task, next(first).task]
    assert tasks == ["task 0", "task 1", "task 2"]
    assert list(first) == list(second) == list(run) == []
    assert Outcome.of(run).equals(Outcome.of(KINDS["heads"].run()))


def test_who_stops_after_a_task_may_go_on_later() -> None:
    run = KINDS["one head"].run()
    for _ in run:
        break
    assert len(run.stages) == 1 and [stage.task for stage in run] == ["task 1", "task 2"]
    assert Outcome.of(run).equals(Outcome.of(KINDS["one head"].run()))


# ---------------------------------------------------------------------------------- hooks


class Told(Hook):
    """Writes down what it is told."""

    def __init__(self, name: str, story: list[tuple]) -> None:
        self.name, self.story = name, story

    def on_start(self, run: Run) -> None:
        self.story.append((self.name, "start", len(run.stages)))

    def on_round(self, run: Run, done: Round) -> None:
        assert run.stage is not None and run.stage.train_nll == done.nll
        self.story.append((self.name, "round", len(run.stages), done.done, done.of))

    def on_task(self, run: Run, stage: Stage) -> None:
        assert run.stages[-1] is stage and stage.accuracy
        self.story.append((self.name, "task", stage.task))


def test_hooks_are_told_in_their_order_round_by_round_and_task_by_task() -> None:
    story: list[tuple] = []
    run = Run(
        core.Learner(tiny.scenario(tiny.PAIRS[:2]), tiny.config(epochs=2)),
        [Told("a", story), Told("b", story)],
    )
    for stage in run:
        story.append(("out", stage.task))
    expected: list[tuple] = [("start", 0)]
    for t in range(2):
        expected += [("round", t, 1, 2), ("round", t, 2, 2), ("task", f"task {t}"), (t,)]
    for one in expected:
        if one in ((0,), (1,)):
            assert story.pop(0) == ("out", f"task {one[0]}")
        else:
            assert [story.pop(0), story.pop(0)] == [("a", *one), ("b", *one)]
    assert not story
    run.finish("rcl-cpb")
    assert not story  # nothing was left to start


def test_the_first_hook_that_fails_ends_the_round() -> None:
    story: list[tuple] = []
    run = KINDS["one head"].run([Told("a", story), Interrupting(), Told("b", story)])
    for _ in range(2):  # the start; the first round
        with pytest.raises(KeyboardInterrupt):
            next(iter(run))
    assert story == [
        ("a", "start", 0),
        ("a", "start", 0),
        ("b", "start", 0),
        ("a", "round", 0, 1, 2),
    ]


@every_kind
def test_a_hook_that_looks_changes_nothing(kind: Kind) -> None:
    """Draws, predictions and evaluations between two rounds, as a metrics writer does."""

    def look(run: Run, done: int) -> None:
        torch.randn(100)
        run.method.sizes(), run.method.notes(), run.method.state()
        for j in range(len(run.stages)):
            run.evaluate(j)

    looked = Outcome.of(kind.run([AtEveryRound(look)]))
    assert looked.equals(Outcome.of(kind.run()))


# ----------------------------------------------------------------------- the progress bar


def bar_of(run: Run) -> Any:
    (bar,) = (hook for hook in run.hooks if isinstance(hook, Bar))
    return bar.bar


@pytest.mark.parametrize(("name", "rounds"), [("one head", 2), ("control, heads", 1)])
def test_the_bar_counts_epochs_or_tasks_and_ends_at_its_total(name: str, rounds: int) -> None:
    run = KINDS[name].run(progress=True)
    shown = [bar_of(run).n for _ in run]
    assert shown == [rounds, 2 * rounds, 3 * rounds]
    bar = bar_of(run)
    assert bar.total == 3 * rounds and bar.disable  # closed
    run.finish("rcl-cpb")
    assert bar_of(run) is bar  # nothing is left to show


@pytest.mark.parametrize(("name", "rounds"), [("one head", 2), ("control, heads", 1)])
def test_the_bar_of_a_run_that_goes_on_starts_where_it_was(name: str, rounds: int) -> None:
    run = KINDS[name].run(progress=True)
    next(iter(run))
    shown = [bar_of(run).n for _ in run]
    assert shown == [2 * rounds, 3 * rounds] and bar_of(run).initial == rounds


def test_the_bar_of_a_run_that_fails_is_closed(capsys: pytest.CaptureFixture[str]) -> None:
    """What is said next gets a line of its own; the run goes on with a new bar."""

    def fail(run: Run, done: int) -> None:
        raise ZeroDivisionError

    run = KINDS["one head"].run([AtEveryRound(fail)], progress=True)
    with pytest.raises(ZeroDivisionError):
        next(iter(run))
    assert bar_of(run).disable and capsys.readouterr().err.endswith("\n")
    run.hooks.pop()
    assert next(iter(run)).task == "task 0" and bar_of(run).n == 2


def test_the_bar_says_where_the_run_is(capsys: pytest.CaptureFixture[str]) -> None:
    record = runner.learn(tiny.scenario(), tiny.config(epochs=1), progress=True)
    err = capsys.readouterr().err
    last = f"{100 * sum(record.accuracy[1]) / 2:.1f}%"
    for words in ("task 3/3", "nll ", "kl ", f"accuracy {last}", f"sizes {record.hidden[-1]}"):
        assert words in err


# ---------------------------------------------------------------------------------- clocks


def test_time_before_an_interruption_does_not_count_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    for clock in ("perf_counter", "process_time"):
        monkeypatch.setattr(runner.time, clock, lambda: now[0])

    def pass_time(run: Run, done: int) -> None:
        now[0] += 10.0
        if now[0] == 120.0:
            raise KeyboardInterrupt

    run = KINDS["one head"].run([AtEveryRound(pass_time)])
    with pytest.raises(KeyboardInterrupt):
        next(iter(run))
    assert run.spent == 0.0
    now[0] += 1000.0
    assert next(iter(run)).seconds == pytest.approx(20.0)


def test_one_core_is_timed_by_itself_and_more_by_the_wall() -> None:
    assert KINDS["heads"].run().clock is runner.time.process_time
    torch.set_num_threads(2)
    try:
        assert KINDS["heads"].run().clock is runner.time.perf_counter
    finally:
        torch.set_num_threads(1)


# ---------------------------------------------------------------- what comes out of a run


def test_a_record_tells_what_happened() -> None:
    scenario, config = tiny.scenario(), tiny.config(gamma=0.5)
    run = Run(core.Learner(scenario, config, seed=7))
    record = run.finish("rcl-cpb")
    assert [len(row) for row in record.accuracy] == [1, 2, 3]
    assert record.seed == 7 and record.tasks == ["task 0", "task 1", "task 2"]
    assert record.hidden[-1] == run.method.sizes() == run.method.net.sizes()
    assert record.parameters == sum(p.numel() for p in run.method.net.parameters())
    assert record.coreset_total == 18 and record.chance == [1 / 2, 1 / 4, 1 / 6]
    assert record.data_sha256 == scenario.sha256() and len(record.core_sha256) == 64
    assert record.config == asdict(config) and record.versions["torch"]
    fields = {f.name for f in dataclasses.fields(Stage)} - {"task"}
    assert all(len(getattr(record, name)) == 3 for name in fields)
    assert all(s >= p >= 0 for s, p in zip(record.seconds, record.structure_seconds, strict=True))
    json.dumps(asdict(record), allow_nan=False)


@pytest.mark.parametrize("heads", ["single", "multi"])
@pytest.mark.parametrize("sampling", ["weight", "local"])
def test_same_seed_same_record_other_seed_other_record(heads: Any, sampling: Any) -> None:
    learn = partial(runner.learn, tiny.scenario(heads=heads), tiny.config(sampling=sampling))
    one, again, other = (content(learn(seed=s)) for s in (3, 3, 4))
    assert one == again
    assert one["nll"] != other["nll"] and one["train_kl"] != other["train_kl"]


def test_other_work_between_two_tasks_changes_nothing() -> None:
    """A notebook may draw, plot and predict between stages."""
    run = KINDS["one head"].run()
    for _ in run:
        torch.randn(1000)
        core.predict(run.method.net, torch.rand(5, 36))
    assert Outcome.of(run).equals(Outcome.of(KINDS["one head"].run()))


def test_two_runs_side_by_side_do_not_disturb_each_other() -> None:
    kinds = KINDS["one head"], KINDS["plus, heads"]
    alone = [Outcome.of(kind.run()) for kind in kinds]
    pair = [kind.run() for kind in kinds]
    for _ in zip(*pair, strict=True):
        pass
    assert all(Outcome.of(run).equals(one) for run, one in zip(pair, alone, strict=True))


def test_learn_takes_the_preset_where_no_settings_are_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []

    def small(*names: str) -> core.Config:
        asked.append(names)
        return tiny.config(epochs=1)

    monkeypatch.setattr(runner, "preset", small)
    record = runner.learn(tiny.scenario(tiny.PAIRS[:1]), method="vcl")
    assert asked == [("tiny-single", "vcl")] and record.method == "vcl"


def test_no_such_method() -> None:
    with pytest.raises(RclCpbError, match="no method 'nothing': choose from rcl-cpb, "):
        runner.make("nothing", tiny.scenario(), tiny.config())


def test_a_prediction_that_is_not_finite_is_one_sentence() -> None:
    run = KINDS["heads"].run()
    run.method.answer = lambda j, x: torch.full((len(x), 2), torch.nan)
    with pytest.raises(RclCpbError, match="task 1, evaluation: a prediction is not finite"):
        next(iter(run))
