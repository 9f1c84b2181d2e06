"""One process of a run on several machines (`python -m seed_rl.cluster`), whatever started it."""
