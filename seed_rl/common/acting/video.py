"""Videos of environments."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from seed_rl.common.acting.env_adapters import as_gymnasium
from seed_rl.common.errors import UserError
from seed_rl.common.system.extras import missing_extra

_FORMATS = (".mp4", ".gif")
_DEFAULT_FPS = 30.0
_GIF_PIXELS = 320  # Pixels of the longer side: GIFs of textures are large.


class VideoWriter:
    """Writes a video file frame by frame, under another name until it is complete.

    Args:
      path: ends with .mp4 (H.264), or with .gif, which is scaled down and, of fast games, has
        each second, third or fourth frame; its directory is created.

    Raises:
      UserError: a different extension, imageio is missing, or the file cannot be written.
    """

    def __init__(self, path: Path):
        if path.suffix.lower() not in _FORMATS:
            raise UserError(f"--video={path} must end with {' or '.join(_FORMATS)}.")
        try:
            import imageio.v2 as imageio

            if path.suffix.lower() == ".mp4":
                import imageio_ffmpeg  # noqa: F401 - checks that imageio will find it.
        except ImportError as error:
            raise missing_extra("video", "Writing a video", error) from error
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            partial = path.with_name(f"{path.stem}.partial{path.suffix}")
            partial.touch()
        except OSError as error:
            raise UserError(f"Cannot write --video={path}: {error.strerror}.") from error
        self._imageio = imageio
        self._path, self._partial = path, partial
        self._is_gif = path.suffix.lower() == ".gif"
        self._stride = 1  # How many frames to each in the file.
        self._skipped: list[np.ndarray] = []  # Since the last in the file.
        self._writer: Any = None

    def add(self, frame: np.ndarray, fps: float) -> None:
        """Adds a frame <uint8>[height, width, 3]; the first call's `fps` is the video's."""
        if self._writer is None:
            if self._is_gif:
                self._stride, duration = _gif_timing(fps)
                options: dict[str, Any] = {"duration": duration, "loop": 0}
            else:
                # H.264 requires even sizes; imageio's default of 16 would blur small screens.
                options = {"fps": fps, "macro_block_size": 2}
            self._writer = self._imageio.get_writer(self._partial, **options)
            self._append(frame)
            return
        self._skipped.append(frame)
        if len(self._skipped) == self._stride:
            self._append(frame)

    def close(self) -> None:
        """Completes the file, if there are frames."""
        if self._writer is None:
            self._partial.unlink(missing_ok=True)
            return
        if self._skipped:
            self._append(self._skipped[-1])  # How it ended.
        self._writer.close()
        self._partial.replace(self._path)

    def _append(self, frame: np.ndarray) -> None:
        self._skipped = []
        shrink = -(-max(frame.shape) // _GIF_PIXELS) if self._is_gif else 1
        self._writer.append_data(_scaled_down(frame, shrink))


def _gif_timing(fps: float) -> tuple[int, int]:
    """How many frames to each of a GIF, and how many milliseconds that is shown.

    GIFs count hundredths of a second, and browsers show a frame of less than two for ten.
    """
    for stride in itertools.count(1):
        exact = 100 * stride / fps
        if exact > 1.9 and abs(round(exact) / exact - 1) < 0.11:
            break
    return stride, 10 * round(exact)


def _scaled_down(frame: np.ndarray, factor: int) -> np.ndarray:
    """The means of squares with sides of `factor` pixels; incomplete ones are cut off."""
    height, width = (size // factor for size in frame.shape[:2])
    squares = frame[: height * factor, : width * factor].reshape(height, factor, width, factor, 3)
    return squares.mean((1, 3)).astype(np.uint8) if factor > 1 else frame


class Film(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Records every step of an environment in a video.

    Args:
      env: renders as `rgb_array`.
      video: the video; None records nothing.
    """

    def __init__(self, env: Any, video: VideoWriter | None):
        super().__init__(as_gymnasium(env))
        self._video = video
        self._fps = float((self.env.metadata or {}).get("render_fps") or _DEFAULT_FPS)

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        result = self.env.reset(**kwargs)
        self._film()
        return result

    def step(self, action: Any) -> Any:
        result = self.env.step(action)
        self._film()
        return result

    def _film(self) -> None:
        if self._video is None:
            return
        try:
            frame = self.env.render()
        except NotImplementedError:
            frame = None
        if isinstance(frame, list) and frame:  # render_mode="rgb_array_list"
            frame = frame[-1]
        if not isinstance(frame, np.ndarray) or frame.ndim != 3 or frame.shape[-1] != 3:
            raise UserError(
                f"{self.env} cannot be recorded: with render_mode=rgb_array, its render() must "
                "return <uint8>[height, width, 3] (docs/playing.md)."
            )
        self._video.add(frame.astype(np.uint8, copy=False), self._fps)
