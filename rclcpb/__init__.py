"""Everything around the method in rclcpb_core.py, one job a file; see CONTRIBUTING.md."""

__version__ = "0.1.0"
