"""Agents: each is networks, a loss and a page of wiring over `seed_rl.common`."""
