"""What actors and the supervisor import has no TensorFlow, which would cost each of them 500 MB."""

from tests.helpers import PROGRAMS, run_python

FREE = (
    "seed_rl/common/config/*.py",
    "seed_rl/common/system/*.py",
    "seed_rl/common/acting/*.py",
    "seed_rl/common/run_files/*.py",
    "seed_rl/launch/*.py",
    "seed_rl/cluster/*.py",
    "seed_rl/study/*.py",
    "seed_rl/grpc/numpy_client.py",
    # Environments, and the programs that run actors.
    "seed_rl/atari/*env*.py",
    "seed_rl/dmlab/*env*.py",
    "seed_rl/football/*env*.py",
    "seed_rl/gym/*env*.py",
    "seed_rl/mujoco/*env*.py",
    "seed_rl/*/*_main.py",
    "seed_rl/check_env/*.py",
    # What environments of users, and their tests, import.
    "seed_rl/testing/*.py",
    "seed_rl/common/types.py",
    "seed_rl/common/errors.py",
    "seed_rl/common/nest.py",
    "seed_rl/common/actor.py",
    "seed_rl/common/common_flags.py",
    "seed_rl/common/env_wrappers.py",
    "seed_rl/common/profiling.py",
    "seed_rl/common/utils.py",
)


def test_no_module_of_the_free_folders_imports_tensorflow(repository):
    files = [sorted(repository.glob(pattern)) for pattern in FREE]
    assert all(files), "a folder or module is gone"
    names = [path.relative_to(repository) for paths in files for path in paths]
    run_python(PROGRAMS / "imports_without_tensorflow.py", *names, code=0, cwd=repository)
