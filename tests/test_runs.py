"""Records, checkpoints and the command line, as a user meets them."""

from __future__ import annotations

import json
import os
import pickle
import random
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
import torch
from filelock import FileLock

import rclcpb_core as core
import rclcpb_runs as runs

SCRIPT = Path(core.__file__)
SMALL = ["--epochs", "1", "--replay-steps", "5", "--hidden", "8", "8"]
TIMES = ("seconds", "structure_seconds", "peak_mib", "started")


def content(record: core.Record) -> dict[str, Any]:
    """A record as JSON holds it, without what differs from run to run."""
    values = json.loads(json.dumps(asdict(record)))
    return {k: v for k, v in values.items() if k not in TIMES}


def start(*args: str, cwd: Path) -> subprocess.Popen[str]:
    """The real command, as a process of its own."""
    return subprocess.Popen(
        [sys.executable, str(SCRIPT), *args],
        cwd=cwd,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    end = time.monotonic() + 900
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end, "nothing happened in a quarter of an hour"
        time.sleep(0.01)


@pytest.fixture
def command(
    fast_digits: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Callable[..., Any]:
    """The same command within this process: (exit code, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RCLCPB_DATA", raising=False)

    def call(*args: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = 0
        try:
            runs.main(list(args))
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else 1
        out, err = capsys.readouterr()
        return code, out, err

    return call


def files(folder: Path) -> dict[str, bytes]:
    """Everything below a folder but lock files."""
    return {
        str(p.relative_to(folder)): p.read_bytes()
        for p in folder.rglob("*")
        if p.is_file() and p.suffix != ".lock"
    }


# ----------------------------------------------------------------------------- running


def test_run_as_a_process(tmp_path: Path) -> None:
    process = start("run", "ta-smnist-5k", *SMALL, "--seeds", "0", "1", cwd=tmp_path)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert "Traceback" not in err
    for word in ("task 5/5", "nll", "kl", "accuracy", "sizes"):  # the progress bar
        assert word in err
    assert "seed 1: accuracy after the last task" in out
    lines = out.splitlines()
    assert any("recorded" in x and "rcl-cpb" in x and x.endswith(" 2") for x in lines)
    assert any("paper (own)" in x and "83.8" in x for x in lines)
    assert "not for these 5,000 digits" in out
    folder = tmp_path / "runs" / "ta-smnist-5k"
    assert set(files(folder)) == {"rcl-cpb-seed0.json", "rcl-cpb-seed1.json"}
    record = runs.load_record(folder / "rcl-cpb-seed0.json")
    assert (record.scenario, record.method, record.seed) == (
        "ta-smnist-5k",
        "rcl-cpb",
        0,
    )
    assert [len(row) for row in record.accuracy] == [1, 2, 3, 4, 5]
    assert record.config["epochs"] == 1 and record.config["hidden"] == [8, 8]


def test_a_finished_run_is_not_repeated(
    command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, first, _ = command("run", "ta-smnist-5k", *SMALL)
    assert code == 0
    before = files(tmp_path)
    assert list(before) == ["runs/ta-smnist-5k/rcl-cpb-seed0.json"]
    monkeypatch.setattr(core, "learn", lambda *a, **k: pytest.fail("learned again"))
    code, second, _ = command("run", "ta-smnist-5k", *SMALL)
    assert code == 0 and second == first and files(tmp_path) == before


def test_a_record_of_other_settings_is_refused_and_kept(command: Any, tmp_path: Path) -> None:
    command("run", "ta-smnist-5k", *SMALL)
    before = files(tmp_path)
    code, _, err = command("run", "ta-smnist-5k", *SMALL, "--gamma", "0.7")
    assert code == 2 and "other settings (gamma)" in err and "--out" in err
    assert one_line(err) and files(tmp_path) == before
    code, _, _ = command("run", "ta-smnist-5k", *SMALL, "--gamma", "0.7", "--out", "b")
    assert code == 0 and (tmp_path / "b/ta-smnist-5k/rcl-cpb-seed0.json").exists()


def test_a_sweep_refuses_records_of_other_settings_and_repeats_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = runs.Job("ta-smnist-5k", "vcl", 0, tiny.config(), tmp_path / "vcl-seed0.json")
    record = core.learn(tiny.scenario(), tiny.config(epochs=1), 0, "vcl")
    runs.save_record(replace(record, scenario=job.scenario), job.path)
    before = files(tmp_path)
    monkeypatch.setattr(runs, "run_job", lambda *a, **k: pytest.fail("ran"))
    (said,) = runs.sweep([job], workers=1)
    assert "other settings (epochs)" in said and str(job.path) in said
    good = job._replace(config=tiny.config(epochs=1))
    assert runs.sweep([good], workers=1) == []
    for change in ({"scenario": "mh-smnist-5k"}, {"method": "rcl-cpb"}, {"seed": 1}):
        (said,) = runs.sweep([good._replace(**change)], workers=1)
        assert f"other settings ({next(iter(change))})" in said
    assert files(tmp_path) == before


def test_a_record_older_than_a_field_has_its_default(tmp_path: Path) -> None:
    job = runs.Job("tiny-single", "vcl", 0, tiny.config(), tmp_path / "vcl-seed0.json")
    record = core.learn(tiny.scenario(), job.config, 0, "vcl")
    del record.config["decay"]
    runs.save_record(record, job.path)
    assert content(runs.recorded(job)) == content(record)
    other = job._replace(config=tiny.config(decay=True))
    with pytest.raises(core.RclCpbError, match=r"other settings \(decay\)"):
        runs.recorded(other)


def test_any_config_field_can_be_given(command: Any, tmp_path: Path) -> None:
    code, _, err = command(
        "run",
        "ta-smnist-5k",
        "--seeds",
        "3",
        *SMALL,
        "--gamma",
        "0.2",
        "0.3",
        "--beta",
        "0.01",
        "--sampling",
        "local",
        "--no-restore-head",
        "--rho-init",
        "-3",
        "--coreset-choice",
        "balanced",
        "--distort",
        "shift",
    )
    assert code == 0, err
    path = tmp_path / "runs/ta-smnist-5k/rcl-cpb-seed3.json"
    config = runs.load_record(path).config
    expected = replace(
        core.preset("ta-smnist-5k"),
        epochs=1,
        replay_steps=5,
        hidden=(8, 8),
        gamma=(0.2, 0.3),
        beta=(0.01,),
        sampling="local",
        restore_head=False,
        rho_init=-3.0,
        coreset_choice="balanced",
        distort="shift",
    )
    assert core.Config.from_json(config) == expected


def test_size_of_starts_at_another_methods_final_size(command: Any, tmp_path: Path) -> None:
    grow = [*SMALL[:4], "--hidden", "8", "8", "--gamma", "0.9"]
    vcl = ["run", "ta-smnist-5k", "--method", "vcl", "--size-of", "rcl-cpb"]
    code, _, err = command(*vcl, *SMALL[:4])
    assert code == 2 and "no record" in err and one_line(err) and not files(tmp_path)
    command("run", "ta-smnist-5k", *grow)
    folder = tmp_path / "runs/ta-smnist-5k"
    size = runs.load_record(folder / "rcl-cpb-seed0.json").hidden[-1]
    assert sum(size) > 16
    code, out, err = command(*vcl, *SMALL[:4])
    assert code == 0, err
    assert runs.load_record(folder / "vcl-seed0.json").hidden == [size] * 5
    rows = [line.split()[1] for line in out.splitlines() if " recorded " in line]
    assert rows == ["vcl", "rcl-cpb"]  # the other method's record is beside it


def test_the_command_line_and_the_module_give_the_same_record(command: Any, tmp_path: Path) -> None:
    command("run", "mh-smnist-5k", *SMALL, "--seeds", "2")
    recorded = runs.load_record(tmp_path / "runs/mh-smnist-5k/rcl-cpb-seed2.json")
    config = replace(core.preset("mh-smnist-5k"), epochs=1, replay_steps=5, hidden=(8, 8))
    learned = core.learn(core.make_scenario("mh-smnist-5k", 2), config, 2)
    assert content(recorded) == content(learned)


# ------------------------------------------------------------------- bad command lines


def one_line(err: str) -> bool:
    """One sentence after 'error:'; what tqdm draws does not count."""
    text = err[err.index("error:") :]
    return text.count("\n") == 1 and "Traceback" not in err


@pytest.fixture
def bad_data(tmp_path: Path) -> Path:
    """A folder with a truncated MNIST, and a file where a folder should be."""
    folder = tmp_path / "bad"
    folder.mkdir()
    x, y = np.zeros((40, 28, 28), np.uint8), np.arange(40, dtype=np.uint8) % 10
    np.savez(folder / "mnist.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    whole = (folder / "mnist.npz").read_bytes()
    (folder / "mnist.npz").write_bytes(whole[: len(whole) // 2])
    (folder / "file").write_text("in the way")
    return folder


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ("run nothing", "no preset for 'rcl-cpb' on 'nothing'"),
        ("run ta-smnist-5k --coreset 5000", "choose a smaller coreset"),
        ("run ta-smnist --data-dir bad", "cannot be read"),
        ("run ta-smnist --data-dir bad/file/data", "could not be downloaded"),
        ("run ta-smnist-5k --out bad/file/out", "cannot write bad/file/out"),
        ("run pmnist-5k --seeds -1", "seed -1"),
        ("run ta-smnist-5k --threads 0", "--threads"),
        ("run ta-smnist-5k --threads -2", "--threads"),
        ("run ta-smnist-5k --seeds", "--seeds"),
        (
            "run ta-smnist-5k --size-of vcl",
            "no record runs/ta-smnist-5k/vcl-seed0.json",
        ),
        ("run ta-smnist-5k --lr-mu 1e30", "not finite"),
        ("run pmnist-shared-5k --distort shift", "distort='none'"),
        ("data nothing", "no image set 'nothing'"),
        ("data mnist --data-dir bad", "cannot be read"),
        ("data mnist --download --data-dir bad/file/data", "could not be downloaded"),
        ("table mnist --frobnicate 3", "not understood"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_2(
    command: Any, bad_data: Path, tmp_path: Path, args: str, message: str
) -> None:
    before = files(tmp_path)
    code, _, err = command(*args.split())
    assert code == 2 and message in err and one_line(err)
    assert files(tmp_path) == before  # nothing half-written


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ("", "subcommand"),
        ("learn ta-smnist-5k", "run, "),
        ("run", "scenario"),
        ("run ta-smnist-5k --method ewc", "invalid choice 'ewc'"),
        ("run ta-smnist-5k --epochs ten", "--epochs"),
        ("run ta-smnist-5k --frobnicate 3", "--frobnicate"),
        ("run ta-smnist-5k --gamma -1", "gamma=(-1.0,): a threshold must be 0 or more"),
        ("run ta-smnist-5k --beta -0.5", "beta=(-0.5,)"),
        ("run ta-smnist-5k --hidden 0 8", "at least one neuron"),
        ("run ta-smnist-5k --sampling flipout", "flipout"),
        ("sweep ta-smnist-5k --frobnicate 3", "--frobnicate"),
        ("sweep ta-smnist-5k --gamma 0.1 some", "some"),
        ("sweep ta-smnist-5k --decay maybe", "maybe"),
        ("table nothing", "nothing"),
    ],
)
def test_what_the_parser_refuses(command: Any, tmp_path: Path, args: str, message: str) -> None:
    """The parser's own words, in a box; exit code 2, and nothing written."""
    code, _, err = command(*args.split())
    assert code == 2 and message in " ".join(err.split()) and "Traceback" not in err
    assert not files(tmp_path)


def test_no_such_device(command: Any, tmp_path: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    code, _, err = command("run", "ta-smnist-5k", "--device", "cuda")
    assert code == 2 and "no cuda device here: use --device cpu" in err and one_line(err)
    assert runs.choose_device("auto") in ("cpu", "mps")


@pytest.mark.parametrize("args", [["--help"], ["run", "--help"], ["data", "--help"]])
def test_help(command: Any, args: list[str]) -> None:
    code, out, _ = command(*args)
    assert code == 0 and "rclcpb_core.py" in out


def test_a_mistake_in_the_real_process(tmp_path: Path) -> None:
    process = start("run", "nothing", cwd=tmp_path)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 2 and not out and not files(tmp_path)
    assert err.startswith("error: no preset") and err.count("\n") == 1


# ---------------------------------------------------------------------- tables and data


def made_record(seed: int, method: str, last: float, **changes: Any) -> core.Record:
    """A record with numbers known beforehand."""
    record = core.learn(tiny.scenario(), tiny.config(epochs=1, replay_steps=1), seed)
    values = {
        "scenario": "ta-smnist",
        "method": method,
        "hidden": [[10, 8]] * 3,
        "accuracy": [[1.0], [0.9, 0.9], [last, last, last]],
        "seconds": [30.0, 60.0, 90.0],
    }
    return replace(record, **(values | changes))


def test_table_of_recorded_runs(command: Any, tmp_path: Path) -> None:
    for seed, (ours, vcl) in enumerate([(0.80, 0.70), (0.82, 0.75)]):
        for method, last in (("rcl-cpb", ours), ("vcl", vcl)):
            path = runs.record_path(tmp_path, "ta-smnist", method, seed)
            runs.save_record(made_record(seed, method, last), path)
    code, out, _ = command("table", "mnist", "--results", str(tmp_path))
    assert code == 0
    rows = [line for line in out.splitlines() if line.startswith("ta-smnist ")]
    ours, vcl, paper, paper_vcl = rows
    assert "rcl-cpb" in ours and "recorded" in ours and "81.00 ± 1.41" in ours
    # forgetting: task 1 fell from 1, task 2 from 0.9, to 0.8 (or 0.82): 15 and 13
    assert "14.0 ± 1.4" in ours and "[10, 8]" in ours and " 3.0 " in ours
    assert "vcl" in vcl and "72.50 ± 3.54" in vcl
    assert "paper (own)" in paper and "83.8 ± 0.38" in paper and "[160, 128]" in paper
    assert "60.6 ± 4.41" in paper_vcl
    assert "rcl-cpb - vcl = +8.50 points, better in 2 of 2 seeds" in out


def test_table_without_records_shows_the_papers_rows(command: Any, tmp_path: Path) -> None:
    for group, expected in (("cifar100", "72.4"), ("sequence", "81.5")):
        code, out, _ = command("table", group, "--results", str(tmp_path))
        assert code == 0 and expected in out and "recorded" not in out


def test_a_reader_who_stops_reading_sees_no_traceback() -> None:
    """`table | head -1`, with every line written at once."""
    table = subprocess.Popen(
        [sys.executable, "-u", SCRIPT, "table", "mnist"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert table.stdout and table.stderr
    table.stdout.close()
    assert table.stderr.read() == b"" and table.wait() == 141
    table.stderr.close()


def test_table_of_a_damaged_record(command: Any, tmp_path: Path) -> None:
    path = runs.record_path(tmp_path, "ta-smnist", "vcl", 0)
    path.parent.mkdir()
    path.write_text('{"scenario": "ta-smnist"')
    code, _, err = command("table", "mnist", "--results", str(tmp_path))
    assert code == 2 and one_line(err) and str(path) in err


def test_data_says_what_is_there(command: Any, tmp_path: Path) -> None:
    x, y = np.zeros((40, 28, 28), np.uint8), np.arange(40, dtype=np.uint8) % 10
    np.savez(tmp_path / "svhn.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    code, out, _ = command("data", "--data-dir", str(tmp_path))
    assert code == 0
    lines = dict(line.split(maxsplit=1) for line in out.splitlines())
    assert lines["mnist5k"] == "4,000 + 1,000 images of 28x28, checksum ok"
    assert lines["mnist"].startswith("not in") and "--download" in lines["mnist"]
    assert lines["svhn"].startswith("40 + 40 images of 28x28, no published checksum")


def test_data_notices_another_set(command: Any, tmp_path: Path) -> None:
    x, y = np.zeros((40, 28, 28), np.uint8), np.arange(40, dtype=np.uint8) % 10
    np.savez(tmp_path / "mnist.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    code, out, err = command("data", "mnist", "--data-dir", str(tmp_path))
    assert code == 2 and "CHECKSUM DIFFERS" in out and one_line(err)
    assert (tmp_path / "mnist.npz").exists()


# ----------------------------------------------------------------------------- records


class Harm:
    """Unpickling this leaves a trace."""

    def __init__(self, trace: Path) -> None:
        self.trace = str(trace)

    def __reduce__(self) -> tuple:
        return os.mkdir, (self.trace,)


def test_records_survive_a_round_trip(tmp_path: Path) -> None:
    record = core.learn(tiny.scenario(), tiny.config(), 3)
    path = tmp_path / "new" / "folder" / "record.json"
    runs.save_record(record, path)
    again = runs.load_record(path)
    assert asdict(again) == json.loads(json.dumps(asdict(record)))
    runs.save_record(again, path)
    assert asdict(runs.load_record(path)) == asdict(again)
    assert core.Config.from_json(again.config) == tiny.config()


def test_what_is_not_a_record(tmp_path: Path) -> None:
    good = json.dumps(asdict(core.learn(tiny.scenario(), tiny.config(epochs=1))))
    values, path = json.loads(good), tmp_path / "vcl-seed0.json"
    trace = tmp_path / "trace"
    bad = [
        b"",
        good[: len(good) // 2].encode(),
        b"[1, 2]",
        b"null",
        b"\xff\xfe\x00",
        pickle.dumps(Harm(trace)),
        json.dumps(values | {"extra": 1}).encode(),
        json.dumps({k: v for k, v in values.items() if k != "nll"}).encode(),
    ]
    for text in bad:
        path.write_bytes(text)
        with pytest.raises(core.RclCpbError, match="not a record of this version"):
            runs.load_record(path)
        assert path.read_bytes() == text
    assert not trace.exists()


def test_records_are_found_by_method_and_in_order(tmp_path: Path) -> None:
    record = core.learn(tiny.scenario(), tiny.config(epochs=1))
    for method in ("rcl-cpb", "rcl-cpb-A", "rcl-cpb-plus"):
        for seed in (10, 2):
            path = runs.record_path(tmp_path, "s", method, seed)
            runs.save_record(replace(record, method=method, seed=seed), path)
    found = runs.load_records(tmp_path, "s", "rcl-cpb")
    assert [(r.method, r.seed) for r in found] == [("rcl-cpb", 2), ("rcl-cpb", 10)]
    assert runs.load_records(tmp_path, "s", "vcl") == []


# --------------------------------------------- survival: checkpoints, in this process

ABOUT = {"scenario": "tiny", "seed": 5}


def cases() -> list:
    """Heads, and settings that each keep state of another kind."""
    return [
        pytest.param("single", {"gamma": 0.9}, id="single"),
        pytest.param("multi", {"gamma": 0.9}, id="multi"),
        pytest.param(
            "single",
            {"sampling": "local", "replay_mix": 4, "decay": True, "new_into_old": "zero"},
            id="single-local",
        ),
        pytest.param(
            "multi", {"sampling": "local", "replay_mix": 4, "gamma": 0.9}, id="multi-local"
        ),
        pytest.param(
            "single", {"coreset_only": True, "prune": False, "grow": False}, id="coreset-only"
        ),
        pytest.param(
            "multi", {"coreset_only": True, "prune": False, "grow": False}, id="multi-coreset-only"
        ),
    ]


def learner_at(
    path: Path, heads: Any, changes: dict, every: float = 0.0, progress: bool = False
) -> Any:
    """A learner that saves itself there, and its checkpoint."""
    checkpoint = runs.Checkpoint(path, ABOUT, every)
    learner = core.Learner(
        tiny.scenario(heads=heads),
        tiny.config(**changes),
        5,
        progress=progress,
        keep=checkpoint.keep,
    )
    return learner, checkpoint


def finish(learner: core.Learner) -> tuple[dict, dict]:
    record = core.learn(learner.scenario, learner.config, 5, learner=learner)
    return content(record), tiny.snapshot(learner.net)


@pytest.mark.parametrize(("heads", "changes"), cases())
def test_from_every_save_a_run_ends_bit_for_bit_the_same(
    tmp_path: Path, heads: Any, changes: dict
) -> None:
    """Each checkpoint that a run writes, as if the run had been killed right after."""
    path, saves = tmp_path / "run.safetensors", []
    learner, checkpoint = learner_at(path, heads, changes)
    save = checkpoint.save

    def keep_copy(learner: core.Learner) -> None:
        save(learner)
        saves.append(path.read_bytes())

    checkpoint.save = keep_copy
    record, weights = finish(learner)
    assert len(saves) == (3 if changes.get("coreset_only") else 3 * (3 + 1))
    for saved in saves:
        path.write_bytes(saved)
        learner, checkpoint = learner_at(path, heads, changes, every=1e9)
        assert checkpoint.restore(learner)
        again, again_weights = finish(learner)
        assert again == record and tiny.same(again_weights, weights)
        json.dumps(again, allow_nan=False)


def test_saves_come_after_each_task_and_every_so_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner, checkpoint = learner_at(tmp_path / "c", "single", {"epochs": 6}, every=60)
    now, saves = [0.0], []
    monkeypatch.setattr(runs.time, "monotonic", lambda: now[0])
    checkpoint.saved = 0.0
    save = checkpoint.save
    checkpoint.save = lambda learner: (saves.append(len(learner.stages)), save(learner))
    keep = learner.keep
    assert keep is not None

    def tick(learner: core.Learner) -> None:
        now[0] += 25  # seconds an epoch
        keep(learner)

    learner.keep = tick
    for _ in learner:
        pass
    # six epochs a task: a save every third epoch, and one after the task
    assert saves == [0, 0, 1, 1, 1, 2, 2, 2, 3]


@pytest.mark.parametrize("control", [False, True])
def test_the_bar_of_a_run_that_goes_on_starts_where_it_was(tmp_path: Path, control: bool) -> None:
    """And ends at its total; the control has no epochs, so tasks are counted there."""
    changes = {"coreset_only": control, "prune": not control, "grow": not control}
    learner, _ = learner_at(tmp_path / "c", "single", changes)
    next(iter(learner))
    again, checkpoint = learner_at(tmp_path / "c", "single", changes, progress=True)
    assert checkpoint.restore(again)
    shown = [again.bar.n for _ in again]
    assert shown == ([2, 3] if control else [6, 9])
    assert again.bar.n == again.bar.total and again.bar.initial == (1 if control else 3)


def test_restoring_does_not_disturb_the_global_generator(tmp_path: Path, global_rng: None) -> None:
    learner, _ = learner_at(tmp_path / "c", "single", {})
    next(iter(learner))
    learner, checkpoint = learner_at(tmp_path / "c", "single", {})
    assert checkpoint.restore(learner) and len(learner.stages) == 1


def test_time_before_a_stop_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    for clock in ("perf_counter", "process_time"):
        monkeypatch.setattr(core.time, clock, lambda: now[0])
    learner, checkpoint = learner_at(tmp_path / "c", "single", {"epochs": 2})

    def stop(kept: core.Learner) -> None:
        now[0] += 1000.0
        kept.partial["seconds"] = now[0] - kept.began
        checkpoint.keep(kept)
        raise KeyboardInterrupt

    learner.keep = stop
    with pytest.raises(KeyboardInterrupt):
        next(iter(learner))
    now[0] = 7.0  # another process, another clock
    learner, checkpoint = learner_at(tmp_path / "c", "single", {"epochs": 2})
    checkpoint.restore(learner)
    assert next(iter(learner)).seconds == pytest.approx(1000.0)


def test_no_file_to_restore(tmp_path: Path) -> None:
    learner, checkpoint = learner_at(tmp_path / "none", "single", {})
    assert not checkpoint.restore(learner) and learner.stages == []


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A checkpoint half way through the second task."""
    path = tmp_path / "run.safetensors"
    learner, checkpoint = learner_at(path, "single", {})

    def stop(kept: core.Learner) -> None:
        checkpoint.keep(kept)
        if len(kept.stages) == 1 and kept.partial:
            raise KeyboardInterrupt

    learner.keep = stop
    with pytest.raises(KeyboardInterrupt):
        finish(learner)
    return path


def refused(
    path: Path, message: str, changes: dict | None = None, about: dict | None = None
) -> None:
    """Restoring fails in one sentence, and leaves file and learner as they were."""
    before = path.read_bytes()
    learner, checkpoint = learner_at(path, "single", changes or {})
    checkpoint.about = about or checkpoint.about
    with pytest.raises(core.RclCpbError, match=message) as caught:
        checkpoint.restore(learner)
    text = str(caught.value)
    assert str(path) in text and "delete it to start" in text and "\n" not in text
    assert path.read_bytes() == before
    assert learner.stages == [] and learner.partial == {} and learner.coreset == []


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
        refused(saved, "damaged or not a checkpoint|another config|another version")


def test_a_checkpoint_of_another_run(saved: Path) -> None:
    refused(saved, "another config or other data", about=ABOUT | {"seed": 6})


def test_a_checkpoint_of_another_version(saved: Path) -> None:
    from safetensors.torch import save

    def write(tensors: dict) -> None:
        text = json.dumps(state)
        metadata = {"state": text, "sha256": runs._digest(tensors, text)}
        saved.write_bytes(save(tensors, metadata))

    state, tensors = runs.Checkpoint(saved, ABOUT)._read()
    write({f"{name}-old": value for name, value in tensors.items()})
    refused(saved, "another version")
    state["stages"][0]["mood"] = "good"
    write(tensors)
    refused(saved, "another version")


def test_a_pickle_under_the_checkpoints_name_runs_no_code(saved: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    saved.write_bytes(pickle.dumps(Harm(trace)))
    refused(saved, "damaged or not a checkpoint")
    torch.save({"harm": Harm(trace)}, saved)
    refused(saved, "damaged or not a checkpoint")
    assert not trace.exists()


# ------------------------------------------------------------ survival: a full disk


@contextmanager
def small_files(limit: int) -> Iterator[None]:
    """The system refuses to make a file longer than this: the real thing."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_checkpoint_that_does_not_fit_keeps_the_one_before(saved: Path, tmp_path: Path) -> None:
    before = files(tmp_path)
    learner, checkpoint = learner_at(saved, "single", {})
    checkpoint.restore(learner)
    with (
        small_files(2000),
        pytest.raises(core.RclCpbError, match=r"cannot write .*free some space") as caught,
    ):
        finish(learner)
    assert "\n" not in str(caught.value) and files(tmp_path) == before
    learner, checkpoint = learner_at(saved, "single", {})  # and it still goes on
    assert checkpoint.restore(learner)
    plain, _ = learner_at(tmp_path / "other", "single", {})
    assert finish(learner)[0] == finish(plain)[0]


@pytest.mark.parametrize("where", ["replace", "write"])
def test_a_full_disk_ends_a_run_in_one_sentence(
    where: str, command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: Any, **options: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        if where == "replace":
            broken.setattr(os, "replace", full)
        else:
            broken.setattr(Path, "write_bytes", full)
        code, _, err = command("run", "ta-smnist-5k", *SMALL)
    assert code == 2 and "No space left on device" in err and one_line(err)
    assert not files(tmp_path)
    code, _, err = command("run", "ta-smnist-5k", *SMALL)
    assert code == 0, err


def test_a_full_disk_at_the_record_keeps_the_checkpoint(
    command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All learned, nowhere to write it: with room again, nothing is learned anew."""

    def full(*args: Any, **options: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(Path, "write_text", full)
        code, _, err = command("run", "ta-smnist-5k", *SMALL)
    assert code == 2 and "No space left" in err and one_line(err)
    assert list(files(tmp_path)) == ["runs/ta-smnist-5k/rcl-cpb-seed0.safetensors"]
    monkeypatch.setattr(core.Learner, "learn_task", lambda *a: pytest.fail("again"))
    code, _, err = command("run", "ta-smnist-5k", *SMALL)
    assert code == 0, err
    assert list(files(tmp_path)) == ["runs/ta-smnist-5k/rcl-cpb-seed0.json"]


# ------------------------------------------------- survival: other processes and kills


def test_a_bad_checkpoint_stops_the_command(command: Any, tmp_path: Path) -> None:
    path = tmp_path / "runs/ta-smnist-5k/rcl-cpb-seed0.safetensors"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"broken")
    code, _, err = command("run", "ta-smnist-5k", *SMALL)
    assert code == 2 and "damaged" in err and one_line(err)
    assert files(tmp_path) == {str(path.relative_to(tmp_path)): b"broken"}


def test_a_locked_output_is_refused(command: Any, tmp_path: Path) -> None:
    folder = tmp_path / "runs/ta-smnist-5k"
    folder.mkdir(parents=True)
    with FileLock(folder / "rcl-cpb-seed0.lock"):
        code, _, err = command("run", "ta-smnist-5k", *SMALL)
    assert code == 2 and "another process is writing" in err and one_line(err)
    assert not files(tmp_path)
    assert command("run", "ta-smnist-5k", *SMALL)[0] == 0  # free again


LONG = ["--epochs", "10", "--replay-steps", "5", "--hidden", "8", "8"]


def test_ctrl_c_says_how_to_go_on_and_two_processes_do_not_mix(
    command: Any, tmp_path: Path
) -> None:
    """A first process learns; a second is refused; Ctrl-C ends the first cleanly."""
    args = ["run", "ta-smnist-5k", *LONG, "--epochs", "60"]
    process = start(*args, cwd=tmp_path)
    try:
        folder = tmp_path / "runs/ta-smnist-5k"
        wait_for(lambda: (folder / "rcl-cpb-seed0.lock").exists(), process)
        wait_for(lambda: (folder / "rcl-cpb-seed0.safetensors").exists(), process)
        code, _, err = command(*args)
        assert code == 2 and "another process is writing" in err
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=300)
    finally:
        process.kill()
    assert process.returncode == 130, err
    assert "stopped; the same command goes on from the last save." in err
    assert "Traceback" not in err
    assert [Path(name).suffix for name in files(tmp_path)] == [".safetensors"]


def test_kill_9_and_the_same_command_ends_as_if_never_stopped(command: Any, tmp_path: Path) -> None:
    args = ["run", "ta-smnist-5k", *LONG]
    process = start(*args, cwd=tmp_path)
    save = tmp_path / "runs/ta-smnist-5k/rcl-cpb-seed0.safetensors"
    wait_for(save.exists, process)
    process.kill()
    process.wait()
    assert save.exists() and not save.with_suffix(".json").exists()
    process = start(*args, cwd=tmp_path)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    stopped = runs.load_record(save.with_suffix(".json"))
    code, _, err = command(*args, "--out", "whole")
    assert code == 0, err
    whole = runs.load_record(tmp_path / "whole/ta-smnist-5k/rcl-cpb-seed0.json")
    assert content(stopped) == content(whole)
    assert not save.exists()


@pytest.mark.parametrize(("heads", "changes"), cases())
def test_killed_at_random_moments_a_run_ends_bit_for_bit_the_same(
    heads: Any,
    changes: dict,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    pytestconfig: pytest.Config,
) -> None:
    """kill -9, again and again, wherever it is: in a step, in a save, in between."""
    learn, networks = core.learn, []

    def show(*args: Any, learner: core.Learner) -> core.Record:
        record = learn(*args, learner=learner)
        networks.append(learner.net)
        return record

    monkeypatch.setattr(core, "learn", show)
    monkeypatch.setattr(core, "make_scenario", lambda *_: tiny.scenario(heads=heads))
    monkeypatch.setattr(runs, "Checkpoint", partial(runs.Checkpoint, every=0.0))
    config = tiny.config(**({"epochs": 12, "replay_steps": 60} | changes))
    whole, killed = (
        runs.Job(f"tiny-{heads}", "rcl-cpb", 5, config, tmp_path / f"{name}.json")
        for name in ("whole", "killed")
    )
    began = time.monotonic()
    record = content(runs.run_job(whole))
    most = 0.3 * (time.monotonic() - began)
    rng, kills = random.Random(heads), 0
    wanted = pytestconfig.getoption("--kills")  # all cases together
    while kills * len(cases()) < wanted:
        kills += killed_after(rng.uniform(0, most), partial(runs.run_job, killed))
        killed.path.unlink(missing_ok=True)  # it was done: start over
    assert content(runs.run_job(killed)) == record
    assert tiny.same(*(net.state_dict() for net in networks))
    assert set(files(tmp_path)) == {"whole.json", "killed.json"}


def killed_after(seconds: float, action: Callable[[], Any]) -> bool:
    """Do it in a process of its own and kill that; False if it was done before."""
    child = os.fork()
    if child == 0:
        try:
            action()
            os._exit(0)
        finally:
            os._exit(1)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status)
