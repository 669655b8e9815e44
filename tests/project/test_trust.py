"""What runs the code of others can write nothing; and what does write runs none of it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PASSES_ON = {"actions/deploy-pages", "actions/download-artifact", "actions/upload-artifact"}


def jobs(path: Path) -> dict[str, Any]:
    return yaml.safe_load(path.read_text())["jobs"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_pinned_by_commit(path: Path) -> None:
    """A version is a name that its owner, or a thief, can move to other code."""
    used = [step["uses"] for job in jobs(path).values() for step in job["steps"] if "uses" in step]
    assert used and all(re.fullmatch(r"actions/[\w-]+@[0-9a-f]{40}", name) for name in used)
    text = path.read_text()
    assert text.count("  # v") == len(used)  # which version that is, for a reader


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_job_with_a_token_that_writes_runs_no_package(path: Path) -> None:
    workflow = yaml.safe_load(path.read_text())
    assert workflow["permissions"] == {"contents": "read"}  # unless a job says otherwise
    for name, job in workflow["jobs"].items():
        runs = "\n".join(step.get("run", "") for step in job["steps"])
        uses = {step["uses"].split("@")[0] for step in job["steps"] if "uses" in step}
        if "write" in job.get("permissions", {}).values():
            assert uses <= PASSES_ON, name  # neither this repository nor an interpreter
            assert not re.search(r"\b(make|pip|python\d?|npm|curl|bash|sh)\b", runs), name
        else:
            checkouts = [s for s in job["steps"] if "checkout" in s.get("uses", "")]
            assert all(s["with"]["persist-credentials"] is False for s in checkouts), name


def test_the_pages_are_built_in_one_job_and_published_in_others() -> None:
    found = jobs(ROOT / ".github" / "workflows" / "publish.yml")
    assert [name for name in found if "needs" not in found[name]] == ["build"]
    assert all(found[name]["needs"] == "build" for name in ("deploy", "colab"))
