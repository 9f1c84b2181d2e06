"""Packages that only some uses need (no TensorFlow here)."""

from __future__ import annotations

import shlex
import sys

from seed_rl.common.errors import UserError

# The extras of pyproject.toml that modules import from. Their packages are named in messages, since
# "seed-rl[...]" means something to pip only where it knows a published or installed seed-rl.
PACKAGES = {
    "atari": ("ale-py", "opencv-python-headless"),
    "plot": ("matplotlib",),
    "video": ("imageio", "imageio-ffmpeg"),
    "wandb": ("wandb",),
}


def missing_extra(extra: str, purpose: str, error: ImportError) -> UserError:
    """The error to raise where a package of an extra cannot be imported.

    Args:
      extra: a key of `PACKAGES`.
      purpose: what needs it, as the beginning of a sentence: "Writing a video".
      error: what the import raised.
    """
    command = f"{python_for_shell()} -m pip install {' '.join(PACKAGES[extra])}"
    return UserError(f"{purpose} needs packages that are missing ({error}). Install: {command}")


def missing_dependency(error: Exception) -> UserError:
    """A `DependencyNotInstalled` of Gymnasium, its pip command made that of this interpreter."""
    return UserError(str(error).replace("`pip install", f"`{python_for_shell()} -m pip install"))


def python_for_shell() -> str:
    """The running interpreter, to be typed into a shell: any other's pip installs elsewhere."""
    return shlex.quote(sys.executable)
