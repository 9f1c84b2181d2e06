"""The names that existing code imports from here; they live in `seed_rl.grpc.ops`."""

from seed_rl.grpc.ops import Client, Server

__all__ = ["Client", "Server"]
