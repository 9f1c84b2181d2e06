"""Attacks on a server behind its proxy, and what an honest client notices of them.

`python -m benchmarks.hostile` runs them; `attacks.ATTACKS` lists them.
"""
