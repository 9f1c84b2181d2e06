"""Soft actor-critic (SAC, Haarnoja et al. 2018) with central inference."""
