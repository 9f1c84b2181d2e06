"""Small programs on top of SEED RL: docs/examples.md walks through them."""
