"""Agents: each adds networks, a loss and a page of wiring to `seed_rl.common`."""
