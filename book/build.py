"""Execute the chapters and build the book's HTML; see book/README.md.

    python book/build.py                         everything: execute, check, build
    python book/build.py --chapter 04_pruning    execute one chapter, the rest as stored
    python book/build.py --no-execute            build from the committed outputs
    python book/build.py --store                 and write outputs into the notebooks
    python book/build.py --check                 only look for mistakes, in a second
    python book/build.py --draft 04_pruning d.md     make a chapter of a text file
    python book/build.py --text 04_pruning           print a chapter as such a text
    python book/build.py --setup                     renew the set-up cell everywhere

A chapter is executed again when its code or anything it may import or read has changed.
Any failing cell, any warning, any cell above 90 seconds ends in exit code 1.
"""

from __future__ import annotations

import argparse
import ast
import getpass
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any

import nbformat
import yaml
from filelock import FileLock
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

BOOK = Path(__file__).resolve().parent
ROOT = BOOK.parent
MODULES = ("rclcpb_core.py", "rclcpb_data.py", "rclcpb_fast.py", "rclcpb_runs.py")
CELL_LIMIT = float(os.environ.get("RCLCPB_CELL_LIMIT", 90))  # seconds
SIZE_LIMIT = 1_000_000  # bytes of a committed chapter
COLAB = "https://colab.research.google.com"

# ------------------------------------------------------------------------ the chapters


def toc() -> dict[str, Any]:
    """_toc.yml without the chapters that are not written yet."""
    contents = yaml.safe_load((BOOK / "_toc.yml").read_text())
    for part in contents["parts"]:
        part["chapters"] = [c for c in part["chapters"] if source_of(c["file"])]
    contents["parts"] = [part for part in contents["parts"] if part["chapters"]]
    return contents


def source_of(name: str) -> Path | None:
    """A chapter's file, if it is written."""
    paths = (BOOK / f"{name}{suffix}" for suffix in (".ipynb", ".md"))
    return next((path for path in paths if path.exists()), None)


def pages() -> list[str]:
    contents = toc()
    return [contents["root"]] + [c["file"] for p in contents["parts"] for c in p["chapters"]]


def notebooks() -> list[str]:
    return [name for name in pages() if (BOOK / f"{name}.ipynb").exists()]


def read(path: Path) -> nbformat.NotebookNode:
    return nbformat.read(path, as_version=4)


def write(nb: nbformat.NotebookNode, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(nb, indent=1, ensure_ascii=False, sort_keys=True) + "\n"
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


# -------------------------------------------------------------------- the set-up cell

SETUP = '''\
# Set-up, the same in every chapter: find the book's code, or fetch it (as in Colab).
import importlib.util
import io
import os
import subprocess
import sys
import tarfile
import urllib.request
from pathlib import Path

REPOSITORY, REVISION = "", ""  # filled in when the book is published


def fetch_code(folder):
    """Get the modules, figures and records from the repository; install what lacks."""
    if not REPOSITORY:
        raise FileNotFoundError(
            "This copy of the chapter does not know its repository: open it inside the"
            " repository's folder, or start it from the published book."
        )
    host = os.environ.get("RCLCPB_HOST", "https://github.com")
    url = f"{host}/{REPOSITORY}/archive/{REVISION}.tar.gz"
    with urllib.request.urlopen(url, timeout=60) as answer:
        data = io.BytesIO(answer.read())
    with tarfile.open(fileobj=data) as archive:
        for member in archive:
            member.name = member.name.partition("/")[2]
            if member.name.startswith(("rclcpb_", "book/figures.py", "book/results/")):
                archive.extract(member, folder, filter="data")
    needed = ("mlxtend", "tyro", "safetensors", "filelock", "ipywidgets")
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if missing:
        subprocess.run([sys.executable, "-m", "pip", "install", *missing], check=True)
    return folder


places = (Path.cwd(), *Path.cwd().parents)
root = next((p for p in places if (p / "rclcpb_core.py").is_file()), None)
root = root or fetch_code(Path.cwd())
os.environ.setdefault("OMP_NUM_THREADS", "1")  # for networks this small, one is best
sys.path[:0] = [str(root), str(root / "book")]'''
UNFILLED = 'REPOSITORY, REVISION = "", ""'


def address() -> tuple[str, str]:
    """Repository and revision, from the environment of the publishing job; or empty."""
    repository = os.environ.get("GITHUB_REPOSITORY", "")
    revision = os.environ.get("GITHUB_SHA", "") or "HEAD"
    if not repository:
        return "", ""
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", repository):
        raise SystemExit(f"GITHUB_REPOSITORY={repository!r}: must be owner/name.")
    if not re.fullmatch(r"[0-9a-f]{7,64}|HEAD", revision):
        raise SystemExit(f"GITHUB_SHA={revision!r}: must be a commit's hash.")
    return repository, revision


def filled(source: str) -> str:
    """The set-up cell with the repository's address, where that is known."""
    repository, revision = address()
    if not repository:
        return source
    return source.replace(UNFILLED, f'REPOSITORY, REVISION = "{repository}", "{revision}"')


# ----------------------------------------------------------------------------- drafts

FENCE = re.compile(r"^```\{code-cell\}[^\n]*\n(.*?)^```[ ]*$", re.S | re.M)
SETUP_MARK = "<!-- setup -->"


def from_text(name: str, text: str) -> nbformat.NotebookNode:
    """A chapter of a text: Markdown, ```{code-cell} blocks, +++ between cells."""
    cells, end = [], 0
    for match in FENCE.finditer(text):
        cells += _markdown_cells(text[end : match.start()])
        tags, code = re.match(r"(?::tags: \[(.*?)\]\n)?(.*)", match[1], re.S).groups()
        cells.append(_code_cell(code, [t.strip() for t in (tags or "").split(",")]))
        end = match.end()
    cells += _markdown_cells(text[end:])
    short = name.split("_")[0].lower()
    for i, cell in enumerate(cells):
        cell["id"] = f"c{short}-{i:03d}"
    nb = nbformat.v4.new_notebook(cells=cells)
    return tidy(nb)


def _markdown_cells(text: str) -> Iterator[nbformat.NotebookNode]:
    for piece in re.split(rf"^\+\+\+\s*$|^({SETUP_MARK})\s*$", text, flags=re.M):
        if piece == SETUP_MARK:
            yield setup_cell()
        elif piece and piece.strip():
            yield nbformat.v4.new_markdown_cell(piece.strip())


def setup_cell() -> nbformat.NotebookNode:
    """The set-up cell, folded on the page."""
    cell = _code_cell(SETUP, ["hide-input"])
    prompt = "Set-up, the same in every chapter"
    cell.metadata["mystnb"] = {
        "code_prompt_show": prompt,
        "code_prompt_hide": prompt,
    }
    return cell


def renewed(nb: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """The chapter with today's set-up cell in place of an older one."""
    for cell in nb.cells:
        if cell.cell_type == "code" and cell.source.startswith("# Set-up, the same"):
            if cell.source != SETUP:
                cell.outputs = []
            cell.source, cell.metadata = SETUP, setup_cell().metadata
    return nb


def _code_cell(code: str, tags: list[str]) -> nbformat.NotebookNode:
    metadata = {"tags": tags} if any(tags) else {}
    return nbformat.v4.new_code_cell(code.strip("\n"), metadata=metadata)


def to_text(nb: nbformat.NotebookNode) -> str:
    """The text that `from_text` would make this chapter of."""
    parts, before = [], ""
    for cell in nb.cells:
        if cell.cell_type == "markdown":
            parts.append(("+++\n\n" if before == "markdown" else "") + cell.source)
        elif cell.source == SETUP:
            parts.append(SETUP_MARK)
        else:
            tags = cell.metadata.get("tags", [])
            head = f":tags: [{', '.join(tags)}]\n" if tags else ""
            parts.append(f"```{{code-cell}}\n{head}{cell.source}\n```")
        before = cell.cell_type
    return "\n\n".join(parts) + "\n"


def keep_outputs(new: nbformat.NotebookNode, old: nbformat.NotebookNode) -> None:
    """Outputs of cells whose code stayed go over to the new version."""
    stored = {c.source: c for c in old.cells if c.cell_type == "code"}
    for cell in new.cells:
        if cell.cell_type == "code" and cell.source in stored:
            cell.outputs = stored[cell.source].outputs
            cell.execution_count = stored[cell.source].execution_count


# ----------------------------------------------------------------------------- checks

HEADINGS = (
    "## What you will learn",
    "## Try it",
    "## Where this differs from the paper",
    "## Takeaways",
    "## Exercises",
)


def complaints(name: str, nb: nbformat.NotebookNode) -> list[str]:
    """What is wrong with a chapter, each in a sentence."""
    found = []
    code = [cell for cell in nb.cells if cell.cell_type == "code"]
    if not code or (code[0].source, code[0].metadata) != (SETUP, setup_cell().metadata):
        found.append("its first code cell is not build.py's set-up cell; use --setup")
    elif code[0].outputs:
        found.append("its set-up cell has an output")
    for i, cell in enumerate(nb.cells):
        if cell.cell_type == "code" and any(len(x) > 88 for x in cell.source.split("\n")):
            found.append(f"cell {i} has a line above 88 columns")
        for output in cell.get("outputs", []):
            found += [f"cell {i}: {what}" for what in _output_complaints(output)]
    text = "\n".join(c.source for c in nb.cells if c.cell_type == "markdown")
    if name[0].isdigit():
        found += [f"no heading '{h}'" for h in HEADINGS if h not in text]
        words = len(re.findall(r"\w[\w'’-]*", text))
        if not 1000 <= words <= 2300:
            found.append(f"{words} words; wanted 1,200 to 2,000")
        lengths = sorted(len(cell.source.split("\n")) for cell in code[1:])
        if lengths and lengths[len(lengths) // 2] > 8:
            found.append(f"median code cell of {lengths[len(lengths) // 2]} lines, over 8")
    size = len(json.dumps(nb))
    if size > SIZE_LIMIT:
        found.append(f"{size / 1e6:.2f} MB with its outputs; keep it below 1 MB")
    for private in private_strings():
        if private in json.dumps(nb, ensure_ascii=False):
            found.append(f"holds {private!r}, which belongs to this machine")
    return [f"{name}: {what}" for what in found]


def _output_complaints(output: Any) -> Iterator[str]:
    data = output.get("data", {})
    if any(key.startswith("image/") for key in data):
        yield "a picture without alt text; use figures.show"
    if any("widget" in key for key in data):
        yield "a widget in the stored outputs; use figures.live"
    code = "".join(data.get("text/html", ""))
    if re.search(r"<img(?![^>]*alt=\"[^\"])", code):
        yield "an <img> without alt text"
    if re.search(r"(?:src|href)=\"?https?:", code):
        yield "an output that asks another host for something"
    if output.output_type == "error":
        yield f"an error in the outputs ({output.ename})"


def private_strings() -> list[str]:
    """What must never reach a committed file: folders and names of this machine."""
    user = getpass.getuser()
    return [str(ROOT), f"{Path.home()}/", *([f"/{user}/"] if user != "root" else [])]


def tidy(nb: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Only what a reader needs: no times, widgets, progress bars or versions."""
    nb.metadata = nbformat.from_dict(
        {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        }
    )
    nb.nbformat, nb.nbformat_minor = 4, 5
    for cell in nb.cells:
        cell.metadata = {k: v for k, v in cell.metadata.items() if k in ("tags", "mystnb")}
        if cell.cell_type == "code":
            cell.outputs = [o for o in cell.outputs if _wanted(o)]
            for output in cell.outputs:
                output.pop("metadata", None)
                if output.output_type != "stream":
                    output["metadata"] = {}
    return nb


def _wanted(output: Any) -> bool:
    if output.output_type == "stream":
        return output.name == "stdout"
    return not any("widget" in key for key in output.get("data", {}))


# -------------------------------------------------------------------------- execution


def digest(name: str) -> str:
    """Changes with the chapter's code and with all it may import or read."""
    modes = (os.environ.get(name, "") for name in ("RCLCPB_MODE", "RCLCPB_RESULTS"))
    total = hashlib.sha256("\0".join(modes).encode())
    for cell in read(BOOK / f"{name}.ipynb").cells:
        if cell.cell_type == "code":
            total.update(cell.source.encode() + b"\0")
    files = [ROOT / module for module in MODULES] + [BOOK / "figures.py"]
    results = [p for p in (BOOK / "results").rglob("*.json*") if p.is_file()]
    for path in files + sorted(results):
        total.update(path.name.encode() + path.read_bytes())
    return total.hexdigest()


def execute(name: str, target: Path) -> dict[str, Any]:
    """Run a chapter in a new kernel, keep it at `target`; times, or what went wrong."""
    os.environ["RCLCPB_STATIC"] = "1"
    nb, mark = renewed(read(BOOK / f"{name}.ipynb")), digest(name)
    began = time.perf_counter()
    client = NotebookClient(
        nb,
        timeout=int(4 * CELL_LIMIT),
        kernel_name="python3",
        resources={"metadata": {"path": str(BOOK)}},
        extra_arguments=["--log-level=ERROR"],
    )
    report: dict[str, Any] = {"name": name, "digest": mark, "error": "", "cells": []}
    try:
        client.execute()
    except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
        report["error"] = re.sub(r"\x1b\[[\d;]*m", "", str(error))
    report["seconds"] = time.perf_counter() - began
    report["cells"] = [_seconds(cell) for cell in nb.cells]
    tidy(nb)
    write(nb, target)
    if not report["error"]:
        target.with_suffix(".json").write_text(json.dumps(report))
    return report


def _seconds(cell: nbformat.NotebookNode) -> float:
    times = cell.metadata.get("execution", {})
    ends = [times.get("iopub.execute_input"), times.get("shell.execute_reply")]
    if None in ends:
        return 0.0
    first, last = (datetime.fromisoformat(t.replace("Z", "+00:00")) for t in ends)
    return (last - first).total_seconds()


def execute_all(names: list[str], folder: Path, jobs: int, force: bool) -> list[str]:
    """Run what has changed; the complaints."""
    due = [n for n in names if force or _report(folder, n).get("digest") != digest(n)]
    bad = []
    with ProcessPoolExecutor(max(1, jobs)) as pool:
        waiting = [pool.submit(execute, n, folder / f"{n}.ipynb") for n in due]
        for future in waiting:
            report = future.result()
            if report["error"]:
                bad.append(f"{report['name']}: a cell failed\n{report['error']}")
            print(f"  executed {report['name']} in {report['seconds']:.0f} s", flush=True)
    for name in names:
        cells = _report(folder, name).get("cells", [])
        slow = [i for i, s in enumerate(cells) if s > CELL_LIMIT]
        bad += [f"{name}: cell {i} took {cells[i]:.0f} s, above {CELL_LIMIT:.0f}" for i in slow]
    return bad


def _report(folder: Path, name: str) -> dict[str, Any]:
    path = folder / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else {}


# ------------------------------------------------------------- pages made at build time


SCENARIO_NAMES = {
    "pmnist": "permuted MNIST, a head a task",
    "pmnist-shared": "permuted MNIST, one head",
    "mh-smnist": "split MNIST, a head a task",
    "ta-smnist": "split MNIST, one head",
    "mh-cifar100": "split CIFAR-100, a head a task",
    "ta-cifar100": "split CIFAR-100, one head",
    "mnist-svhn-cifar10": "MNIST, SVHN, CIFAR-10",
}


# In the table at a glance; a + row only where it is recorded.
METHOD_NAMES = {
    "rcl-cpb": "RCL\u2011CPB",
    "vcl": "VCL",
    "rcl-cpb-plus": "RCL\u2011CPB+",
    "vcl-plus": "VCL+",
    "coreset-only": "stored images alone+",
}


def results_table(missing: bool = True) -> str:
    """The result table at a glance: recorded runs beside the paper's numbers.

    `missing` says of scenarios without records that they have none.
    """
    sys.path.insert(0, str(ROOT))
    import rclcpb_runs as runs

    results = Path(os.environ.get("RCLCPB_RESULTS") or runs.RESULTS)
    lines = [
        "| scenario | method | recorded here, % | sizes | seeds |"
        " paper's number, % | paper's sizes |",
        "|---" * 7 + "|",
    ]
    for scenario, title in SCENARIO_NAMES.items():
        for method, shown in METHOD_NAMES.items():
            paper = [p for p in runs.PAPER.get(scenario, []) if p.method.split(",")[0] == method]
            records = runs.load_records(results, scenario, method)
            if records or (missing and method in ("rcl-cpb", "vcl")):
                row = _result_row(runs, records, paper)
                lines.append("| " + " | ".join([title, shown, *row]) + " |")
                title = ""
    return "\n".join(lines) + "\n"


README_TABLE = re.compile(r"(?<=<!-- results -->\n)(.*?)(?=<!-- end -->)", re.DOTALL)


def renew_readme() -> None:
    """The README's table and figure from the records."""
    path = ROOT / "README.md"
    table, text = results_table(missing=False), path.read_text("utf-8")
    path.write_text(README_TABLE.sub(table, text), "utf-8")
    import figures  # which finds the core where results_table() has put it

    figures.draw_result()


def _result_row(runs: Any, records: list[Any], paper: list[Any]) -> list[str]:
    """Accuracy, sizes and seeds of the records; accuracy and sizes of the paper."""
    ours, theirs = ["*not recorded yet*", "", ""], ["", ""]
    if records:
        row = runs.summary(records)
        ours = [row[3], row[5].strip("[]"), row[10]]
    if paper:
        p = paper[0]
        quoted = " (quoted)" if p.source != "own" else ""
        spread = f" ± {p.deviation:.2f}" if p.deviation else ""
        theirs = [f"{p.accuracy}{spread}{quoted}", ", ".join(map(str, p.hidden))]
    return [cell.replace(" ", "\u00a0") for cell in ours + theirs]


def timings_table(folder: Path) -> str:
    """How long each chapter and its slowest cell took."""
    lines = ["| chapter | seconds | slowest cell, seconds |", "|---|---|---|"]
    for name in notebooks():
        if report := _report(folder, name):
            slowest = max(report["cells"], default=0)
            lines.append(f"| {name} | {report['seconds']:.0f} | {slowest:.1f} |")
    return "\n".join(lines) + "\n"


def api_page() -> str:
    """Functions and classes of the core: signatures, docstrings, fields' comments."""
    out = []
    for module in MODULES:
        text = (ROOT / module).read_text()
        tree, lines = ast.parse(text), text.splitlines()
        out.append(f"## {module}\n\n{ast.get_docstring(tree).splitlines()[0]}\n")
        rulers = [
            (i, m[1]) for i, line in enumerate(lines, 1) if (m := re.match(r"# -{5,} (.+)", line))
        ]
        for node in tree.body:
            while rulers and rulers[0][0] < node.lineno:
                title = rulers.pop(0)[1]
                out.append(f"### {title[0].upper()}{title[1:]}\n")
            out += _api_entries(node, lines)
    return "\n".join(out) + "\n"


def _api_entries(node: ast.stmt, lines: list[str], prefix: str = "") -> Iterator[str]:
    if not isinstance(node, ast.FunctionDef | ast.ClassDef) or node.name[0] == "_":
        return
    about = _api_text(ast.get_docstring(node) or "")
    if isinstance(node, ast.FunctionDef):
        arguments = re.sub(r"^(self|cls)(, )?", "", ast.unparse(node.args))
        result = ast.unparse(node.returns) if node.returns else "None"
        result = "" if result == "None" else f" -> {result}"
        if about:
            yield f"`{prefix}{node.name}({arguments}){result}`\n: {about}\n"
        return
    fields = list(_api_fields(node, lines))
    if not (about or fields):
        return
    yield f"`class {node.name}`\n: {about or 'A tuple with names.'}\n"
    if any(name in ast.unparse(node) for name in ("@dataclass", "(NamedTuple)")):
        yield "\n".join(["| field | default | |", "|---|---|---|", *fields]) + "\n"
    for child in node.body:
        yield from _api_entries(child, lines, f"{node.name}.")


def _api_text(docstring: str) -> str:
    """A docstring as the body of a definition; its indented parts stay as they are."""
    parts = []
    for part in docstring.split("\n\n"):
        code = part.startswith(" ")
        parts.append(part.replace("\n", "\n  ") if code else part.replace("\n", " "))
    return "\n\n  ".join(parts).rstrip()


def _api_fields(node: ast.ClassDef, lines: list[str]) -> Iterator[str]:
    """A table row a field: its name and type, its default, the comment beside it."""
    for child in node.body:
        if not isinstance(child, ast.AnnAssign):
            continue
        end = child.end_lineno
        while lines[end].lstrip().startswith("# "):  # a comment that goes on below
            end += 1
        source = lines[child.lineno - 1 : end]
        notes = [line.split("# ", 1)[1] for line in source if " # " in line]
        name = f"{ast.unparse(child.target)}: {ast.unparse(child.annotation)}"
        default = f"`{ast.unparse(child.value)}`" if child.value else ""
        cells = (f"`{name}`", default, " ".join(notes))
        yield "| " + " | ".join(c.replace("|", "\\|") for c in cells) + " |"


# ------------------------------------------------------------------------------- HTML


def stage(source: Path, executed: Path | None, names: list[str]) -> list[str]:
    """Lay out what jupyter-book reads: `names` as executed, the rest as stored."""
    shutil.rmtree(source, ignore_errors=True)
    shutil.copytree(BOOK / "_static", source / "_static")
    shutil.copy(BOOK / "references.bib", source)
    (source / "_toc.yml").write_text(yaml.safe_dump(toc(), sort_keys=False))
    (source / "_config.yml").write_text(yaml.safe_dump(settings(), sort_keys=False))
    made = source / "generated"
    made.mkdir()
    (made / "results.md").write_text(results_table())
    (made / "timings.md").write_text(timings_table(source.parent / "executed"))
    (made / "api.md").write_text(api_page())
    bad = []
    for name in pages():
        path = source_of(name)
        if path is None:
            raise SystemExit(f"{name} is in _toc.yml, but not in {BOOK.name}/.")
        if path.suffix == ".md":
            (source / path.name).write_text(known_links(path.read_text()))
            continue
        fresh = executed / path.name if executed and name in names else path
        nb = read(fresh if fresh.exists() else path)
        if name in names:
            bad += complaints(name, nb)
        for cell in nb.cells:
            if cell.cell_type == "markdown":
                cell.source = known_links(cell.source)
            elif cell.source == SETUP:
                cell.source = filled(cell.source)
        write(nb, source / path.name)
    return bad


def known_links(text: str) -> str:
    """Links to chapters, with the ending they have; plain words if not written yet."""

    def plain(match: re.Match[str]) -> str:
        path = source_of(match[2])
        return f"[{match[1]}]({path.name})" if path else match[1]

    return re.sub(r"\[([^\]\n]+)\]\((\d\d_\w+|[A-E]_\w+)\.(?:ipynb|md)\)", plain, text)


def settings() -> dict[str, Any]:
    """_config.yml, with the launch button where the repository is known."""
    config = yaml.safe_load((BOOK / "_config.yml").read_text())
    repository, _ = address()
    if repository:  # the branch holds html/_sources: notebooks that know their address
        config["sphinx"]["config"]["html_theme_options"] |= {
            "repository_url": f"https://github.com/{repository}",
            "repository_branch": os.environ.get("RCLCPB_COLAB_BRANCH", "colab"),
            "path_to_docs": "",
            "use_repository_button": True,
            "launch_buttons": {"colab_url": COLAB},
        }
    return config


def build_html(source: Path, out: Path, clean: bool) -> list[str]:
    """jupyter-book with warnings as errors; the complaints."""
    start = "from jupyter_book.cli.main import main; main()"
    command = [
        sys.executable,
        "-c",
        start,
        "build",
        str(source),
        "--path-output",
        str(out),
        "-W",
        "--keep-going",
    ]
    if clean:
        shutil.rmtree(out / "_build" / "html", ignore_errors=True)
        command.append("--all")
    environment = os.environ | {
        "JUPYTER_PLATFORM_DIRS": "1",
        "PYTHONWARNINGS": "ignore",
    }
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    log = re.sub(r"\x1b\[[\d;]*m", "", done.stdout + done.stderr)
    (out / "_build" / "sphinx.log").write_text(log)
    bad = [line for line in log.splitlines() if re.search(r"WARNING|ERROR", line)]
    if done.returncode and not bad:
        bad = log.splitlines()[-15:]
    return [line.replace(f"{source}/", "") for line in bad] + foreign(out)


def foreign(out: Path) -> list[str]:
    """Scripts, styles and pictures that a page would fetch from another host."""
    pattern = re.compile(r"<(?:script|link|img|iframe)[^>]+?(?:src|href)=\"(https?:[^\"]+)")
    found = []
    for page in sorted((out / "_build" / "html").glob("*.html")):
        links = set(pattern.findall(page.read_text()))
        found += [f"{page.name} loads {link}" for link in sorted(links)]
    return found


# ------------------------------------------------------------------------ command line


def store(executed: Path, names: list[str]) -> None:
    """Executed outputs into the committed notebooks."""
    for name in names:
        path = executed / f"{name}.ipynb"
        if path.exists():
            write(read(path), BOOK / path.name)
            print(f"  stored {name} ({path.stat().st_size / 1e3:.0f} KB)")


def build(options: argparse.Namespace) -> list[str]:
    out = options.out.resolve()
    folder = out / "_build"
    folder.mkdir(parents=True, exist_ok=True)
    executed, began = folder / "executed", time.perf_counter()
    with FileLock(folder / ".lock"):
        names = [options.chapter] if options.chapter else notebooks()
        bad: list[str] = []
        if not options.no_execute:
            force = bool(options.chapter) or options.force
            bad = execute_all(names, executed, options.jobs, force)
        failed = {line.split(":")[0] for line in bad if "a cell failed" in line}
        if options.store:
            store(executed, [name for name in names if name not in failed])
            renew_readme()
        bad += stage(folder / "src", None if options.no_execute else executed, names)
        bad += build_html(folder / "src", out, clean=not options.chapter)
        if not options.no_execute:
            print(timings_table(executed))
    print(f"book: {folder / 'html' / 'index.html'} ({time.perf_counter() - began:.0f} s)")
    return bad


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--chapter", metavar="NAME", help="execute only this one, e.g. 04_pruning")
    add("--no-execute", action="store_true", help="build from the committed outputs")
    add("--force", action="store_true", help="execute what has not changed, too")
    add(
        "--store",
        action="store_true",
        help="write outputs into the notebooks, records into the README",
    )
    add("--out", type=Path, default=BOOK, help="parent folder of _build (default: book)")
    add("--jobs", type=int, default=min(2, os.cpu_count() or 1), help="chapters at once")
    add("--check", action="store_true", help="only look for mistakes")
    add("--draft", nargs=2, metavar=("NAME", "FILE"), help="make a chapter of a text")
    add("--text", metavar="NAME", help="print a chapter as text")
    add("--setup", action="store_true", help="renew the set-up cell everywhere")
    options = parser.parse_args()
    for name in filter(None, (options.chapter, options.text)):
        if not (BOOK / f"{name}.ipynb").exists():
            parser.error(f"no notebook {name}: there are {', '.join(notebooks())}.")
    return options


def main() -> None:
    options = parse()
    if options.text:
        print(to_text(read(BOOK / f"{options.text}.ipynb")), end="")
        return
    if options.setup:
        for name in notebooks():
            write(renewed(read(BOOK / f"{name}.ipynb")), BOOK / f"{name}.ipynb")
        return
    if options.draft:
        name, file = options.draft
        nb, path = from_text(name, Path(file).read_text()), BOOK / f"{name}.ipynb"
        if path.exists():
            keep_outputs(nb, read(path))
        write(nb, path)
        bad = complaints(name, nb)
    elif options.check:
        bad = [x for n in notebooks() for x in complaints(n, read(BOOK / f"{n}.ipynb"))]
    else:
        bad = build(options)
    if bad:
        print("\n".join(["", f"{len(bad)} to put right:", *bad]), file=sys.stderr)
        raise SystemExit(1)


if __name__ == "__main__":
    main()
