"""The house: which file may import which, how long things are, and what nobody uses.

All is read from the source with `ast`, nothing is imported but where it says so.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CORE = ROOT / "rclcpb_core.py"
PACKAGE = sorted((ROOT / "rclcpb").rglob("*.py"))
BENCHMARKS = sorted((ROOT / "benchmarks").glob("*.py"))
FIGURES = sorted((ROOT / "book").glob("*.py")) + sorted((ROOT / "book/figures").glob("*.py"))
OURS = [CORE, *PACKAGE]
CODE = [*OURS, *BENCHMARKS, *FIGURES]

# Who may import whom: each name those above it, and nothing below it. A new file gets a line.
ORDER = (
    "rclcpb",  # the version, and nothing else
    # what the method stands on, and what knows nothing of it
    "rclcpb.files",
    "rclcpb.stopping",
    "rclcpb.settings",
    "rclcpb.checks",
    "rclcpb.distort",
    "rclcpb.downloads",
    "rclcpb.images",
    "rclcpb.scenarios",
    "rclcpb.metrics",
    "rclcpb.coreset",
    "rclcpb.fast",
    "rclcpb.draws",
    "rclcpb.paper",
    "rclcpb.method",
    "rclcpb.memory",
    "rclcpb.machine",
    "rclcpb.kept",
    "rclcpb.resume",
    "rclcpb_core",
    # what knows the method
    "rclcpb.methods",  # and its files, which may import each other
    "rclcpb.catalogue",
    "rclcpb.natural",
    "rclcpb.presets",
    "rclcpb.records",
    "rclcpb.undo",
    "rclcpb.runner",
    "rclcpb.checkpoint",
    "rclcpb.modelcard",
    "rclcpb.jobs",
    "rclcpb.sweep",
    "rclcpb.costs",
    "rclcpb.tables",
    "rclcpb.inference",
    "rclcpb.intake",
    "rclcpb.known",
    "rclcpb.growing",
    "rclcpb.contract",
    "rclcpb.estimator",
    "rclcpb.streams",
    "rclcpb.opened",
    "rclcpb.writers",
    "rclcpb.export",
    "rclcpb.doctor",
    "rclcpb.commands",
    "rclcpb.cli",
)
# These say nothing of ours: a reader may take one of them away and use it alone.
ALONE = {"rclcpb.distort", "rclcpb.metrics", "rclcpb.coreset", "rclcpb.fast", "rclcpb.paper"}
# Rooms that look into the package and that it does not look into.
ROOMS = ("book", "tests", "benchmarks")


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


NAMES = {module_name(path): path for path in OURS}


def place(module: str) -> int:
    """A module's line in ORDER; one of a folder has that of the folder."""
    folder = module.rpartition(".")[0]
    line = module if module in ORDER or folder == "rclcpb" else folder
    assert line in ORDER, f"say in ORDER where {module} stands"
    return ORDER.index(line)


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def when_imported(path: Path) -> Iterator[ast.AST]:
    """All of a file but what it does as a command."""
    for statement in tree(path).body:
        test = getattr(statement, "test", None)
        if test is None or ast.unparse(test) != "__name__ == '__main__'":
            yield from ast.walk(statement)


def imported(path: Path) -> Iterator[tuple[str, str]]:
    """(module, name in it or "") of every import, those within functions, too."""
    here = module_name(path).split(".")
    for node in when_imported(path):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            folder = here if path.name == "__init__.py" else here[:-1]
            base = folder[: len(folder) - node.level + 1] if node.level else []
            module = ".".join([*base, *filter(None, [node.module])])
            yield from ((module, alias.name) for alias in node.names)


def arrows(path: Path) -> set[str]:
    """Our own modules that a file imports; `from rclcpb import paper` is one of rclcpb.paper."""
    found = set()
    for module, name in imported(path):
        inner = f"{module}.{name}"
        target = inner if inner in NAMES else module
        if target.split(".")[0] in ("rclcpb", "rclcpb_core"):
            assert target in NAMES, f"{path.name} imports {target}, which is not there"
            found.add(target)
    return found - {module_name(path)}


def foreign(path: Path) -> set[str]:
    return {m for m, _ in imported(path) if m.split(".")[0] not in ("rclcpb", "rclcpb_core")}


# ----------------------------------------------------------------------------- the graph


def test_the_graph_sees_every_kind_of_import() -> None:
    """The drawing itself, on arrows that are known."""
    assert {"rclcpb.fast", "rclcpb.method", "rclcpb.files"} <= arrows(CORE)
    assert "rclcpb" in arrows(NAMES["rclcpb.kept"])  # from rclcpb import __version__
    assert "rclcpb.cli" not in arrows(CORE)  # which it is only as a command
    assert "rclcpb_core" in arrows(NAMES["rclcpb.jobs"])  # import rclcpb_core as core
    assert "rclcpb.paper" in arrows(NAMES["rclcpb.catalogue"])  # from rclcpb import paper
    assert "rclcpb_core" in arrows(NAMES["rclcpb.methods.control"])
    assert "distributed" in foreign(NAMES["rclcpb.sweep"])  # within a function
    assert len(NAMES) > 20 and len(ORDER) == len(set(ORDER))


def test_no_import_leads_back_to_where_it_came_from() -> None:
    graph = {name: arrows(path) for name, path in NAMES.items()}
    try:
        order = list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))
    assert set(order) == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_import_goes_up_the_order(name: str) -> None:
    for target in arrows(NAMES[name]):
        siblings = place(target) == place(name) and target.startswith("rclcpb.methods.")
        assert place(target) < place(name) or siblings, f"{name} imports {target}"
    if name in ALONE:
        assert not arrows(NAMES[name])


@pytest.mark.parametrize("name", NAMES)
def test_the_package_imports_no_room_that_looks_into_it(name: str) -> None:
    inside = {path.stem for room in ROOMS for path in (ROOT / room).glob("*.py")}
    inside |= {path.name for path in (ROOT / "book").iterdir() if path.is_dir()}
    assert {"regime", "tiny", "step"} <= inside
    used = {module.split(".")[0] for module in foreign(NAMES[name])}
    assert not used & {*inside, *ROOMS}


# ------------------------------------------------------------- what an import brings along


def loaded_by(statement: str) -> set[str]:
    """Top-level modules in a new process after a statement."""
    code = f"import sys; {statement}; print(*{{m.split('.')[0] for m in sys.modules}})"
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    words = [sys.executable, "-c", code]
    done = subprocess.run(words, capture_output=True, text=True, check=True, env=env)
    return set(done.stdout.split())


def test_the_package_alone_brings_neither_torch_nor_numpy() -> None:
    """So that asking for its version costs nothing."""
    assert not loaded_by("import rclcpb; rclcpb.__version__") & {"torch", "numpy", "scipy"}


def test_the_core_brings_no_tool_that_stands_around_it() -> None:
    loaded = loaded_by("import rclcpb_core")
    around = {"tyro", "joblib", "matplotlib", "torchvision", "scipy", "distributed", "mlxtend"}
    assert {"torch", "numpy"} < loaded and not loaded & around


# ------------------------------------------------------------------------ other libraries


def chain(node: ast.AST) -> list[str]:
    """a.b.c as its names; [] for what is no such chain."""
    if isinstance(node, ast.Name):
        return [node.id]
    if isinstance(node, ast.Attribute) and (before := chain(node.value)):
        return [*before, node.attr]
    return []


DOCUMENTED = {"os._exit"}  # underscored, and public


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__")


def private_uses(path: Path) -> list[str]:
    """Private modules and names of other libraries that a file imports, reads or subclasses."""
    bad, roots = [], set()
    for module, name in imported(path):
        if module.split(".")[0] not in ("rclcpb", "rclcpb_core"):
            bad += [f"{module} {name}"] if any(map(is_private, [*module.split("."), name])) else []
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            module = getattr(node, "module", None) or node.names[0].name
            if module.split(".")[0] not in ("rclcpb", "rclcpb_core"):
                roots |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
    for node in ast.walk(tree(path)):
        names = chain(node)
        if names and names[0] in roots and any(map(is_private, names[1:])):
            bad.append(".".join(names))
    return [use for use in bad if use not in DOCUMENTED]


@pytest.mark.parametrize("path", CODE, ids=lambda path: path.name)
def test_nothing_private_of_another_library_is_used(path: Path) -> None:
    """The next version of the library may not have it."""
    assert private_uses(path) == []


def test_private_uses_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bad = {
        "import torch._C": 1,
        "from joblib._dask import DaskBackend": 1,
        "from joblib import _dask": 1,
        "import torch\nclass A(torch.nn._Loss): pass": 1,
        "import torch as t\nt.nn.functional._no()": 1,
        "import os\nos._exit(os._wrap)": 1,
        "import torch\ntorch.nn.__name__": 0,
        "self._mine = other._yours": 0,
    }
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    for i, (text, count) in enumerate(bad.items()):
        path = tmp_path / f"bad{i}.py"
        path.write_text(text)
        assert len(private_uses(path)) == count, text


@pytest.mark.parametrize("path", CODE, ids=lambda path: path.name)
def test_no_file_that_is_read_can_run_code(path: Path) -> None:
    """Pickle can; a record, a checkpoint or a kept network may come from a stranger."""
    modules = {module.split(".")[0] for module, _ in imported(path)}
    assert not modules & {"pickle", "cloudpickle", "dill", "shelve", "marshal"}
    for node in ast.walk(tree(path)):
        names = ".".join(chain(node))
        assert names not in ("torch.load", "torch.save", "joblib.load", "joblib.dump", "eval")
        if isinstance(node, ast.Call) and ".".join(chain(node.func)) in ("np.load", "numpy.load"):
            given = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
            assert given.get("allow_pickle") == "False"


# ------------------------------------------------------------------------------ lengths


def lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def test_the_method_is_read_in_a_thousand_lines() -> None:
    assert lines(CORE) <= 1000


@pytest.mark.parametrize("path", [*PACKAGE, *FIGURES], ids=lambda path: path.name)
def test_a_file_has_one_job(path: Path) -> None:
    assert lines(path) <= 300


@pytest.mark.parametrize("path", CODE, ids=lambda path: path.name)
def test_a_function_fits_on_a_screen(path: Path) -> None:
    functions = [
        node
        for node in ast.walk(tree(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    long = {f.name: n for f in functions if (n := (f.end_lineno or 0) - f.lineno + 1) > 40}
    assert long == {}


def telling(path: Path) -> list[tuple[int, str]]:
    """A file's lines but blank ones, comments, imports and lone brackets."""
    folded = (
        (n, " ".join(line.split())) for n, line in enumerate(path.read_text("utf-8").split("\n"))
    )
    dull = ("#", "import ", "from ")
    return [(n + 1, x) for n, x in folded if re.search(r"\w", x) and not x.startswith(dull)]


def repeated(paths: list[Path], run: int = 6) -> list[list[str]]:
    """Where runs of lines stand that stand elsewhere, too."""
    places: dict[tuple[str, ...], list[str]] = {}
    for path in paths:
        found = telling(path)
        for i in range(len(found) - run + 1):
            words = tuple(line for _, line in found[i : i + run])
            places.setdefault(words, []).append(f"{path.name}:{found[i][0]}")
    return [where for where in places.values() if len(where) > 1]


def test_no_six_lines_stand_twice(tmp_path: Path) -> None:
    """In the whole tree, tests included; what does the same is one function."""
    everywhere = [CORE, *(p for room in ("rclcpb", *ROOMS) for p in (ROOT / room).rglob("*.py"))]
    assert repeated([p for p in everywhere if "_build" not in p.parts]) == []
    once, again = tmp_path / "once.py", tmp_path / "again.py"
    once.write_text("a = 1\n\nb = 2\nc = 3\n# why\nd = 4\ne = 5\nf = 6\n")
    again.write_text("def g():\n    a = 1\n    b = 2\n    c = 3\n    d = 4\n    e = 5\n    f = 6\n")
    assert repeated([once, again]) == [["once.py:1", "again.py:2"]]


def test_files_of_tests_have_names_of_their_own() -> None:
    """pytest imports each by its name alone: two of one name, and `make test` runs none at all."""
    names = [path.name for path in (ROOT / "tests").rglob("*.py") if path.name != "conftest.py"]
    assert len(names) > 40 and sorted(set(names)) == sorted(names)


# ------------------------------------------------------------------------- the formatter


def test_no_line_is_kept_from_the_formatter() -> None:
    skip = re.compile(r"#\s*fmt\s*:\s*(?:skip|off)")
    here = [CORE, *(path for room in ("rclcpb", *ROOMS) for path in (ROOT / room).rglob("*.py"))]
    found = [str(path) for path in here if skip.search(path.read_text(encoding="utf-8"))]
    assert len(here) > 40 and found == []


def test_make_test_checks_the_format_the_rules_and_the_types() -> None:
    # Not as a part of the `make test` that runs this: its flags would come along.
    env = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    words = ["make", "--dry-run", "--always-make", "test"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True, env=env)
    for command in ("ruff format --check .", "ruff check .", "mypy"):
        assert re.search(rf"-m {re.escape(command)}$", done.stdout, re.MULTILINE), command
