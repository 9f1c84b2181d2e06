"""Names that existing code imports from here; they live in `seed_rl.grpc`."""
