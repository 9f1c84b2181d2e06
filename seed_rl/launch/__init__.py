"""Runs learner, actors and TensorBoard on one machine (`./run_local.sh`)."""
