"""The tab key knows the registry."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from rclcpb.presets import METHODS

BASH = """
source "$1"
line="rclcpb run ta-smnist-5k --method "
COMP_WORDS=($line "") COMP_CWORD=4 COMP_LINE=$line COMP_POINT=${#line}
_tyro_rclcpb rclcpb "" --method
echo "${COMPREPLY[@]}"
"""


def test_the_shell_completes_every_method(command: Any, tmp_path: Path) -> None:
    _, script, _ = command("--tyro-print-completion", "bash")
    (tmp_path / "completion.bash").write_text(script)
    try:
        words = ["bash", "-c", BASH, "bash", str(tmp_path / "completion.bash")]
        done = subprocess.run(words, capture_output=True, text=True, check=True)
    except FileNotFoundError:
        pytest.skip("no bash here")
    assert set(done.stdout.split()) == set(METHODS)
