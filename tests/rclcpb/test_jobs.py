"""Jobs: records kept and refused, locks, full disks, kept networks, and kill -9."""

from __future__ import annotations

import hashlib
import json
import os
import random
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
from filelock import FileLock
from power import Disk
from running import FIXED, KINDS, Kind, content, files, killed_after

import rclcpb_core as core
from rclcpb import jobs, machine
from rclcpb.checkpoint import Checkpoint
from rclcpb.files import RclCpbError
from rclcpb.jobs import Job, done_of, recorded, run_job, sized
from rclcpb.method import Method, seeded
from rclcpb.methods.network import PlainConfig
from rclcpb.presets import preset
from rclcpb.records import load_record, record_path, save_record
from rclcpb.sweep import sweep

JobMaker = Callable[..., Job]


@pytest.fixture
def methods(monkeypatch: pytest.MonkeyPatch) -> list[Method]:
    """The methods that jobs make, in order."""
    made: list[Method] = []
    make = jobs.make

    def noted(*args: Any, **more: Any) -> Method:
        made.append(make(*args, **more))
        return made[-1]

    monkeypatch.setattr(jobs, "make", noted)
    return made


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> JobMaker:
    """Makes jobs of a tiny kind of run, which save themselves after every round."""

    def made(kind: Kind = KINDS["one head"], name: str = "run", **changes: Any) -> Job:
        scenario = tiny.scenario(**kind.scenario)
        monkeypatch.setattr(jobs, "make_scenario", lambda *_: scenario)
        monkeypatch.setattr(jobs, "Checkpoint", partial(Checkpoint, every=0.0))
        config = tiny.config(**({"epochs": 2} | kind.config))
        path = tmp_path / f"{name}.json"
        return Job(scenario.name, kind.method, 5, config, path)._replace(**changes)

    return made


def never(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on, learning anything is a failure."""
    for step in ("begin", "fit"):
        monkeypatch.setattr(core.Learner, step, lambda *_: pytest.fail("learned again"))


# -------------------------------------------------------------------------------- records


def test_a_job_leaves_its_record_and_is_not_repeated(
    job: JobMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = run_job(job())
    assert set(files(tmp_path)) == {"run.json"}
    plain = KINDS["one head"].run().finish("rcl-cpb")
    assert content(record) == content(plain) == content(load_record(tmp_path / "run.json"))
    before = files(tmp_path)
    never(monkeypatch)
    assert content(run_job(job())) == content(record) and files(tmp_path) == before


def test_records_of_another_run_are_refused_and_kept(job: JobMaker, tmp_path: Path) -> None:
    done = job(config=tiny.config(epochs=1))
    run_job(done)
    before = files(tmp_path)
    start = tmp_path / "start"
    start.write_bytes(b"a network")
    other = {
        "scenario": "mh-smnist-5k",
        "method": "vcl",
        "seed": 6,
        "start": start,
        "config": tiny.config(epochs=1, decay=True),
    }
    for field, value in other.items():
        name = "decay" if field == "config" else field
        for ask in (run_job, recorded):
            with pytest.raises(RclCpbError, match=rf"other settings \({name}.*--out") as caught:
                ask(done._replace(**{field: value}))
            assert str(done.path) in str(caught.value)
    start.unlink()
    assert files(tmp_path) == before


def test_a_record_is_of_the_data_the_version_and_the_threads_that_are_asked_for(
    job: JobMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = job(config=tiny.config(epochs=1))
    record = run_job(done)
    never(monkeypatch)
    with pytest.raises(RclCpbError, match=r"other settings \(threads: 1, now 2\)"):
        run_job(done._replace(threads=2))
    with monkeypatch.context() as patch:
        patch.setattr(core, "VERSION", 99)
        with pytest.raises(RclCpbError, match=r"other settings \(version: 1, now 99\)"):
            run_job(done)
    for older in (False, True):  # which knows a checksum of its arrays alone
        if older:
            save_record(replace(record, identity=""), done.path)
        run_job(done)
        with monkeypatch.context() as patch:
            patch.setattr(jobs, "make_scenario", lambda *_: tiny.scenario(seed=1))
            for ask in (run_job, recorded):
                with pytest.raises(RclCpbError, match=r"other settings \(data\).*--out"):
                    ask(done)


def test_fixed_kernels_want_a_record_that_was_made_with_them(
    job: JobMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = job(config=tiny.config(epochs=1))
    record = run_job(done)
    save_record(replace(record, kernels="AVX512 of another machine"), done.path)
    assert recorded(done)  # read back, and the command says so
    monkeypatch.setattr(machine, "fixed", lambda: True)
    with pytest.raises(RclCpbError, match=r"kernels: AVX512 of another machine, now portable"):
        recorded(done)


def test_a_checkpoint_goes_on_only_where_it_ends_as_it_would_have(
    job: JobMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not with other kernels, threads, data or code, which would end in what neither gives."""
    todo = job()
    with monkeypatch.context() as stopped:
        stopped.setattr(core.Learner, "end", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run_job(todo)
    odd = {
        "kernels: ": lambda patch: patch.setattr(machine, "kernels", lambda *_: "others"),
        "version: 1, now 2": lambda patch: patch.setattr(core, "VERSION", 2),
        "torch: ": lambda patch: patch.setattr(torch, "__version__", "9.9"),
        "data": lambda patch: patch.setattr(
            jobs, "make_scenario", lambda *_: tiny.scenario(seed=1)
        ),
    }
    for name, change in odd.items():
        with monkeypatch.context() as patch:
            change(patch)
            with pytest.raises(RclCpbError, match=rf"begun with other settings \({name}"):
                run_job(todo)
    with pytest.raises(RclCpbError, match="threads: 1, now 2"):
        run_job(todo._replace(threads=2))
    assert content(run_job(todo)) == content(KINDS["one head"].run().finish("rcl-cpb"))


def test_a_sweep_refuses_records_of_other_settings_and_repeats_none(
    job: JobMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = job(config=tiny.config(epochs=1))
    run_job(done)
    never(monkeypatch)
    (said,) = sweep([done._replace(config=tiny.config())], workers=1)
    assert "other settings (epochs: 1, now 3)" in said and str(done.path) in said
    assert sweep([done], workers=1) == []


def test_a_record_of_an_earlier_version_has_todays_defaults(job: JobMaker) -> None:
    """A younger field's; and a retired one that changed nothing is not missed."""
    done = job(config=tiny.config(epochs=1))
    record = run_job(done)
    del record.config["decay"]
    record.config["replay_views"] = 0
    save_record(record, done.path)
    found = recorded(done)
    assert found is not None and content(found) == content(record)
    with pytest.raises(RclCpbError, match=r"other settings \(decay: False, now True\)"):
        recorded(done._replace(config=tiny.config(epochs=1, decay=True)))


def test_the_records_of_those_jobs_that_have_one(job: JobMaker) -> None:
    one, two = (job(name=f"vcl,gamma={g}-seed5") for g in (0.1, 0.2))
    run_job(one)
    assert {k: len(v) for k, v in done_of([one, two]).items()} == {"vcl,gamma=0.1": 1}
    assert done_of([one._replace(seed=6)]) == {}  # somebody else's


def test_the_size_of_another_methods_record(job: JobMaker, tmp_path: Path) -> None:
    name = "ta-smnist-5k"
    base = Job(name, "vcl", 5, preset(name, "vcl"), tmp_path / "vcl.json")
    with pytest.raises(RclCpbError, match=r"no record .*rcl-cpb-seed5.json; run that first"):
        sized(base, tmp_path, "rcl-cpb")
    record = run_job(job(config=tiny.config(epochs=1, gamma=0.9)))
    save_record(record, record_path(tmp_path, name, "rcl-cpb", 5))
    assert sum(record.hidden[-1]) > 18
    assert list(sized(base, tmp_path, "rcl-cpb").config.hidden) == record.hidden[-1]
    both = base._replace(config=replace(base.config, hidden=(9, 9)))
    with pytest.raises(RclCpbError, match="--hidden and --size-of both set the size"):
        sized(both, tmp_path, "rcl-cpb")


# ------------------------------------------------------------------- stopped and going on


def test_a_stopped_job_goes_on(
    job: JobMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stopping(Checkpoint):
        def save(self, run: Any) -> None:
            super().save(run)
            if len(run.stages) == 1 and run.stage is not None:
                raise KeyboardInterrupt

    todo = job()
    with monkeypatch.context() as stopped:
        stopped.setattr(jobs, "Checkpoint", partial(Stopping, every=0.0))
        with pytest.raises(KeyboardInterrupt):
            run_job(todo)
    assert set(files(tmp_path)) == {"run.checkpoint"}
    other = todo._replace(config=tiny.config(epochs=2, gamma=0.8))
    with pytest.raises(RclCpbError, match="was begun with other settings"):
        run_job(other)
    assert content(run_job(todo)) == content(KINDS["one head"].run().finish("rcl-cpb"))
    assert set(files(tmp_path)) == {"run.json"}


def test_a_bad_checkpoint_stops_the_job(job: JobMaker, tmp_path: Path) -> None:
    path = tmp_path / "run.checkpoint"
    path.write_bytes(b"broken")
    with pytest.raises(RclCpbError, match=r"damaged.*delete it to start this run over"):
        run_job(job())
    assert files(tmp_path) == {"run.checkpoint": b"broken"}


def test_two_jobs_at_once_do_not_mix(job: JobMaker, tmp_path: Path) -> None:
    with (
        FileLock(tmp_path / "run.lock"),
        pytest.raises(RclCpbError, match=r"another process is writing .*run\.json"),
    ):
        run_job(job())
    assert not files(tmp_path)
    assert run_job(job())  # free again


def test_what_a_killed_process_was_writing_is_cleared_away(job: JobMaker, tmp_path: Path) -> None:
    """Its own unfinished files, and nobody else's."""
    for name in (".run.json.123.part", ".run.checkpoint.123.part", ".other.json.9.part"):
        (tmp_path / name).write_text("half")
    run_job(job())
    assert set(files(tmp_path)) == {"run.json", ".other.json.9.part"}


@pytest.mark.parametrize("where", ["replace", "write_bytes"])
def test_a_full_disk_ends_a_job_in_one_sentence(
    where: str, job: JobMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(os if where == "replace" else Path, where, full)
        with pytest.raises(RclCpbError, match=r"No space left on device.*free some space"):
            run_job(job())
    assert not files(tmp_path)
    assert run_job(job())


def full(*args: Any, **options: Any) -> None:
    raise OSError(28, "No space left on device")


def test_a_full_disk_at_the_record_keeps_the_checkpoint(
    job: JobMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All learned, nowhere to write it: with room again, nothing is learned anew."""
    with monkeypatch.context() as broken:
        broken.setattr(Path, "write_text", full)
        with pytest.raises(RclCpbError, match="No space left"):
            run_job(job())
    assert set(files(tmp_path)) == {"run.checkpoint"}
    never(monkeypatch)
    run_job(job())
    assert set(files(tmp_path)) == {"run.json"}


# -------------------------------------------------------------------------- kept networks


@pytest.mark.parametrize("name", ["one head", "plus, heads", "convolutions"])
def test_a_kept_network_predicts_as_the_runs_own(
    name: str, job: JobMaker, methods: list[Method], tmp_path: Path
) -> None:
    run_job(job(KINDS[name], keep=True))
    (method,) = methods
    assert set(files(tmp_path)) == {"run.json", "run.safetensors", "run.md"}
    net = core.load(tmp_path / "run.safetensors")
    assert tiny.same(tiny.snapshot(net), tiny.snapshot(method.net))
    x = tiny.inputs(net, 20)
    for head in range(len(method.net.heads)):
        answers = []
        for one in (net, method.net):
            with seeded("compare"):
                answers.append(core.predict(one, x, head))
        assert all(torch.equal(a, b) for a, b in zip(*answers, strict=True))


def test_the_card_of_a_kept_network_is_all_that_its_user_needs(
    job: JobMaker, tmp_path: Path
) -> None:
    """From raw images to labels, and to the accuracy that the card promises."""
    kind = KINDS["one head"]
    record = run_job(job(kind, keep=True, config=tiny.config(epochs=8, replay_steps=100)))
    net, scenario = core.load(tmp_path / "run.safetensors"), tiny.scenario(**kind.scenario)
    card = net.about
    assert card["labels"] == [[0, 1, 2, 3, 4, 5]] and card["heads"] == "single"
    inputs = {"shape": [6, 6], "center": 0.0, "scale": 1.0, "flat": True, "shuffled": False}
    config = json.loads(json.dumps(record.config))  # a file has lists for tuples
    assert card["inputs"] == inputs and card["config"] == config
    assert card["accuracy"] == record.accuracy[-1] and card["tasks"] == record.tasks
    for field in ("scenario", "method", "seed", "data_sha256", "versions"):
        assert card[field] == getattr(record, field)
    for task, promised in zip(scenario.tasks, card["accuracy"], strict=True):
        pixels = torch.tensor(task.x_test).flatten(1) / 255
        x = (pixels - card["inputs"]["center"]) / card["inputs"]["scale"]
        answers = core.predict(net, x).probabilities.argmax(1)
        labels = torch.tensor(card["labels"][0])[answers]
        right = (labels == torch.from_numpy(task.y_test)).float().mean()
        assert right == pytest.approx(promised, abs=0.15)


def test_the_card_of_a_network_with_heads_names_each_heads_labels(
    job: JobMaker, tmp_path: Path
) -> None:
    run_job(job(KINDS["heads"], keep=True))
    card = core.load(tmp_path / "run.safetensors").about
    assert card["labels"] == [[0, 1], [2, 3], [4, 5]] and card["heads"] == "multi"


def test_a_record_without_its_network_is_not_enough_for_keep(
    job: JobMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    todo = job()
    run_job(todo)
    with pytest.raises(RclCpbError, match=r"recorded without keeping its network.*--out"):
        run_job(todo._replace(keep=True))
    todo.path.unlink()
    run_job(todo._replace(keep=True))
    never(monkeypatch)
    assert run_job(todo._replace(keep=True)) and run_job(todo)  # both are content now


@pytest.fixture
def kept(job: JobMaker) -> Path:
    """The network of a finished run."""
    first = job(KINDS["heads"], "first", keep=True)
    run_job(first)
    return first.network


def test_a_run_goes_on_from_a_kept_network_and_names_it(
    job: JobMaker, methods: list[Method], kept: Path, tmp_path: Path
) -> None:
    todo = job(KINDS["heads"], start=kept)
    record = run_job(todo)
    assert record.start == hashlib.sha256(kept.read_bytes()).hexdigest()
    assert content(load_record(todo.path)) == content(record)
    scenario = tiny.scenario(heads="multi")
    learner = core.Learner(scenario, todo.config, 5, start=core.load(kept))
    again = KINDS["heads"].run()
    again.method = learner
    assert content(again.finish("rcl-cpb")) | {"start": record.start} == content(record)
    assert record.nll[0] != KINDS["heads"].run().finish("rcl-cpb").nll[0]
    with pytest.raises(RclCpbError, match=r"other settings \(start"):
        run_job(todo._replace(start=None))


def test_a_started_run_may_be_stopped_and_kept_like_any_other(
    job: JobMaker, kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    todo = job(KINDS["heads"], start=kept, keep=True)
    with monkeypatch.context() as stopped:
        stopped.setattr(core.Learner, "end", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run_job(todo)
    whole = run_job(todo._replace(path=tmp_path / "whole.json"))
    with pytest.raises(RclCpbError, match="was begun with other settings"):
        run_job(todo._replace(start=None))
    assert content(run_job(todo)) == content(whole)
    nets = [core.load(path) for path in (todo.network, tmp_path / "whole.safetensors")]
    assert tiny.same(*map(tiny.snapshot, nets))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda path: path.unlink(), "cannot read .*first.safetensors"),
        (lambda path: path.write_bytes(b"no"), "damaged or not a kept network"),
        (lambda path: path.write_bytes(path.read_bytes()[:-9]), "damaged or not a kept network"),
        (lambda path: tiny.network(trunk=True).save(path), r"reads images \(3, 8, 8\)"),
        (
            lambda path: tiny.network(tiny.config(hidden=(5, 5, 5))).save(path),
            r"hidden\.2; this run needs \(1, 6, 6\) and hidden\.0, hidden\.1\.",
        ),
    ],
)
def test_a_network_that_cannot_be_gone_on_from(
    spoil: Any, message: str, job: JobMaker, kept: Path
) -> None:
    spoil(kept)
    with pytest.raises(RclCpbError, match=message) as caught:
        run_job(job(KINDS["heads"], start=kept))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("first", "then"), [("heads", "memoryless, heads"), ("memoryless, heads", "heads")]
)
def test_from_one_form_of_network_to_another(first: str, then: str, job: JobMaker) -> None:
    """Whose old units read all new ones, or none of them: taken over, or one sentence."""
    source = job(KINDS[first], "source", keep=True)
    run_job(source)
    grown = any(
        len(form.get("steps", ())) > 1 for form in core.load(source.network).forms().values()
    )
    todo = job(KINDS[then], start=source.network)
    if not grown:
        assert len(run_job(todo).accuracy) == 3
        return
    with pytest.raises(RclCpbError, match="set that, too"):
        run_job(todo)


def test_what_has_no_network_neither_keeps_nor_starts(
    job: JobMaker, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Said before hours of learning, not after."""
    never(monkeypatch)
    other = job(method="finetune", config=PlainConfig(epochs=1, hidden=(4,)))
    for more in ({"keep": True}, {"start": kept}):
        with pytest.raises(RclCpbError, match="leave out --keep and --start"):
            run_job(other._replace(**more))
    with pytest.raises(RclCpbError, match="begins anew at every task"):
        run_job(job(KINDS["control, heads"], config=tiny.config(**FIXED), start=kept))


def test_a_checkpoint_is_no_kept_network(tmp_path: Path) -> None:
    path = tmp_path / "run.checkpoint"
    Checkpoint(path, {}).save(KINDS["heads"].run())
    with pytest.raises(RclCpbError, match="not a network of this version"):
        core.load(path)


def test_the_control_keeps_its_last_network(job: JobMaker, tmp_path: Path) -> None:
    run_job(job(KINDS["control, one head"], keep=True, config=tiny.config(**FIXED)))
    assert core.load(tmp_path / "run.safetensors").about["method"] == "coreset-only"


# ------------------------------------------------------------------------------ power cuts


def test_a_run_survives_a_power_cut_at_any_moment(
    job: JobMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From all that a cut may leave, the job goes on to the same record; done, it stays done."""
    folder = tmp_path / "disk"
    folder.mkdir()
    config = tiny.config(epochs=1, gamma=0.9)
    todo = job(KINDS["one head"], "disk/new/run", keep=True, config=config)
    with Disk(folder) as disk:
        record = content(run_job(todo))
        whole = {f"new/{name}": data for name, data in files(folder / "new").items()}
    assert whole.keys() == {"new/run.json", "new/run.safetensors", "new/run.md"}
    assert all(whole.items() <= left.items() for left in disk.left())
    assert len(disk.states) > 12
    monkeypatch.setattr(os, "fsync", lambda _: None)  # which takes its time
    for state in disk.states:
        state.restore(folder)
        assert content(run_job(todo)) == record, state.moment


# -------------------------------------------------------------------------------- kill -9


def killed_until_done(
    kind: Kind, kills: int, job: JobMaker, methods: list[Method], tmp_path: Path
) -> None:
    """A job that is killed so often ends as one that is not, and leaves the same files."""
    longer = tiny.config(**({"epochs": 12, "replay_steps": 60} | kind.config))
    whole, killed = (job(kind, name, config=longer) for name in ("whole", "killed"))
    began = time.monotonic()
    record = content(run_job(whole))
    most = 0.3 * (time.monotonic() - began)
    rng = random.Random(kind.method)
    while kills > 0:
        kills -= killed_after(rng.uniform(0, most), partial(run_job, killed))
        killed.path.unlink(missing_ok=True)  # it was done: start over
    assert content(run_job(killed)) == record
    assert tiny.same(*(tiny.snapshot(method.net) for method in methods))
    assert set(files(tmp_path)) == {"whole.json", "killed.json"}


def test_killed_at_random_moments_a_run_ends_bit_for_bit_the_same(
    job: JobMaker, methods: list[Method], tmp_path: Path
) -> None:
    """kill -9, again and again, wherever it is: in a step, in a save, in between."""
    killed_until_done(KINDS["plus, one head"], 4, job, methods, tmp_path)


def test_a_record_is_json_that_others_read(job: JobMaker, tmp_path: Path) -> None:
    run_job(job(config=tiny.config(epochs=1)))
    values = json.loads((tmp_path / "run.json").read_text())
    assert values["method"] == "rcl-cpb" and values["start"] is None
