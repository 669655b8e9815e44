"""What the book needs before Sphinx reads it: an extension that _config.yml names.

It writes the generated parts (the first page's findings, figure and table, the drawing of the
method, the links to what can be downloaded), gives the pages the repository's address where
that is known, and names the cache of executed chapters by all that a chapter may read. These
variables of the environment decide:

    RCLCPB_EXECUTE=off     build from the outputs in the notebooks, run nothing
    RCLCPB_CELL_LIMIT      seconds that a cell may take, on a busy machine more than 90
    RCLCPB_MODE, RCLCPB_RESULTS     what chapters learn from, and where records lie
    GITHUB_SERVER_URL, GITHUB_REPOSITORY, GITHUB_SHA     set by GitHub: the address
    RCLCPB_COLAB_BRANCH    the branch with the published notebooks ("colab")
    RCLCPB_SITE            where the pages will be: with it their social cards have a picture
"""

from __future__ import annotations

import hashlib
import html
import os
import re
import sys
import textwrap
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.errors import ConfigError

BOOK = Path(__file__).resolve().parent
ROOT = BOOK.parent
sys.path[:0] = [str(ROOT), str(BOOK)]  # also for the page that autodoc makes of the modules

import exercises  # noqa: E402
from figures.ablations import result  # noqa: E402
from figures.evidence import findings  # noqa: E402
from figures.framework import framework  # noqa: E402
from figures.growth import growth_frames  # noqa: E402
from figures.page import RESULTS, recorded  # noqa: E402
from figures.player import player  # noqa: E402
from figures.style import use_style  # noqa: E402
from figures.vector import picture  # noqa: E402

from rclcpb import __version__  # noqa: E402
from rclcpb.records import load_records  # noqa: E402
from rclcpb.tables import at_a_glance  # noqa: E402

# `make downloads` builds them
DOWNLOADS = {"rcl-cpb.pdf": "PDF", "rcl-cpb.epub": "ePub", "slides.pdf": "the slides as PDF"}
CARD = "Average accuracy of six methods on split MNIST with one head, a dot a seed"
SOURCE = r"\"RCLCPB_SOURCE\", \"{}\""  # in the set-up cell, as a notebook's file writes it


def setup(app: Sphinx) -> dict[str, Any]:
    """Sphinx calls this: when the settings are read, and when the pages are written."""
    app.connect("config-inited", prepare)
    app.connect("builder-inited", draw_method)
    app.connect("doctree-resolved", explain_terms)
    app.connect("html-page-context", footer)
    app.connect("html-page-context", card)
    app.connect("html-page-context", list_of_references)
    app.connect("build-finished", for_students)
    app.connect("build-finished", tell_address)
    app.connect("autodoc-process-docstring", as_plain_text)
    return {"parallel_read_safe": True}


def prepare(app: Sphinx, config: Config) -> None:
    """Write the generated pages and set what only the environment can say."""
    generated = BOOK / "generated"
    generated.mkdir(exist_ok=True)
    (generated / "results.md").write_text(at_a_glance(RESULTS), "utf-8")
    found = findings(RESULTS) or ["No runs are recorded yet."]
    (generated / "findings.md").write_text("".join(f"- {line}\n" for line in found), "utf-8")
    use_style()
    drawn = f'<div class="rcl-figure">{picture(result(), CARD)}</div>\n'
    (generated / "result.html").write_text(drawn, "utf-8")
    (generated / "exercises.html").write_text(exercises.links(chapters()), "utf-8")
    (generated / "growth.html").write_text(growth(), "utf-8")
    offer_downloads(app, config, generated)
    os.environ["RCLCPB_STATIC"] = "1"  # for the kernels: no widgets on a page
    if os.environ.get("RCLCPB_EXECUTE") == "off":
        config.nb_execution_mode = "off"
    config.nb_execution_timeout = int(os.environ.get("RCLCPB_CELL_LIMIT", 90))
    config.nb_execution_cache_path = str(Path(app.outdir).parent / ".jupyter_cache" / digest())
    config.html_extra_path.append(str(draw_card(generated)))
    if known := address():  # the branch holds notebooks that know where the code is
        config.html_theme_options |= {
            "repository_url": known.partition("@")[0],
            "repository_provider": "github",
            "repository_branch": os.environ.get("RCLCPB_COLAB_BRANCH", "colab"),
            "path_to_docs": "",
            "use_repository_button": True,
            "launch_buttons": {"colab_url": "https://colab.research.google.com"},
        }


def chapters() -> list[Path]:
    """The numbered chapters, in order."""
    return sorted(BOOK.glob("[0-9]*.ipynb"))


def for_students(app: Sphinx, exception: Exception | None) -> None:
    """Beside the pages, the notebooks without solutions."""
    if exception is None:
        exercises.write(chapters(), Path(app.outdir) / "exercises", addressed)


def growth() -> str:
    """A recorded run's network as it grows, in a player; nothing where no run is recorded."""
    runs = load_records(RESULTS, "ta-smnist", "rcl-cpb")[:1]
    if not runs:
        return ""
    caption = "Figure. A run of RCL-CPB on ta-smnist, a dot a neuron, a colour a task that"
    caption += f" brought neurons; before each task some weights start afresh. ({recorded(runs)})"
    words = "A network of two hidden layers that grows over five tasks"
    frames, labels = growth_frames(runs[0])
    return f"{player(frames, labels, words, caption, len(frames) - 1, speed=1600)}\n"


def offer_downloads(app: Sphinx, config: Config, generated: Path) -> None:
    """The book as one file, where `make downloads` has built it."""
    there = [name for name in DOWNLOADS if (Path(app.outdir).parent / name).exists()]
    config.html_extra_path += [str(Path(app.outdir).parent / name) for name in there]
    links = ", ".join(f'<a href="{name}">{DOWNLOADS[name]}</a>' for name in there)
    words = f"<p>To take it along: {links}.</p>\n" if there else ""
    (generated / "downloads.html").write_text(words, "utf-8")


def draw_method(app: Sphinx) -> None:
    """The framework, with addresses of chapters as this builder has them."""
    page = {"singlehtml": "#document-{}", "epub": "{}.xhtml"}.get(app.builder.name, "{}.html")
    drawn = f'<div class="rcl-wide" tabindex="0">{framework(page)}</div>\n'
    (BOOK / "generated" / "framework.html").write_text(drawn, "utf-8")


def explain_terms(app: Sphinx, tree: nodes.document, page: str) -> None:
    """A word of the glossary shows its meaning under the mouse, without a script."""
    links = [n for n in tree.findall(nodes.reference) if n.next_node(nodes.inline)]
    links = [n for n in links if "std-term" in n.next_node(nodes.inline).get("classes", ())]
    if not links:
        return
    meanings = {}
    for item in app.env.get_doctree("C_notation").findall(nodes.definition_list_item):
        meaning = item.next_node(nodes.definition)
        for term in item.findall(nodes.term):
            meanings |= dict.fromkeys(term["ids"], " ".join(meaning.astext().split()))
    for link in links:
        name = link.get("refid") or link.get("refuri", "").partition("#")[2]
        link["reftitle"] = meanings.get(name, "")


def footer(app: Sphinx, page: str, template: str, context: dict[str, Any], tree: Any) -> None:
    """Under each page: the version, and where to change or report something."""
    prefix = context["pathto"]("changelog") if app.builder.name != "singlehtml" else "#"
    words = f'Version {__version__}, <a href="{prefix}">what changed</a>.'
    repository, _, _ = address().partition("@")
    if repository and tree is not None:
        source = f"book/{Path(str(app.env.doc2path(page))).name}"
        words += f' <a href="{repository}/edit/main/{source}">Suggest a change to this page</a> or'
        words += f' <a href="{repository}/issues/new?title=On%20{page}">report a mistake in it</a>.'
    context["theme_extra_footer"] = f"<p>{words}</p>"


def draw_card(generated: Path) -> Path:
    """The picture that goes with a link to a page: the first page's figure under the title."""
    fig = result()
    fig.set_size_inches(8, 4.2)
    fig.suptitle("RCL-CPB, run and explained", x=0.02, ha="left", fontsize=20, fontweight="bold")
    fig.savefig(generated / "card.png", dpi=150)  # 1,200 by 630 points, as is usual
    plt.close(fig)
    return generated / "card.png"


def site() -> str:
    """Where the pages will be, without a slash at the end; or nothing."""
    given = os.environ.get("RCLCPB_SITE", "").rstrip("/")
    if given and not re.fullmatch(r"https?://[\w.:/-]+", given):
        raise ConfigError(f"RCLCPB_SITE should be an address, not {given!r}.")
    return given


def card(app: Sphinx, page: str, template: str, context: dict[str, Any], tree: Any) -> None:
    """What others show of a link to a page: title and first words; with an address, a picture."""
    first = tree.next_node(nodes.paragraph) if tree is not None else None
    if first is None:
        return
    words = textwrap.shorten(first.astext(), 200, placeholder=" …")
    title = html.unescape(re.sub("<[^>]*>", "", context["title"]))  # its number has a tag
    says = {"og:title": title, "og:description": words}
    says |= {"og:site_name": str(app.config.html_title), "og:type": "article"}
    if site():
        says |= {"og:url": f"{site()}/{page}.html", "og:image": f"{site()}/card.png"}
        says |= {"og:image:alt": CARD, "twitter:card": "summary_large_image"}
    tags = [f'<meta property="{key}" content="{html.escape(it)}" />' for key, it in says.items()]
    tags.append(f'<meta name="description" content="{html.escape(words)}" />')
    context["metatags"] = "\n".join([context.get("metatags", ""), *tags])


def list_of_references(app: Sphinx, page: str, template: str, context: Any, tree: Any) -> None:
    """A list has items: what docutils calls its entries is no item for a screen reader."""
    if "body" in context:
        context["body"] = context["body"].replace('role="doc-biblioentry"', 'role="listitem"')


def digest() -> str:
    """Changes with all that a chapter may import or read besides its own cells."""
    modes = (os.environ.get(name, "") for name in ("RCLCPB_MODE", "RCLCPB_RESULTS"))
    total = hashlib.sha256("\0".join(modes).encode())
    code = [ROOT / "rclcpb_core.py", *(ROOT / "rclcpb").rglob("*.py")]
    code += [*(BOOK / "figures").glob("*.py"), *RESULTS.rglob("*.json*")]
    for path in sorted(code):
        total.update(str(path).encode() + path.read_bytes())
    return total.hexdigest()[:16]


def address() -> str:
    """The repository at its revision, from the publishing job's environment; or nothing."""
    names = ("GITHUB_SERVER_URL", "GITHUB_REPOSITORY", "GITHUB_SHA")
    host, repository, revision = (os.environ.get(name, "") for name in names)
    if not repository:
        return ""
    found = f"{host}/{repository}@{revision or 'HEAD'}"
    if not re.fullmatch(r"https://[\w.:-]+/[\w.-]+/[\w.-]+@([0-9a-f]{7,64}|HEAD)", found):
        raise ConfigError(f"{', '.join(names)} should make host/owner/name@hash, not {found!r}.")
    return found


def tell_address(app: Sphinx, exception: Exception | None) -> None:
    """Tell the notebooks that pages offer, and the branch for Colab, where the code is."""
    if exception is None and address():
        for path in (Path(app.outdir) / "_sources").glob("*.ipynb"):
            path.write_text(addressed(path.read_text("utf-8")), "utf-8")


def addressed(notebook: str) -> str:
    """A notebook whose set-up cell installs from the repository, where that is known."""
    known = address()
    return notebook.replace(SOURCE.format(""), SOURCE.format(f"git+{known}")) if known else notebook


def as_plain_text(app: Sphinx, what: str, name: str, it: Any, options: Any, lines: Any) -> None:
    """Docstrings are for readers of the code: |mu| is no mark-up; of a module's, the title."""
    if what == "module":
        del lines[1:]
    if lines and lines[0].startswith("Alias for field number"):  # a NamedTuple's own words
        lines.clear()
    lines[:] = [re.sub(r"([|*])", r"\\\1", line) for line in lines]
