"""Memory that is available, within the machine and its control group."""

from pathlib import Path

from seed_rl.common.system import memory


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_available_memory_of_the_machine(tmp_path: Path) -> None:
    """Guards the reading of /proc/meminfo where there is no control group."""
    root = write(tmp_path, {"proc/meminfo": "MemTotal: 900 kB\nMemAvailable:    500 kB\n"})
    assert memory.available_bytes(root) == 500 * 1024


def test_available_memory_of_a_container(tmp_path: Path) -> None:
    """Guards containers: the limit of the control group minus the memory in use."""
    meminfo = {"proc/meminfo": "MemAvailable: 500000 kB\n"}
    version_2 = {
        "proc/self/cgroup": "0::/job\n",
        "sys/fs/cgroup/memory.max": "max\n",
        "sys/fs/cgroup/job/memory.max": "1000000\n",
        "sys/fs/cgroup/job/memory.current": "700000\n",
        "sys/fs/cgroup/job/memory.stat": "anon 1\ninactive_file 200000\n",
    }
    assert memory.available_bytes(write(tmp_path / "2", {**meminfo, **version_2})) == 500_000
    version_1 = {
        "proc/self/cgroup": "5:cpu:/x\n4:memory:/job\n",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
        "sys/fs/cgroup/memory/memory.usage_in_bytes": "5\n",
        "sys/fs/cgroup/memory/memory.stat": "\n",
        "sys/fs/cgroup/memory/job/memory.limit_in_bytes": "3000\n",
        "sys/fs/cgroup/memory/job/memory.usage_in_bytes": "1000\n",
        "sys/fs/cgroup/memory/job/memory.stat": "inactive_file 10\n",
    }
    assert memory.available_bytes(write(tmp_path / "1", {**meminfo, **version_1})) == 2010


def test_available_memory_here_is_plausible() -> None:
    """Guards the real files of this machine."""
    assert 100e6 < memory.available_bytes() < 1e14
