"""Everything around the method in rclcpb_core.py, one job a file; see CONTRIBUTING.md."""

__version__ = "0.2.0"
