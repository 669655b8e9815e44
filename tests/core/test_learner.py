"""Algorithm 1: its order, its switches, its randomness, and that it learns."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pytest
import tiny
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from running import FIXED

import rclcpb_core as core
from rclcpb import images, method, runner, scenarios
from rclcpb.files import RclCpbError
from rclcpb.runner import Run

both_heads = pytest.mark.parametrize("heads", ["single", "multi"])


class Fit(NamedTuple):
    """One fit: its task, name and data, the network, and how it began and ended."""

    t: int
    name: str
    data: core.Samples
    net: core.ProgressiveBNN
    began: dict[str, torch.Tensor]
    ended: dict[str, torch.Tensor]


def fits_of(learner: core.Learner, tasks: int = 99) -> list[Fit]:
    """Run so many tasks; all fits, in order."""
    seen: list[Fit] = []
    rounds = learner.rounds

    def watched(net: Any, t: int, phase: core.Phase, data: core.Samples, *more: Any) -> Any:
        began = tiny.snapshot(net)
        yield from rounds(net, t, phase, data, *more)
        seen.append(Fit(t, phase.name, data, net, began, tiny.snapshot(net)))

    learner.rounds = watched  # type: ignore[method-assign]
    for done, _ in enumerate(Run(learner), 1):
        if done == tasks:
            break
    return seen


def learned(scenario: Any, config: core.Config, seed: int = 0) -> Run:
    """A finished run."""
    run = Run(core.Learner(scenario, config, seed))
    for _ in run:
        pass
    return run


# --------------------------------------------------------------------- the order of steps


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What happens, in order; a copy's steps are marked with a star."""
    calls: list[str] = []
    learners: list[core.Learner] = []

    def spy(owner: Any, name: str, label: Any) -> None:
        original = getattr(owner, name)

        def called(*args: Any, **options: Any) -> Any:
            calls.append(label(*args) if callable(label) else label)
            return original(*args, **options)

        monkeypatch.setattr(owner, name, called)

    def star(net: Any) -> str:
        return "" if net is learners[-1].net else "*"

    spy(core.Learner, "__init__", lambda self, *a: learners.append(self) or "start")
    spy(core.Learner, "store", lambda self, t, data: f"task {t}")
    spy(core, "choose_coreset", "coreset")
    spy(core.ProgressiveBNN, "posterior_becomes_prior", lambda net, *a: f"prior{star(net)}")
    spy(core, "prune", "prune")
    spy(core, "grow", "grow")
    spy(core.Learner, "open_head", "head")
    spy(core.Learner, "rounds", lambda self, net, t, phase, *a: phase.name + star(net))
    spy(core.Learner, "restore_rows", "restore")
    spy(core.Learner, "answer", lambda self, j, x: f"answer {j}")
    return calls


ORDER = {
    "single": """start; task 0, coreset, head, answer 0, train, prior, replay, answer 0;
        task 1, coreset, prior, prune, grow, head, answer 1, train, restore, prior, replay,
        answer 0, answer 1""",
    "multi": """start; task 0, coreset, head, answer 0, train, answer 0, prior*, fit 0*;
        task 1, coreset, prior, prune, grow, head, answer 1, train,
        answer 0, prior*, fit 0*, answer 1, prior*, fit 1*""",
}


@both_heads
def test_the_order_of_algorithm_1(heads: Any, steps: list[str]) -> None:
    learned(tiny.scenario(tiny.PAIRS[:2], heads), tiny.config(epochs=1))
    expected = [step.strip() for step in ORDER[heads].replace(";", ",").split(",")]
    assert steps == expected


@both_heads
def test_each_fit_gets_its_data(heads: Any) -> None:
    """D_t without CT_t in training; CT_1..t in replay; CT_j at evaluation."""
    learner = core.Learner(tiny.scenario(heads=heads), tiny.config(epochs=1))
    fits = fits_of(learner)
    assert {fit.name.split()[0] for fit in fits} == {
        "train",
        "replay" if heads == "single" else "fit",
    }
    for fit in fits:
        if fit.name == "train":
            whole = core.samples(learner.scenario, fit.t)
            rest = [i for i in range(len(whole.y)) if i not in learner.chosen[fit.t].tolist()]
            expected = [whole.rows(torch.tensor(rest))]
        elif fit.name == "replay":
            expected = learner.coreset[: fit.t + 1]
        else:
            expected = [learner.coreset[int(fit.name.removeprefix("fit "))]]
        assert torch.equal(fit.data.x, torch.cat([s.x for s in expected]))
        assert torch.equal(fit.data.y, torch.cat([s.y for s in expected]))
        assert fit.data.head == (expected[0].head if heads == "multi" else 0)


@both_heads
def test_replay_takes_the_posterior_it_finds_as_its_prior(heads: Any) -> None:
    learner = core.Learner(tiny.scenario(heads=heads), tiny.config(epochs=1))
    replays = [fit.began for fit in fits_of(learner, 2) if fit.name != "train"]
    assert len(replays) == (2 if heads == "single" else 3)
    for state in replays:
        for name in (n for n in state if n.endswith((".mu", ".rho"))):
            prior = name.replace(".mu", ".prior_mu").replace(".rho", ".prior_rho")
            assert torch.equal(state[name], state[prior])


def test_the_first_tasks_prior_is_zero_centred_and_later_ones_the_posterior() -> None:
    config = tiny.config(prior_var=0.5, **FIXED)
    fits = fits_of(core.Learner(tiny.scenario(heads="multi"), config))
    trainings = [fit for fit in fits if fit.name == "train"]
    first = trainings[0].began
    assert all((first[k] == 0).all() for k in first if k.endswith("prior_mu"))
    variances = torch.cat([first[k] for k in first if k.endswith("prior_rho")]).exp()
    torch.testing.assert_close(variances, torch.full_like(variances, 0.5))
    for before, now in pairwise(trainings):
        for k in range(2):
            for name in ("mu", "rho"):
                posterior = before.ended[f"hidden.{k}.{name}"]
                assert torch.equal(now.began[f"hidden.{k}.prior_{name}"], posterior)


@pytest.mark.parametrize("trunk", [False, True])
def test_multi_head_evaluation_leaves_the_network_bit_for_bit(trunk: bool) -> None:
    scenario = tiny.scenario(tiny.PAIRS[:2], "multi", trunk)
    learner = core.Learner(scenario, tiny.config(epochs=1, replay_steps=10))
    fits = fits_of(learner)
    trained = [fit for fit in fits if fit.name == "train"][-1].ended
    assert tiny.same(trained, learner.net.state_dict())
    for fit in fits[-2:]:  # and yet the copies were fitted, each from the trained one
        assert fit.net is not learner.net
        assert torch.equal(fit.began["hidden.0.mu"], trained["hidden.0.mu"])
        assert not torch.equal(fit.ended["hidden.0.mu"], trained["hidden.0.mu"])


# -------------------------------------------------------------------- stored data matters


@both_heads
def test_stored_labels_reach_the_loss(heads: Any) -> None:
    """A coreset with task 1's labels swapped teaches the wrong answer, and is heard."""
    config = tiny.config(replay_steps=150, replay_lr=0.03, coreset=12)
    accuracy = {}
    for poisoned in (False, True):
        run = Run(core.Learner(tiny.scenario(tiny.PAIRS[:2], heads, n=40), config))
        for t, _ in enumerate(run):
            if t == 0 and poisoned:
                clean = run.method.coreset[0]
                run.method.coreset[0] = clean._replace(y=1 - clean.y)
        accuracy[poisoned] = run.stages[-1].accuracy
    assert accuracy[False][0] > 0.8 and accuracy[True][0] < 0.3
    assert accuracy[True][1] > 0.8  # the other task's stored samples were true


@both_heads
def test_mixing_brings_stored_images_into_the_tasks_batches(
    heads: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = core.Learner(tiny.scenario(heads=heads), tiny.config(replay_mix=5, epochs=2))
    found: list[int] = []
    train_round = core.train_round

    def watched(posterior: Any, optimizer: Any, data: Any, phase: core.Phase, *more: Any) -> Any:
        gradients = posterior.gradients

        def counted(parts: Any, weight: float) -> Any:
            if len(learner.coreset) == 3 and phase.name == "train":
                x = torch.cat([part.x for part in parts])
                old = torch.cat([s.x for s in learner.coreset[:2]])
                found.append(int((x[:, None] == old[None]).all(2).any(1).sum()))
            return gradients(parts, weight)

        posterior.gradients = counted
        return train_round(posterior, optimizer, data, phase, *more)

    monkeypatch.setattr(core, "train_round", watched)
    for _ in Run(learner):
        pass
    assert set(found) == {5}


# ------------------------------------------------------------------ single-head strategies


def old_rows(state: dict[str, torch.Tensor], outputs: int) -> torch.Tensor:
    """The weights into the outputs of the first two classes, and their biases."""
    vector = state["heads.0.mu"]
    weight, bias = vector[:-outputs].view(outputs, -1), vector[-outputs:]
    return torch.cat([weight[:2].flatten(), bias[:2]])


def head_story(**changes: Any) -> dict[str, torch.Tensor]:
    """Old classes' output weights: after task 1, at the start and end of task 2, ..."""
    config = tiny.config(epochs=1, grow=False, **changes)
    first, replay, train, replay_two = fits_of(core.Learner(tiny.scenario(), config), 2)
    assert [first.name, train.name, replay.name] == ["train", "train", "replay"]
    return {
        "before": old_rows(replay.ended, 2),
        "begin": old_rows(train.began, 4),
        "trained": old_rows(train.ended, 4),
        "replay": old_rows(replay_two.began, 4),
    }


def test_all_three_strategies() -> None:
    """Fresh output layer, trained, old rows back as replay left them, then replay."""
    head = head_story()
    assert (head["begin"] != head["before"]).sum() >= 16  # weights; fresh biases are 0
    assert not torch.equal(head["trained"], head["begin"])
    assert torch.equal(head["replay"], head["before"])


def test_without_reinitialising_the_old_rows_stay_at_the_start() -> None:
    head = head_story(reinit_head=False)
    assert torch.equal(head["begin"], head["before"])
    assert not torch.equal(head["trained"], head["begin"])
    assert torch.equal(head["replay"], head["before"])


def test_without_restoring_replay_starts_from_the_trained_rows() -> None:
    head = head_story(restore_head=False)
    assert torch.equal(head["replay"], head["trained"])
    assert not torch.equal(head["replay"], head["before"])


@both_heads
@pytest.mark.parametrize("changes", [{"replay": False}, {"coreset": 0}])
def test_without_replay_or_stored_samples_there_is_none(heads: Any, changes: dict) -> None:
    learner = core.Learner(tiny.scenario(heads=heads), tiny.config(epochs=1, **changes))
    assert [fit.name for fit in fits_of(learner)] == ["train"] * 3


def test_the_single_head_widens_by_the_new_classes() -> None:
    scenario = tiny.scenario(((0, 1), (2, 3, 4), (1, 5)))
    run = Run(core.Learner(scenario, tiny.config(epochs=1)))
    widths = [run.method.net.heads[0].shape[0] for _ in run]
    assert widths == [2, 5, 6]  # class 1 was there already
    assert len(run.method.net.heads) == 1


def test_a_shared_head_of_the_same_classes_is_left_alone() -> None:
    """Permuted MNIST with one head: no new class, so no re-initialisation."""
    scenario = tiny.scenario(((0, 1), (0, 1)))
    fits = fits_of(core.Learner(scenario, tiny.config(epochs=1, grow=False)))
    replay, train = fits[1], fits[2]
    assert (replay.name, train.name) == ("replay", "train")
    assert torch.equal(replay.ended["heads.0.mu"], train.began["heads.0.mu"])


def test_the_newest_task_may_be_answered_without_a_fit() -> None:
    """Nothing touched it since; old tasks are fitted as ever."""
    scenario, config = tiny.scenario(heads="multi"), tiny.config(replay_newest=False)
    learner = core.Learner(scenario, config)
    names = [fit.name for fit in fits_of(learner)]
    assert names == ["train", "train", "fit 0", "train", "fit 0", "fit 1"]
    assert learner.net_for(2) is learner.net
    usual = runner.learn(scenario, tiny.config()).nll
    for mine, row in zip(runner.learn(scenario, config).nll, usual, strict=True):
        assert mine[:-1] == row[:-1] and mine[-1] != row[-1]


# ------------------------------------------------------------------------------ ablations


def test_vcl_neither_reinitialises_nor_grows() -> None:
    learner = core.Learner(tiny.scenario(heads="multi"), tiny.config(beta=1e9, gamma=1e9, **FIXED))
    trains = [fit for fit in fits_of(learner) if fit.name == "train"]
    assert learner.net.sizes() == [10, 8]
    assert learner.notes()["pruned"] == learner.notes()["added"] == []
    for before, now in pairwise(trains):
        for name in (f"hidden.{k}.{part}" for k in range(2) for part in ("mu", "rho")):
            assert torch.equal(before.ended[name], now.began[name])


def test_minus_a_reinitialises_but_does_not_grow() -> None:
    stages = learned(tiny.scenario(), tiny.config(beta=1.0, gamma=1e9, grow=False)).stages
    assert [stage.hidden for stage in stages] == [[10, 8]] * 3
    assert all(sum(stage.pruned) > 0 for stage in stages[1:])
    assert all(not stage.added for stage in stages)


def test_rcl_cpb_does_both() -> None:
    stages = learned(tiny.scenario(), tiny.config(beta=1.0, gamma=1e9)).stages
    assert stages[0].hidden == [10, 8]
    for before, stage in pairwise(stages):
        assert sum(stage.added) > 0 and sum(stage.pruned) > 0
        grown = [n + a for n, a in zip(before.hidden, stage.added, strict=True)]
        assert stage.hidden == grown


# ----------------------------------------------------------------------- Eq. 5's images


@pytest.fixture
def averaged(monkeypatch: pytest.MonkeyPatch) -> list[tuple[torch.Tensor, torch.Tensor, int]]:
    """Images, labels and classes of which Eq. 5's means are taken."""
    seen = []
    class_means = core.class_means

    def watched(net: Any, x: torch.Tensor, y: torch.Tensor, classes: int) -> Any:
        seen.append((x, y, classes))
        return class_means(net, x, y, classes)

    monkeypatch.setattr(core, "class_means", watched)
    return seen


def test_a_large_tasks_means_come_from_some_of_its_images(
    averaged: list, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eq. 5 costs the same however many images a task has."""
    learner = core.Learner(tiny.scenario(), tiny.config())
    data = learner.store(0, core.samples(learner.scenario, 0))
    whole = learner.task_means(0, data)
    monkeypatch.setattr(core, "MEANS_FROM", len(data.y) - 5)
    some = learner.task_means(0, data)
    _, (x, y, _) = averaged
    assert len(y) == len(data.y) - 5
    rows = (x[:, None] == data.x[None]).all(2).float().argmax(1)
    assert len(rows.unique()) == len(y)  # no image twice
    assert (data.y[rows] == y).all()
    for a, b in zip(whole, some, strict=True):
        assert a.shape == b.shape and not a.equal(b)


@pytest.mark.parametrize("trunk", [False, True])
@pytest.mark.parametrize(("limit", "every"), [(12, 1), (11, 2), (5, 3)])
def test_means_over_all_classes_take_some_of_many_stored_images(
    averaged: list, monkeypatch: pytest.MonkeyPatch, trunk: bool, limit: int, every: int
) -> None:
    """Eq. 5 over the whole output layer does not grow with the coreset for ever."""
    config = tiny.config(distance_classes="seen", coreset_choice="balanced")
    learner = core.Learner(tiny.scenario(trunk=trunk), config)
    for t in range(3):
        data = learner.store(t, core.samples(learner.scenario, t))
    monkeypatch.setattr(core, "MEANS_FROM_STORED", limit)
    learner.task_means(2, data)
    ((x, _, classes),) = averaged
    old = torch.cat([s.x[::every] for s in learner.coreset[:2]])
    assert classes == 6 and len(old) <= limit
    assert x.equal(torch.cat([data.x, old]))
    assert x.stride()[1:] == data.x.stride()[1:]  # channels last, as convolutions like


# ----------------------------------------------------------------------------- randomness


def test_a_run_neither_uses_nor_moves_the_global_generator(global_rng: None) -> None:
    state = torch.get_rng_state()
    first = runner.learn(tiny.scenario(), tiny.config())
    assert torch.equal(state, torch.get_rng_state())
    torch.manual_seed(12345)
    np.random.seed(1)  # noqa: NPY002 (the old global state is meant)
    second = runner.learn(tiny.scenario(), tiny.config())
    torch.set_rng_state(state)
    assert (first.nll, first.train_kl) == (second.nll, second.train_kl)


@both_heads
def test_every_draw_has_a_key_of_seed_task_phase_and_round(
    heads: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys: list[tuple] = []
    for owner in (core, runner):
        seeded = owner.seeded
        monkeypatch.setattr(owner, "seeded", lambda *key, s=seeded: keys.append(key) or s(*key))
    learned(tiny.scenario(heads=heads), tiny.config(replay_steps=150), seed=17)
    assert {key[0] for key in keys} == {17}
    rounds = [key for key in keys if len(key) == 4 and key[2] != "evaluate"]
    fits = 3 + (3 if heads == "single" else 1 + 2 + 3)  # trainings, and stored samples'
    assert len(rounds) == len(set(rounds)) == 3 * 3 + 2 * (fits - 3)
    for phase in ("coreset", "structure"):
        assert [key[1] for key in keys if phase in key] == [0, 1, 2]


def test_keys_that_differ_draw_differently_and_equal_ones_the_same() -> None:
    keys = [(0, 1, "train", 2), (1, 1, "train", 2), (0, 2, "train", 2)]
    keys += [(0, 1, "replay", 2), (0, 1, "train", 3), keys[0]]
    draws = []
    for key in keys:
        with method.seeded(*key):
            draws.append(torch.randn(3).tolist())
    assert draws[0] == draws[-1] and len({tuple(d) for d in draws}) == 5


# ------------------------------------------------------------------------ a trained start


@both_heads
@pytest.mark.parametrize("trunk", [False, True])
def test_a_run_may_go_on_from_a_trained_network(heads: Any, trunk: bool) -> None:
    """Its body as it is, under this run's settings; its posterior is the first prior."""
    scenario = tiny.scenario(tiny.PAIRS[:2], heads, trunk)
    start = learned(scenario, tiny.config(epochs=1, gamma=0.9)).method.net
    before = tiny.snapshot(start)
    config = tiny.config(epochs=1, sampling="local", rho_init=-4.0, **FIXED)
    learner = core.Learner(scenario, config, start=start)
    assert len(learner.net.heads) == 0 and learner.net.sizes() == start.sizes()
    assert learner.net.settings == config.layer_settings()
    assert all(layer.local for layer in learner.net.hidden)
    first = fits_of(learner, 1)[0].began
    for name in before:
        if name.startswith("hidden.") and name.endswith(("mu", "rho")):
            assert torch.equal(first[name], before[name.replace("prior_", "")])
    assert (first["heads.0.rho"] == -4.0).all()
    assert tiny.same(tiny.snapshot(start), before)  # and is itself left alone


def test_a_run_from_a_trained_network_prunes_and_grows_at_its_first_task() -> None:
    config = tiny.config(epochs=1, beta=1.0, gamma=1e9)
    start = learned(tiny.scenario(), config).method.net
    run = Run(core.Learner(tiny.scenario(), config, start=start))
    stage = next(iter(run))
    assert sum(stage.pruned) > 0 and sum(stage.added) > 0
    assert stage.hidden == [n + a for n, a in zip(start.sizes(), stage.added, strict=True)]


# ------------------------------------------------------------------------------- learning


@both_heads
def test_tiny_tasks_are_learned_and_remembered(heads: Any) -> None:
    config = tiny.config(epochs=6, replay_steps=100, coreset=10)
    accuracy = runner.learn(tiny.scenario(heads=heads, n=40), config).accuracy
    assert core.average_accuracy(accuracy) > (0.95 if heads == "multi" else 0.75)
    assert all(accuracy[t][t] > 0.7 for t in range(3))


def test_training_lowers_the_loss() -> None:
    few, many = (learned(tiny.scenario(), tiny.config(epochs=e)).stages for e in (1, 8))
    assert all(a.train_nll > b.train_nll for a, b in zip(few, many, strict=True))


def test_digits_single_head_clearly_beats_chance(digits: images.Images) -> None:
    """And without its strategies it forgets everything: that is what they are for."""
    config = core.Config(
        hidden=(48, 48),
        beta=0.003,
        coreset=20,
        epochs=4,
        batch_size=64,
        replay_steps=100,
    )
    scenario = scenarios.split_mnist(digits)
    record = runner.learn(scenario, config)
    assert core.average_accuracy(record.accuracy) > 0.55  # chance is 0.1
    assert min(record.accuracy[-1]) > 0.2  # no old task is gone
    assert record.hidden[0] == [48, 48] and sum(record.hidden[-1]) > 96
    bare = runner.learn(scenario, replace(config, replay=False, restore_head=False))
    assert max(bare.accuracy[-1][:-1]) < 0.1 and bare.accuracy[-1][-1] > 0.8


def test_digits_multi_head_clearly_beats_chance(digits: images.Images) -> None:
    config = core.Config(hidden=(32, 32), gamma=0.2, epochs=3, batch_size=64, replay_steps=60)
    record = runner.learn(scenarios.split_mnist(digits, "multi"), config)
    assert core.average_accuracy(record.accuracy) > 0.9  # chance is 0.5


@both_heads
def test_local_sampling_mixing_and_decay_learn_too(heads: Any) -> None:
    config = tiny.config(sampling="local", decay=True, replay_mix=8, epochs=6, replay_steps=60)
    record = runner.learn(tiny.scenario(heads=heads, n=40), config)
    assert core.average_accuracy(record.accuracy) > 0.7


@both_heads
def test_a_trunk_learns_prunes_and_grows(heads: Any) -> None:
    scenario = tiny.scenario(tiny.PAIRS[:2], heads, trunk=True)
    record = runner.learn(scenario, tiny.config(epochs=4, gamma=1e9, beta=0.1))
    assert sum(record.hidden[-1]) > 18 and sum(record.pruned[1]) > 0
    assert core.average_accuracy(record.accuracy) > 0.6


@both_heads
def test_training_images_are_augmented_and_stored_ones_distorted(
    heads: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds: dict[str, set[str]] = {"train": set(), "stored": set()}
    running: list[str] = []
    train_round, distort = core.train_round, method.distort

    def watched(posterior: Any, optimizer: Any, data: Any, phase: core.Phase, *more: Any) -> Any:
        running.append("train" if phase.name == "train" else "stored")
        return train_round(posterior, optimizer, data, phase, *more)

    def spy_distort(x: Any, shape: Any, kind: str, flip: bool) -> Any:
        kinds[running[-1]].add(kind)
        return distort(x, shape, kind, flip)

    monkeypatch.setattr(core, "train_round", watched)
    monkeypatch.setattr(method, "distort", spy_distort)
    config = tiny.config(augment="shift", distort="affine", epochs=1)
    learned(tiny.scenario(heads=heads), config)
    assert kinds == {"train": {"shift"}, "stored": {"affine"}}
    learned(tiny.scenario(heads=heads), replace(config, replay_mix=4))
    assert kinds == {"train": {"shift", "affine"}, "stored": {"affine"}}


def test_decay_lets_both_rates_fall_linearly(monkeypatch: pytest.MonkeyPatch) -> None:
    rates: list[list[float]] = []
    train_round = core.train_round

    def watched(posterior: Any, optimizer: Any, *rest: Any) -> Any:
        rates.append([group["lr"] for group in optimizer.param_groups])
        return train_round(posterior, optimizer, *rest)

    monkeypatch.setattr(core, "train_round", watched)
    config = tiny.config(epochs=4, lr_mu=0.02, lr_rho=0.04, replay=False, decay=True)
    learned(tiny.scenario(tiny.PAIRS[:1]), config)
    expected = [[0.02 * f, 0.04 * f] for f in (1, 0.75, 0.5, 0.25)]
    np.testing.assert_allclose(rates, expected)


# ---------------------------------------------------------------------- extreme settings


@settings(max_examples=30)
@given(
    pixels=st.sampled_from(["normal", "black", "white", "huge"]),
    classes=st.sampled_from([((0, 1), (2, 3)), ((0,), (1,)), ((0, 1, 2), (5,))]),
    n=st.sampled_from([2, 24]),
    heads=st.sampled_from(["single", "multi"]),
    changes=st.fixed_dictionaries(
        {
            "rho_init": st.sampled_from([-300.0, -60.0, -6.0, 0.0, 10.0]),
            "gamma": st.sampled_from([0.0, 1e9]),
            "beta": st.sampled_from([0.0, 1e9]),
            "sampling": st.sampled_from(["weight", "local"]),
        }
    ),
)
def test_extreme_inputs_stay_finite_or_fail_clearly(
    pixels: str, classes: Any, n: int, heads: Any, changes: dict
) -> None:
    made = []
    for labels in classes:
        x, y, x_test, y_test = tiny.arrays(labels, n)
        scale = {"normal": None, "black": 0.0, "white": 1.0, "huge": 1e15}[pixels]
        if scale is not None:
            x, x_test = (np.full(a.shape, scale, np.float32) for a in (x, x_test))
        made.append((x, y, x_test, y_test))
    config = tiny.config(coreset=1, epochs=2, replay_steps=5, **changes)
    try:
        record = runner.learn(scenarios.from_arrays(made, heads), config)
    except RclCpbError as error:
        said = str(error)
    else:
        json.dumps(asdict(record), allow_nan=False)  # every number is finite
        return
    if heads == "multi" and any(len(labels) == 1 for labels in classes):
        assert "a head with one class is always right" in said
    else:
        assert said.startswith("task") and "not finite" in said


def test_a_coreset_larger_than_a_task_is_refused_before_anything_is_learned() -> None:
    with pytest.raises(RclCpbError, match=r"coreset=48, but task 1 \(task 0\) has only 48"):
        core.Learner(tiny.scenario(), tiny.config(coreset=48))


def test_one_heads_shuffled_images_cannot_be_distorted(digits: images.Images) -> None:
    scenario = scenarios.permuted_mnist(digits, 2, heads="single")
    with pytest.raises(RclCpbError, match="distort='none'"):
        core.Learner(scenario, tiny.config(distort="shift"))
