"""Memory of this machine."""

from __future__ import annotations

from pathlib import Path


def available_bytes(root: Path = Path("/")) -> int:
    """Memory that this process can still allocate, within its machine and its control group.

    Args:
      root: root of the file system; tests replace it.
    """
    available = [_meminfo(root / "proc/meminfo")]
    for folder, maximum, current in (
        (root / "sys/fs/cgroup", "memory.max", "memory.current"),
        (root / "sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
    ):
        for group in {folder, folder / _own_group(root / "proc/self/cgroup")}:
            if (free := _free_of_group(group, maximum, current)) is not None:
                available.append(free)
    return max(0, min(available))


def _meminfo(path: Path) -> int:
    for line in path.read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    raise ValueError(f"{path} has no line MemAvailable.")


def _own_group(path: Path) -> str:
    """The control group of this process, relative to the root group."""
    try:
        for line in path.read_text().splitlines():
            number, controllers, group = line.split(":", 2)
            if number == "0" or "memory" in controllers.split(","):
                return group.lstrip("/")
    except (OSError, ValueError):
        pass
    return ""


def _free_of_group(group: Path, maximum: str, current: str) -> int | None:
    try:
        allowed = int((group / maximum).read_text())
        used = int((group / current).read_text())
        stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        # The kernel drops cached files before an allocation fails.
        return allowed - used + int(stat.get("inactive_file", 0))
    except (OSError, ValueError):  # No such group, or "max": no limit.
        return None
