"""The estimator: the same as a run, for all that people call data, with a bound on its memory."""

from __future__ import annotations

import copy
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tiny
import torch
from running import PLUS, AtEveryRound
from sklearn.utils.estimator_checks import check_estimator

import rclcpb
import rclcpb_core as core
from rclcpb import ContinualClassifier, known, scenarios
from rclcpb.estimator import OWN_DATA
from rclcpb.files import RclCpbError, load_tensors, save_tensors
from rclcpb.runner import Run
from rclcpb.scenarios import Scenario

ROOT = Path(__file__).resolve().parents[2]
# What scikit-learn's contract asks and continual learning or this package does otherwise; the
# book's page on the code has the reasons.
OTHERWISE = (
    "check_estimators_unfitted",
    "check_dtype_object",
    "check_supervised_y_2d",
    "check_methods_sample_order_invariance",
    "check_methods_subset_invariance",
)


def learned(scenario: Scenario, config: core.Config, tasks: int = 9, **kind: Any) -> Any:
    """A classifier that was given the first tasks of a scenario, one after another."""
    made = ContinualClassifier(config, scenario.heads, scenario.trunk, seed=3, **kind)
    for t, task in enumerate(scenario.tasks[:tasks]):
        made.learn(task.x_train, task.y_train, task=t, test=(task.x_test, task.y_test))
    return made


def table(classes: tuple[int, ...], n: int = 40, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows of five numbers of very different size, their class in some of them."""
    rng = np.random.default_rng(seed)
    y = rng.choice(classes, n)
    x = rng.normal(size=(n, 5)) + 4 * np.eye(8)[y][:, :5] + 3 * np.eye(8)[y][:, 3:]
    return x * [1, 1000, 0.01, 1, 50] + [0, 5000, 0, 0, -20], y


# ------------------------------------------------------------------------ the same as a run


@pytest.mark.parametrize(
    ("heads", "changes"),
    [("single", {}), ("multi", PLUS | {"replay_mix": 4, "gamma": 0.9})],
    ids=["one head", "heads, plus"],
)
def test_it_learns_bit_for_bit_what_a_run_learns(heads: str, changes: dict) -> None:
    scenario, config = tiny.scenario(heads=heads), tiny.config(epochs=1, **changes)
    run = Run(core.Learner(scenario, config, 3))
    stages = list(run)
    made = learned(scenario, config)
    assert tiny.same(tiny.snapshot(made.run_.method.net), tiny.snapshot(run.method.net))
    mine = [(s.accuracy, s.nll, s.hidden, s.shared, s.pruned) for s in made.run_.stages]
    assert mine == [(s.accuracy, s.nll, s.hidden, s.shared, s.pruned) for s in stages]
    for j, task in enumerate(scenario.tasks):  # and answers as the run's last evaluation did
        assert made.score(task.x_test, task.y_test, task=j) == pytest.approx(
            stages[-1].accuracy[j], abs=1e-7
        )
        p = made.predict_proba(task.x_test, task=j)[np.arange(len(task.y_test)), task.y_test]
        assert -np.log(p).mean() == pytest.approx(stages[-1].nll[j], rel=1e-5)


def test_convolutions_learn_what_a_run_learns() -> None:
    plain = tiny.scenario(tiny.PAIRS[:2], trunk=True)
    scenario = scenarios.replace(plain, center=0.5, scale=0.25)  # as the book's colour images
    config = tiny.config(gamma=0.9)
    run = Run(core.Learner(scenario, config, 3))
    assert len(list(run)) == 2
    mine = learned(scenario, config).run_.method.net
    assert tiny.same(tiny.snapshot(mine), tiny.snapshot(run.method.net))


def test_a_table_is_standardised_by_its_first_task() -> None:
    tasks = [table((0, 1)), table((2, 3), seed=1)]
    mean, deviation = tasks[0][0].mean(0), tasks[0][0].std(0)
    by_hand = [(((x - mean) / deviation).astype(np.float32), y) for x, y in tasks]
    scenario = scenarios.from_arrays([(*task, *task) for task in by_hand])
    run = Run(core.Learner(scenario, tiny.config(), 3))
    assert len(list(run)) == 2
    made = ContinualClassifier(tiny.config(), seed=3)
    for x, y in tasks:
        made.learn(x, y)
    assert tiny.same(tiny.snapshot(made.run_.method.net), tiny.snapshot(run.method.net))
    raw = ContinualClassifier(tiny.config(), standardise=False, seed=3).learn(*by_hand[0])
    first = ContinualClassifier(tiny.config(), seed=3).learn(*tasks[0])
    assert tiny.same(tiny.snapshot(raw.run_.method.net), tiny.snapshot(first.run_.method.net))


def test_a_constant_column_does_no_harm() -> None:
    x = np.column_stack([np.full(9, 1e6), np.arange(9.0)])
    scaled = known.Scale.of(x)(x)
    assert (scaled[:, 0] == 0).all() and scaled[:, 1].std() == pytest.approx(1)


# ---------------------------------------------------------------------- what is given to it


@pytest.mark.parametrize("kind", ["torch", "pandas", "lists", "objects", "words", "floats"])
def test_data_of_every_kind_is_the_same_data(kind: str) -> None:
    x, y = table((0, 1, 2))
    x = x.astype(np.float32)
    frame = pd.DataFrame(x)
    words = np.array(["ant", "bee", "cow"])
    given: dict[str, tuple[Any, Any]] = {
        "torch": (torch.from_numpy(x), torch.from_numpy(y)),
        "pandas": (frame, pd.Series(y, name="label")),
        "lists": (x.tolist(), y.tolist()),
        "objects": (x.astype(object), pd.Series(words[y])),  # pandas' words
        "words": (x, words[y]),
        "floats": (frame, y.astype(float)[:, None]),
    }
    plain = ContinualClassifier(tiny.config()).learn(x, y)
    other = ContinualClassifier(tiny.config()).learn(*given[kind])
    assert (other.predict_proba(given[kind][0]) == plain.predict_proba(x)).all()
    named = words[plain.predict(x)] if kind in ("objects", "words") else plain.predict(x)
    assert (other.predict(x) == named).all()
    assert (
        other.classes_.tolist() == (words if named.dtype.kind == "U" else plain.classes_).tolist()
    )


def test_classes_come_back_and_one_comes_alone() -> None:
    made = ContinualClassifier(tiny.config(epochs=20, replay_steps=100))
    for t, classes in enumerate([("b",), ("c",), ("b", "a"), ("c", "a")]):
        x, y = tiny.images([ord(c) - ord("a") for c in classes], 24, np.random.default_rng(t))
        made.learn(x, np.array(["a", "b", "c"])[y])
    x, y = tiny.images((0, 1, 2), 12, np.random.default_rng(9))
    assert made.classes_.tolist() == ["a", "b", "c"]
    assert made.run_.scenario.columns(3) == (0, 1, 2)  # codes: b, c, a as they came
    assert made.score(x, np.array(["a", "b", "c"])[y]) > 0.8


def test_more_of_a_known_task_goes_to_its_head() -> None:
    x, y = tiny.images((0, 1), 40, np.random.default_rng(0))
    x2, y2 = tiny.images((2, 3), 40, np.random.default_rng(1))
    made = ContinualClassifier(tiny.config(), heads="multi")
    made.learn(x[:40], y[:40], task="one").learn(x2, y2, task="two")
    made.learn(x[40:], y[40:], task="one").learn(x2, y2 + 5, task="three")
    learner = made.run_.method
    assert [head.shape[0] for head in learner.net.heads] == [2, 2, 2]
    assert [stored.head for stored in learner.coreset] == [0, 1, 0, 2]
    assert made.score(x, y, task="one") > 0.9 and made.score(x2, y2 + 5, task="three") > 0.9
    only_zero = y == 0  # a part of a task need not hold all of its classes
    made.learn(x[only_zero], y[only_zero], task="one")
    assert made.predict_proba(x, task="one")[:, 2:].max() == 0
    with pytest.raises(RclCpbError, match="'two' has no class 0, 1"):
        made.learn(x, y, task="two")


def test_the_images_stored_for_a_head_are_fitted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = tiny.images((0, 1), 40, np.random.default_rng(0))
    made = ContinualClassifier(tiny.config(), heads="multi")
    made.learn(x[:40], y[:40], task="one").learn(x[40:], y[40:], task="one")
    fitted = []
    monkeypatch.setattr(
        core.Learner, "replay", lambda self, net, t, name, data: fitted.append(data)
    )
    made.predict(x, task="one")
    (data,) = fitted
    assert torch.equal(data.x, torch.cat([one.x for one in made.run_.method.coreset]))
    assert len(data.y) == 12


def test_columns_in_another_order_are_refused_after_save_and_load_too(tmp_path: Path) -> None:
    x, y = table((0, 1))
    frame = pd.DataFrame(x, columns=list("abcde"))
    made = ContinualClassifier(tiny.config()).learn(frame, y, test=(frame, y))
    assert made.feature_names_in_.tolist() == list("abcde")
    made.save(tmp_path / "made.safetensors")
    for one in (made, ContinualClassifier.load(tmp_path / "made.safetensors")):
        assert (one.predict(frame) == one.predict(x)).all()  # an array has no names to be wrong
        for call in (one.predict, lambda odd, one=one: one.learn(odd, y)):
            with pytest.raises(RclCpbError, match="columns e, d, c, b, a; those learned are a, b"):
                call(frame[list("edcba")])
    with pytest.raises(RclCpbError, match="those learned"):
        made.learn(frame, y, test=(frame[list("edcba")], y))
    assert not hasattr(made.fit(x, y), "feature_names_in_")


@pytest.mark.parametrize("names", ["abcd", [*"abcd", 5], 5])
def test_a_forged_files_columns_are_refused_when_it_is_read(names: Any, tmp_path: Path) -> None:
    x, y = table((0, 1))
    path = tmp_path / "made.safetensors"
    made = ContinualClassifier(tiny.config(epochs=1))
    made.learn(pd.DataFrame(x, columns=list("abcde")), y).save(path)
    tensors, facts = load_tensors(path, "")
    facts["known"]["columns"] = names
    save_tensors(path, tensors, facts)
    with pytest.raises(RclCpbError, match="not a classifier of this version"):
        ContinualClassifier.load(path)


def test_images_of_large_numbers_that_are_no_bytes_are_refused() -> None:
    x, y = tiny.images((0, 1), 40, np.random.default_rng(0))
    for odd in (x.astype(np.float32), x.astype(np.int64)):
        with pytest.raises(RclCpbError, match="images are read as they are: give bytes"):
            ContinualClassifier(tiny.config()).learn(odd, y)
        scaled = ContinualClassifier(tiny.config(), standardise=True).learn(odd, y)
        assert scaled.score(odd, y) > 0.9
    made = ContinualClassifier(tiny.config()).learn(x, y)  # bytes
    assert made.score(x, y) > 0.9 and made.score(x / 255, y) > 0.9
    with pytest.raises(RclCpbError, match="give all in one unit"):
        made.predict(x.astype(float))


@pytest.mark.parametrize(
    ("odd", "words"),
    [
        (pd.Series(["ant", None]), "sample 1 has no label"),
        (["ant", None], "sample 1 has no label"),
        (["ant", np.nan], "sample 1 has no label"),
        (np.array([0.0, np.nan]), "sample 1 has no label"),
        (pd.Series([0, None], dtype="Int64"), "sample 1 has no label"),
        ([torch.tensor(0), torch.tensor(torch.nan)], "sample 1 has no label"),
        (["ant", 7], "y holds numbers and words"),
        (np.array([7, "ant"], dtype=object), "y holds numbers and words"),
    ],
)
def test_a_label_that_is_missing_or_of_another_kind_is_no_class(odd: Any, words: str) -> None:
    with pytest.raises(RclCpbError, match=words):
        ContinualClassifier(tiny.config()).learn([[1.0, 2.0], [2.0, 1.0]], odd)


def test_halves_of_torch_are_taken() -> None:
    x, y = table((0, 1))
    half = torch.from_numpy(x / 100).bfloat16()
    made = ContinualClassifier(tiny.config()).learn(half, torch.from_numpy(y))
    plain = ContinualClassifier(tiny.config()).learn(half.float(), y)
    assert (made.predict_proba(half) == plain.predict_proba(half.float().numpy())).all()


def test_a_whole_number_of_numpys_names_a_task() -> None:
    made = ContinualClassifier(tiny.config(), heads="multi").learn(*table((0, 1)), task=np.int64(3))
    made.learn(*table((0, 1), seed=1), task=3)
    assert made.known_.names == (3, 3) and len(made.run_.method.net.heads) == 1


def test_it_shows_what_it_was_made_with() -> None:
    assert repr(ContinualClassifier()) == "ContinualClassifier()"
    assert repr(ContinualClassifier(memory=5, seed=1)) == "ContinualClassifier(memory=5, seed=1)"


# ------------------------------------------------------------------------- bounded memory


@pytest.mark.parametrize("choice", ["random", "medoids"])
def test_memory_is_bounded_over_all_tasks(choice: str) -> None:
    made = ContinualClassifier(tiny.config(coreset_choice=choice), memory=9)
    counts = []
    for t, classes in enumerate([(0, 1), (2, 3), (4, 5), (6, 7)]):
        made.learn(*tiny.images(classes, 12, np.random.default_rng(t)))
        counts.append([len(stored.y) for stored in made.run_.method.coreset])
        for task, stored in zip(made.run_.scenario.tasks, made.run_.method.coreset, strict=True):
            assert len(task.x_train) == len(stored.y)  # nothing else is kept
    assert counts == [[6], [4, 4], [3, 3, 3], [2, 2, 2, 2]]
    held = [set(stored.y.tolist()) for stored in made.run_.method.coreset]
    assert all(len(classes) == 2 for classes in held[:3])  # thinned evenly over the classes
    once = ContinualClassifier(tiny.config(), memory=1).learn(*table((0, 1)))
    with pytest.raises(RclCpbError, match="no room for a sample of each of 2 tasks"):
        once.learn(*table((0, 1)))


def test_a_small_task_stores_half_of_itself() -> None:
    made = ContinualClassifier(tiny.config(coreset=50)).learn(*table((0, 1), n=21))
    assert made.run_.method.stored() == 10
    x, y = table((0, 1), n=21)  # one of each class is left to train on
    made = ContinualClassifier(tiny.config(coreset=20)).learn(x, y)
    assert made.run_.method.stored() == 19
    with pytest.raises(RclCpbError, match="one sample a class"):
        ContinualClassifier(tiny.config()).learn([[1.0, 2.0], [2.0, 1.0]], [1, 2])


# ------------------------------------------------------------------------- whole or nothing


@pytest.mark.parametrize("heads", ["single", "multi"])
def test_a_task_that_is_interrupted_has_not_happened(heads: Any) -> None:
    def stop(run: Run, done: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    tasks = [tiny.images(pair, 24, np.random.default_rng(0)) for pair in tiny.PAIRS]
    plain, other = (ContinualClassifier(tiny.config(), heads, memory=9) for _ in range(2))
    for task in tasks:
        asked = [plain.predict_proba(task[0]).tolist()] if hasattr(plain, "run_") else []
        before = [other.predict_proba(task[0]).tolist() for _ in asked]
        with pytest.raises(KeyboardInterrupt):
            other.learn(*task, hooks=[AtEveryRound(stop)])
        assert asked == before == [other.predict_proba(task[0]).tolist() for _ in asked]
        learned = [len(one.run_.stages) if hasattr(one, "run_") else 0 for one in (plain, other)]
        assert learned[0] == learned[1]
        plain.learn(*task)
        other.learn(*task)
    a, b = (tiny.snapshot(one.run_.method.net) for one in (plain, other))
    assert tiny.same(a, b) and plain.classes_.tolist() == other.classes_.tolist()


@pytest.mark.parametrize("place", ["let_go", "_have"])
def test_a_task_that_has_happened_is_known_whatever_comes_then(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C after the last of its work, before the books are closed."""
    tasks = [tiny.images(pair, 24, np.random.default_rng(0)) for pair in tiny.PAIRS]
    plain, other = (ContinualClassifier(tiny.config(epochs=1), memory=9) for _ in range(2))
    for made in (plain, other):
        made.learn(*tasks[0])
    plain.learn(*tasks[1])
    kind = ContinualClassifier if place == "_have" else type(other.run_)
    calls = [] if place == "_have" else [True]  # let_go is called at the start, too

    def stop(self: Any, *_: Any) -> None:
        if not calls:
            raise KeyboardInterrupt
        calls.pop()

    with monkeypatch.context() as patch:
        patch.setattr(kind, place, stop)
        with pytest.raises(KeyboardInterrupt):
            other.learn(*tasks[1])
    assert other.classes_.tolist() == [0, 1, 2, 3]
    assert (other.predict_proba(tasks[1][0]) == plain.predict_proba(tasks[1][0])).all()
    for made in (plain, other):
        made.learn(*tasks[2])
    assert (other.predict_proba(tasks[2][0]) == plain.predict_proba(tasks[2][0])).all()
    assert [len(t.y_train) for t in other.run_.scenario.tasks] == [3, 3, 3]


def test_in_the_midst_of_a_task_nobody_else_is_served() -> None:
    """Nor is the task under way disturbed."""
    x, y = table((0, 1))
    plain, made = (ContinualClassifier(tiny.config(epochs=2)).learn(x, y) for _ in range(2))
    said: list[str] = []

    def meanwhile(run: Run, done: int) -> None:
        for ask in (lambda: made.predict(x), lambda: made.learn(x[:9], y[:9], test=(x, y))):
            with pytest.raises(RclCpbError, match="in the midst of a task"):
                ask()
            said.append("once")

    made.learn(x, y, hooks=[AtEveryRound(meanwhile)])
    assert len(said) == 4 and (made.predict_proba(x) == plain.learn(x, y).predict_proba(x)).all()


@pytest.mark.parametrize("heads", ["single", "multi"])
def test_saved_and_loaded_it_goes_on_as_if_nothing_had_been(heads: Any, tmp_path: Path) -> None:
    tasks = [table((0, 1)), table((2, 3), seed=1), table((0, 1), seed=2)]
    words = np.array(["ant", "bee", "cow", "dog"])
    one = ContinualClassifier(tiny.config(), heads, memory=9, seed=4)
    for task, (x, y) in zip(("a", "b"), tasks, strict=False):
        one.learn(x, words[y], task=task)
    one.save(tmp_path / "one.safetensors")
    card = (tmp_path / "one.md").read_text("utf-8")
    assert one.summary() in card and "ant, bee, cow, dog" in card and "the 8 that" in card
    other = ContinualClassifier.load(tmp_path / "one.safetensors")
    x, y = tasks[2]
    for _ in range(2):
        assert (one.predict_proba(x, task="a") == other.predict_proba(x, task="a")).all()
        assert one.predict(x).tolist() == other.predict(x).tolist()
        assert one.summary() == other.summary() and other.memory == 9
        one.learn(x, words[y], task="a")
        other.learn(x, words[y], task="a")
    bad = tmp_path / "bad.safetensors"
    one.run_.method.net.save(bad)
    with pytest.raises(RclCpbError, match="not a classifier of this version"):
        ContinualClassifier.load(bad)


# ------------------------------------------------------------------------------- answers


def test_doubt_is_of_two_kinds_and_they_add_up() -> None:
    made = learned(tiny.scenario(), tiny.config())
    x, _ = tiny.images(range(6), 10, np.random.default_rng(5))
    doubt, p = made.uncertainty(x), made.predict_proba(x)
    assert doubt.total == pytest.approx(-(p * np.log(p)).sum(1), abs=1e-4)
    assert doubt.total == pytest.approx(doubt.aleatoric + doubt.epistemic)
    assert (doubt.epistemic > -1e-6).all() and (doubt.aleatoric >= 0).all()
    sure = copy.deepcopy(made)
    for parameter in (layer.rho for layer in tiny.layers(sure.run_.method.net)):
        parameter.data.fill_(-60)  # with no width there is nothing to doubt about the weights
    assert sure.uncertainty(x).epistemic == pytest.approx(0, abs=1e-5)


def test_without_a_task_the_head_that_doubts_least_answers() -> None:
    scenario = tiny.scenario(heads="multi")
    made = learned(scenario, tiny.config(epochs=10))
    for j, task in enumerate(scenario.tasks):
        free, told = made.predict_proba(task.x_test), made.predict_proba(task.x_test, task=j)
        total = [made.uncertainty(task.x_test, task=k).total for k in range(3)]
        chosen = np.argmin(total, 0) == j  # all heads have two classes
        assert (free[chosen] == told[chosen]).all() and not (free[~chosen] == told[~chosen]).any()
        assert np.isin(made.predict(task.x_test, task=j), task.classes).all()
    with pytest.raises(RclCpbError, match="a head with one class is always right"):
        made.learn(*tiny.images((3,), 20, np.random.default_rng(0)))


def test_the_summary_says_what_happened() -> None:
    made = learned(tiny.scenario(), tiny.config())
    made.learn(*tiny.images((0, 1), 24, np.random.default_rng(3)))
    lines = made.summary().splitlines()
    stage, learner = made.run_.stages[1], made.run_.method
    assert " ".join(map(str, stage.hidden)) in lines[3] and lines[3].split()[1:3] == ["2,", "3"]
    assert " ".join(map(str, stage.shared)) in lines[3]
    assert f"{100 * made.run_.stages[-1].accuracy[0]:.1f}" in lines[2]
    assert lines[5].rstrip().endswith("6")  # nothing to test on: no accuracy
    assert lines[-1] == f"{learner.parameters():,} parameters; 24 samples stored"


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda c, x, y: c.predict(x[:, :4]), "X has 4 features"),
        (lambda c, x, y: c.learn(x[:, :, None], y), "samples of shape"),
        (lambda c, x, y: c.learn(x, y[:-1]), "one label a sample"),
        (lambda c, x, y: c.learn(x, y + 0.5), "Unknown label type"),
        (lambda c, x, y: c.learn(x, y.astype(str)), "labels of one kind"),
        (lambda c, x, y: c.learn(x * np.nan, y), "NaN"),
        (lambda c, x, y: c.learn(x.astype(str), y), "give numbers"),
        (lambda c, x, y: c.learn(np.array([["a"] * 5] * 40, object), y), "words as numbers"),
        (lambda c, x, y: c.learn(x, y, task=0.5), "a word or a whole number"),
        (lambda c, x, y: c.learn(x, y, test=(x, y + 7)), "is in no task learned"),
        (lambda c, x, y: c.predict(x, task="nine"), "no task 'nine': choose from task 1"),
        (lambda c, x, y: c.learn(x, y, test=3), "a pair"),
        (lambda c, x, y: c.set_params(colour=1), "no parameter 'colour'"),
        (lambda c, x, y: ContinualClassifier().predict(x), "nothing is learned yet"),
        (lambda c, x, y: ContinualClassifier(heads="two").learn(x, y), "multi, single"),
        # what would be learned or answered, and wrong
        (lambda c, x, y: c.learn(np.ma.masked_greater(x, 9), y), "x is masked"),
        (lambda c, x, y: c.learn(x, np.ma.masked_equal(y, 1)), "y is masked"),
        (lambda c, x, y: c.learn(x[:3], [1, "1", 0]), "y holds numbers and words"),
        (lambda c, x, y: c.learn(x[:3], pd.Series(["a", None, "b"])), "leave out the samples"),
        (lambda c, x, y: c.learn(x[:3], [0, True, 1]), "numbers and truth values"),
        (lambda c, x, y: c.learn(x, y * 1e300), "Unknown label type"),
        (lambda c, x, y: c.learn(x, y.astype(np.uint64) + np.uint64(2**63)), "2\\*\\*63 or more"),
        (lambda c, x, y: c.learn(x, y, test=(x,)), "a pair"),
        (lambda c, x, y: c.learn(x, y, test=x), "a pair"),
        (lambda c, x, y: c.learn(x, y, hooks=[5]), "give a Hook"),
        (lambda c, x, y: c.learn(x, y, task=True), "a word or a whole number"),
        (lambda c, x, y: c.predict(x, task=["task 1"]), "no task"),
        (lambda c, x, y: c.predict(x * 1e25), "far from all that it learned"),
        (lambda c, x, y: c.predict(x * 1e300), "too large to compute with"),
        (lambda c, x, y: c.score(x, y.astype(str)), "labels of one kind"),
        (lambda c, x, y: ContinualClassifier(memory=2.5).learn(x, y), "memory=2.5.*whole number"),
        (lambda c, x, y: ContinualClassifier(memory=0).learn(x, y), "1 or more"),
        (lambda c, x, y: ContinualClassifier(standardise="no").learn(x, y), "True or False"),
        (lambda c, x, y: c.fit(x, None), "one a sample"),
    ],
)
def test_a_mistake_is_one_sentence_and_changes_nothing(call: Any, words: str) -> None:
    x, y = table((0, 1))
    made = ContinualClassifier(tiny.config()).learn(x, y)
    before = made.predict_proba(x)
    with pytest.raises(RclCpbError, match=words):
        call(made, x, y)
    assert (made.predict_proba(x) == before).all() and len(made.run_.stages) == 1


@pytest.mark.parametrize("change", [{"heads": "multi"}, {"seed": 7}, {"config": tiny.config()}])
def test_what_is_set_anew_in_between_is_not_what_was_learned(change: dict, tmp_path: Path) -> None:
    x, y = table((0, 1))
    made = ContinualClassifier(tiny.config(epochs=1)).learn(x, y)
    before, old = made.predict_proba(x), made.get_params()
    made.set_params(**change)
    for ask in (lambda: made.predict(x), lambda: made.learn(x, y), lambda: made.save(tmp_path)):
        with pytest.raises(RclCpbError, match=f"{next(iter(change))}: set anew since"):
            ask()
    assert (made.set_params(**old).predict_proba(x) == before).all()
    assert len(made.set_params(**change).fit(x, y).predict(x)) == len(x)


def test_samples_come_in_one_unit() -> None:
    """Bytes are read as 0 to 1: the same images as other numbers would be answered at random."""
    x, y = tiny.images((0, 1), 24, np.random.default_rng(0))
    config = tiny.config(epochs=1, coreset=0, replay=False)
    made = ContinualClassifier(config).learn(x, y)
    p = made.predict_proba(x)
    assert np.abs(made.predict_proba(x / np.float32(255)) - p).max() < 1e-5
    for other in (x.astype(float), x.astype(int), x.tolist()):
        for ask in (lambda x=other: made.predict(x), lambda x=other: made.learn(x, y + 2)):
            with pytest.raises(RclCpbError, match="give all in one unit"):
                ask()
        with pytest.raises(RclCpbError, match="images are read as they are"):
            ContinualClassifier(config).learn(other, y)
    raw = ContinualClassifier(config, standardise=False).learn(x.astype(float), y)
    with pytest.raises(RclCpbError, match="give all in one unit"):
        raw.predict(x)
    scaled = ContinualClassifier(config, standardise=True).learn(x, y)
    assert (scaled.predict_proba(x) == scaled.predict_proba(x.tolist())).all()


def test_what_it_is_tested_on_stays_what_it_was() -> None:
    x, y = tiny.images((0, 1), 24, np.random.default_rng(0))
    mine = x.copy()
    made = ContinualClassifier(tiny.config(epochs=1)).learn(x, y, test=(mine, y))
    mine[:] = 0
    assert (made.run_.scenario.tasks[0].x_test == x).all()


def test_a_task_without_a_name_is_a_task_of_its_own() -> None:
    x, y = table((0, 1))
    made = ContinualClassifier(tiny.config(epochs=1), "multi").learn(x, y, task="task 2")
    assert made.learn(x[::-1], y).run_.method.head_of == [0, 1]
    assert made.known_.names == ("task 2", "task 3")


# ------------------------------------------------------------------------- scikit-learn


@pytest.mark.long
def test_it_keeps_scikit_learns_contract_where_it_fits() -> None:
    small = OWN_DATA.from_json(
        OWN_DATA.as_json()
        | {"hidden": [16, 16], "epochs": 8, "coreset": 5, "replay_steps": 10}
        | {"lr_mu": 0.01, "lr_rho": 0.01}
    )
    results = check_estimator(ContinualClassifier(small), on_fail=None, on_skip=None)
    failed = {one["check_name"] for one in results if one["status"] == "failed"}
    assert failed == set(OTHERWISE) and len(results) > 50


def test_the_page_of_functions_says_what_does_not_fit() -> None:
    page = (ROOT / "book" / "D_api.md").read_text("utf-8")
    assert [name for name in OTHERWISE if f"`{name}`" not in page] == []


def test_the_import_is_lazy_and_an_unknown_name_is_unknown() -> None:
    code = "import sys, rclcpb; print('torch' in sys.modules); rclcpb.ContinualClassifier; "
    code += "print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]
    with pytest.raises(AttributeError, match="no attribute 'Continual'"):
        _ = rclcpb.Continual
