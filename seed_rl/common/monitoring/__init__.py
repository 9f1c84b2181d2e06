"""What people see of a run: metrics, TensorBoard, plots, videos."""
