"""Error messages for missing optional packages."""

from __future__ import annotations

import shlex
import sys

from seed_rl.common.errors import UserError

# The extras of pyproject.toml that modules import. Messages name their packages, because pip
# resolves "seed-rl[...]" only where seed-rl is published or installed.
PACKAGES = {
    "atari": ("ale-py", "opencv-python-headless"),
    "dmlab": ("fsspec",),
    "football": ("envpool",),
    "gcp": ("fsspec", "gcsfs"),
    "plot": ("matplotlib",),
    "study": ("matplotlib", "optuna", "scipy"),
    "video": ("imageio", "imageio-ffmpeg"),
    "wandb": ("wandb",),
}


def missing_extra(extra: str, purpose: str, error: ImportError) -> UserError:
    """The error to raise when a package of an extra cannot be imported.

    Args:
      extra: a key of `PACKAGES`.
      purpose: what needs it, as the subject of a sentence: "Writing a video".
      error: the exception of the import.
    """
    command = f"{python_for_shell()} -m pip install {' '.join(PACKAGES[extra])}"
    return UserError(f"{purpose} needs packages that are missing ({error}). Install: {command}")


def missing_dependency(error: Exception) -> UserError:
    """Gymnasium's `DependencyNotInstalled` with the pip command of this interpreter."""
    return UserError(str(error).replace("`pip install", f"`{python_for_shell()} -m pip install"))


def python_for_shell() -> str:
    """The running interpreter, quoted for a shell: pip of another one would install elsewhere."""
    return shlex.quote(sys.executable)
