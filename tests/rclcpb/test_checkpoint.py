"""Checkpoints: from each of them a run goes on bit for bit; a bad one is refused unharmed."""

from __future__ import annotations

import json
import pickle
import random
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from running import (
    KINDS,
    AtEveryRound,
    Harm,
    Interrupting,
    Kind,
    Outcome,
    every_kind,
    files,
    same_state,
    small_files,
)

import rclcpb_core as core
from rclcpb import checkpoint, runner
from rclcpb.checkpoint import Checkpoint
from rclcpb.files import RclCpbError, load_tensors, save_tensors
from rclcpb.method import Round
from rclcpb.runner import Run

ABOUT = {"scenario": "tiny", "seed": 5}
ONE = KINDS["one head"]


def restored(path: Path, kind: Kind = ONE, hooks: Any = (), **changes: Any) -> Run:
    """A new run, brought to where the file is."""
    run = kind.run(hooks, **changes)
    assert Checkpoint(path, ABOUT).restore(run)
    return run


class Collecting(Checkpoint):
    """Saves after each round and task, and keeps what it saved."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, ABOUT, every=0.0)
        self.saves: list[bytes] = []

    def save(self, run: Run) -> None:
        super().save(run)
        self.saves.append(self.path.read_bytes())


@every_kind
def test_from_every_save_a_run_ends_bit_for_bit_the_same(kind: Kind, tmp_path: Path) -> None:
    """Each checkpoint that a run writes, as if the run had been killed right after."""
    collecting = Collecting(tmp_path / "run.checkpoint")
    plain = kind.run([collecting])
    whole = Outcome.of(plain)
    tasks, rounds = len(plain.scenario.tasks), plain.method.rounds_a_task()
    assert len(collecting.saves) == tasks * (rounds + 1)
    for saved in collecting.saves:
        collecting.path.write_bytes(saved)
        assert Outcome.of(restored(collecting.path, kind)).equals(whole)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A checkpoint half way through the second task."""
    collecting = Collecting(tmp_path / "run.checkpoint")
    ONE.run([collecting]).finish("rcl-cpb")
    collecting.path.write_bytes(collecting.saves[3])
    return collecting.path


@pytest.mark.parametrize("name", ["one head", "plus, heads"])
def test_a_restored_run_may_be_interrupted_like_any_other(name: str, tmp_path: Path) -> None:
    """Within the task that was under way, too: nothing of the file's state is written over."""
    kind, path = KINDS[name], tmp_path / "run.checkpoint"
    collecting = Collecting(path)
    whole = Outcome.of(kind.run([collecting], epochs=4))
    path.write_bytes(collecting.saves[6])  # of the second task, the second epoch
    interrupting = Interrupting()
    run = restored(path, kind, [interrupting], epochs=4)
    before = restored(path, kind, epochs=4).method.state()
    for _ in range(4):  # the start, two rounds, the task
        assert same_state(run.method.state(), before)
        with pytest.raises(KeyboardInterrupt):
            next(iter(run))
    assert interrupting.met == [("start", 1), (1, 3), (1, 4), (2, "learned")]
    run.hooks = []
    assert Outcome.of(run).equals(whole)


def test_a_run_may_be_saved_before_its_first_task_and_after_its_last(tmp_path: Path) -> None:
    keeper, run = Checkpoint(tmp_path / "run.checkpoint", ABOUT), ONE.run()
    keeper.save(run)
    whole = Outcome.of(restored(keeper.path))
    assert Outcome.of(run).equals(whole)
    keeper.save(run)
    done = restored(keeper.path)
    assert len(done.stages) == 3 and Outcome.of(done).equals(whole)


def test_saves_come_after_each_task_and_every_so_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, saves = [0.0], []
    monkeypatch.setattr(checkpoint.time, "monotonic", lambda: now[0])

    class Counting(Checkpoint):
        def save(self, run: Run) -> None:
            saves.append(len(run.stages))
            super().save(run)

    def tick(run: Run, done: int) -> None:
        now[0] += 25  # seconds an epoch

    hooks = [AtEveryRound(tick), Counting(tmp_path / "c", ABOUT, 60)]
    for _ in ONE.run(hooks, epochs=6):
        pass
    # six epochs a task: a save every third epoch, and one after the task
    assert saves == [0, 0, 1, 1, 1, 2, 2, 2, 3]


def test_restoring_does_not_disturb_the_global_generator(saved: Path, global_rng: None) -> None:
    assert len(restored(saved).stages) == 1


def test_time_before_a_stop_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    for clock in ("perf_counter", "process_time"):
        monkeypatch.setattr(runner.time, clock, lambda: now[0])

    def slowly(run: Run) -> Run:
        fit = run.method.fit

        def rounds(*task: Any) -> Iterator[Round]:
            for done in fit(*task):
                now[0] += 1000.0
                yield done

        run.method.fit = rounds
        return run

    class Stopping(Checkpoint):
        def save(self, run: Run) -> None:
            super().save(run)
            raise KeyboardInterrupt

    path = tmp_path / "run.checkpoint"
    run = slowly(ONE.run([Stopping(path, ABOUT, 0.0)], epochs=3))
    for _ in range(2):  # each goes on after one round more
        with pytest.raises(KeyboardInterrupt):
            next(iter(run))
        now[0] = 7.0  # another process, another clock
        run = slowly(restored(path, hooks=run.hooks, epochs=3))
    run.hooks = []
    assert next(iter(run)).seconds == pytest.approx(3000.0)


def test_stored_samples_are_those_of_the_file_and_not_chosen_again(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another way of choosing, in a later version, has no say in what is stored already."""
    choose, asked = core.choose_coreset, []

    def reverse(x: torch.Tensor, y: torch.Tensor, *how: Any) -> torch.Tensor:
        asked.append(len(y))
        return choose(x, y, *how).flip(0)

    run = restored(saved)
    before = [chosen.clone() for chosen in run.method.chosen]
    monkeypatch.setattr(core, "choose_coreset", reverse)
    run.finish("rcl-cpb")
    assert len(before) == 2 and len(asked) == 1  # of the third task
    assert all(map(torch.equal, before, run.method.chosen[:2]))


def test_no_file_to_restore(tmp_path: Path) -> None:
    run = ONE.run()
    assert not Checkpoint(tmp_path / "none", ABOUT).restore(run) and run.stages == []


# ------------------------------------------------------------------------------ bad files


def refused(path: Path, message: str, about: dict | None = None) -> None:
    """Restoring fails in one sentence, and leaves file and run as they were."""
    before, run = path.read_bytes(), ONE.run()
    state = run.method.state()
    with pytest.raises(RclCpbError, match=message) as caught:
        Checkpoint(path, about or ABOUT).restore(run)
    text = str(caught.value)
    assert str(path) in text and "delete it to start" in text and "\n" not in text
    assert path.read_bytes() == before
    assert run.stages == [] and run.stage is None and same_state(run.method.state(), state)


def test_a_truncated_checkpoint(saved: Path) -> None:
    whole = saved.read_bytes()
    for share in (0.0, 0.001, 0.1, 0.5, 0.9, 0.9999):
        saved.write_bytes(whole[: int(share * len(whole))])
        refused(saved, "damaged or not a checkpoint")


def test_an_altered_checkpoint(saved: Path) -> None:
    """One bit anywhere: in the lengths, the header, the state or a tensor."""
    whole = saved.read_bytes()
    rng = random.Random(0)
    places = [0, 9, len(whole) - 1, *(rng.randrange(len(whole)) for _ in range(25))]
    places += [whole.index(b"stages") + 2, whole.index(b"accuracy") + 15]
    for place in places:
        altered = bytearray(whole)
        altered[place] ^= 1
        saved.write_bytes(altered)
        refused(saved, "damaged or not a checkpoint|with other settings|another version")


def test_a_checkpoint_of_another_run(saved: Path) -> None:
    refused(saved, "was begun with other settings", about=ABOUT | {"seed": 6})


def test_a_checkpoint_of_another_version(saved: Path) -> None:
    """Whole, but with tensors or fields that today's code does not know, or lacks."""
    tensors, state = load_tensors(saved, "a checkpoint")
    save_tensors(saved, {f"{name}-old": value for name, value in tensors.items()}, state)
    refused(saved, "another version")
    facts = {k: v for k, v in state["method_facts"].items() if k != "learned"}
    save_tensors(saved, tensors, state | {"method_facts": facts})
    refused(saved, "another version")
    moody = [stage | {"mood": "good"} for stage in state["stages"]]
    save_tensors(saved, tensors, state | {"stages": moody})
    refused(saved, "another version")


def test_a_pickle_under_the_checkpoints_name_runs_no_code(saved: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    saved.write_bytes(pickle.dumps(Harm(trace)))
    refused(saved, "damaged or not a checkpoint")
    torch.save({"harm": Harm(trace)}, saved)
    refused(saved, "damaged or not a checkpoint")
    assert not trace.exists()


def test_a_checkpoint_holds_what_the_stages_were(saved: Path) -> None:
    """In JSON, readable without this package."""
    _, state = load_tensors(saved, "a checkpoint")
    plain = ONE.run()
    (stage,) = state["stages"]
    expected = json.loads(json.dumps(asdict(next(iter(plain)))))
    times = ("seconds", "structure_seconds")
    assert {k: v for k, v in stage.items() if k not in times} == {
        k: v for k, v in expected.items() if k not in times
    }
    assert state["stage"]["task"] == "task 1" and state["method_facts"]["rounds"] == 1


def test_a_checkpoint_that_does_not_fit_keeps_the_one_before(saved: Path, tmp_path: Path) -> None:
    before = files(tmp_path)
    run = restored(saved, hooks=[Checkpoint(saved, ABOUT, 0.0)])
    with (
        small_files(2000),
        pytest.raises(RclCpbError, match=r"cannot write .*free some space") as caught,
    ):
        run.finish("rcl-cpb")
    assert "\n" not in str(caught.value) and files(tmp_path) == before
    whole = Outcome.of(ONE.run())
    assert Outcome.of(run).equals(whole)  # with room again, the same run goes on
    saved.write_bytes(before["run.checkpoint"])
    assert Outcome.of(restored(saved)).equals(whole)  # and so does the file


@pytest.mark.parametrize("name", ["one head", "natural, one head"])
def test_moments_of_another_form_are_refused(name: str, tmp_path: Path) -> None:
    """A fused step writes where they say: a number in place of a vector, and it wrote beyond it."""
    path = tmp_path / "run.checkpoint"
    run = KINDS[name].run([Checkpoint(path, ABOUT, every=0.0), Interrupting()])
    run.hooks[1].met.append(("start", 0))  # type: ignore[attr-defined]
    with pytest.raises(KeyboardInterrupt):
        run.learn_task()
    tensors, facts = load_tensors(path, "")
    names = [one for one in tensors if "moments" in one]
    assert len(names) > 1
    for one in names:
        odd = [torch.ones(()), tensors[one].double(), tensors[one].flatten()[:0]]
        odd = odd[1:] if one.endswith("step") else odd
        kinds = [tensors | {one: other} for other in odd]
        kinds += [{k: v for k, v in tensors.items() if k != one}]
        for changed in [*kinds, tensors | {"method.moments.x.y": torch.ones(3)}]:
            save_tensors(path, changed, facts)
            again = restored(path, KINDS[name])
            with pytest.raises(RclCpbError, match="optimiser's state is of another network"):
                again.learn_task()
