"""What is given is right, or one sentence says how; and what surrounds a run does not reach it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tiny
import torch
from running import KINDS, NATURAL, PLUS, Kind, Outcome, content

import rclcpb_core as core
from rclcpb import images, presets, runner, scenarios
from rclcpb.files import RclCpbError
from rclcpb.runner import Run

# ------------------------------------------------------------------------- silently wrong


@pytest.mark.parametrize("heads", ["Single", "", None, 1, ["single"], "both"])
def test_misspelt_heads_run_no_scenario(heads: Any) -> None:
    base, task = tiny.scenario(), tiny.arrays((0, 1))
    digits = images.Images(*tiny.arrays(range(10), size=28))
    for make in (
        lambda: scenarios.Scenario("mine", base.tasks, heads),
        lambda: replace(base, heads=heads),
        lambda: scenarios.from_arrays([task], heads),
        lambda: scenarios.split_mnist(digits, heads),
        lambda: scenarios.permuted_mnist(digits, 2, heads=heads),
    ):
        with pytest.raises(RclCpbError, match=r"heads=.*: choose from multi, single\.$"):
            make()


BASE = tiny.scenario()
REFUSED: dict[str, Callable[[], Any]] = {
    "a word for a bool": lambda: core.Config(prune="no"),  # type: ignore[arg-type]
    "a number for a bool": lambda: core.Config(decay=1),  # type: ignore[arg-type]
    "no tasks": lambda: scenarios.Scenario("mine", (), "multi"),
    "a task that is none": lambda: scenarios.Scenario("mine", ("0/1",), "multi"),  # type: ignore[arg-type]
    "a scale of 0": lambda: replace(BASE, scale=0.0),
    "a trunk that is no bool": lambda: replace(BASE, trunk="yes"),
    "classes twice": lambda: replace(BASE.tasks[0], classes=(0, 1, 1)),
    "classes that are not there": lambda: replace(BASE.tasks[0], classes=(0, 1, 7)),
    "a permutation of too few": lambda: replace(BASE.tasks[0], permutation=np.arange(3)),
    "no scenario": lambda: core.Learner("ta-smnist", tiny.config()),  # type: ignore[arg-type]
    "no config": lambda: core.Learner(BASE, {"epochs": 1}),  # type: ignore[arg-type]
    "the class of configs": lambda: core.Learner(BASE, core.Config),  # type: ignore[arg-type]
    "a seed below 0": lambda: core.Learner(BASE, tiny.config(), -1),
    "a seed of 0.5": lambda: core.Learner(BASE, tiny.config(), 0.5),  # type: ignore[arg-type]
    "no device": lambda: core.Learner(BASE, tiny.config(), device="tpu"),
    "no method": lambda: Run(tiny.network()),  # type: ignore[arg-type]
    "a hook that is none": lambda: Run(KINDS["one head"].run().method, [print]),  # type: ignore[list-item]
    "one hook, in no list": lambda: Run(KINDS["one head"].run().method, runner.Hook()),  # type: ignore[arg-type]
    "an unknown method": lambda: runner.learn(BASE, tiny.config(), method="best"),
    "an unknown scenario": lambda: presets.make_scenario("mnist"),
    "a task too far": lambda: core.samples(BASE, 3),
    "no such split": lambda: core.samples(BASE, 0, "validation"),
    "a head that is not there": lambda: core.predict(tiny.network(), torch.zeros(2, 36), 5),
    "no samples": lambda: core.predict(tiny.network(), torch.zeros(2, 36), 0, 0),
    "inputs of another shape": lambda: core.predict(tiny.network(), torch.zeros(2, 35)),
    "inputs of another kind": lambda: core.predict(tiny.network(), torch.zeros(2, 36).double()),
    "a coreset of all": lambda: core.choose_coreset(torch.rand(4, 2), torch.arange(4), 1, "random"),
    "no such choice": lambda: core.choose_coreset(torch.rand(9, 2), torch.zeros(9), 1, "best"),
    "growth of one layer": lambda: core.grow(tiny.network(), [1]),
    "shrinking": lambda: core.grow(tiny.network(), [-1, 0]),
    "hold out every image": lambda: scenarios.holdout(BASE, 1),
}


@pytest.mark.parametrize("name", REFUSED)
def test_public_functions_check_what_they_are_given(name: str) -> None:
    with pytest.raises(RclCpbError) as refused:
        REFUSED[name]()
    said = str(refused.value)
    assert "\n" not in said and said.endswith(".") and len(said) < 400


# ------------------------------------------------------------------------------- own data


def test_labels_of_64_bits_without_a_sign_are_those_labels() -> None:
    """As floats, those above 2^53 would merge."""
    big = 2**62 + np.arange(4, dtype=np.uint64)
    plain, odd = [list(tiny.arrays(pair)) for pair in tiny.PAIRS[:2]], []
    for task in plain:
        x, y, x_test, y_test = task
        odd.append([x, big[y], x_test, big[y_test]])
    scenario = scenarios.from_arrays(odd)
    assert scenario.columns(1) == tuple(big.tolist())
    same = [runner.learn(scenarios.from_arrays(made), tiny.config()) for made in (plain, odd)]
    assert same[0].accuracy == same[1].accuracy and same[0].nll == same[1].nll


@pytest.mark.parametrize("factor", [1.0, 1 / 100, 1e4])
def test_tasks_in_different_units_are_refused(factor: float) -> None:
    """0-255 as floats beside uint8, or beside 0-1, or one task a hundred times as dark."""
    tasks = [list(tiny.arrays(pair)) for pair in tiny.PAIRS[:2]]
    for place in (0, 2):
        tasks[1][place] = (tasks[1][place] / (1 if factor == 1 else 255) * factor).astype(
            np.float32
        )
    with pytest.raises(RclCpbError, match="give all tasks one range"):
        scenarios.from_arrays(tasks)


@pytest.mark.parametrize("choice", ["random", "balanced", "medoids"])
def test_one_sample_of_every_class_is_left_to_train_on(choice: Any) -> None:
    y = torch.tensor([0] * 30 + [1, 1] + [2] * 3)
    x = torch.rand(35, 4)
    for seed in range(20):
        torch.manual_seed(seed)
        chosen = core.choose_coreset(x, y, 30, choice)
        rest = torch.ones(35, dtype=torch.bool)
        rest[chosen] = False
        assert len(chosen) == 30 and set(y[rest].tolist()) == {0, 1, 2}


def test_a_class_that_comes_back_beside_a_new_one_keeps_what_it_learned() -> None:
    """Its row of the output layer is not that of before."""
    scenario = tiny.scenario(((0, 1), (1, 2)))
    run = Run(core.Learner(scenario, tiny.config(replay=False, epochs=6), 1))
    run.learn_task()
    old = tiny.snapshot(run.method.net.heads[0])
    restored = core.Learner.restore_rows
    trained: list[dict[str, torch.Tensor]] = []

    def watched(learner: Any, kept: Any) -> None:
        trained.append(tiny.snapshot(learner.net.heads[0]))
        restored(learner, kept)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(core.Learner, "restore_rows", watched)
        stage = run.learn_task()
    head = run.method.net.heads[0]
    after, before = (head.split(one["mu"])[1] for one in (tiny.snapshot(head), trained[0]))
    assert torch.equal(after[1:], before[1:])  # the class that came back, and the new one
    assert after[0] == old["mu"][-2] != before[0]  # the one that did not
    assert stage.accuracy is not None and stage.accuracy[1] > 0.9


def test_what_a_caller_does_to_his_arrays_later_is_his() -> None:
    tasks = [list(tiny.arrays(pair)) for pair in tiny.PAIRS[:2]]
    scenario = scenarios.from_arrays(tasks)
    before = scenario.identity()
    for task in tasks:
        for array in task:
            array[:] = 0
    assert scenario.identity() == before
    for name in images.ARRAYS:
        with pytest.raises(ValueError, match="read-only"):
            getattr(scenario.tasks[0], name)[0] = 1


# ---------------------------------------------------------------------- what is around a run


@pytest.mark.parametrize(
    "seed",
    [np.int64(3), np.uint8(3), torch.tensor(3), 3.0],
    ids=["int64", "uint8", "tensor", "3.0"],
)
def test_a_seed_of_any_kind_is_that_seed(seed: Any) -> None:
    config = tiny.config(epochs=1, replay_steps=5)
    plain, other = (runner.learn(tiny.scenario(), config, one) for one in (3, seed))
    assert content(plain) == content(other) and type(other.seed) is int


@contextmanager
def doubles() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


def halves() -> Any:
    return torch.autocast("cpu", dtype=torch.bfloat16)


AROUND: dict[str, Callable[[], Any]] = {
    "float64 by default": doubles,
    "autocast": halves,
    "no gradients": torch.no_grad,
    "inference": torch.inference_mode,
}
COLOUR = {"distort": "crop-flip", "augment": "elastic", "gamma": 0.9}
RUNS = {
    "one head, elastic": Kind("rcl-cpb", {"heads": "single"}, {"distort": "elastic", "gamma": 0.9}),
    "heads, local": Kind("rcl-cpb-plus", {"heads": "multi"}, PLUS | {"replay_mix": 4}),
    "natural": Kind("rcl-cpb", {"heads": "multi"}, NATURAL | {"gamma": 0.9}),
    "trunk": Kind("rcl-cpb", {"trunk": True, "tasks": tiny.PAIRS[:2]}, COLOUR),
}


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("name", RUNS)
def test_what_is_set_around_a_run_does_not_reach_it(name: str, around: str) -> None:
    kind = RUNS[name]
    plain = Outcome.of(kind.run(epochs=1))
    with ExitStack() as stack:
        stack.enter_context(AROUND[around]())
        found = Outcome.of(kind.run(epochs=1))
    assert found.equals(plain)
    assert all(value.dtype == torch.float32 for value in found.network.values())


def test_learners_in_two_threads_do_not_disturb_each_other() -> None:
    kinds = [KINDS["one head"], KINDS["heads"], KINDS["natural, one head"]]
    plain, found = [Outcome.of(kind.run()) for kind in kinds], dict[int, Outcome]()

    def learn(k: int) -> None:
        found[k] = Outcome.of(kinds[k].run())

    for _ in range(3):
        threads = [threading.Thread(target=learn, args=(k,)) for k in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert all(found[k].equals(plain[k]) for k in range(3))
