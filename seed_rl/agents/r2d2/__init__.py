"""R2D2: recurrent Q-learning from a prioritized replay (Kapturowski et al. 2019)."""
