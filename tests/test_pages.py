"""The book's pages in a real browser: one walk through all of them, then what it saw."""

from __future__ import annotations

import functools
import http.server
import os
import re
import shutil
import subprocess
import sys
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import PIL.Image
import pytest
import yaml
from playwright.sync_api import Page, sync_playwright

import rclcpb

ROOT = Path(__file__).resolve().parents[1]
TOC = yaml.safe_load((ROOT / "book" / "_toc.yml").read_text())
PAGES = [TOC["root"], *(c["file"] for part in TOC["parts"] for c in part["chapters"])]
CHAPTERS = [name for name in PAGES if (ROOT / "book" / f"{name}.ipynb").exists()]
SITE = {
    "GITHUB_SERVER_URL": "https://code.example",
    "GITHUB_REPOSITORY": "someone/book",
    "GITHUB_SHA": "abcdef1",
    "RCLCPB_SITE": "https://pages.example/book/",
}
BUILD = "from jupyter_book.cli.main import main; main()"
CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = ["--no-sandbox", "--disable-gpu", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.*"]


@pytest.fixture(scope="session")
def html(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The book's pages: $RCLCPB_BOOK, or built from the committed outputs."""
    if "RCLCPB_BOOK" in os.environ:
        return Path(os.environ["RCLCPB_BOOK"])
    out = tmp_path_factory.mktemp("book")
    command = [sys.executable, "-c", BUILD, "build", "book", "-W", "--keep-going"]
    environment = os.environ | SITE | {"RCLCPB_EXECUTE": "off", "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(
        [*command, "--path-output", str(out)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return out / "_build" / "html"


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="session")
def base(html: Path) -> Iterator[str]:
    """The address of the pages on a port of this machine."""
    handler = functools.partial(Quiet, directory=str(html))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="session")
def trouble() -> list[str]:
    """What went wrong in the tab since it was last emptied."""
    return []


@pytest.fixture(scope="session")
def tab(base: str, trouble: list[str]) -> Iterator[Page]:
    """A tab that notes errors, failed requests, and requests to any other place."""
    program = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if not program:
        reason = "no Chromium here: install the package chromium to test the pages"
        (pytest.fail if os.environ.get("RCLCPB_NO_SKIP") else pytest.skip)(reason)
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=program, args=FLAGS)
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        ours = (base, "data:", "blob:", "about:")
        page.on("pageerror", lambda e: trouble.append(f"exception: {e}"))
        page.on("requestfailed", lambda r: trouble.append(f"failed request: {r.url[:200]}"))
        page.on(
            "console",
            lambda m: trouble.append(f"console: {m.text}") if m.type == "error" else None,
        )
        page.on(
            "request",
            lambda r: None if r.url.startswith(ours) else trouble.append(f"foreign: {r.url[:200]}"),
        )
        page.on(
            "response",
            lambda r: trouble.append(f"{r.status}: {r.url[:200]}") if r.status >= 400 else None,
        )
        yield page
        browser.close()


READY = "window.MathJax && MathJax.startup ? MathJax.startup.promise.then(() => 0) : 0"
STILL = "* { transition: none !important; animation: none !important }"  # colours fade over


def go(tab: Page, url: str) -> None:
    """Load a page and wait for its scripts and its mathematics."""
    tab.goto(url)
    tab.evaluate(READY)
    tab.add_style_tag(content=STILL)


# ------------------------------------------------------------------ what is looked at

LOOK = """() => ({
  title: document.querySelector('article h1').textContent,
  text: document.querySelector('article').innerText,
  pictures: [...document.querySelectorAll('article img')].filter(
    i => !i.complete || !i.naturalWidth || !i.alt).map(i => i.alt || 'no alt text'),
  maths: [...document.querySelectorAll('article .math')].filter(
    m => !m.querySelector('mjx-container')).map(m => m.textContent),
  errors: document.querySelectorAll('mjx-merror').length,
  links: [...document.querySelectorAll('article a[href]')]
    .map(a => a.href.baseVal === undefined ? a.href : new URL(a.href.baseVal, location).href)
    .filter(h => h.startsWith(location.origin)),
  colab: [...document.querySelectorAll('a[href*=colab]')].map(a => a.href),
  navigation: [...document.querySelectorAll('nav.bd-links a')].map(a => a.href),
  next: (document.querySelector('a.right-next') || {}).href })"""
CONTRAST = """() => {
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
  }).filter(([ratio]) => ratio < 4.5) }"""
DARK = "mode => { document.documentElement.dataset.theme = mode }"
FAINT = """() => {
  const part = c => { c /= 255; return c <= 0.03928 ? c / 12.92
    : Math.pow((c + 0.055) / 1.055, 2.4) };
  const parse = s => s.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  const cut = c => Math.max(0, Math.min(255, c));
  const dark = document.documentElement.dataset.theme == 'dark';
  const turned = c => { // what the style sheet's filter makes of a colour
    const [r, g, b] = c.map(x => 0.06 * x + 0.94 * (255 - x));
    return [-0.574 * r + 1.43 * g + 0.144 * b, 0.426 * r + 0.43 * g + 0.144 * b,
            0.426 * r + 1.43 * g - 0.856 * b].map(cut) };
  const ground = parse(getComputedStyle(document.body).backgroundColor);
  return [...document.querySelectorAll('article :is(.rcl-figure, .rcl-player) svg text')]
    .map(e => { const colour = parse(getComputedStyle(e).fill).slice(0, 3);
      if (colour.every(c => c == 255)) return [21, '']; // inside a coloured field
      const filtered = dark && getComputedStyle(e.closest('svg')).filter != 'none';
      const a = light(filtered ? turned(colour) : colour), b = light(ground);
      return [(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), e.textContent] })
    .filter(([ratio]) => ratio < 4.5) }"""
TOO_WIDE = """() => [document.documentElement.scrollWidth, [...document.querySelectorAll(
    'article figure, article figcaption, article input, article p')]
  .filter(e => !e.closest('table') && e.getBoundingClientRect().right > 391)
  .map(e => e.outerHTML.slice(0, 99))]"""  # pictures and tables move inside themselves
COLLIDE = """() => { const found = [];
  document.querySelectorAll('article figure svg, article .rcl-wide svg').forEach(svg => {
    const edge = svg.getBoundingClientRect();
    const slanting = t => { const m = t.getCTM(); return Math.abs(m.a * m.b) > 0.01 };
    const texts = [...svg.querySelectorAll('text')].filter(t => t.textContent.trim())
      .filter(t => !slanting(t)) // their frames overlap where they do not
      .map(t => [t.textContent, t.getBoundingClientRect()]).filter(([, r]) => r.width);
    for (const [t, r] of texts) if (r.left < edge.left - 2 || r.right > edge.right + 2
      || r.top < edge.top - 2 || r.bottom > edge.bottom + 2) found.push(`cut: ${t}`);
    texts.forEach(([a, r], i) => texts.slice(i + 1).forEach(([b, s]) => {
      const wide = Math.min(r.right, s.right) - Math.max(r.left, s.left);
      const high = Math.min(r.bottom, s.bottom) - Math.max(r.top, s.top);
      if (wide > 5 && high > 0.3 * Math.min(r.height, s.height)) found.push(`${a} on ${b}`) })) });
  return found }"""
PLAY = """async () => { const bad = [], wait = ms => new Promise(done => setTimeout(done, ms));
  const players = [...document.querySelectorAll('.rcl-player')];
  const state = p => JSON.stringify([p.firstElementChild.outerHTML,
    p.querySelector('input').value, p.querySelector('output').textContent]);
  await Promise.all(players.map(async p => {
    const press = what => p.querySelector(what).click(), first = state(p);
    press('[data-step="1"]'); if (state(p) == first) bad.push('does not step: ' + p.id);
    press('[data-step="-1"]'); if (state(p) != first) bad.push('not back: ' + p.id);
    press('[data-play]');
    for (let k = 0; k < 50 && state(p) == first; k++) await wait(100);
    if (state(p) == first) bad.push('does not play: ' + p.id);
    press('[data-play]') }));
  return [players.length, bad] }"""


@pytest.fixture(scope="session")
def seen(tab: Page, base: str, trouble: list[str]) -> dict[str, dict[str, Any]]:
    """Each page once: as it is, its players, dark, and as narrow as a phone."""
    found = {}
    for name in PAGES:
        trouble.clear()
        go(tab, f"{base}/{name}.html")
        page = tab.evaluate(LOOK)
        page["light"] = tab.evaluate(CONTRAST) + tab.evaluate(FAINT)
        page["collide"] = tab.evaluate(COLLIDE)
        page["players"] = tab.evaluate(PLAY)
        tab.evaluate(DARK, "dark")
        page["dark"] = tab.evaluate(CONTRAST) + tab.evaluate(FAINT)
        tab.set_viewport_size({"width": 390, "height": 844})
        page["width"], page["too wide"] = tab.evaluate(TOO_WIDE)
        tab.set_viewport_size({"width": 1280, "height": 900})
        found[name] = page | {"trouble": list(trouble)}
    return found


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_whole(seen: dict[str, Any], name: str) -> None:
    page = seen[name]
    assert page["trouble"] == []
    assert page["pictures"] == [] and page["maths"] == [] and page["errors"] == 0
    assert len(page["title"]) > 3
    assert not re.search(r"\{(cite|doc|ref|numref|eq)\b[^}]*\}`", page["text"])


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_legible_in_light_and_dark(seen: dict[str, Any], name: str) -> None:
    page = seen[name]
    assert page["light"] == [] and page["dark"] == []


@pytest.mark.parametrize("name", PAGES)
def test_a_phone_does_not_scroll_sideways(seen: dict[str, Any], name: str) -> None:
    assert seen[name]["width"] <= 390 and seen[name]["too wide"] == []


@pytest.mark.parametrize("name", PAGES)
def test_no_word_in_a_figure_stands_on_another_or_is_cut(seen: dict[str, Any], name: str) -> None:
    assert seen[name]["collide"] == []


def test_the_first_pages_table_fits_and_a_phone_sees_that_there_is_more(
    tab: Page, base: str, seen: dict[str, Any]
) -> None:
    """At 1280 points it needs no scrolling; on a phone its edge fades until its end is seen."""
    go(tab, f"{base}/index.html")
    table = tab.locator("#the-results-at-a-glance table")
    assert table.evaluate("t => t.scrollWidth <= t.clientWidth")
    assert table.get_attribute("data-beyond") is None
    tab.set_viewport_size({"width": 390, "height": 844})
    tab.wait_for_function("document.querySelector('#the-results-at-a-glance [data-beyond]')")
    table.evaluate("t => { t.scrollLeft = t.scrollWidth }")
    tab.wait_for_function("!document.querySelector('#the-results-at-a-glance table[data-beyond]')")
    tab.set_viewport_size({"width": 1280, "height": 900})


def test_on_paper_folded_tables_and_solutions_are_there_and_folded_code_is_not(
    tab: Page, base: str, seen: dict[str, Any]
) -> None:
    go(tab, f"{base}/10_full_runs.html")
    tab.emulate_media(media="print")
    tab.set_viewport_size({"width": 760, "height": 1075})  # a sheet of A4
    cut = tab.locator("article :is(.rcl-table > div, pre)").evaluate_all(
        "of => of.filter(e => e.scrollWidth > e.clientWidth + 1).map(e => e.innerText)"
    )
    high = "of => of.map(e => e.getBoundingClientRect().height)"
    folded = tab.locator("details.hide .cell_output table").evaluate_all(high)
    solved = tab.locator("details.sd-dropdown p").evaluate_all(high)
    code = tab.locator("details.hide .cell_input").evaluate_all(high)
    tab.emulate_media(media="screen")
    tab.set_viewport_size({"width": 1280, "height": 900})
    assert cut == []
    assert folded and min(folded) > 10 and solved and min(solved) > 10 and set(code) == {0}


def test_players_step_and_play(seen: dict[str, Any]) -> None:
    assert sum(page["players"][0] for page in seen.values()) > 5
    assert [bad for page in seen.values() for bad in page["players"][1]] == []


def test_the_keyboard_moves_a_player(tab: Page, base: str, seen: dict[str, Any]) -> None:
    name = next(name for name in PAGES if seen[name]["players"][0])
    go(tab, f"{base}/{name}.html")
    player = tab.locator(".rcl-player").first
    frame = "player => player.firstElementChild.outerHTML"
    before = player.evaluate(frame)
    place = player.locator("input")
    place.press("ArrowLeft" if int(place.input_value()) else "ArrowRight")
    assert player.evaluate(frame) != before


def test_one_weight_can_be_played_with(tab: Page, base: str, seen: dict[str, Any]) -> None:
    """Points move under the mouse and the arrow keys, and the belief follows."""
    go(tab, f"{base}/02_weights.html")
    playground = tab.locator("#rcl-one-weight")
    told = playground.locator("output")
    before = told.text_content()
    playground.locator("circle").nth(1).press("ArrowUp")  # the first is nearly at x = 0
    after = told.text_content()
    assert before != after and all(name in str(after) for name in ("μ", "σ", "SNR"))
    playground.locator("[data-more]").click()
    assert told.text_content() != after


def test_a_word_of_the_glossary_tells_its_meaning(
    tab: Page, base: str, seen: dict[str, Any]
) -> None:
    go(tab, f"{base}/index.html")
    term = tab.locator("article a[title]:has(.std-term)").first
    assert len(term.get_attribute("title") or "") > 20


def test_the_drawing_of_the_method_leads_to_its_chapters(tab: Page, base: str, html: Path) -> None:
    go(tab, f"{base}/method.html")
    links = tab.locator(".rcl-framework a").evaluate_all(
        "of => of.map(a => a.getAttribute('href'))"
    )
    assert len(links) >= 5 and all((html / link).is_file() for link in links)


AXE = "axe.run({runOnly: ['wcag2a', 'wcag2aa']}).then(found => found.violations.map(v => "
AXE += "v.id + ': ' + v.nodes.slice(0, 3).map(n => n.target.join(' ')).join('; ')))"


@pytest.fixture(scope="session")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The script of axe-core: $RCLCPB_AXE, or from npm's registry."""
    if "RCLCPB_AXE" in os.environ:
        return Path(os.environ["RCLCPB_AXE"]).read_text("utf-8")
    place = tmp_path_factory.mktemp("axe")
    command = ["npm", "pack", "axe-core@4.14.0", "--silent"]
    try:
        subprocess.run(command, cwd=place, check=True, capture_output=True, timeout=120)
        with tarfile.open(next(place.glob("*.tgz"))) as archive:
            script = archive.extractfile("package/axe.min.js")
            return script.read().decode() if script else ""
    except (OSError, subprocess.SubprocessError, StopIteration):
        pytest.skip("axe-core is not to be had: no npm, or no registry")


@pytest.mark.long
@pytest.mark.parametrize("name", PAGES)
def test_a_page_keeps_the_rules_for_access(tab: Page, base: str, axe: str, name: str) -> None:
    """WCAG 2, levels A and AA, as axe-core tests them: light, dark, and on a phone."""
    go(tab, f"{base}/{name}.html")
    tab.evaluate(axe)
    found = {"light": tab.evaluate(AXE)}
    tab.evaluate(DARK, "dark")
    found["dark"] = tab.evaluate(AXE)
    tab.evaluate(DARK, "light")
    tab.set_viewport_size({"width": 390, "height": 844})
    tab.wait_for_function(
        "() => [...document.querySelectorAll('article pre')].every(e => e.tabIndex == 0"
        " || e.scrollWidth <= e.clientWidth + 1)"
    )
    tab.wait_for_timeout(200)
    found["phone"] = tab.evaluate(AXE)
    tab.set_viewport_size({"width": 1280, "height": 900})
    assert found == {"light": [], "dark": [], "phone": []}


def test_the_search_finds_snr(tab: Page, base: str, trouble: list[str]) -> None:
    trouble.clear()
    go(tab, f"{base}/search.html?q=SNR")
    tab.wait_for_selector("#search-results li", timeout=20_000)
    assert trouble == []


def test_every_page_is_in_the_navigation_and_next_leads_through_all(seen: dict[str, Any]) -> None:
    assert set(PAGES) - {"index"} <= {Path(link).stem for link in seen["index"]["navigation"]}
    walked = ["index"]
    while (following := seen[walked[-1]]["next"]) and len(walked) < 50:
        walked.append(Path(following).stem)
    assert walked == PAGES


# --------------------------------------------------------------------- pages as files


def test_students_get_notebooks_without_solutions(html: Path, seen: dict[str, Any]) -> None:
    """One a chapter, with an empty cell for each solution, and all of them in an archive."""
    assert any("exercises/" in link for link in seen["slides"]["links"])
    paths = sorted((html / "exercises").glob("*.ipynb"))
    assert [p.stem for p in paths] == [name for name in CHAPTERS if name[0].isdigit()]
    for path in paths:
        text = path.read_text("utf-8")
        whole = (ROOT / "book" / path.name).read_text("utf-8")
        assert "{dropdown}" not in text and '"outputs": []' in text and "data:image" not in text
        assert text.count("# Your answer") == whole.count("{dropdown} Solution")
        if "RCLCPB_BOOK" not in os.environ:
            assert "git+https://code.example/someone/book@abcdef1" in text
    with zipfile.ZipFile(html / "exercises" / "exercises.zip") as archive:
        assert archive.namelist() == [p.name for p in paths]


def test_a_page_says_its_version_and_where_to_change_it(html: Path) -> None:
    text = (html / "04_pruning.html").read_text("utf-8")
    assert f"Version {rclcpb.__version__}" in text
    if "RCLCPB_BOOK" not in os.environ:
        assert "https://code.example/someone/book/edit/main/book/04_pruning.ipynb" in text
        assert "https://code.example/someone/book/issues/new" in text


def test_a_link_to_a_page_shows_what_it_is(html: Path) -> None:
    """Its title and first words everywhere; a picture where the address is known."""
    text = (html / "04_pruning.html").read_text("utf-8")
    tags = dict(re.findall(r'<meta property="([\w:]+)" content="([^"]*)"', text))
    assert tags["og:title"] == "4. Pruning by signal-to-noise"
    assert tags["og:description"].startswith("A network has learned its first task")
    with PIL.Image.open(html / "card.png") as picture:
        assert picture.size == (1200, 630)
    if "RCLCPB_BOOK" not in os.environ:
        assert tags["og:image"] == "https://pages.example/book/card.png"
        assert tags["og:url"] == "https://pages.example/book/04_pruning.html"


def test_links_between_pages_lead_somewhere(seen: dict[str, Any], base: str, html: Path) -> None:
    texts: dict[str, str] = {}
    for name, page in seen.items():
        for link in set(page["links"]):
            path, _, anchor = link.removeprefix(f"{base}/").partition("#")
            there = html / (path or "index.html")
            assert there.is_file(), f"{name}: {link}"
            if anchor and path not in texts:
                texts[path] = there.read_text("utf-8")
            assert not anchor or f'id="{anchor}"' in texts[path], f"{name}: {link}"


def test_no_page_loads_anything_from_another_host(html: Path) -> None:
    pattern = re.compile(r"<(?:script|link|img|iframe)[^>]+?(?:src|href)=\"(https?:[^\"]+)")
    found = {p.name: pattern.findall(p.read_text("utf-8")) for p in html.glob("*.html")}
    assert {name: links for name, links in found.items() if links} == {}


def test_the_generated_parts_are_on_their_pages(seen: dict[str, Any]) -> None:
    assert "recorded here, %" in seen["index"]["text"]
    assert "not recorded yet" not in seen["index"]["text"]
    assert "rclcpb_core.prune(" in seen["D_api"]["text"]


@pytest.mark.parametrize("name", CHAPTERS)
def test_a_chapter_opens_in_colab(seen: dict[str, Any], html: Path, name: str) -> None:
    """Where the address is known: the button, and a notebook that carries it."""
    if "RCLCPB_BOOK" in os.environ:
        pytest.skip("these pages may have been built without an address")
    (link,) = set(seen[name]["colab"])
    assert link.endswith(f"/github/someone/book/blob/colab/{name}.ipynb")
    source = r"\"RCLCPB_SOURCE\", \"git+https://code.example/someone/book@abcdef1\""
    assert source in (html / "_sources" / f"{name}.ipynb").read_text("utf-8")
