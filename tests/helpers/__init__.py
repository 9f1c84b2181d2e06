"""Helpers shared by tests."""

import pathlib

PROGRAMS = pathlib.Path(__file__).parent / "programs"
"""Programs that tests start as separate processes."""
