"""The book: its chapters as files, their records and figures, the set-up cell, the build."""

from __future__ import annotations

import base64
import getpass
import io
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jupytext
import matplotlib.pyplot as plt
import nbformat
import numpy as np
import pytest
from matplotlib.colors import to_rgb
from PIL import Image
from sphinx.errors import ConfigError

import rclcpb_core as core
from rclcpb import runner
from rclcpb.presets import METHODS, SCENARIOS, make_scenario
from rclcpb.records import Record, load_records, save_record
from rclcpb.scenarios import Scenario

ROOT = Path(__file__).resolve().parents[1]
BOOK = ROOT / "book"
sys.path.insert(0, str(BOOK))
import downloads  # noqa: E402
import exercises  # noqa: E402
import figures  # noqa: E402
import prepare  # noqa: E402
import store  # noqa: E402
from figures import (  # noqa: E402
    ablations,
    appendix,
    evidence,
    full_runs,
    growth,
    own,
    page,
    player,
    vector,
)
from figures import field as against  # noqa: E402

CHAPTERS = sorted(path.stem for path in BOOK.glob("*.ipynb"))
HEADINGS = (
    "## What you will learn",
    "## Try it",
    "## Where this differs from the paper",
    "## Takeaways",
    "## Exercises",
)


def read(name: str) -> nbformat.NotebookNode:
    return nbformat.read(BOOK / f"{name}.ipynb", 4)


def code_cells(name: str) -> list[nbformat.NotebookNode]:
    return [cell for cell in read(name).cells if cell.cell_type == "code"]


SETUP = code_cells("01_forgetting")[0].source

# ------------------------------------------------------------------- chapters as files


def test_the_readme_has_the_recorded_results() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    assert text == store.readme(text)  # else: make store
    assert "RCL" in store.TABLE.findall(text)[0] and "VCL" in store.FOUND.findall(text)[0]


@pytest.mark.parametrize("name", CHAPTERS)
def test_a_chapter_begins_with_the_same_folded_set_up_cell(name: str) -> None:
    cell = code_cells(name)[0]
    assert cell.source == SETUP and cell.outputs == []
    assert cell.metadata["tags"] == ["hide-input"] and "code_prompt_show" in cell.metadata["mystnb"]
    assert len(SETUP.split("\n")) <= 15


def seen(cell: nbformat.NotebookNode) -> bool:
    """Is the cell's code open on a page?"""
    return not {"hide-input", "hide-cell", "remove-input"} & set(cell.metadata.get("tags", []))


# What one does not read as words: code, formulas, addresses.
NO_WORDS = re.compile(r"```.*?```|\$\$.*?\$\$|\$[^$\n]*\$|`[^`]*`|\]\([^)]*\)", re.DOTALL)


@pytest.mark.parametrize("name", [name for name in CHAPTERS if name[0].isdigit()])
def test_a_chapter_has_its_parts_and_its_length(name: str) -> None:
    text = "\n".join(c.source for c in read(name).cells if c.cell_type == "markdown")
    assert [heading for heading in HEADINGS if heading not in text] == []
    assert 1200 <= len(re.findall(r"\w[\w'’-]*", NO_WORDS.sub(" ", text))) <= 2030
    lengths = sorted(len(cell.source.split("\n")) for cell in code_cells(name) if seen(cell))
    assert lengths[len(lengths) // 2] <= 8
    folded = [len(c.source.split("\n")) for c in code_cells(name) if not seen(c)]
    assert max(folded) <= 60


def faults(output: Any) -> Iterator[str]:
    """What is wrong with a stored output."""
    data = output.get("data", {})
    if any(key.startswith("image/") for key in data):
        yield "a picture without alt text; use figures.show"
    if any("widget" in key for key in data):
        yield "a widget in the stored outputs; use figures.live"
    code = "".join(data.get("text/html", ""))
    if re.search(r"<img(?![^>]*alt=[\"'][^\"'])", code):
        yield "an <img> without alt text"
    if re.search(r"(?:src|href)=\"?https?:", code):
        yield "an output that asks another host for something"
    if output.output_type == "error" or output.get("name") == "stderr":
        yield "an error or a warning"


@pytest.mark.parametrize("name", CHAPTERS)
def test_stored_outputs_need_no_other_host_and_name_no_machine(name: str) -> None:
    """And nbval compares nothing in a notebook without stored outputs."""
    found = [fault for cell in code_cells(name) for o in cell.outputs for fault in faults(o)]
    assert found == []
    text = (BOOK / f"{name}.ipynb").read_text("utf-8")
    user = getpass.getuser()
    private = [str(ROOT), f"{Path.home()}/", *([f"/{user}/"] if user != "root" else [])]
    assert [word for word in private if word in text] == []
    assert len(text.encode()) <= 1_000_000
    checked = [c for c in code_cells(name) if "nbval-check-output" in c.metadata.get("tags", [])]
    assert checked and all(cell.outputs for cell in checked)


def test_faults_are_found() -> None:
    picture = {"text/html": '<img src="https://code.example/a.png">', "image/png": ""}
    output = nbformat.v4.new_output("display_data", picture)
    assert len(list(faults(output))) == 3


@pytest.mark.parametrize("name", CHAPTERS)
def test_a_chapter_survives_the_way_through_text(name: str) -> None:
    nb = read(name)
    again = jupytext.reads(jupytext.writes(nb, "md:myst"), "md:myst")
    assert [c.source for c in again.cells] == [c.source for c in nb.cells]
    assert [c.metadata.get("tags") for c in again.cells] == [
        c.metadata.get("tags") for c in nb.cells
    ]


# -------------------------------------------------------------------- build and store


@pytest.fixture
def small_book(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the core, figures and records of a book, all of them tiny."""
    for part in ("rclcpb", "book/figures", "book/results"):
        (tmp_path / part).mkdir(parents=True)
    for file in ("rclcpb_core.py", "rclcpb/sweep.py", "book/figures/page.py"):
        (tmp_path / file).write_text("a = 1\n")
    monkeypatch.setattr(prepare, "ROOT", tmp_path)
    monkeypatch.setattr(prepare, "BOOK", tmp_path / "book")
    monkeypatch.setattr(prepare, "RESULTS", tmp_path / "book" / "results")
    return tmp_path


def test_what_a_chapter_reads_names_the_cache_of_its_execution(
    small_book: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = {prepare.digest()}
    for file in (
        "rclcpb_core.py",
        "rclcpb/sweep.py",
        "book/figures/page.py",
        "book/results/r.json",
        "book/results/r.jsonl",
    ):
        (small_book / file).write_text("a = 2\n")
        seen.add(prepare.digest())
    monkeypatch.setenv("RCLCPB_MODE", "full")
    assert len(seen | {prepare.digest()}) == 7
    (small_book / "book" / "01_a.ipynb").write_text("{}")  # myst-nb looks at these itself
    assert prepare.digest() == prepare.digest() and len(seen) == 6


@pytest.mark.long
def test_a_failing_cell_fails_the_build(tmp_path: Path) -> None:
    book = tmp_path / "book"
    book.mkdir()
    for file in ("_config.yml", "prepare.py", "exercises.py", "references.bib"):
        shutil.copy(BOOK / file, book)
    shutil.copytree(BOOK / "_static", book / "_static")
    (book / "_toc.yml").write_text("format: jb-book\nroot: index\n")
    cells = [nbformat.v4.new_markdown_cell("# T"), nbformat.v4.new_code_cell("1 / 0")]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), book / "index.ipynb")
    command = [sys.executable, "-c", "from jupyter_book.cli.main import main; main()", "build"]
    known = os.environ | {"PYTHONPATH": f"{ROOT}:{BOOK}", "RCLCPB_EXECUTE": ""}
    done = subprocess.run([*command, str(book)], capture_output=True, text=True, env=known)
    assert done.returncode != 0 and "ZeroDivisionError" in done.stdout + done.stderr


def test_the_address_comes_from_the_environment_or_not_at_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("GITHUB_REPOSITORY", raising=False)
    assert prepare.address() == ""
    monkeypatch.setenv("GITHUB_SERVER_URL", "https://code.example")
    monkeypatch.setenv("GITHUB_REPOSITORY", "someone/book")
    monkeypatch.setenv("GITHUB_SHA", "abcdef1")
    assert prepare.address() == "https://code.example/someone/book@abcdef1"
    monkeypatch.setenv("GITHUB_REPOSITORY", "a b; rm")
    with pytest.raises(ConfigError, match="owner/name"):
        prepare.address()


def test_what_a_builder_merged_is_stored_once() -> None:
    def said(*texts: str) -> list[Any]:
        return [nbformat.v4.new_output("stream", name="stdout", text=text) for text in texts]

    assert store.once(said("one\ntwo\n", "two\n")) == said("one\ntwo\n")
    for fine in (said("one\n", "two\n"), said("one\n", "one\n"), said("one\n"), []):
        assert store.once(fine) == fine


def test_store_takes_outputs_and_leaves_the_rest(tmp_path: Path) -> None:
    new = nbformat.v4
    made = new.new_notebook(cells=[new.new_code_cell("1", id="a", metadata={"tags": ["x"]})])
    nbformat.write(made, tmp_path / "made.ipynb")
    cell = new.new_code_cell("1", id="b", execution_count=3, metadata={"collapsed": True})
    cell.outputs = [
        new.new_output("stream", name="stdout", text="one\n"),
        new.new_output("stream", name="stderr", text="100%"),
        new.new_output("display_data", {"application/vnd.jupyter.widget-view+json": {}}),
        new.new_output("display_data", {"text/plain": "2"}, metadata={"at": "noon"}),
    ]
    nbformat.write(new.new_notebook(cells=[cell]), tmp_path / "done.ipynb")
    store.store(tmp_path / "made.ipynb", tmp_path / "done.ipynb")
    (kept,) = nbformat.read(tmp_path / "made.ipynb", 4).cells
    assert kept.id == "a" and kept.metadata == {"tags": ["x"]} and kept.execution_count == 3
    assert [o.get("text") or o.data["text/plain"] for o in kept.outputs] == ["one\n", "2"]
    assert kept.outputs[1].metadata == {}
    raw = json.loads((tmp_path / "made.ipynb").read_text())
    assert raw["cells"][0]["source"] == ["1"] and raw["metadata"]["kernelspec"]["name"] == "python3"
    cell.source = "2"
    nbformat.write(new.new_notebook(cells=[cell]), tmp_path / "done.ipynb")
    with pytest.raises(SystemExit, match="build again"):
        store.store(tmp_path / "made.ipynb", tmp_path / "done.ipynb")


# ------------------------------------------------------------- chapters and the records

# of records, and learning little
READERS = ("10_full_runs", "11_what_holds", "12_field", "B_regime")
EVIDENCE = ("08_ablations", "09_sensitivity", *READERS, "A_choices", "E_timings")
CASES = [
    pytest.param(
        name,
        kind,
        marks=[] if name in READERS and kind != "all" else pytest.mark.long,
    )
    for name in EVIDENCE
    for kind in ("none", "some", "all")
]


def few(name: str, seed: int = 0) -> Scenario:
    """A scenario with an eighth of the 5,000 digits' training images."""
    whole = make_scenario(f"{name}-5k", seed)
    tasks = [
        replace(task, x_train=task.x_train[::8], y_train=task.y_train[::8]) for task in whole.tasks
    ]
    return replace(whole, tasks=tasks)


@pytest.fixture(scope="session")
def real_record() -> Record:
    config = core.Config(hidden=(8, 8), epochs=1, coreset=10, replay_steps=5)
    return runner.learn(few("ta-smnist"), config, seed=0, method="rcl-cpb")


def keep_record(folder: Path, base: Record, seed: int, **fields: Any) -> None:
    """A made-up record: the real one with noise on its accuracies and sizes."""
    rng = np.random.default_rng([seed, *f"{folder.name} {fields}".encode()])
    accuracy = [list(np.clip(rng.normal(0.8, 0.1, len(row)), 0, 1)) for row in base.accuracy]
    config = base.config | fields.pop("config", {})
    label = fields.pop("label", fields["method"])
    record = replace(base, seed=seed, accuracy=accuracy, config=config, **fields)
    folder.mkdir(parents=True, exist_ok=True)
    save_record(record, folder / f"{label}-seed{seed}.json")


def some_records(folder: Path, base: Record) -> None:
    """Few seeds, not the same for all methods; a sweep that has just begun."""
    for method, seeds in {
        "rcl-cpb": (0, 1, 2),
        "vcl": (1, 2, 3),
        "rcl-cpb-A": (2,),
        "coreset-only": (4,),
    }.items():
        for seed in seeds:
            place = folder / "ta-smnist"
            keep_record(place, base, seed, scenario="ta-smnist", method=method)
    keep_record(folder / "pmnist", base, 0, scenario="pmnist", method="vcl-plus")
    keep_record(
        folder / "sweeps" / "ta-smnist",
        base,
        0,
        scenario="ta-smnist",
        method="rcl-cpb",
        label="rcl-cpb,gamma=0.3",
        config={"gamma": [0.3]},
    )


def all_records(folder: Path, base: Record) -> None:
    """Every scenario, method and seed, and the sweeps."""
    for seed in range(5):
        for scenario in SCENARIOS:
            for method in METHODS:
                place = folder / scenario
                keep_record(place, base, seed, scenario=scenario, method=method)
        sweeps = [("ta-smnist", "gamma", [v], f"{v:g}") for v in (0.05, 0.1, 0.2, 0.3)]
        sweeps += [("ta-smnist", "hidden", [v] * 2, str(v)) for v in (16, 64, 128, 256)]
        sweeps += [("ta-smnist", "coreset", v, str(v)) for v in (10, 20, 40)]
        sweeps += [("pmnist", "gamma", [v], f"{v}") for v in (0.12, 0.22)]
        for scenario, field, value, text in sweeps:
            keep_record(
                folder / "sweeps" / scenario,
                base,
                seed,
                scenario=scenario,
                method="rcl-cpb",
                label=f"rcl-cpb,{field}={text}",
                config={field: value},
            )
        for scenario, labels in (*full_runs.OWN.items(), *against.VARIANTS.items()):
            for label in labels:
                keep_record(
                    folder / "sweeps" / scenario,
                    base,
                    seed,
                    label=label,
                    scenario=scenario,
                    method=label.split(",")[0],
                )


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_a_chapter_copes_with_whatever_is_recorded(
    name: str,
    kind: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    real_record: Record,
) -> None:
    """Its cells, run here with made-up records: no cell may fail."""
    {"none": lambda *_: None, "some": some_records, "all": all_records}[kind](tmp_path, real_record)
    shown: list[Any] = []
    for module in (figures, page, appendix):
        monkeypatch.setattr(module, "RESULTS", tmp_path)
    monkeypatch.setattr(figures, "scenario", few)
    for module in (page, player):
        monkeypatch.setattr(module, "display", shown.append)
        monkeypatch.setattr(module, "picture", lambda fig, *_: plt.close(fig) or "<svg/>")
    if name in ("08_ablations", "09_sensitivity"):  # what they learn is not the point
        monkeypatch.setattr(core.Learner, "fit", lambda *_: iter(()))
    place: dict[str, Any] = {}
    for cell in code_cells(name)[1:]:
        exec(compile(cell.source, f"{name}, {cell.id}", "exec"), place)
        plt.close("all")
    words = " ".join(str(page) for page in shown)
    assert not re.search(r"\bnan\b", words)
    if name == "10_full_runs":
        assert ("No records yet" in words) == (kind != "all")
        for gamma in (0.12, 0.22):
            assert (f"gamma {gamma}  recorded" in words) == (kind == "all")
    if name == "11_what_holds":
        assert ("not tested yet" in words.split("claims:")[-1]) == (kind != "all")


# ------------------------------------------------------------------------ set-up cell

SAY = "\nimport figures, rclcpb_core\nprint(figures.__file__, len(figures.images().x_train))\n"
SAY += "print(len(list(figures.RESULTS.rglob('*.json'))), os.environ['OMP_NUM_THREADS'])\n"


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What pip makes of the repository."""
    place = tmp_path_factory.mktemp("wheel")
    ignore = shutil.ignore_patterns("__pycache__")
    for part in ("rclcpb", "book/figures", "book/results"):
        shutil.copytree(ROOT / part, place / part, ignore=ignore)
    for file in (*ROOT.glob("rclcpb_*.py"), ROOT / "pyproject.toml", ROOT / "README.md"):
        shutil.copy(file, place)
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "-w", str(place), str(place)], check=True, capture_output=True)
    return next(place.glob("*.whl"))


def run(code: str, folder: Path, **environment: str) -> str:
    """Run a notebook's cell in a folder as IPython does; what it printed."""
    (folder / "site").mkdir(parents=True)
    (folder / "cell.ipy").write_text(code)
    offline = {"PIP_NO_INDEX": "1", "PIP_NO_DEPS": "1", "PIP_TARGET": str(folder / "site")}
    known = os.environ | offline | {"PYTHONPATH": str(folder / "site")} | environment
    known.pop("OMP_NUM_THREADS", None)
    command = [sys.executable, "-m", "IPython", "--colors=NoColor", "cell.ipy"]
    done = subprocess.run(command, cwd=folder, text=True, capture_output=True, env=known)
    return done.stdout + done.stderr


def test_the_set_up_cell_installs_the_code_in_an_empty_folder(tmp_path: Path, wheel: Path) -> None:
    """From a source in the environment, and from the address of a published notebook."""
    known = run(SETUP + SAY, tmp_path / "known", RCLCPB_SOURCE=wheel.as_uri())
    assert str(tmp_path / "known" / "site" / "rclcpb" / "_book" / "figures") in known
    recorded = len(list((BOOK / "results").rglob("*.json")))
    assert "4000\n" in known and f"\n{recorded} 1\n" in known
    empty, filled = (json.loads(f'"{prepare.SOURCE.format(s)}"') for s in ("", wheel.as_uri()))
    assert SETUP.count(empty) == 1
    assert "4000\n" in run(SETUP.replace(empty, filled) + SAY, tmp_path / "published")


def test_the_set_up_cell_without_an_address_says_so(tmp_path: Path) -> None:
    said = run(SETUP + SAY, tmp_path / "empty")
    assert "AssertionError: No code here: open this inside the repository" in said


def test_the_set_up_cell_finds_the_repository_above(tmp_path: Path) -> None:
    said = run(f"import os\nos.chdir({str(BOOK)!r})\n{SETUP}{SAY}", tmp_path / "any")
    assert str(BOOK / "figures") in said and "4000\n" in said


# ---------------------------------------------------------------------------- figures


def test_a_figure_needs_alt_text_and_a_source(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Any] = []
    monkeypatch.setattr(page, "display", shown.append)
    figures.show(plt.figure(), 'a "quoted" line', "A line.", "paper's number")
    code = shown[0]._repr_html_()
    assert "<svg role='img' aria-label='a &quot;quoted&quot; line'" in code
    assert "A line. (paper&#x27;s number)" in code
    with pytest.raises(ValueError, match="source"):
        figures.show(plt.figure(), "x", "y", "somewhere")


def test_a_player_needs_a_label_a_frame() -> None:
    with pytest.raises(ValueError, match="one each"):
        figures.slider([plt.figure()], [], "x")


def test_searched_runs_are_compared_if_one_setting_differs_and_nothing_else(tmp_path: Path) -> None:
    def row(accuracy: float, seed: int = 0, **config: float) -> str:
        run = {"method": "vcl", "seed": seed, "tasks": 0, "config": {"kl": 1, "lr": 2} | config}
        return json.dumps(run | {"accuracy": accuracy})

    rows = [row(0.5), row(0.6, kl=3), row(0.7, kl=2), row(0.9, kl=2, lr=3), row(0.8, 1, kl=9)]
    (tmp_path / "regime").mkdir()
    (tmp_path / "regime" / "pmnist.jsonl").write_text("\n".join(rows))
    found = own.searched(tmp_path, ("kl", "lr"))
    assert {(*change,): points for change, points in found.items()} == {
        ("kl", "pmnist", 1, 2): [pytest.approx(20)],
        ("kl", "pmnist", 2, 3): [pytest.approx(-10)],
        ("lr", "pmnist", 2, 3): [pytest.approx(20)],
    }


def test_no_live_widgets_under_a_test() -> None:
    assert not figures.kernel_listens()
    figures.live(lambda: pytest.fail("drawn"))


def test_figures_are_opaque_and_small() -> None:
    figures.use_style()
    fig, ax = plt.subplots()
    ax.plot([1, 2])
    picture = Image.open(io.BytesIO(figures.png(fig)))
    assert picture.convert("RGBA").getpixel((0, 0)) == (255, 255, 255, 255)
    assert picture.mode == "P" and not picture.info.get("Software")


def test_text_in_figures_is_legible_in_every_methods_colour() -> None:
    for colour in figures.COLOUR.values():
        assert vector.contrast(to_rgb(vector.readable(colour))) >= 4.5
    fig, ax = plt.subplots()
    ax.text(0, 0, "faint", color="#56B4E9")
    drawn = figures.picture(fig, "a word")
    (fill,) = re.findall(r"fill:\s?(#[0-9a-f]{6})[^>]*>faint", drawn)
    assert vector.contrast(to_rgb(fill)) >= 4.5


def test_a_number_written_in_a_figure_keeps_all_its_digits() -> None:
    fig, ax = plt.subplots()
    ax.set_yticks([0.001, 0.0025], ["0.001", "0.0025"])
    drawn = vector.picture(fig, "two small numbers")
    assert ">0.001<" in drawn and ">0.0025<" in drawn
    assert not re.search(r"\d\.\d{3}", re.sub(r">[^<]*<", "><", drawn))  # coordinates are short


def test_a_large_figure_is_a_picture_of_twice_the_points() -> None:
    fig, ax = plt.subplots(figsize=(2, 1))
    ax.plot(np.random.default_rng(0).normal(size=20_000), "o")
    code = figures.picture(fig, "many marks", largest=10_000)
    data = base64.b64decode(re.search(r"base64,([^']+)", code)[1])  # type: ignore[index]
    wide = int(re.search(r"width='(\d+)'", code)[1])  # type: ignore[index]
    assert "alt='many marks'" in code and Image.open(io.BytesIO(data)).width == 2 * wide


def test_the_first_figure_has_six_methods_whatever_else_is_recorded() -> None:
    """Its names stand side by side; those that go beyond the paper are in the sentences."""
    figures.use_style()
    (ax,) = ablations.result().axes
    names = [label.get_text() for label in ax.get_xticklabels()]
    assert names == ["RCL-CPB", "RCL-CPB −A", "VCL", "RCL-CPB+", "VCL+", "stored images alone"]
    plt.close("all")


def test_what_falls_short_is_not_called_reached(tmp_path: Path, real_record: Record) -> None:
    """Methods beyond the paper: beside RCL-CPB and RCL-CPB+, and named where they are worse."""
    assert evidence.beyond(tmp_path, "memoryless") == ""
    for scenario, accuracy in (("mh-smnist", 0.9), ("ta-smnist", 0.3)):
        for method, value in (("rcl-cpb", 0.8), ("rcl-cpb-memoryless", accuracy)):
            rows = [[value] * len(row) for row in real_record.accuracy]
            record = replace(real_record, scenario=scenario, method=method, accuracy=rows)
            (tmp_path / scenario).mkdir(exist_ok=True)
            save_record(record, tmp_path / scenario / f"{method}-seed0.json")
    words = evidence.beyond(tmp_path, "memoryless")
    assert re.search(r"it reaches mh-smnist 90.0 % at \d+ neurons \(RCL-CPB 80.0 % at", words)
    assert re.search(r"and falls short on ta-smnist 30.0 % at \d+ neurons \(RCL-CPB 80.0 %", words)
    assert "mh-smnist" not in words.partition("falls short")[2]


def test_the_papers_scenarios_are_ours() -> None:
    """Its Table 1: as many tasks and classes a task as the scenarios of the registry have."""
    assert set(full_runs.PAPER_SETTINGS) == {n for n, known in SCENARIOS.items() if known.paper}
    for name, (*_, tasks, classes) in full_runs.PAPER_SETTINGS.items():
        if "smnist" in name or name == "pmnist":
            scenario = make_scenario(f"{name}-5k")
            assert [len(task.classes) for task in scenario.tasks] == [classes] * tasks


def test_a_long_label_stands_below_its_slider() -> None:
    for label, room in {"β = 0.1": "8em", "word " * 9: "100%"}.items():
        assert f"flex:1 1 {room}" in player.player(["<svg/>"], [label], "a", "Figure 1. b")


ACCOUNT = r"needs (\d+), shares (\d+), has ([\d.]+) freed and adds (\d+)"


def test_the_network_that_grows_is_the_recorded_one() -> None:
    """A dot a neuron, Eq. 7 in each label, and a frame before and after each growth."""
    for record in load_records(figures.RESULTS, "ta-smnist", "rcl-cpb"):
        frames, labels = growth.growth_frames(record)
        assert len(frames) == len(labels) == 2 * len(record.tasks) - 1
        outputs = 2 * len(record.tasks)
        assert frames[-1].count("h0") == sum(record.hidden[-1]) + outputs
        for label in labels:
            if account := re.search(ACCOUNT, label):
                needs, shares, freed, adds = map(float, account.groups())
                assert adds == core.neurons_to_add(int(needs), int(shares), freed)
    assert sum("needs" in label for label in labels) == len(record.tasks) - 1


# -------------------------------------------------------------- to take along, to teach


def test_an_unsolved_notebook_has_no_solution_and_the_same_questions() -> None:
    for name in CHAPTERS:
        whole, open_ = read(name), exercises.unsolved(read(name))
        nbformat.validate(open_)
        text = "".join(cell.source for cell in open_.cells)
        assert "Solution" not in text and not any(c.get("outputs") for c in open_.cells)
        solved = "".join(c.source for c in whole.cells).count("{dropdown} Solution")
        assert text.count(exercises.ANSWER) == solved
        code = [c.source for c in open_.cells if c.cell_type == "code"]
        assert [c for c in code if c != exercises.ANSWER] == [c.source for c in code_cells(name)]


def test_a_page_is_printed_to_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SystemExit, match="no download docx: choose from pdf, epub, slides"):
        downloads.main(["docx"])
    if not any(map(shutil.which, downloads.BROWSERS)):
        pytest.skip("no Chromium here")
    (tmp_path / "page.html").write_text("<h1>One</h1>")
    monkeypatch.setattr(downloads, "MATHEMATICS", 100)
    downloads.printed(tmp_path / "page.html", tmp_path / "page.pdf")
    assert (tmp_path / "page.pdf").read_bytes().startswith(b"%PDF")
    monkeypatch.setattr(downloads.shutil, "which", lambda _: None)
    with pytest.raises(SystemExit, match="No browser to print with"):
        downloads.printed(tmp_path / "page.html", tmp_path / "page.pdf")
