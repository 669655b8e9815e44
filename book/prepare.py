"""What the book needs before Sphinx reads it: an extension that _config.yml names.

It writes the table of results and the findings of the first page, gives the pages the
repository's address where that is known, and names the cache of executed chapters by all
that a chapter may read. These variables of the environment decide:

    RCLCPB_EXECUTE=off     build from the outputs in the notebooks, run nothing
    RCLCPB_CELL_LIMIT      seconds that a cell may take, on a busy machine more than 90
    RCLCPB_MODE, RCLCPB_RESULTS     what chapters learn from, and where records lie
    GITHUB_SERVER_URL, GITHUB_REPOSITORY, GITHUB_SHA     set by GitHub: the address
    RCLCPB_COLAB_BRANCH    the branch with the published notebooks ("colab")
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.errors import ConfigError

BOOK = Path(__file__).resolve().parent
ROOT = BOOK.parent
sys.path[:0] = [str(ROOT), str(BOOK)]  # also for the page that autodoc makes of the modules

from figures.evidence import findings  # noqa: E402

from rclcpb.tables import at_a_glance  # noqa: E402

RESULTS = Path(os.environ.get("RCLCPB_RESULTS") or BOOK / "results")
SOURCE = r"\"RCLCPB_SOURCE\", \"{}\""  # in the set-up cell, as a notebook's file writes it


def setup(app: Sphinx) -> dict[str, Any]:
    """Sphinx calls this: when the settings are read, and when the pages are written."""
    app.connect("config-inited", prepare)
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
    os.environ["RCLCPB_STATIC"] = "1"  # for the kernels: no widgets on a page
    if os.environ.get("RCLCPB_EXECUTE") == "off":
        config.nb_execution_mode = "off"
    config.nb_execution_timeout = int(os.environ.get("RCLCPB_CELL_LIMIT", 90))
    config.nb_execution_cache_path = str(Path(app.outdir).parent / ".jupyter_cache" / digest())
    if site := address():  # the branch holds notebooks that know where the code is
        config.html_theme_options |= {
            "repository_url": site.partition("@")[0],
            "repository_provider": "github",
            "repository_branch": os.environ.get("RCLCPB_COLAB_BRANCH", "colab"),
            "path_to_docs": "",
            "use_repository_button": True,
            "launch_buttons": {"colab_url": "https://colab.research.google.com"},
        }


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
    if not re.fullmatch(r"https?://[\w.:-]+/[\w.-]+/[\w.-]+@([0-9a-f]{7,64}|HEAD)", found):
        raise ConfigError(f"{', '.join(names)} should make host/owner/name@hash, not {found!r}.")
    return found


def tell_address(app: Sphinx, exception: Exception | None) -> None:
    """Tell the notebooks that pages offer, and the branch for Colab, where the code is."""
    if exception is None and (site := address()):
        for path in (Path(app.outdir) / "_sources").glob("*.ipynb"):
            text = path.read_text("utf-8")
            path.write_text(text.replace(SOURCE.format(""), SOURCE.format(f"git+{site}")), "utf-8")


def as_plain_text(app: Sphinx, what: str, name: str, it: Any, options: Any, lines: Any) -> None:
    """Docstrings are for readers of the code: |mu| is no mark-up; of a module's, the title."""
    if what == "module":
        del lines[1:]
    if lines and lines[0].startswith("Alias for field number"):  # a NamedTuple's own words
        lines.clear()
    lines[:] = [re.sub(r"([|*])", r"\\\1", line) for line in lines]
