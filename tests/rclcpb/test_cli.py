"""The command line, as a user meets it: in this process, and as processes of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from processes import wait_for
from running import content, files, one_line

import rclcpb_core as core
from rclcpb import cli, jobs, runner
from rclcpb.files import RclCpbError
from rclcpb.presets import make_scenario, preset
from rclcpb.records import load_record

SCRIPT = Path(core.__file__)
SMALL = ["--epochs", "1", "--replay-steps", "5", "--hidden", "8", "8"]
FOLDER = "runs/ta-smnist-5k"


# ------------------------------------------------------------------------------- running


def test_a_finished_run_is_not_repeated(
    command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, first, _ = command("run", "ta-smnist-5k", *SMALL)
    assert code == 0
    before = files(tmp_path)
    assert list(before) == [f"{FOLDER}/rcl-cpb-seed0.json"]
    monkeypatch.setattr(jobs, "Run", lambda *a, **k: pytest.fail("learned again"))
    code, second, _ = command("run", "ta-smnist-5k", *SMALL)
    assert code == 0 and second == first and files(tmp_path) == before


def test_a_record_of_other_settings_is_refused_and_kept(command: Any, tmp_path: Path) -> None:
    command("run", "ta-smnist-5k", *SMALL)
    before = files(tmp_path)
    code, _, err = command("run", "ta-smnist-5k", *SMALL, "--gamma", "0.7")
    assert code == 2 and "other settings (gamma: " in err and "--out" in err
    assert one_line(err) and files(tmp_path) == before
    code, _, _ = command("run", "ta-smnist-5k", *SMALL, "--gamma", "0.7", "--out", "b")
    assert code == 0 and (tmp_path / "b/ta-smnist-5k/rcl-cpb-seed0.json").exists()


def test_any_field_of_the_settings_can_be_given(command: Any, tmp_path: Path) -> None:
    given = (
        "--gamma 0.2 0.3 --beta 0.01 --sampling local --no-restore-head --rho-init -3"
        " --coreset-choice balanced --distort shift"
    )
    code, _, err = command("run", "ta-smnist-5k", "--seeds", "3", *SMALL, *given.split())
    assert code == 0, err
    record = load_record(tmp_path / FOLDER / "rcl-cpb-seed3.json")
    expected = replace(
        preset("ta-smnist-5k"),
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
    assert core.Config.from_json(record.config) == expected


def test_size_of_starts_at_another_methods_final_size(command: Any, tmp_path: Path) -> None:
    vcl = ["run", "ta-smnist-5k", "--method", "vcl", "--size-of", "rcl-cpb", *SMALL[:4]]
    code, _, err = command(*vcl)
    assert code == 2 and "no record" in err and one_line(err) and not files(tmp_path)
    command("run", "ta-smnist-5k", *SMALL, "--gamma", "0.9")
    folder = tmp_path / FOLDER
    size = load_record(folder / "rcl-cpb-seed0.json").hidden[-1]
    assert sum(size) > 16
    code, out, err = command(*vcl)
    assert code == 0, err
    assert load_record(folder / "vcl-seed0.json").hidden == [size] * 5
    rows = [line.split()[1] for line in out.splitlines() if " recorded " in line]
    assert rows == ["vcl", "rcl-cpb"]  # the other method's record is beside it


def test_the_command_line_and_the_package_give_the_same_record(
    command: Any, tmp_path: Path
) -> None:
    command("run", "mh-smnist-5k", *SMALL, "--seeds", "2")
    recorded = load_record(tmp_path / "runs/mh-smnist-5k/rcl-cpb-seed2.json")
    config = replace(preset("mh-smnist-5k"), epochs=1, replay_steps=5, hidden=(8, 8))
    learned = runner.learn(make_scenario("mh-smnist-5k", 2), config, 2)
    assert content(recorded) == content(learned)


def test_a_network_is_kept_and_another_run_starts_from_it(command: Any, tmp_path: Path) -> None:
    code, out, err = command("run", "ta-smnist-5k", *SMALL, "--keep")
    kept = f"{FOLDER}/rcl-cpb-seed0.safetensors"
    assert code == 0 and f"its network -> {kept}" in out, err
    assert core.load(tmp_path / kept).about["labels"] == [list(range(10))]
    on = ["run", "ta-smnist-5k", *SMALL, "--start", kept, "--out", "on"]
    assert command(*on)[0] == 0
    started = load_record(tmp_path / "on/ta-smnist-5k/rcl-cpb-seed0.json")
    assert started.start == jobs.file_sha256(tmp_path / kept)
    code, _, err = command(*on[:-2], "--out", "runs")
    assert code == 2 and "other settings (start" in err and one_line(err)
    code, _, err = command(*on[:-3], "none.safetensors", "--out", "off")
    assert code == 2 and "cannot read none.safetensors" in err and one_line(err)


# --------------------------------------------------------------------- bad command lines


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
        ("run ta-smnist-5k --coreset 5000", "choose a smaller coreset"),
        ("run ta-smnist --data-dir bad", "cannot be read"),
        ("run ta-smnist --data-dir bad/file/data", "could not be downloaded"),
        ("run ta-smnist-5k --out bad/file/out", "cannot write bad/file/out"),
        ("run pmnist-5k --seeds -1", "seed=-1"),
        ("run ta-smnist-5k --threads 0", "--threads"),
        ("run ta-smnist-5k --threads -2", "--threads"),
        ("run ta-smnist-5k --seeds", "--seeds"),
        ("run ta-smnist-5k --size-of vcl", f"no record {FOLDER}/vcl-seed0.json"),
        ("run ta-smnist-5k --lr-mu 1e30", "not finite"),
        ("run pmnist-shared-5k --distort shift", "distort='none'"),
        ("run ta-smnist-5k --method coreset-only --coreset 0", "a coreset above 0"),
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
        ("run nothing", "invalid choice 'nothing'"),
        ("run ta-smnist-5k --method magic", "invalid choice 'magic'"),
        ("run ta-smnist-5k --epochs ten", "--epochs"),
        ("run ta-smnist-5k --frobnicate 3", "--frobnicate"),
        ("run ta-smnist-5k --gamma -1", "gamma=(-1.0,): must be 0 or more"),
        ("run ta-smnist-5k --beta -0.5", "beta=(-0.5,)"),
        ("run ta-smnist-5k --lr-mu nan", "lr_mu=nan: must be a finite number"),
        ("run ta-smnist-5k --hidden 0 8", "hidden=(0, 8): must be above 0"),
        ("run ta-smnist-5k --sampling flipout", "flipout"),
        ("sweep ta-smnist-5k --frobnicate 3", "--frobnicate"),
        ("sweep ta-smnist-5k --gamma 0.1 some", "some"),
        ("sweep ta-smnist-5k --decay maybe", "maybe"),
        ("table nothing", "nothing"),
    ],
)
def test_what_the_parser_refuses(command: Any, tmp_path: Path, args: str, message: str) -> None:
    """In the parser's own words; exit code 2, and nothing written."""
    code, _, err = command(*args.split())
    assert code == 2 and message in " ".join(err.split()) and "Traceback" not in err
    assert not files(tmp_path)


def test_no_such_device(command: Any, tmp_path: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    code, _, err = command("run", "ta-smnist-5k", "--device", "cuda")
    assert code == 2 and "no cuda device here: use --device cpu" in err and one_line(err)
    assert cli.choose_device("auto") in ("cpu", "mps")


@pytest.mark.parametrize("args", [["--help"], ["run", "--help"], ["data", "--help"]])
def test_help(command: Any, args: list[str]) -> None:
    code, out, _ = command(*args)
    assert code == 0 and "usage: rclcpb" in out
    if args[0] == "run":
        assert "coreset-only" in out and "ta-smnist-5k" in out  # the registry's names


def test_values_of_a_sweep_are_words_after_a_fields_name() -> None:
    words = ["--gamma", "0.1", "0.2", "--coreset-choice", "medoids"]
    expected = {"gamma": ["0.1", "0.2"], "coreset_choice": ["medoids"]}
    assert cli.swept_values(words) == expected
    for bad in ([], ["0.1", "--gamma"], ["--gamma"]):
        with pytest.raises(RclCpbError, match=r"name a field|not understood"):
            cli.swept_values(bad)


# ---------------------------------------------------------------------------------- data


def save_blank(path: Path) -> None:
    x, y = np.zeros((40, 28, 28), np.uint8), np.arange(40, dtype=np.uint8) % 10
    np.savez(path, x_train=x, y_train=y, x_test=x, y_test=y)


def test_data_says_what_is_there(command: Any, tmp_path: Path) -> None:
    save_blank(tmp_path / "svhn.npz")
    code, out, _ = command("data", "--data-dir", str(tmp_path))
    assert code == 0
    lines = dict(line.split(maxsplit=1) for line in out.splitlines())
    assert lines["mnist5k"] == "4,000 + 1,000 images of 28x28, checksum ok"
    assert lines["mnist"].startswith("not in") and "--download" in lines["mnist"]
    assert lines["svhn"].startswith("40 + 40 images of 28x28, no published checksum")


def test_data_notices_another_set(command: Any, tmp_path: Path) -> None:
    save_blank(tmp_path / "mnist.npz")
    code, out, err = command("data", "mnist", "--data-dir", str(tmp_path))
    assert code == 2 and "CHECKSUM DIFFERS" in out and one_line(err)
    assert (tmp_path / "mnist.npz").exists()


# ------------------------------------------------------------------------ real processes

AT_EXIT = """
import atexit, sys

def tell():
    main = sys.modules["__main__"]
    copies = [name for name, module in sys.modules.items() if "MEANS_FROM_STORED" in vars(module)]
    print("copies of the core:", copies, "Config" in vars(main))

atexit.register(tell)
"""


def start(*args: str, cwd: Path, **environment: str) -> subprocess.Popen[str]:
    """The real command, as a process of its own."""
    return subprocess.Popen(
        [sys.executable, str(SCRIPT), *args],
        cwd=cwd,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | environment,
    )


def test_the_script_runs_the_core_once_and_records_what_the_package_does(
    command: Any, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(AT_EXIT)  # which Python imports as it starts
    args = ["run", "ta-smnist-5k", *SMALL, "--seeds", "0", "1"]
    process = start(*args, "--out", "script", cwd=tmp_path, PYTHONPATH=str(tmp_path))
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert "copies of the core: ['rclcpb_core'] False" in out
    for word in ("task 5/5", "nll", "kl", "accuracy", "sizes"):  # the progress bar
        assert word in err
    assert "Traceback" not in err and "seed 1: accuracy after the last task" in out
    lines = out.splitlines()
    assert any("recorded" in x and "rcl-cpb" in x and x.split()[-2] == "2" for x in lines)
    assert any("paper" in x and "83.8" in x for x in lines)
    assert "not for these 5,000 digits" in out
    code, _, err = command(*args)
    assert code == 0, err
    for seed in (0, 1):
        name = f"ta-smnist-5k/rcl-cpb-seed{seed}.json"
        script, package = (load_record(tmp_path / of / name) for of in ("script", "runs"))
        assert content(script) == content(package)
        assert (script.scenario, script.method, script.seed) == ("ta-smnist-5k", "rcl-cpb", seed)
        assert [len(row) for row in script.accuracy] == [1, 2, 3, 4, 5]
        assert script.config["epochs"] == 1 and script.config["hidden"] == [8, 8]
    assert {p.name for p in (tmp_path / FOLDER).glob("*.json")} == {
        f"rcl-cpb-seed{seed}.json" for seed in (0, 1)
    }


def test_a_mistake_in_the_real_process(tmp_path: Path) -> None:
    process = start("run", "ta-smnist-5k", "--threads", "0", cwd=tmp_path)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 2 and not out and not files(tmp_path)
    assert err.startswith("error: give at least one") and err.count("\n") == 1


def test_a_reader_who_stops_reading_sees_no_traceback(tmp_path: Path) -> None:
    """`table | head -1`, with every line written at once."""
    table = start("table", "mnist", cwd=tmp_path, PYTHONUNBUFFERED="1")
    assert table.stdout and table.stderr
    table.stdout.close()
    assert table.stderr.read() == "" and table.wait() == 141
    table.stderr.close()


def test_two_at_once_ctrl_c_kill_9_and_the_same_command_to_the_end(
    command: Any, tmp_path: Path
) -> None:
    """A second is refused while the first learns; however it stops, nothing is lost."""
    args = ["run", "ta-smnist-5k", *SMALL, "--epochs", "24"]
    save = tmp_path / FOLDER / "rcl-cpb-seed0.checkpoint"
    process = start(*args, cwd=tmp_path)
    try:
        wait_for(save.exists, process)
        code, _, err = command(*args)
        assert code == 2 and "another process is writing" in err and one_line(err)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=300)
    finally:
        process.kill()
    assert process.returncode == 130, err
    assert err.endswith("\n\nstopped; the same command goes on from the last save.\n")
    assert "Traceback" not in err
    assert [Path(name).suffix for name in files(tmp_path)] == [".checkpoint"]
    before = save.read_bytes()
    process = start(*args, cwd=tmp_path)
    try:
        wait_for(lambda: save.exists() and save.read_bytes() != before, process)
    finally:
        process.kill()
        process.communicate()
    assert save.exists() and not save.with_suffix(".json").exists()
    code, _, err = command(*args)
    assert code == 0, err
    assert not save.exists()
    code, _, err = command(*args, "--out", "whole")
    assert code == 0, err
    whole = load_record(tmp_path / "whole/ta-smnist-5k/rcl-cpb-seed0.json")
    assert content(load_record(save.with_suffix(".json"))) == content(whole)
