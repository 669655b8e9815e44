"""The command line, as the tests of this folder call it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rclcpb import cli


@pytest.fixture
def command(
    fast_digits: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Callable[..., Any]:
    """`rclcpb ...` within this process, in a new folder: (exit code, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RCLCPB_DATA", raising=False)

    def call(*args: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = 0
        try:
            cli.main(list(args))
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else 1
        out, err = capsys.readouterr()
        return code, out, err

    return call
