"""Reports on a run: metrics, TensorBoard, plots."""
