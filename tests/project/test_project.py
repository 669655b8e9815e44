"""The ground: files that say the same thing in two places, kept in step."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

import rclcpb

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
LISTS = ("dependencies", "book", "dev", "cluster", "onnx", "tensorboard")

# Folders of somebody's machine and settings of somebody's registry; written so that the
# pattern does not match itself.
PRIVATE = re.compile(
    r"(?<![\w.-])/(?:work|root|tmp|home|opt)\b"
    r"|(?:index[-]url|find[-]links|trusted[-]host|file:[/]{2}(?![$])|pythonhosted[.])"
)


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def by_name(lines: list[str]) -> dict[str, Requirement]:
    parsed = map(Requirement, lines)
    return {canonicalize_name(r.name): r for r in parsed}


def pins() -> dict[str, Requirement]:
    lines = (line.partition("#")[0].strip() for line in read("constraints.txt").splitlines())
    return by_name([line for line in lines if line])


def requirements(name: str) -> dict[str, Requirement]:
    """One of pyproject.toml's lists."""
    project = tomllib.loads(read("pyproject.toml"))["project"]
    found = by_name({**project["optional-dependencies"], **project}[name])
    found.pop("rclcpb", None)  # its own extras
    assert found, f"{name} lists nothing"
    return found


def tracked_files() -> list[Path]:
    # A container may check the repository out as another user, which git refuses.
    command = ["git", "-c", "safe.directory=*", "ls-files", "-z"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout
    return [ROOT / name for name in names.decode().split("\0") if name]


# ------------------------------------------------------------------------- requirements


@pytest.mark.parametrize("name", LISTS)
def test_every_requirement_is_a_range_that_holds_its_pin(name: str) -> None:
    tested = pins()
    for package, wanted in requirements(name).items():
        assert wanted.specifier, f"{package} has no range in {name}"
        assert package in tested, f"{package} of {name} has no pin in constraints.txt"
        (pin,) = tested[package].specifier
        assert pin.version in wanted.specifier, f"{tested[package]} is outside {wanted}"


def test_constraints_are_exact_and_portable() -> None:
    for pin in pins().values():
        assert pin.url is None, f"{pin} comes from one machine"
        (specifier,) = pin.specifier
        assert specifier.operator == "=="
        assert "+" not in specifier.version, f"{pin} is a local build"


def test_no_package_is_listed_twice_and_a_stranger_gets_the_books() -> None:
    named = [package for name in LISTS for package in requirements(name)]
    assert len(named) == len(set(named))
    assert read("requirements.txt").splitlines()[-1] == "--editable .[book]"
    asked = {"torch", "torchvision", "jupyter-book", "matplotlib", "ipywidgets", "nbval", "numpy"}
    assert asked <= {*requirements("dependencies"), *requirements("book")}


def test_a_chapter_elsewhere_needs_no_notebook_software() -> None:
    """A notebook server brings its own: ipywidgets 8 breaks the widgets of some."""
    assert {"ipywidgets", "jupyterlab", "jupyter-book"}.isdisjoint(requirements("dependencies"))


# What Colab brought in August 2026, with Python 3.13; tyro, which it lacks, pip adds.
COLAB = {
    "torch": "2.11.0",
    "numpy": "2.1.0",
    "matplotlib": "3.10.0",
    "mlxtend": "0.23.4",
    "torchvision": "0.26.0",
}


def test_a_chapter_in_colab_replaces_nothing_that_is_there() -> None:
    """Neither the method's own packages nor those that the figures import."""
    wanted = {**requirements("dependencies"), **requirements("book")}
    assert {name for name in COLAB if COLAB[name] not in wanted[name].specifier} == set()
    project = tomllib.loads(read("pyproject.toml"))["project"]
    assert "3.13" in SpecifierSet(project["requires-python"])


def test_environment_asks_for_what_pip_would() -> None:
    entries = yaml.safe_load(read("environment.yml"))["dependencies"]
    conda = {r.name: r for r in map(Requirement, entries[:-1])}
    assert sorted(conda) == ["pip", "python"]
    project = tomllib.loads(read("pyproject.toml"))["project"]
    assert conda["python"].specifier == SpecifierSet(project["requires-python"])
    assert entries[-1] == {"pip": ["-r requirements.txt"]}


def test_pyproject_installs_and_checks_every_module() -> None:
    tool = tomllib.loads(read("pyproject.toml"))["tool"]
    modules = sorted(path.stem for path in ROOT.glob("rclcpb_*.py"))
    assert sorted(tool["setuptools"]["py-modules"]) == modules
    assert sorted(tool["coverage"]["run"]["source_pkgs"]) == ["rclcpb", *modules]
    assert {"rclcpb", *(f"{name}.py" for name in modules)} <= set(tool["mypy"]["files"])
    folders = {
        ".".join(path.parent.relative_to(ROOT).parts) for path in ROOT.glob("rclcpb/**/__init__.py")
    }
    book = {f"rclcpb._book.{name}": f"book/{name}" for name in ("figures", "results")}
    assert set(tool["setuptools"]["packages"]) == folders | set(book)
    assert tool["setuptools"]["package-dir"] == book


def test_the_tests_install_every_extra() -> None:
    extras = tomllib.loads(read("pyproject.toml"))["project"]["optional-dependencies"]
    assert by_name(extras["dev"])["rclcpb"].extras == set(extras) - {"dev"} >= {"book", "cluster"}


# ------------------------------------------------------------------ commands and builds


def check_schema(schema: str, *paths: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema]
    return subprocess.run([*command, *paths], capture_output=True, text=True)


def test_workflows_follow_their_schema(tmp_path: Path) -> None:
    assert {path.stem for path in WORKFLOWS} == {"test", "publish", "weekly"}
    for schema in (
        "vendor.github-workflows",
        "custom.github-workflows-require-timeout",
    ):
        result = check_schema(schema, *WORKFLOWS)
        assert result.returncode == 0, result.stdout
    broken = tmp_path / "broken.yml"
    broken.write_text(WORKFLOWS[0].read_text().replace("runs-on", "runs-at"))
    assert check_schema("vendor.github-workflows", broken).returncode == 1


def test_workflows_run_the_two_commands_on_the_oldest_python() -> None:
    oldest = tomllib.loads(read("pyproject.toml"))["project"]["requires-python"]
    commands = ("make book", "make test-all", "make links")
    for path, command in zip(WORKFLOWS, commands, strict=True):
        jobs = yaml.safe_load(path.read_text())["jobs"].values()
        steps = [step for job in jobs for step in job["steps"]]
        assert command in [step.get("run") for step in steps]
        versions = [
            s["with"]["python-version"] for s in steps if "setup-python" in s.get("uses", "")
        ]
        assert versions == [oldest.removeprefix(">=")]


def test_what_runs_strangers_code_may_write_nothing() -> None:
    """The job that builds the book installs packages; only others hold a token that writes."""
    for path in WORKFLOWS:
        workflow = yaml.safe_load(path.read_text())
        assert workflow["permissions"] == {"contents": "read"}
        for job in workflow["jobs"].values():
            steps = job["steps"]
            runs_code = any("make" in s.get("run", "") for s in steps)
            checks_out = [s for s in steps if "actions/checkout" in s.get("uses", "")]
            if runs_code:
                assert "permissions" not in job
                assert all(s["with"]["persist-credentials"] is False for s in checks_out)


def test_ci_runs_all_tests() -> None:
    script = ROOT / ".ci" / "run"
    assert script.stat().st_mode & 0o111, ".ci/run is not executable"
    lines = [line.strip() for line in script.read_text().splitlines()]
    assert lines[-1] == "make test-all"
    assert "set -euo pipefail" in lines


@pytest.mark.parametrize("target", ["book", "test", "test-all", "lab"])
def test_make_refuses_an_old_python_in_one_sentence(target: str, tmp_path: Path) -> None:
    old = tmp_path / "old-python"
    pretend = "import sys; sys.version_info = (3, 10, 9); exec(sys.argv[1])"
    old.write_text(f"#!/bin/sh\nexec '{sys.executable}' -c '{pretend}' \"$2\"\n")
    old.chmod(0o755)
    command = ["make", target, f"PYTHON={old}", f"VENV={tmp_path / 'venv'}"]
    # Not as a part of the `make test` that runs this: its flags would come along.
    env = {k: v for k, v in os.environ.items() if not k.startswith("MAKE")}
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=env)
    assert result.returncode != 0
    first = result.stderr.splitlines()[0]
    assert first.startswith(f"error: {old} is missing or older than Python 3.11")
    assert first.endswith(f"make {target} PYTHON=python3.12")
    assert not (tmp_path / "venv").exists()


# ---------------------------------------------------------------------------- documents


def test_one_version_everywhere() -> None:
    assert yaml.safe_load(read("CITATION.cff"))["version"] == rclcpb.__version__
    latest = re.search(r"^## (\S+)", read("CHANGELOG.md"), re.MULTILINE)
    assert latest and latest[1] == rclcpb.__version__
    assert f"Version {rclcpb.__version__}" in read("book/index.md").partition("```bibtex")[2]


def test_citation_follows_its_schema() -> None:
    result = check_schema("vendor.citation-file-format", ROOT / "CITATION.cff")
    assert result.returncode == 0, result.stdout


def test_the_page_of_the_method_quotes_the_core() -> None:
    """Algorithm 1 as code: every line of it stands there, and Eq. 8 is taken from it whole."""
    core = [" ".join(line.split()) for line in read("rclcpb_core.py").splitlines()]
    page = read("book/method.md")
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    quoted = [" ".join(line.split()) for block in blocks for line in block.splitlines()]
    assert len(blocks) > 10
    assert [line for line in quoted if not any(line in there for there in core)] == []
    for name in ("eq8", "adam"):
        assert f":pyobject: {name}\n" in page and any(
            line.startswith(f"def {name}(") for line in core
        )


def test_readme_names_what_is_there() -> None:
    readme = read("README.md")
    layout = readme.partition("## Layout")[2].partition("```")[2].partition("```")[0]
    names = [line.split()[0] for line in layout.splitlines() if line[:1].strip()]
    assert len(names) > 5
    assert [name for name in names if not (ROOT / name).exists()] == []
    targets = set(re.findall(r"\bmake ([a-z-]+)\b", readme))
    rules = set(re.findall(r"^([a-z-]+):", read("Makefile"), re.MULTILINE))
    assert {"book", "test", "lab"} <= targets <= rules


def test_contributing_names_every_room_in_order() -> None:
    """Those that import nothing of ours may stand where they are best read."""
    rooms = read("CONTRIBUTING.md").partition("## The rooms")[2].split("```")[1]
    named = re.findall(r"^  (\w+)(?:\.py|/) +\S", rooms, re.MULTILINE)
    there = {path.stem for path in (ROOT / "rclcpb").iterdir() if path.suffix == ".py"}
    assert len(named) == len(set(named))
    assert set(named) == (there | {"methods"}) - {"__init__"}


def test_contributing_says_where_things_are() -> None:
    """Every name in its table of changes and every file it speaks of is there."""
    text = read("CONTRIBUTING.md")
    files = set(re.findall(r"`([\w/]+\.(?:py|md))`", text))
    assert len(files) > 4 and [name for name in files if not (ROOT / name).exists()] == []
    table = text.partition("## Where to change what")[2].partition("`tests/test_changes.py`")[0]
    places = [row.split("|")[2] for row in table.splitlines() if row.startswith("| ")][1:]
    assert len(places) == 8
    source = "".join(path.read_text("utf-8") for path in (ROOT / "rclcpb").rglob("*.py"))
    source += read("rclcpb_core.py")
    for name in re.findall(r"`([\w.]+)`", "".join(places)):
        last = name.removesuffix(".py").split(".")[-1]
        assert (ROOT / name).exists() or re.search(rf"(?:def |class |^){last}\b", source, re.M), (
            name
        )


@pytest.mark.parametrize("folder", ["work", "root", "tmp", "home", "opt"])
def test_private_paths_are_found(folder: str) -> None:
    assert PRIVATE.search(f'open("/{folder}/data.npz")')
    assert PRIVATE.search(f"in /{folder}")
    assert not PRIVATE.search(f"book/{folder}/data.npz, /{folder}ed, ../{folder}")


def test_no_tracked_file_names_a_machine_or_a_registry() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("not a clone: git cannot say which files are ours")
    found = []
    for path in filter(Path.is_file, tracked_files()):
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except UnicodeDecodeError:
            continue  # an image
        found += [
            f"{path.relative_to(ROOT)}:{n}: {match[0]}"
            for n, line in enumerate(lines, 1)
            if (match := PRIVATE.search(line))
        ]
    assert found == []
