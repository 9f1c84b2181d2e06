"""The names that existing SEED code imports from here; they live in `acting.actor`."""

from seed_rl.common.acting.actor import ActorConfig, actor_loop, are_summaries_enabled

__all__ = ["ActorConfig", "actor_loop", "are_summaries_enabled"]
