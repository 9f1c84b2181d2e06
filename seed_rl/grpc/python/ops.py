"""Facade for existing code; see `seed_rl.grpc.ops`."""

from seed_rl.grpc.ops import Client, Server

__all__ = ["Client", "Server"]
