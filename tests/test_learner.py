"""Algorithm 1: its order, its switches, its randomness, and that it learns."""

from __future__ import annotations

import copy
import dataclasses
import json
import math
from dataclasses import asdict, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import tiny
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

import rclcpb_core as core
from rclcpb_fast import FlatPosterior

TIMES = ("seconds", "structure_seconds", "peak_mib", "started")


def content(record: core.Record) -> dict[str, Any]:
    """A record without what differs from run to run."""
    return {k: v for k, v in asdict(record).items() if k not in TIMES}


def at_fits(learner: core.Learner, tasks: int | None = None) -> list[dict[str, Any]]:
    """Run; for each fit: its task, phase, data, and the network as it began."""
    seen: list[dict[str, Any]] = []
    original = learner.fit

    def fit(net: Any, t: int, phase: core.Phase, data: core.Samples) -> Any:
        seen.append({"t": t, "phase": phase, "data": data, "net": net, "began": tiny.snapshot(net)})
        result = original(net, t, phase, data)
        seen[-1]["ended"] = tiny.snapshot(net)
        return result

    learner.fit = fit  # type: ignore[method-assign]
    for done, _ in enumerate(learner, 1):
        if done == tasks:
            break
    return seen


# ------------------------------------------------------------------- the order of steps


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the learner calls, in order; a copy's steps are marked with a star."""
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
    spy(core.Learner, "learn_task", lambda self, t: f"task {t}")
    spy(core.Learner, "split_task", "coreset")
    spy(core.ProgressiveBNN, "posterior_becomes_prior", lambda net: f"prior{star(net)}")
    spy(core, "prune", "prune")
    spy(core, "grow", "grow")
    spy(core.Learner, "open_head", "head")
    spy(core.Learner, "fit", lambda self, net, t, phase, *a: phase.name + star(net))
    spy(core.Learner, "restore_rows", "restore")
    spy(core.Learner, "evaluate", lambda self, j, net: f"evaluate {j}{star(net)}")
    return calls


def test_single_head_order(steps: list[str]) -> None:
    for _ in core.Learner(tiny.scenario(tiny.PAIRS[:2]), tiny.config(epochs=1)):
        pass
    assert steps == [
        "start",
        "task 0",
        "coreset",
        "head",
        "evaluate 0",
        "train",
        "prior",
        "replay",
        "evaluate 0",
        "task 1",
        "coreset",
        "prior",
        "prune",
        "grow",
        "head",
        "evaluate 1",
        "train",
        "restore",
        "prior",
        "replay",
        "evaluate 0",
        "evaluate 1",
    ]


def test_multi_head_order(steps: list[str]) -> None:
    for _ in core.Learner(tiny.scenario(tiny.PAIRS[:2], "multi"), tiny.config(epochs=1)):
        pass
    assert steps == [
        "start",
        "task 0",
        "coreset",
        "head",
        "evaluate 0",
        "train",
        "prior*",
        "fit 0*",
        "evaluate 0*",
        "task 1",
        "coreset",
        "prior",
        "prune",
        "grow",
        "head",
        "evaluate 1",
        "train",
        "prior*",
        "fit 0*",
        "evaluate 0*",
        "prior*",
        "fit 1*",
        "evaluate 1*",
    ]


@pytest.mark.parametrize("heads", ["single", "multi"])
def test_each_fit_gets_its_data(heads: Any) -> None:
    """D_t without CT_t in training; CT_1..t in replay; CT_j at evaluation."""
    learner = core.Learner(tiny.scenario(heads=heads), tiny.config(epochs=1))
    for fit in at_fits(learner):
        name, data, t = fit["phase"].name, fit["data"], fit["t"]
        if name == "train":
            expected = [learner.split_task(t)[0]]
        elif name == "replay":
            expected = learner.coreset[: t + 1]
        else:
            expected = [learner.coreset[int(name.removeprefix("fit "))]]
        assert torch.equal(data.x, torch.cat([s.x for s in expected]))
        assert torch.equal(data.y, torch.cat([s.y for s in expected]))
        assert data.head == (expected[0].head if heads == "multi" else 0)


def test_replay_takes_the_posterior_it_finds_as_its_prior() -> None:
    for heads, kind in (("single", "replay"), ("multi", "fit")):
        learner = core.Learner(tiny.scenario(heads=heads), tiny.config(epochs=1))
        for fit in at_fits(learner, 2):
            if fit["phase"].name.startswith(kind):
                state = fit["began"]
                for name in state:
                    if name.endswith(".mu") or name.endswith(".rho"):
                        prior = name.replace(".mu", ".prior_mu").replace(".rho", ".prior_rho")
                        assert torch.equal(state[name], state[prior])


def test_the_first_tasks_prior_is_zero_centred_and_later_ones_the_posterior() -> None:
    config = tiny.config(prior_var=0.5, prune=False, grow=False)
    fits = at_fits(core.Learner(tiny.scenario(heads="multi"), config))
    trainings = [fit for fit in fits if fit["phase"].name == "train"]
    first = trainings[0]["began"]
    assert all((first[k] == 0).all() for k in first if k.endswith("prior_mu"))
    variances = torch.cat([first[k] for k in first if k.endswith("prior_rho")]).exp()
    torch.testing.assert_close(variances, torch.full_like(variances, 0.5))
    for before, now in pairwise(trainings):
        for k in range(2):
            for name in ("mu", "rho"):
                posterior = before["ended"][f"hidden.{k}.{name}"]
                assert torch.equal(now["began"][f"hidden.{k}.prior_{name}"], posterior)


@pytest.mark.parametrize("trunk", [False, True])
def test_multi_head_evaluation_leaves_the_network_bit_for_bit(trunk: bool) -> None:
    scenario = tiny.scenario(tiny.PAIRS[:2], "multi", trunk)
    learner = core.Learner(scenario, tiny.config(epochs=1, replay_steps=10))
    fits = at_fits(learner)
    trained = [fit for fit in fits if fit["phase"].name == "train"][-1]["ended"]
    assert tiny.same(trained, learner.net.state_dict())
    for fit in fits[-2:]:  # and yet the copies were fitted, each from the trained one
        assert fit["net"] is not learner.net
        assert torch.equal(fit["began"]["hidden.0.mu"], trained["hidden.0.mu"])
        assert not torch.equal(fit["ended"]["hidden.0.mu"], trained["hidden.0.mu"])


# ----------------------------------------------------------------- stored data matters


def test_replayed_labels_reach_the_loss() -> None:
    """A coreset with task 1's labels swapped teaches the wrong answer, and is heard."""
    config = tiny.config(replay_steps=150, replay_lr=0.03, coreset=12)
    accuracy = {}
    for poisoned in (False, True):
        learner = core.Learner(tiny.scenario(tiny.PAIRS[:2], n=40), config)
        for t, _ in enumerate(learner):
            if t == 0 and poisoned:
                clean = learner.coreset[0]
                learner.coreset[0] = clean._replace(y=1 - clean.y)
        accuracy[poisoned] = learner.stages[-1].accuracy
    assert accuracy[False][0] > 0.8 and accuracy[True][0] < 0.3
    assert accuracy[True][1] > 0.8  # the other task's stored samples were true


def test_multi_head_answers_after_a_fit_on_that_tasks_stored_samples() -> None:
    config = tiny.config(replay_steps=150, replay_lr=0.03, coreset=12)
    accuracy = {}
    for poisoned in (False, True):
        learner = core.Learner(tiny.scenario(tiny.PAIRS[:2], "multi", n=40), config)
        for t, _ in enumerate(learner):
            if t == 0 and poisoned:
                clean = learner.coreset[0]
                learner.coreset[0] = clean._replace(y=1 - clean.y)
        accuracy[poisoned] = learner.stages[-1].accuracy
    assert accuracy[False][0] > 0.8 and accuracy[True][0] < 0.3
    assert accuracy[True][1] > 0.8


@pytest.mark.parametrize("heads", ["single", "multi"])
def test_mixing_brings_stored_images_into_the_tasks_batches(
    heads: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = core.Learner(tiny.scenario(heads=heads), tiny.config(replay_mix=5, epochs=2))
    found: list[int] = []
    original = core.FlatPosterior.loss

    def loss(self: Any, parts: Any, weight: float) -> Any:
        if len(learner.coreset) == 3 and not learner.partial_fit:
            x = torch.cat([part.x for part in parts])
            old = torch.cat([s.x for s in learner.coreset[:2]])
            found.append(int((x[:, None] == old[None]).all(2).any(1).sum()))
        return original(self, parts, weight)

    monkeypatch.setattr(core.FlatPosterior, "loss", loss)
    fit = learner.fit

    def spy(net: Any, t: int, phase: core.Phase, data: core.Samples) -> Any:
        learner.partial_fit = phase.name != "train"  # type: ignore[attr-defined]
        return fit(net, t, phase, data)

    learner.fit = spy  # type: ignore[method-assign]
    for _ in learner:
        pass
    assert set(found) == {5}


# --------------------------------------------------------------- single-head strategies


def old_rows(state: dict, name: str, rows: int, columns: int) -> torch.Tensor:
    """The weights of the old classes into the old hidden neurons, and their biases."""
    vector = state[f"heads.0.{name}"]
    out = len(vector) // (
        1 + state["hidden.1.mu"].numel() // (1 + state["hidden.0.mu"].numel() // 37)
    )
    weight, bias = vector[:-out].view(out, -1), vector[-out:]
    return torch.cat([weight[:rows, :columns].flatten(), bias[:rows]])


def head_story(**changes: Any) -> dict[str, torch.Tensor]:
    """Old classes' output weights: after task 1, at the start and end of task 2, ..."""
    config = tiny.config(epochs=1, grow=False, **changes)
    fits = at_fits(core.Learner(tiny.scenario(), config), 2)
    trains = [f for f in fits if f["phase"].name == "train"]
    replays = [f for f in fits if f["phase"].name == "replay"]
    states = {"begin": trains[1]["began"], "trained": trains[1]["ended"]}
    states["before"] = (replays or trains)[0]["ended"]
    if replays:
        states["replay"] = replays[1]["began"]
    return {k: old_rows(v, "mu", 2, 8) for k, v in states.items()}


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


def test_without_replay_there_is_none() -> None:
    learner = core.Learner(tiny.scenario(), tiny.config(epochs=1, replay=False))
    assert {fit["phase"].name for fit in at_fits(learner)} == {"train"}
    multi = core.Learner(tiny.scenario(heads="multi"), tiny.config(epochs=1, replay=False))
    assert {fit["phase"].name for fit in at_fits(multi)} == {"train"}


def test_no_coreset_means_no_replay() -> None:
    for heads in ("single", "multi"):
        scenario = tiny.scenario(heads=heads)
        learner = core.Learner(scenario, tiny.config(epochs=1, coreset=0))
        assert {fit["phase"].name for fit in at_fits(learner)} == {"train"}


def test_the_single_head_widens_by_the_new_classes() -> None:
    scenario = tiny.scenario(((0, 1), (2, 3, 4), (1, 5)))
    learner = core.Learner(scenario, tiny.config(epochs=1))
    widths = [learner.net.heads[0].shape[0] for _ in learner]
    assert widths == [2, 5, 6]  # class 1 was there already
    assert len(learner.net.heads) == 1


def test_a_shared_head_of_the_same_classes_is_left_alone() -> None:
    """Permuted MNIST with one head: no new class, so no re-initialisation."""
    scenario = tiny.scenario(((0, 1), (0, 1)))
    config = tiny.config(epochs=1, grow=False)
    fits = at_fits(core.Learner(scenario, config))
    replay, train = fits[1], fits[2]
    assert (replay["phase"].name, train["phase"].name) == ("replay", "train")
    assert torch.equal(replay["ended"]["heads.0.mu"], train["began"]["heads.0.mu"])


# -------------------------------------------------------------------------- ablations


def test_vcl_neither_reinitialises_nor_grows() -> None:
    config = tiny.config(beta=1e9, gamma=1e9, prune=False, grow=False)
    learner = core.Learner(tiny.scenario(heads="multi"), config)
    trains = [f for f in at_fits(learner) if f["phase"].name == "train"]
    assert [stage.hidden for stage in learner.stages] == [[10, 8]] * 3
    assert all(not stage.pruned and not stage.added for stage in learner.stages)
    for before, now in pairwise(trains):
        for k in range(2):
            for name in ("mu", "rho"):
                name = f"hidden.{k}.{name}"
                assert torch.equal(before["ended"][name], now["began"][name])


def test_minus_a_reinitialises_but_does_not_grow() -> None:
    config = tiny.config(beta=1.0, gamma=1e9, grow=False)
    learner = core.Learner(tiny.scenario(), config)
    for _ in learner:
        pass
    assert [stage.hidden for stage in learner.stages] == [[10, 8]] * 3
    assert all(sum(stage.pruned) > 0 for stage in learner.stages[1:])
    assert all(not stage.added for stage in learner.stages)


def test_rcl_cpb_does_both() -> None:
    learner = core.Learner(tiny.scenario(), tiny.config(beta=1.0, gamma=1e9))
    for _ in learner:
        pass
    assert learner.stages[0].hidden == [10, 8]
    for before, stage in pairwise(learner.stages):
        assert sum(stage.added) > 0 and sum(stage.pruned) > 0
        grown = [n + a for n, a in zip(before.hidden, stage.added, strict=True)]
        assert stage.hidden == grown


@pytest.mark.parametrize("heads", ["single", "multi"])
def test_coreset_only_learns_from_the_stored_samples_alone(heads: Any) -> None:
    """Noise in place of all other training images changes nothing."""
    config = tiny.config(coreset_only=True, prune=False, grow=False)
    clean = tiny.scenario(heads=heads)
    learner = core.Learner(clean, config)
    fits = at_fits(learner)
    assert not any(fit["phase"].name == "train" for fit in fits)
    first = core.learn(clean, config)
    noisy = []
    for t, task in enumerate(clean.tasks):
        x = np.random.default_rng(t).integers(0, 256, task.x_train.shape, dtype=np.uint8)
        kept = {row.numpy().tobytes() for row in learner.coreset[t].x}
        for i, image in enumerate(clean.inputs(task.x_train, task, torch.device("cpu"))):
            if image.numpy().tobytes() in kept:
                x[i] = task.x_train[i]
        noisy.append(replace(task, x_train=x))
    second = core.learn(replace(clean, tasks=tuple(noisy)), config)
    assert first.accuracy == second.accuracy and first.nll == second.nll
    assert np.mean(first.accuracy[-1]) > 0.4


@pytest.mark.parametrize("heads", ["single", "multi"])
def test_coreset_only_keeps_the_prior_of_task_1(heads: Any) -> None:
    """A random start is no knowledge: a KL to it would only hold the control back."""
    config = tiny.config(coreset_only=True, prune=False, grow=False, replay_kl=0.1)
    for fit in at_fits(core.Learner(tiny.scenario(heads=heads), config)):
        layer = fit["net"].hidden[0]
        assert (layer.prior_mu == 0).all() and (layer.prior_rho == 0).all()


def test_with_a_head_a_task_coreset_only_fits_each_task_once() -> None:
    """No later task touches that network: its scores stand, nothing is forgotten."""
    config = tiny.config(coreset_only=True, prune=False, grow=False)
    learner = core.Learner(tiny.scenario(heads="multi"), config)
    fits = at_fits(learner)
    assert [fit["phase"].name for fit in fits] == ["fit 0", "fit 1", "fit 2"]
    for before, stage in pairwise(learner.stages):
        for row in ("accuracy", "nll", "ece"):
            assert getattr(stage, row)[:-1] == getattr(before, row)
    assert core.forgetting([stage.accuracy for stage in learner.stages]) == 0


def test_the_newest_task_may_be_answered_without_a_fit() -> None:
    """Nothing touched it since: old tasks are fitted as ever, the control always."""
    scenario, config = tiny.scenario(heads="multi"), tiny.config(replay_newest=False)
    learner = core.Learner(scenario, config)
    names = [fit["phase"].name for fit in at_fits(learner)]
    assert names == ["train", "train", "fit 0", "train", "fit 0", "fit 1"]
    assert learner.net_for(2, 2) is learner.net
    usual = core.learn(scenario, tiny.config()).accuracy
    for mine, row in zip(core.learn(scenario, config).accuracy, usual, strict=True):
        assert mine[:-1] == row[:-1]
    control = replace(config, coreset_only=True, prune=False, grow=False)
    fits = at_fits(core.Learner(scenario, control))
    assert [fit["phase"].name for fit in fits] == ["fit 0", "fit 1", "fit 2"]


# -------------------------------------------------------------------------- randomness


@pytest.mark.parametrize("heads", ["single", "multi"])
@pytest.mark.parametrize("sampling", ["weight", "local"])
def test_same_seed_same_record_other_seed_other_record(heads: Any, sampling: Any) -> None:
    scenario, config = tiny.scenario(heads=heads), tiny.config(sampling=sampling)
    one, again, other = (content(core.learn(scenario, config, s)) for s in (3, 3, 4))
    assert one == again
    assert one["nll"] != other["nll"] and one["train_kl"] != other["train_kl"]


def test_a_learner_neither_uses_nor_moves_the_global_generator(
    global_rng: None,
) -> None:
    state = torch.get_rng_state()
    first = content(core.learn(tiny.scenario(), tiny.config()))
    assert torch.equal(state, torch.get_rng_state())
    torch.manual_seed(12345)
    np.random.seed(1)  # noqa: NPY002 (the old global state is meant)
    second = content(core.learn(tiny.scenario(), tiny.config()))
    torch.set_rng_state(state)
    assert first == second


@pytest.mark.parametrize("heads", ["single", "multi"])
def test_every_draw_has_a_key_of_seed_task_phase_and_round(
    heads: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys: list[tuple] = []
    original = core.seeded
    monkeypatch.setattr(core, "seeded", lambda *key: keys.append(key) or original(*key))
    core.learn(tiny.scenario(heads=heads), tiny.config(replay_steps=150), seed=17)
    assert {key[0] for key in keys} == {17}
    rounds = [key for key in keys if len(key) == 4 and key[2] != "evaluate"]
    fits = 3 + (3 if heads == "single" else 1 + 2 + 3)  # trainings, and stored samples'
    assert len(rounds) == len(set(rounds)) == 3 * 3 + 2 * (fits - 3)
    for phase in ("coreset", "structure"):
        assert [key[1] for key in keys if phase in key] == [0, 1, 2]


def test_keys_that_differ_draw_differently_and_equal_ones_the_same() -> None:
    keys = [
        (0, 1, "train", 2),
        (1, 1, "train", 2),
        (0, 2, "train", 2),
        (0, 1, "replay", 2),
        (0, 1, "train", 3),
        (0, 1, "train", 2),
    ]
    draws = []
    for key in keys:
        with core.seeded(*key):
            draws.append(torch.randn(3).tolist())
    assert draws[0] == draws[-1] and len({tuple(d) for d in draws}) == 5


def test_other_work_between_two_tasks_changes_nothing() -> None:
    """A notebook may draw, plot and predict between stages."""
    plain = content(core.learn(tiny.scenario(), tiny.config()))
    learner = core.Learner(tiny.scenario(), tiny.config())
    for _ in learner:
        torch.randn(1000)
        core.predict(learner.net, torch.rand(5, 36))
    record = core.learn(tiny.scenario(), tiny.config(), learner=learner)
    assert content(record) == plain


def test_two_learners_side_by_side_do_not_disturb_each_other() -> None:
    alone = [content(core.learn(tiny.scenario(), tiny.config(), s)) for s in (0, 1)]
    pair = [core.Learner(tiny.scenario(), tiny.config(), s) for s in (0, 1)]
    for _ in zip(*pair, strict=True):
        pass
    together = [
        core.learn(tiny.scenario(), tiny.config(), s, learner=learner)
        for s, learner in enumerate(pair)
    ]
    assert [content(record) for record in together] == alone


# ---------------------------------------------------------------------------- learning


def test_tiny_tasks_are_learned_and_remembered() -> None:
    for heads, floor in (("multi", 0.95), ("single", 0.75)):
        config = tiny.config(epochs=6, replay_steps=100, coreset=10)
        record = core.learn(tiny.scenario(heads=heads, n=40), config)
        assert core.average_accuracy(record.accuracy) > floor, heads
        assert all(record.accuracy[t][t] > 0.7 for t in range(3))


def test_training_lowers_the_loss() -> None:
    few, many = (core.learn(tiny.scenario(), tiny.config(epochs=e)) for e in (1, 8))
    assert all(a > b for a, b in zip(few.train_nll, many.train_nll, strict=True))


def test_digits_single_head_clearly_beats_chance(digits: core.Images) -> None:
    config = core.Config(
        hidden=(48, 48),
        beta=0.003,
        gamma=0.1,
        coreset=20,
        epochs=4,
        batch_size=64,
        replay_steps=100,
    )
    record = core.learn(core.split_mnist(digits), config)
    assert core.average_accuracy(record.accuracy) > 0.55  # chance is 0.1
    assert min(record.accuracy[-1]) > 0.2  # no old task is gone
    assert record.hidden[0] == [48, 48] and sum(record.hidden[-1]) > 96


def test_digits_multi_head_clearly_beats_chance(digits: core.Images) -> None:
    config = core.Config(hidden=(32, 32), gamma=0.2, epochs=3, batch_size=64, replay_steps=60)
    record = core.learn(core.split_mnist(digits, "multi"), config)
    assert core.average_accuracy(record.accuracy) > 0.9  # chance is 0.5


def test_without_its_strategies_a_single_head_forgets_everything(
    digits: core.Images,
) -> None:
    """What the strategies are for; if this fails, the test above shows nothing."""
    config = core.Config(
        hidden=(48, 48), beta=0.003, epochs=4, batch_size=64, replay=False, restore_head=False
    )
    record = core.learn(core.split_mnist(digits), config)
    assert max(record.accuracy[-1][:-1]) < 0.1 and record.accuracy[-1][-1] > 0.8


def test_local_sampling_mixing_and_decay_learn_too() -> None:
    config = tiny.config(sampling="local", decay=True, replay_mix=8, epochs=6, replay_steps=60)
    for heads in ("single", "multi"):
        record = core.learn(tiny.scenario(heads=heads, n=40), config)
        assert core.average_accuracy(record.accuracy) > 0.7


@pytest.mark.parametrize("heads", ["single", "multi"])
def test_training_images_are_augmented_and_stored_ones_distorted(
    heads: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds: dict[str, set[str]] = {"train": set(), "stored": set()}
    running: list[str] = []
    fit, distort = core.Learner.fit, core.distort

    def spy_fit(self: Any, net: Any, t: int, phase: core.Phase, *rest: Any) -> Any:
        running.append("train" if phase.name == "train" else "stored")
        return fit(self, net, t, phase, *rest)

    def spy_distort(x: Any, shape: Any, kind: str, flip: bool) -> Any:
        kinds[running[-1]].add(kind)
        return distort(x, shape, kind, flip)

    monkeypatch.setattr(core.Learner, "fit", spy_fit)
    monkeypatch.setattr(core, "distort", spy_distort)
    config = tiny.config(augment="shift", distort="affine", epochs=1)
    core.learn(tiny.scenario(heads=heads), config)
    assert kinds == {"train": {"shift"}, "stored": {"affine"}}
    core.learn(tiny.scenario(heads=heads), replace(config, replay_mix=4))
    assert kinds == {"train": {"shift", "affine"}, "stored": {"affine"}}


def test_decay_lets_both_rates_fall_linearly(monkeypatch: pytest.MonkeyPatch) -> None:
    rates: list[list[float]] = []
    original = core.train_round

    def spy(flat: Any, optimizer: Any, *rest: Any) -> Any:
        rates.append([group["lr"] for group in optimizer.param_groups])
        return original(flat, optimizer, *rest)

    monkeypatch.setattr(core, "train_round", spy)
    config = tiny.config(epochs=4, lr_mu=0.02, lr_rho=0.04, replay=False, decay=True)
    core.learn(tiny.scenario(tiny.PAIRS[:1]), config)
    expected = [[0.02 * f, 0.04 * f] for f in (1, 0.75, 0.5, 0.25)]
    np.testing.assert_allclose(rates, expected)


@pytest.mark.parametrize("heads", ["single", "multi"])
def test_a_trunk_learns_prunes_and_grows(heads: Any) -> None:
    scenario = tiny.scenario(tiny.PAIRS[:2], heads, trunk=True)
    record = core.learn(scenario, tiny.config(epochs=4, gamma=1e9, beta=0.1))
    assert sum(record.hidden[-1]) > 18 and sum(record.pruned[1]) > 0
    assert core.average_accuracy(record.accuracy) > 0.6


# -------------------------------------------------------------------- extreme settings


@settings(max_examples=30)
@given(
    images=st.sampled_from(["normal", "black", "white", "huge"]),
    classes=st.sampled_from([((0, 1), (2, 3)), ((0,), (1,)), ((0, 1, 2), (5,))]),
    n=st.sampled_from([2, 24]),
    rho_init=st.sampled_from([-300.0, -60.0, -6.0, 0.0, 10.0]),
    gamma=st.sampled_from([0.0, 1e9]),
    sampling=st.sampled_from(["weight", "local"]),
    heads=st.sampled_from(["single", "multi"]),
    beta=st.sampled_from([0.0, 1e9]),
)
def test_extreme_inputs_stay_finite_or_fail_clearly(
    images: str,
    classes: Any,
    n: int,
    rho_init: float,
    gamma: float,
    sampling: Any,
    heads: Any,
    beta: float,
) -> None:
    made = []
    for labels in classes:
        x, y, x_test, y_test = tiny.arrays(labels, n)
        scale = {"normal": None, "black": 0.0, "white": 1.0, "huge": 1e15}[images]
        if scale is not None:
            x, x_test = (np.full(a.shape, scale, np.float32) for a in (x, x_test))
        made.append((x, y, x_test, y_test))
    scenario = core.from_arrays(made, heads)
    config = tiny.config(
        rho_init=rho_init,
        gamma=gamma,
        beta=beta,
        sampling=sampling,
        coreset=1,
        epochs=2,
        replay_steps=5,
    )
    try:
        record = core.learn(scenario, config)
    except core.RclCpbError as error:
        said = str(error)
    else:
        json.dumps(asdict(record), allow_nan=False)  # every number is finite
        return
    assert said.startswith("task") and "not finite" in said


# ------------------------------------------------------------------------------ config


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden": ()}, "at least one neuron"),
        ({"hidden": (8, 0)}, "at least one neuron"),
        ({"beta": -0.1}, "beta.*0 or more"),
        ({"gamma": (0.1, -1.0)}, "gamma.*0 or more"),
        ({"beta": math.nan}, "beta.*0 or more"),
        ({"gamma": math.inf}, "gamma"),
        ({"beta": (1.0, 2.0, 3.0)}, "3 values for 2 hidden layers"),
        ({"prune": False, "grow": True}, "needs prune=True"),
        ({"epochs": 0}, "epochs=0: must be above 0"),
        ({"batch_size": -4}, "batch_size"),
        ({"lr_mu": 0.0}, "lr_mu"),
        ({"lr_rho": math.nan}, "lr_rho"),
        ({"prior_var": 0.0}, "prior_var"),
        ({"coreset": -1}, "coreset=-1: must be 0 or more"),
        ({"kl_weight": -1.0}, "kl_weight"),
        ({"coreset": 0, "replay_mix": 4}, "need a coreset"),
        ({"coreset": 0, "coreset_only": True}, "need a coreset"),
        ({"sampling": "flipout"}, "sampling='flipout': choose from weight, local"),
        ({"coreset_choice": "kcentre"}, "coreset_choice='kcentre': choose from random"),
        ({"mu_init": "he"}, "mu_init"),
        ({"new_into_old": "none"}, "new_into_old"),
        ({"distort": "rotate"}, "distort"),
    ],
)
def test_bad_settings_are_one_clear_sentence(changes: dict, message: str) -> None:
    with pytest.raises(core.RclCpbError, match=message) as caught:
        tiny.config(**changes)
    assert "\n" not in str(caught.value)


def test_one_heads_shuffled_images_cannot_be_distorted(digits: core.Images) -> None:
    scenario = core.permuted_mnist(digits, 2, heads="single")
    with pytest.raises(core.RclCpbError, match="distort='none'"):
        core.Learner(scenario, tiny.config(distort="shift"))


def test_config_survives_json() -> None:
    config = tiny.config(beta=(0.1, 0.2), gamma=0.3, sampling="local")
    values = json.loads(json.dumps(asdict(config)))
    assert core.Config.from_json(values) == config
    with pytest.raises(core.RclCpbError, match=r"another version.*speed"):
        core.Config.from_json(values | {"speed": 1})
    values.pop("beta")  # a record older than the field
    assert core.Config.from_json(values) == replace(config, beta=core.Config().beta)


def test_presets_hold_the_papers_numbers() -> None:
    """Its table of beta and gamma ("e" read as 10 to the), first sizes, coresets."""
    paper = {
        "pmnist": ((32, 32), 1e-5, 0.3, 200),
        "mh-smnist": ((64, 64), 1e-5, 0.2, 40),
        "ta-smnist": ((128, 128), 10**-2.5, 0.1, 20),
        "mh-cifar100": ((128, 128), 1e-4, 0.15, 256),
        "ta-cifar100": ((256, 256), 1e-2, 0.15, 256),
        "mnist-svhn-cifar10": ((256, 256), 1e-9, 0.08, 512),
    }
    for name, (hidden, beta, gamma, coreset) in paper.items():
        preset = core.preset(name)
        assert preset.hidden == hidden and preset.coreset == coreset
        assert preset.beta == (pytest.approx(beta),) and preset.gamma == (gamma,)
        assert preset.prune and preset.grow
    for name in core.SCENARIOS:
        for method in core.METHODS:
            core.preset(name, method)  # every scenario has every method
        vcl, minus_a = core.preset(name, "vcl"), core.preset(name, "rcl-cpb-A")
        assert not (vcl.prune or vcl.grow or minus_a.grow) and minus_a.prune


@pytest.mark.parametrize("pair", [("nothing", "rcl-cpb"), ("ta-smnist", "ewc")])
def test_unknown_presets(pair: tuple) -> None:
    with pytest.raises(core.RclCpbError, match="no preset for"):
        core.preset(*pair)


# ----------------------------------------------------------------------------- records


def test_a_record_tells_what_happened() -> None:
    scenario, config = tiny.scenario(), tiny.config(gamma=0.5)
    learner = core.Learner(scenario, config, seed=7)
    record = core.learn(scenario, config, 7, "rcl-cpb", learner=learner)
    assert [len(row) for row in record.accuracy] == [1, 2, 3]
    assert record.seed == 7 and record.tasks == ["task 0", "task 1", "task 2"]
    assert record.hidden[-1] == learner.net.sizes()
    assert record.parameters == sum(p.numel() for p in learner.net.parameters())
    assert record.coreset_total == 18 and record.chance == [1 / 2, 1 / 4, 1 / 6]
    assert record.data_sha256 == scenario.sha256() and len(record.core_sha256) == 64
    assert record.config == asdict(config) and record.versions["torch"]
    fields = {f.name for f in dataclasses.fields(core.Stage)} - {"task"}
    assert all(len(getattr(record, name)) == 3 for name in fields)
    assert all(s >= p >= 0 for s, p in zip(record.seconds, record.structure_seconds, strict=True))
    json.dumps(asdict(record), allow_nan=False)


# ----------------------------------------------------------------------------- metrics

R = [[0.9], [0.6, 0.8], [0.7, 0.5, 1.0]]


def test_metrics_by_hand() -> None:
    assert core.average_accuracy(R) == pytest.approx((0.7 + 0.5 + 1.0) / 3)
    # task 1 was best at 0.9 and ends at 0.7; task 2 at 0.8 and ends at 0.5
    assert core.forgetting(R) == pytest.approx((0.2 + 0.3) / 2)
    assert core.backward_transfer(R) == pytest.approx((-0.2 - 0.3) / 2)
    better = [[0.5], [0.9, 0.5], [0.7, 0.6, 1.0]]
    # the best need not be the first: 0.9 - 0.7, and a gain is a negative fall
    assert core.forgetting(better) == pytest.approx((0.2 - 0.1) / 2)
    assert core.backward_transfer(better) == pytest.approx((0.2 + 0.1) / 2)
    # the first task has nothing before it
    gain = core.forward_transfer([0.1, 0.6, 0.3], [0.5, 0.5, 0.25])
    assert gain == pytest.approx((0.1 + 0.05) / 2)


def test_metrics_of_one_task() -> None:
    assert core.average_accuracy([[0.4]]) == pytest.approx(0.4)
    assert core.forgetting([[0.4]]) == 0
    assert core.backward_transfer([[0.4]]) == 0
    assert core.forward_transfer([0.4], [0.5]) == 0


def test_score_by_hand() -> None:
    """Five answers, four right; in ten bins, 0.95 and 0.91 share one."""
    p = torch.tensor([[0.95, 0.05], [0.91, 0.09], [0.3, 0.7], [0.25, 0.75], [0.55, 0.45]])
    y = torch.tensor([0, 1, 1, 1, 0])
    accuracy, nll, ece = core.score(p, y, bins=10)
    assert accuracy == pytest.approx(0.8)
    expected = -np.log([0.95, 0.09, 0.7, 0.75, 0.55]).mean()
    assert nll == pytest.approx(expected, rel=1e-5)
    # bin 0.9-1: |1 - 1.86|, bin 0.7-0.8: |2 - 1.45|, bin 0.5-0.6: |1 - 0.55|
    assert ece == pytest.approx((0.86 + 0.55 + 0.45) / 5, rel=1e-4)


def test_score_of_certainty() -> None:
    sure = torch.eye(3)
    assert core.score(sure, torch.arange(3)) == (1.0, 0.0, 0.0)
    accuracy, nll, ece = core.score(sure, (torch.arange(3) + 1) % 3)
    assert accuracy == 0 and ece == 1 and math.isfinite(nll) and nll > 20


# -------------------------------------------------------------------------- prediction


@pytest.mark.parametrize("trunk", [False, True])
def test_prediction_is_a_distribution_with_its_uncertainty(trunk: bool) -> None:
    net = tiny.network(tiny.config(rho_init=-2.0), trunk)
    p, entropy, information = core.predict(net, tiny.inputs(net, 30), 0, 50)
    assert p.shape == (30, 3) and (p >= 0).all()
    torch.testing.assert_close(p.sum(1), torch.ones(30))
    torch.testing.assert_close(entropy, -(p * p.log()).sum(1))
    assert (entropy <= math.log(3) + 1e-5).all()
    assert (information > 0).all() and (entropy >= information).all()


def test_weights_without_doubt_give_no_mutual_information() -> None:
    for trunk in (False, True):
        net = tiny.network(tiny.config(rho_init=-60.0), trunk, spread=False)
        x = tiny.inputs(net)
        p, entropy, information = core.predict(net, x, 1, 20)
        torch.testing.assert_close(p, net(x, 1, sample=False).softmax(1).detach())
        assert information.abs().max() < 1e-5 and entropy.min() > 0.01


@pytest.mark.parametrize("sampling", ["weight", "local"])
@pytest.mark.parametrize("trunk", [False, True])
def test_prediction_equals_a_loop_over_plain_samples(trunk: bool, sampling: Any) -> None:
    net = tiny.network(tiny.config(rho_init=-2.5, sampling=sampling), trunk)
    x, n = tiny.inputs(net, 4), 3000
    with torch.no_grad():
        loop = torch.stack([net(x, 0).softmax(1) for _ in range(n)])
    p, _, information = core.predict(net, x, 0, n)
    error = (loop.var(0) * 2 / n).sqrt()
    assert loop.std(0).min() > 0.01  # there is something to average
    assert ((p - loop.mean(0)).abs() < 5 * error + 1e-6).all()
    conditional = -(loop * loop.clamp_min(1e-30).log()).sum(2)
    expected = -(loop.mean(0) * loop.mean(0).log()).sum(1) - conditional.mean(0)
    torch.testing.assert_close(information, expected, atol=0.02, rtol=0.05)


def test_prediction_in_chunks_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    net = tiny.network(tiny.config(rho_init=-60.0), spread=False)
    x, sizes, logits = torch.randn(40, 36), [], net.logits

    def counted(piece: torch.Tensor, head: int, samples: int) -> torch.Tensor:
        sizes.append(len(piece))
        return logits(piece, head, samples)

    monkeypatch.setattr(net, "logits", counted)
    monkeypatch.setattr(core, "CHUNK", 500)
    whole = core.predict(net, x, 0, 10).probabilities
    assert len(sizes) > 2 and sum(sizes) == 40
    torch.testing.assert_close(whole, net(x, 0, sample=False).softmax(1).detach())


def test_the_head_asked_for_answers() -> None:
    net = tiny.network()
    x = tiny.inputs(net)
    assert core.predict(net, x, 0).probabilities.shape == (7, 3)
    assert core.predict(net, x, 1).probabilities.shape == (7, 2)


def test_a_large_task_s_means_come_from_some_of_its_images(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Eq. 5 costs the same however many images a task has."""
    learner = core.Learner(tiny.scenario(), tiny.config())
    data, _ = learner.split_task(0)
    whole = learner.task_means(0, data)
    seen: list[tuple[torch.Tensor, torch.Tensor]] = []
    class_means = core.class_means

    def counted(
        net: core.ProgressiveBNN, x: torch.Tensor, y: torch.Tensor, classes: int
    ) -> list[torch.Tensor]:
        seen.append((x, y))
        return class_means(net, x, y, classes)

    monkeypatch.setattr(core, "class_means", counted)
    monkeypatch.setattr(core, "MEANS_FROM", len(data.y) - 5)
    some = learner.task_means(0, data)
    ((x, y),) = seen
    assert len(y) == len(data.y) - 5
    rows = (x[:, None] == data.x[None]).all(2).float().argmax(1)
    assert len(rows.unique()) == len(y)  # no image twice
    assert (data.y[rows] == y).all()
    for a, b in zip(whole, some, strict=True):
        assert a.shape == b.shape and not a.equal(b)


@pytest.mark.parametrize("trunk", [False, True])
@pytest.mark.parametrize(("limit", "every"), [(12, 1), (11, 2), (5, 3)])
def test_means_over_all_classes_take_some_of_many_stored_images(
    monkeypatch: pytest.MonkeyPatch, trunk: bool, limit: int, every: int
) -> None:
    """Eq. 5 over the whole output layer does not grow with the coreset for ever."""
    config = tiny.config(distance_classes="seen", coreset_choice="balanced")
    learner = core.Learner(tiny.scenario(trunk=trunk), config)
    for t in range(3):
        data, stored = learner.split_task(t)
        learner.coreset.append(stored)
    seen: list[tuple[torch.Tensor, int]] = []

    def counted(_: object, x: torch.Tensor, y: torch.Tensor, classes: int) -> None:
        seen.append((x, classes))

    monkeypatch.setattr(core, "class_means", counted)
    monkeypatch.setattr(core, "MEANS_FROM_STORED", limit)
    learner.task_means(2, data)
    ((x, classes),) = seen
    old = torch.cat([s.x[::every] for s in learner.coreset[:2]])
    assert classes == 6 and len(old) <= limit
    assert x.equal(torch.cat([data.x, old]))
    assert x.stride()[1:] == data.x.stride()[1:]  # channels last, as convolutions like


@pytest.mark.parametrize("heads", ["single", "multi"])
def test_replay_on_cached_features_leaves_the_convolutions(heads: str) -> None:
    scenario = tiny.scenario(heads=heads, trunk=True)
    config = tiny.config(epochs=1, replay_views=3, distort="crop-flip", coreset=8)
    learner = core.Learner(scenario, config)
    for _ in learner:
        pass
    net = copy.deepcopy(learner.net)
    data = learner.stored(len(scenario.tasks))[0]
    fits: list[tuple[core.Phase, core.Samples]] = []
    fit = learner.fit

    def watched(net: Any, t: int, phase: core.Phase, data: core.Samples) -> Any:
        fits.append((phase, data))
        return fit(net, t, phase, data)

    learner.fit = watched  # type: ignore[method-assign]
    learner.replay(net, 1, "replay", data)
    ((phase, cached),) = fits
    assert phase.augment == "none" and phase.kl_weight == 0
    assert cached.x.shape == (3 * len(data.y), net.hidden[0].shape[1])
    assert cached.y.equal(data.y.repeat(3))
    one, two, three = cached.x.split(len(data.y))
    assert not one.equal(two) and not two.equal(three)  # distorted, each in its own way
    for old, new in zip(learner.net.trunk, net.trunk, strict=True):
        assert old.mu.equal(new.mu) and old.rho.equal(new.rho)
    assert not learner.net.hidden[0].mu.equal(net.hidden[0].mu)


def test_cached_features_give_the_gradients_of_a_trunk_that_stays() -> None:
    """Hidden layers and head, against autograd on the plain formulas."""
    net = tiny.network(tiny.config(sampling="weight"), trunk=True)
    x, y = tiny.inputs(net), torch.arange(7) % 3
    with torch.no_grad():
        features = net.trunk_features(x, lambda i, layer, x: layer(x, False))
    layers = [*net.hidden, net.heads[0]]
    flat = FlatPosterior(net, [0], trunk=False)
    flat.new_pool(1, len(x))
    flat.loss([core.Samples(features, y)], 0.1)
    eps = flat.eps.split([len(layer.mu) for layer in layers])
    h = features
    for layer, noise in zip(layers, eps, strict=True):
        h = F.relu(h) if layer is not layers[0] else h
        drawn = layer.mu + (layer.rho / 2).exp() * noise
        h = layer.operate(h, *layer.split(drawn))
    loss = F.cross_entropy(h, y) + 0.1 * sum(layer.kl() for layer in layers)
    mine = torch.autograd.grad(loss, [getattr(layer, n) for n in ("mu", "rho") for layer in layers])
    got = torch.cat([flat.mu.grad, flat.rho.grad])
    torch.testing.assert_close(got, torch.cat(mine), atol=1e-6, rtol=1e-5)
    assert len(flat.mu) == sum(len(layer.mu) for layer in layers)


def test_a_mirrored_prediction_is_the_mean_over_both_views() -> None:
    """With weights that do not vary, half of the samples are of each view."""
    net = tiny.network(tiny.config(rho_init=-60.0), trunk=True, spread=False)
    x = tiny.inputs(net, 5)
    straight, mirrored = (core.predict(net, v)[0] for v in (x, x.flip(-1)))
    assert not torch.allclose(straight, mirrored, atol=1e-3)
    both = core.predict(net, x, samples=4, mirror=True)[0]
    torch.testing.assert_close(both, (straight + mirrored) / 2)
    uneven = core.predict(net, x, samples=3, mirror=True)[0]
    torch.testing.assert_close(uneven, (2 * straight + mirrored) / 3)
    alone = core.predict(net, x, samples=1, mirror=True)[0]
    torch.testing.assert_close(alone, straight)


def test_only_images_that_may_be_mirrored_are_shown_mirrored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scenario = tiny.scenario(heads="multi", trunk=True)
    first, *others = scenario.tasks
    digits = replace(first, mirror=False)
    scenario = replace(scenario, tasks=(digits, *others))
    asked: list[tuple[int, bool]] = []
    predict = core.predict

    def watched(net: Any, x: Any, head: int, samples: int, mirror: bool) -> Any:
        asked.append((head, mirror))
        return predict(net, x, head, samples, mirror)

    monkeypatch.setattr(core, "predict", watched)
    core.learn(scenario, tiny.config(epochs=1, test_mirror=True, test_samples=2))
    assert set(asked) == {(0, False), (1, True), (2, True)}
