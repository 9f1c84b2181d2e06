"""Atari games through the Arcade Learning Environment."""
