"""Atari games, run by the Arcade Learning Environment."""
