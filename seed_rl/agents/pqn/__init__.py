"""PQN: Q-learning without replay and target network (Gallici et al. 2024)."""
