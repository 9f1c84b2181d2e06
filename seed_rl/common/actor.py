"""Public names of existing SEED code, from `acting.actor`."""

from seed_rl.common.acting.actor import ActorConfig, actor_loop, are_summaries_enabled

__all__ = ["ActorConfig", "actor_loop", "are_summaries_enabled"]
