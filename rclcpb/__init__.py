"""Everything around the method in rclcpb_core.py, one job a file; see CONTRIBUTING.md."""

import importlib
from typing import Any

__version__ = "0.2.0"


def __getattr__(name: str) -> Any:
    """`from rclcpb import ContinualClassifier`: loaded when asked for, torch comes with it."""
    if name == "ContinualClassifier":
        return importlib.import_module("rclcpb.estimator").ContinualClassifier
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
