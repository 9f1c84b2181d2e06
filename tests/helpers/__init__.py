"""What several tests use."""

import pathlib

PROGRAMS = pathlib.Path(__file__).parent / "programs"
"""Programs that tests start as processes of their own."""
