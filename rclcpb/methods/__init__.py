"""Other methods behind the seam of rclcpb_core.Method, one file a family."""
