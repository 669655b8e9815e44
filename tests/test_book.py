"""The book: its chapters as files, its set-up cell, its pages in a real browser."""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser import Browser, browser, find_chromium, served

import rclcpb_core as core
import rclcpb_runs as runs

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "book"))
import build  # noqa: E402
import figures  # noqa: E402

PAGES = build.pages()
CHAPTERS = build.notebooks()

# ------------------------------------------------------------------- chapters as files


def test_the_readme_has_the_recorded_results() -> None:
    (table,) = build.README_TABLE.findall((build.ROOT / "README.md").read_text("utf-8"))
    assert table == build.results_table(missing=False)  # else: book/build.py --store
    assert "RCL" in table


@pytest.mark.parametrize("name", CHAPTERS)
def test_a_chapter_keeps_to_the_rules(name: str) -> None:
    """Set-up cell, headings, alt text, size, no machine's paths: build.complaints."""
    assert build.complaints(name, build.read(build.BOOK / f"{name}.ipynb")) == []


@pytest.mark.parametrize("name", CHAPTERS)
def test_a_chapter_survives_the_way_through_text(name: str) -> None:
    nb = build.read(build.BOOK / f"{name}.ipynb")
    again = build.from_text(name, build.to_text(nb))
    assert [c.source for c in again.cells] == [c.source for c in nb.cells]
    assert [c.id for c in again.cells] == [c.id for c in nb.cells]
    assert [c.metadata for c in again.cells] == [c.metadata for c in nb.cells]


@pytest.mark.parametrize("name", CHAPTERS)
def test_a_chapter_has_outputs_to_compare(name: str) -> None:
    """nbval compares nothing in a notebook without stored outputs."""
    nb = build.read(build.BOOK / f"{name}.ipynb")
    checked = [c for c in nb.cells if "nbval-check-output" in c.metadata.get("tags", [])]
    assert checked and all(cell.outputs for cell in checked)


def test_complaints_are_made() -> None:
    text = "# T\n\n```{code-cell}\nx = 1  " + "#" * 90 + "\n```\n"
    found = "\n".join(build.complaints("01_t", build.from_text("01_t", text)))
    for part in ("set-up cell; use", "88 columns", "'## Takeaways'", "words"):
        assert part in found


def test_a_change_of_code_or_figures_means_a_new_execution(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in build.MODULES:
        shutil.copy(ROOT / module, tmp_path)
    (tmp_path / "book" / "results").mkdir(parents=True)
    (tmp_path / "book" / "figures.py").write_text("a = 1\n")
    build.write(build.from_text("01_t", "# T\n"), tmp_path / "book" / "01_t.ipynb")
    monkeypatch.setattr(build, "ROOT", tmp_path)
    monkeypatch.setattr(build, "BOOK", tmp_path / "book")
    seen = {build.digest("01_t")}
    (tmp_path / "book" / "figures.py").write_text("a = 2\n")
    seen.add(build.digest("01_t"))
    (tmp_path / "book" / "results" / "r.json").write_text("{}")
    seen.add(build.digest("01_t"))
    (tmp_path / build.MODULES[0]).write_text("")
    seen.add(build.digest("01_t"))
    assert len(seen) == 4


# ----------------------------------------------------------------------- the execution


def execute(code: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Execute a chapter of one cell as the build does; the build's report."""
    text = "# T\n\n```{code-cell}\n" + code + "\n```\n"
    build.write(build.from_text("01_t", text), folder / "01_t.ipynb")
    monkeypatch.setattr(build, "BOOK", folder)
    monkeypatch.setattr(build, "digest", lambda name: "the same")
    monkeypatch.setenv("RCLCPB_STATIC", "1")  # the build sets it; put back afterwards
    return build.execute("01_t", folder / "done" / "01_t.ipynb")


def test_a_failing_cell_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = execute("1 / 0", tmp_path, monkeypatch)
    assert "ZeroDivisionError" in report["error"]
    assert not (tmp_path / "done" / "01_t.json").exists()  # so it is due again


def test_a_slow_cell_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "CELL_LIMIT", 0.5)
    assert not execute("import time\ntime.sleep(1)", tmp_path, monkeypatch)["error"]
    (complaint,) = build.execute_all(["01_t"], tmp_path / "done", 1, force=False)
    assert "cell 1 took 1 s" in complaint


def test_any_complaint_ends_in_exit_code_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["build.py"])
    monkeypatch.setattr(build, "build", lambda options: ["01_t: a cell failed"])
    with pytest.raises(SystemExit) as end:
        build.main()
    assert end.value.code == 1


# ------------------------------------------------------------- chapters and the records

PIXEL = figures.png(figures.plt.figure(figsize=(1, 1)), 1)
EVIDENCE = (
    "08_ablations",
    "09_sensitivity",
    "10_full_runs",
    "11_what_holds",
    "A_choices",
    "B_regime",
    "E_timings",
)


def few(name: str, seed: int = 0) -> core.Scenario:
    """A scenario with an eighth of the 5,000 digits' training images."""
    whole = core.make_scenario(f"{name}-5k", seed)
    tasks = [
        replace(task, x_train=task.x_train[::8], y_train=task.y_train[::8]) for task in whole.tasks
    ]
    return replace(whole, tasks=tasks)


@pytest.fixture(scope="session")
def real_record() -> core.Record:
    config = core.Config(hidden=(8, 8), epochs=1, coreset=10, replay_steps=5)
    return core.learn(few("ta-smnist"), config, seed=0, method="rcl-cpb")


def keep_record(folder: Path, base: core.Record, seed: int, **fields: Any) -> None:
    """A made-up record: the real one with noise on its accuracies and sizes."""
    rng = np.random.default_rng([seed, *f"{folder.name} {fields}".encode()])
    accuracy = [list(np.clip(rng.normal(0.8, 0.1, len(row)), 0, 1)) for row in base.accuracy]
    config = base.config | fields.pop("config", {})
    label = fields.pop("label", fields["method"])
    record = replace(base, seed=seed, accuracy=accuracy, config=config, **fields)
    folder.mkdir(parents=True, exist_ok=True)
    runs.save_record(record, folder / f"{label}-seed{seed}.json")


def some_records(folder: Path, base: core.Record) -> None:
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


def all_records(folder: Path, base: core.Record) -> None:
    """Every scenario, method and seed, and the sweeps."""
    for seed in range(5):
        for scenario in core.PRESETS:
            for method in core.METHODS:
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
        for scenario, labels in figures.OWN.items():
            for label in labels:
                keep_record(
                    folder / "sweeps" / scenario,
                    base,
                    seed,
                    label=label,
                    scenario=scenario,
                    method=label.split(",")[0],
                )


@pytest.mark.parametrize("kind", ["none", "some", "all"])
@pytest.mark.parametrize("name", [name for name in EVIDENCE if name in CHAPTERS])
def test_a_chapter_copes_with_whatever_is_recorded(
    name: str,
    kind: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    real_record: core.Record,
) -> None:
    """Its cells, run here with made-up records: no cell may fail."""
    {"none": lambda *_: None, "some": some_records, "all": all_records}[kind](tmp_path, real_record)
    shown: list[Any] = []
    monkeypatch.setattr(figures, "RESULTS", tmp_path)
    monkeypatch.setattr(figures, "scenario", few)
    monkeypatch.setattr(figures, "display", shown.append)
    monkeypatch.setattr(figures, "png", lambda fig, *_: figures.plt.close(fig) or PIXEL)
    if name in ("08_ablations", "09_sensitivity"):  # what they learn is not the point
        monkeypatch.setattr(core.Learner, "fit", lambda *_: (0.0, 0.0))
    place: dict[str, Any] = {}
    for cell in build.read(build.BOOK / f"{name}.ipynb").cells:
        if cell.cell_type == "code" and cell.source != build.SETUP:
            exec(compile(cell.source, f"{name}, {cell.id}", "exec"), place)
            figures.plt.close("all")
    words = " ".join(str(page) for page in shown)
    assert not re.search(r"\bnan\b", words)
    if name == "10_full_runs":
        assert ("No records yet" in words) == (kind != "all")
        for gamma in (0.12, 0.22):
            assert (f"gamma {gamma}  recorded" in words) == (kind == "all")
    if name == "11_what_holds":
        assert ("not tested yet" in words.split("claims:")[-1]) == (kind != "all")


# ------------------------------------------------------------------------ set-up cell


@pytest.fixture
def published(tmp_path: Path) -> Iterator[str]:
    """A repository as GitHub serves it, from this machine; gives the host."""
    place = tmp_path / "site" / "someone" / "book" / "archive"
    place.mkdir(parents=True)
    with tarfile.open(place / "abcdef1.tar.gz", "w:gz") as archive:
        for path in [
            *build.MODULES,
            "book/figures.py",
            "book/results",
            "book/build.py",
        ]:
            archive.add(ROOT / path, f"book-abcdef1/{path}")
    with served(tmp_path / "site") as host:
        yield host


def run(code: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    folder.mkdir()
    code += "\nimport figures, rclcpb_core\nprint(len(figures.images().x_train))\n"
    clean = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        text=True,
        capture_output=True,
        env=clean | environment,
    )


def test_the_set_up_cell_fetches_the_code_in_an_empty_folder(
    tmp_path: Path, published: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_REPOSITORY", "someone/book")
    monkeypatch.setenv("GITHUB_SHA", "abcdef1")
    folder = tmp_path / "empty"
    done = run(build.filled(build.SETUP), folder, RCLCPB_HOST=published)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().splitlines()[-1] == "4000"
    assert (folder / "book" / "results").is_dir()
    assert not (folder / "book" / "build.py").exists()  # nothing it does not need


def test_the_set_up_cell_without_an_address_says_so(tmp_path: Path) -> None:
    done = run(build.SETUP, tmp_path / "empty")
    assert done.returncode == 1
    assert "does not know its repository" in done.stderr.splitlines()[-1]


def test_the_set_up_cell_finds_the_repository_above(tmp_path: Path) -> None:
    code = f"import os\nos.chdir({str(ROOT / 'book')!r})\n{build.SETUP}"
    assert run(code, tmp_path / "any").returncode == 0


def test_the_launch_button_needs_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GITHUB_REPOSITORY", raising=False)
    assert "colab" not in str(build.settings())
    assert build.filled(build.SETUP) == build.SETUP
    monkeypatch.setenv("GITHUB_REPOSITORY", "a b; rm")
    with pytest.raises(SystemExit, match="owner/name"):
        build.settings()


# ---------------------------------------------------------------------------- figures


def test_a_figure_needs_alt_text_and_a_source(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Any] = []
    monkeypatch.setattr(figures, "display", shown.append)
    figures.show(figures.plt.figure(), 'a "quoted" line', "A line.", "paper's number")
    code = shown[0]._repr_html_()
    assert 'alt="a &quot;quoted&quot; line"' in code
    assert "A line. (paper&#x27;s number)" in code
    with pytest.raises(ValueError, match="source"):
        figures.show(figures.plt.figure(), "x", "y", "somewhere")


def test_a_player_needs_a_label_a_frame() -> None:
    with pytest.raises(ValueError, match="one each"):
        figures.slider([figures.plt.figure()], [], "x")


def test_no_live_widgets_under_a_test() -> None:
    assert not figures.kernel_listens()
    figures.live(lambda: pytest.fail("drawn"))


def test_figures_are_opaque_and_small() -> None:
    figures.use_style()
    fig, ax = figures.plt.subplots()
    ax.plot([1, 2])
    picture = figures.Image.open(io.BytesIO(figures.png(fig)))
    assert picture.convert("RGBA").getpixel((0, 0)) == (255, 255, 255, 255)
    assert picture.mode == "P" and not picture.info.get("Software")


# ---------------------------------------------------------------------- in a browser


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The book on a local port: $RCLCPB_BOOK, or built from committed outputs."""
    folder = os.environ.get("RCLCPB_BOOK")
    if not folder:
        out = tmp_path_factory.mktemp("book")
        command = [
            sys.executable,
            str(ROOT / "book" / "build.py"),
            "--no-execute",
            "--out",
            str(out),
        ]
        known = os.environ | {
            "GITHUB_REPOSITORY": "someone/book",
            "GITHUB_SHA": "abcdef1",
        }
        done = subprocess.run(command, capture_output=True, text=True, env=known)
        assert done.returncode == 0, done.stdout + done.stderr
        folder = str(out / "_build" / "html")
    with served(Path(folder)) as base:
        yield base


@pytest.fixture(scope="session")
def tab(pages: str) -> Iterator[Browser]:
    if not find_chromium():
        reason = "no Chromium here: install the package chromium to test the pages"
        if os.environ.get("RCLCPB_NO_SKIP"):
            pytest.fail(reason)
        pytest.skip(reason)
    with browser() as started:
        yield started


@pytest.fixture
def desktop(tab: Browser) -> Browser:
    tab.resize(1280)
    return tab


BAD_PICTURES = """[...document.querySelectorAll('article img')].filter(
  i => !i.complete || !i.naturalWidth || !i.alt).map(i => i.alt || 'no alt text')"""
RAW_MATHS = """[...document.querySelectorAll('article .math')].filter(
  m => !m.querySelector('mjx-container')).map(m => m.textContent)"""
CLICK = "document.querySelectorAll('.rcl-player')[{}].querySelector('{}').click()"
FRAME = """(p => [p.querySelector('img').src, p.querySelector('input').value,
  p.querySelector('output').textContent])(
  document.querySelectorAll('.rcl-player')[{}])"""


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_whole(desktop: Browser, pages: str, name: str) -> None:
    desktop.open(f"{pages}/{name}.html")
    assert desktop.trouble(pages) == []
    assert desktop.js(BAD_PICTURES) == []
    assert desktop.js(RAW_MATHS) == []
    assert desktop.js("document.querySelectorAll('mjx-merror').length") == 0
    assert desktop.js("document.querySelector('article h1').textContent.length") > 3
    text = desktop.js("document.querySelector('article').innerText")
    assert not re.search(r"\{(cite|doc|ref|numref|eq)\b[^}]*\}`", text)


@pytest.mark.parametrize("name", CHAPTERS)
def test_players_step_and_play(desktop: Browser, pages: str, name: str) -> None:
    desktop.open(f"{pages}/{name}.html")
    for k in range(desktop.js("document.querySelectorAll('.rcl-player').length")):
        first = desktop.js(FRAME.format(k))
        desktop.js(CLICK.format(k, '[data-step="1"]'))
        second = desktop.js(FRAME.format(k))
        assert all(a != b for a, b in zip(first, second, strict=True))
        desktop.js(CLICK.format(k, '[data-step="-1"]'))
        assert desktop.js(FRAME.format(k)) == first
        desktop.js(CLICK.format(k, "[data-play]"))
        moved = f"JSON.stringify({FRAME.format(k)}) != JSON.stringify({first!r})"
        assert desktop.until(moved, 5)
        desktop.js(CLICK.format(k, "[data-play]"))
    assert desktop.trouble(pages) == []


def test_the_keyboard_moves_a_player(desktop: Browser, pages: str) -> None:
    for name in CHAPTERS:
        desktop.open(f"{pages}/{name}.html")
        if desktop.js("!!document.querySelector('.rcl-player input')"):
            break
    else:
        pytest.skip("no chapter with a player yet")
    desktop.js("document.querySelector('.rcl-player input').focus()")
    before = desktop.js(FRAME.format(0))
    key = "ArrowLeft" if int(before[1]) else "ArrowRight"
    code = 37 if key == "ArrowLeft" else 39
    for kind in ("keyDown", "keyUp"):
        desktop.call(
            "Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code
        )
    assert desktop.js(FRAME.format(0))[0] != before[0]


TOO_WIDE = """[...document.querySelectorAll(
    'article figure, article figcaption, article input, article p')]
  .filter(e => !e.closest('table') && e.getBoundingClientRect().right > 391)
  .map(e => e.outerHTML.slice(0, 99))"""  # pictures and tables move inside themselves


@pytest.mark.parametrize("name", PAGES)
def test_a_phone_does_not_scroll_sideways(tab: Browser, pages: str, name: str) -> None:
    tab.resize(390, 844, phone=True)
    tab.open(f"{pages}/{name}.html")
    assert tab.js("document.documentElement.scrollWidth") <= 390
    assert tab.js(TOO_WIDE) == []


CONTRAST = """(function() {
  const part = c => { c /= 255; return c <= 0.03928 ? c / 12.92
    : Math.pow((c + 0.055) / 1.055, 2.4) };
  const parse = s => s.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  const ground = e => { for (; e; e = e.parentElement) {
    const c = parse(getComputedStyle(e).backgroundColor);
    if (c.length == 3 || c[3] > 0.5) return c } return [255, 255, 255] };
  const chosen = 'article p, article li, article td, article th, figcaption, '
    + '.rcl-player button, .rcl-player output, article h2, article pre';
  const texts = [...document.querySelectorAll(chosen)];
  return texts.filter(e => e.innerText.trim()).map(e => {
    const a = light(parse(getComputedStyle(e).color)), b = light(ground(e));
    return [(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), e.innerText.slice(0, 60)]
  }).filter(([ratio]) => ratio < 4.5) })()"""
NOT_WHITE = """[...document.querySelectorAll('.rcl-figure img, .rcl-player img')]
  .filter(i => getComputedStyle(i).backgroundColor != 'rgb(255, 255, 255)'
  || getComputedStyle(i).filter != 'none').length"""


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_text_is_legible(desktop: Browser, pages: str, name: str, dark: bool) -> None:
    desktop.open(f"{pages}/{name}.html")
    desktop.dark(dark)
    desktop.js("new Promise(done => setTimeout(done, 400))")  # colours fade over
    assert desktop.js(CONTRAST) == []
    if dark:
        assert desktop.js(NOT_WHITE) == 0


@pytest.mark.parametrize("name", CHAPTERS)
def test_a_chapter_opens_in_colab(desktop: Browser, pages: str, name: str) -> None:
    """Where the address is known: the button, and a notebook that carries it."""
    desktop.open(f"{pages}/{name}.html")
    links = "[...document.querySelectorAll('a[href*=colab]')].map(a => a.href)"
    notebook = desktop.js(f"fetch('_sources/{name}.ipynb').then(r => r.text())")
    if "RCLCPB_BOOK" not in os.environ:
        assert set(desktop.js(links)) == {
            f"{build.COLAB}/github/someone/book/blob/colab/{name}.ipynb"
        }
        assert r"REVISION = \"someone/book\", \"abcdef1\"" in notebook


def test_the_search_finds_snr(desktop: Browser, pages: str) -> None:
    desktop.open(f"{pages}/search.html?q=SNR")
    assert desktop.until("document.querySelectorAll('#search-results li').length > 0")
    assert desktop.trouble(pages) == []


def test_every_page_is_in_the_navigation_and_next_leads_through_all(
    desktop: Browser, pages: str
) -> None:
    desktop.open(f"{pages}/index.html")
    links = "[...document.querySelectorAll('nav.bd-links a')].map(a => a.href)"
    found = {Path(link).stem for link in desktop.js(links)}
    assert set(PAGES) - {"index"} <= found
    walked, page = [], f"{pages}/index.html"
    while page and len(walked) < 50:
        desktop.open(page)
        walked.append(Path(page).stem)
        page = desktop.js("(document.querySelector('a.right-next') || {}).href")
    assert walked == PAGES


def test_links_between_pages_lead_somewhere(desktop: Browser, pages: str) -> None:
    links = """[...document.querySelectorAll('article a[href]')].map(a => a.href)
      .filter(h => h.startsWith(location.origin))"""
    for name in PAGES:
        desktop.open(f"{pages}/{name}.html")
        for link in set(desktop.js(links)):
            page, _, anchor = link.partition("#")
            there = desktop.js(f"fetch({page!r}).then(r => r.ok && r.text())")
            assert there, f"{name}: {link}"
            assert not anchor or f'id="{anchor}"' in there, f"{name}: {link}"
