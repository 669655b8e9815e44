"""Hundreds of odd command lines: one sentence, or a run of just what was asked for."""

from __future__ import annotations

import dataclasses
import io
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import tiny
from outcomes import REFUSED, RIGHT, SILENT, TRACEBACK, WRONG, Tally

import rclcpb_core as core
from rclcpb import cli, jobs, sweep
from rclcpb.records import load_record

pytestmark = pytest.mark.long
SCRIPT = Path(core.__file__)
LINES = 360
QUICK = ["--hidden", "4", "--epochs", "1", "--coreset", "4", "--replay-steps", "2"]
ODD = (
    *("", " ", "nan", "inf", "-inf", "-1", "0", "1e400", "1e-400", "10**9", "0x10", "1_0", "٣"),
    *("1000000000000", "9" * 5000, "1e30", "-0.0", "True", "None", "[]", "ten", "½", "\udcff"),
    *(
        "../..",
        "/dev/null",
        "/proc/self/mem",
        "a" * 5000,
        "a\nb",
        "--",
        "-",
        "'",
        "$(id)",
        "\u202e",
    ),
)
PATHS = ("--out", "--data-dir", "--start", "--size-of", "--results")


def lines(rng: random.Random) -> Iterator[list[str]]:
    """All kinds of them, without end."""
    fields = [f.name.replace("_", "-") for f in dataclasses.fields(core.Config)]
    options = ["method", "seeds", "threads", "device", "scenario", "workers", "dask", "keep"]
    run = ["run", "ta-smnist-5k"]
    yield from ([], [""], ["run"], ["sweep"], ["--version"], ["run", "--help", "--seeds"], ["RUN"])
    yield from ([*run, *QUICK], [*run, *QUICK, "--seeds", "0", "0", "0"])
    yield from ([*run, *QUICK, "--threads", "4096"], [*run, *QUICK, "--portable"])
    yield from ([*run, *QUICK, *QUICK], [*run, "--epochs"], [*run, "--epochs", "1", "2"])
    for value in ODD:
        yield [*run, *QUICK, "--seeds", value]
        yield ["table", value]
        yield ["data", value]
        yield from (["doctor", value], ["predict", value, "file"], ["predict", "file", value])
        yield from (["export", "file", "--keep", value], ["tasks", "file", "--out", value])
    for path in PATHS:
        for value in (
            "",
            "/dev/null",
            "/dev/full",
            "a" * 300,
            "x/" * 3000,
            "/proc/1/x",
            "file",
            "~",
            "\udcff",
        ):
            command = ["table"] if path == "--results" else [*run, *QUICK]
            yield [*command, path, value]
    while True:
        name = rng.choice(fields if rng.random() < 0.8 else options)
        values = rng.choices(ODD, k=rng.choice((1, 1, 1, 2, 3)))
        if rng.random() < 0.75:
            yield [*run, *QUICK, f"--{name}", *values]
        else:
            yield ["sweep", "ta-smnist-5k", *QUICK, f"--{name}", *values, "--workers", "1"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to run in, with data that cost no time, and nothing to be fetched."""
    scenario = dataclasses.replace(tiny.scenario(), name="ta-smnist-5k")
    monkeypatch.setattr(jobs, "make_scenario", lambda *_: scenario)
    monkeypatch.setattr(sweep, "ANSWER", 1)
    monkeypatch.setattr("rclcpb.images.download", refuse)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("not a folder")
    return tmp_path


def refuse(*_: Any) -> None:
    raise cli.RclCpbError("no downloads here.")


def ended(words: list[str]) -> tuple[int, str, str, str]:
    """Exit code, stdout, stderr, and what was not caught."""
    out, err, wild, code = io.StringIO(), io.StringIO(), "", 0
    with redirect_stdout(out), redirect_stderr(err):
        try:
            cli.main(words)
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else 1
        except BaseException as error:
            wild = repr(error)
    return code, out.getvalue(), err.getvalue(), wild


def judged(words: list[str], code: int, err: str, wild: str) -> str:
    if wild or "Traceback" in err:
        return TRACEBACK
    if code == 0:
        return RIGHT
    spoken = err[err.index("error:") :].strip() if "error:" in err else ""
    if spoken:
        return REFUSED if spoken.count("\n") == 0 else WRONG
    return REFUSED if "For full helptext" in err else SILENT  # the parser's own words


def did_as_told(words: list[str], folder: Path) -> bool:
    """Each record below the folder has the settings that the line gave, each seed once."""
    given = dict(pairwise(words))
    for path in folder.rglob("*-seed*.json"):
        config = load_record(path).config
        for name, value in config.items():
            text = given.get(f"--{name.replace('_', '-')}")
            if text is None or name == "hidden":
                continue
            single = value[0] if isinstance(value, list) and len(value) == 1 else value
            if isinstance(single, bool | str | list):
                continue
            if float(single) != float(text):
                return False
    return True


def test_odd_command_lines(tally: Tally, here: Path) -> None:
    for number, words in zip(range(LINES), lines(random.Random(18)), strict=False):
        out = (
            []
            if "--out" in words or words[:1] not in (["run"], ["sweep"])
            else ["--out", f"{number}"]
        )
        code, _, err, wild = ended([*words, *out])
        outcome = judged(words, code, err, wild)
        if outcome == RIGHT and not did_as_told(words, here / f"{number}"):
            outcome = WRONG
        tally.add(outcome, f"{' '.join(words)[-90:]!r}: {code} {wild} {err[-300:]!r}")


def real(*words: str, shell: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """The command as a process of its own; `shell` may close its streams."""
    command = ["sh", "-c", f'exec "$@" {shell}', "sh", sys.executable, str(SCRIPT), *words]
    env = os.environ | environment
    return subprocess.run(command, capture_output=True, text=True, env=env, timeout=240)


REAL: dict[str, tuple[list[str], str, dict[str, str]]] = {
    "stderr closed": (["run", "nothing"], "2>&-", {}),
    "all closed": (["table"], "<&- >&- 2>&-", {}),
    "a full disk": (["table"], ">/dev/full", {}),
    "an ASCII terminal": (["table"], "", {"LC_ALL": "C", "PYTHONIOENCODING": "ascii:strict"}),
    "an ASCII locale": (["run", "nöthing"], "", {"LC_ALL": "C", "PYTHONUTF8": "0"}),
    "a Dask address that nobody answers": (
        ["sweep", "ta-smnist-5k", "--gamma", "0.1", "--dask", "tcp://127.0.0.1:9"],
        "",
        {},
    ),
}


@pytest.mark.parametrize("name", REAL)
def test_odd_terminals(name: str, tally: Tally, tmp_path: Path, monkeypatch: Any) -> None:
    words, shell, environment = REAL[name]
    monkeypatch.chdir(tmp_path)
    done = real(*words, shell=shell, **environment)
    fine = done.returncode in (0, 2) and "Traceback" not in done.stderr + done.stdout
    fine &= "Exception ignored" not in done.stderr
    tally.add((REFUSED if done.returncode else RIGHT) if fine else TRACEBACK, done.stderr[-900:])
    assert not list(tmp_path.rglob("*.json"))
