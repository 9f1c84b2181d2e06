"""Attacks on a server of `seed_rl.grpc`, and what an honest client notices of them.

`python -m benchmarks.hostile` runs them; `attacks.ATTACKS` lists them.
"""
