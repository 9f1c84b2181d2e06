"""Facade for existing code; see `seed_rl.grpc`."""
