"""The on-policy learner of the original."""
