"""Builds SEED RL's native libraries; everything else about the package is in pyproject.toml.

The libraries are plain shared objects in `seed_rl/_native/`, not Python extension modules: ops are
loaded by TensorFlow, the transport by the ops, the replay by ctypes. So one wheel works with every
Python version. Each library is compiled as one unit: TensorFlow's headers take most of a unit's
time. Objects are cached in `build/native/` and recompiled only if a source, a header, the command
or a library's version has changed.

`scripts/setup.sh` compiles while pip installs packages, in two steps: `build_ext
--without-tensorflow` before TensorFlow's headers are there, then `build_ext --inplace`. It
installs the package itself with SEED_RL_NATIVE=later, which leaves the libraries out.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import pathlib
import platform
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable
from concurrent import futures

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.errors import BaseError

ROOT = pathlib.Path(__file__).resolve().parent
CACHE = ROOT / "build" / "native"
APT_COMMAND = "sudo apt-get install g++ pkg-config libgrpc++-dev libzstd-dev"
COMPILE_FLAGS = ["-std=c++17", "-O2", "-fPIC", "-fvisibility=hidden", "-Wall", "-pthread"]
# The libraries read untrusted data: an overflow that we missed must abort the process, not run
# code. Some compilers define _FORTIFY_SOURCE themselves, hence -U; where 3 is not supported, it
# means 2.
HARDENING_FLAGS = ["-fstack-protector-strong", "-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=3"]
HARDENING_LINK_FLAGS = ["-Wl,-z,relro", "-Wl,-z,now"]
# The flags of TensorFlow's own wheels that affect the ABI.
TENSORFLOW_FLAGS = ["-D_GLIBCXX_USE_CXX11_ABI=1", "-DEIGEN_MAX_ALIGN_BYTES=64", "-DNOMINMAX"]


@dataclasses.dataclass(frozen=True)
class NativeLibrary:
    """One shared library, built from all `*.cc` files of a folder.

    Attributes:
      name: file name in `seed_rl/_native` without `.so`.
      folder: folder of its sources, relative to the repository.
      packages: pkg-config names of libraries to link dynamically.
      static_packages: pkg-config names of libraries to link statically with hidden symbols, because
        TensorFlow exports symbols of some libraries that would override the system's.
      tensorflow: whether it contains TensorFlow ops.
    """

    name: str
    folder: str
    packages: tuple[str, ...] = ()
    static_packages: tuple[str, ...] = ()
    tensorflow: bool = False

    def sources(self) -> list[pathlib.Path]:
        return sorted((ROOT / self.folder).glob("*.cc"))


# gRPC and TensorFlow must not be linked into the same library: the system's gRPC would bind to
# symbols that TensorFlow exports (see docs/dependencies.md).
LIBRARIES = [
    NativeLibrary("libseed_transport", "seed_rl/grpc/native/transport", packages=("grpc++",)),
    NativeLibrary("libseed_grpc_ops", "seed_rl/grpc/native/ops", tensorflow=True),
    NativeLibrary("libseed_unroll_ops", "seed_rl/common/native/unrolls", tensorflow=True),
    NativeLibrary("libseed_replay", "seed_rl/common/native/replay", static_packages=("libzstd",)),
]


class BuildError(BaseError):
    """Something the user must install or fix; setuptools prints it without a traceback."""


def run(command: list[str]) -> str:
    """Runs a command and returns its output; on failure raises `BuildError` with the output."""
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if result.returncode:
        raise BuildError(f"{shlex.join(command)}\n{result.stdout}\nfailed ({result.returncode})")
    return result.stdout.strip()


def check_system_packages(libraries: Iterable[NativeLibrary]) -> None:
    """Reports all missing packages together, with the command that installs them."""
    missing = [tool for tool in (compiler(), "pkg-config") if not shutil.which(tool)]
    if shutil.which("pkg-config"):
        packages = sorted(
            {name for library in libraries for name in library.packages + library.static_packages}
        )
        for package in packages:
            if subprocess.run(["pkg-config", "--exists", package]).returncode:
                missing.append(f"the development files of {package}")
    if missing:
        raise BuildError(
            f"SEED RL's native libraries cannot be built: {', '.join(missing)} not found.\n"
            f"On Debian or Ubuntu:  {APT_COMMAND}"
        )


def compiler() -> str:
    return os.environ.get("CXX", "g++")


@dataclasses.dataclass(frozen=True)
class TensorFlow:
    """The installed TensorFlow, found without importing it (which takes seconds)."""

    version: str
    folder: pathlib.Path

    @classmethod
    def find(cls) -> TensorFlow:
        spec = importlib.util.find_spec("tensorflow")
        if spec is None or not spec.submodule_search_locations:
            raise BuildError(
                "Building SEED RL's native libraries requires TensorFlow. Install it first:  "
                "pip install 'tensorflow>=2.21,<2.22'  (or omit --no-build-isolation)"
            )
        folder = pathlib.Path(spec.submodule_search_locations[0])
        for name in ("tensorflow", "tensorflow-cpu", "tensorflow-cpu-aws", "tensorflow-rocm"):
            try:
                return cls(importlib.metadata.version(name), folder)
            except importlib.metadata.PackageNotFoundError:
                continue
        raise BuildError(f"The TensorFlow in {folder} has no version; install it with pip.")

    def compile_flags(self) -> list[str]:
        return ["-isystem", str(self.folder / "include"), *TENSORFLOW_FLAGS]

    def link_flags(self) -> list[str]:
        # At run time it is already loaded: Python imports TensorFlow before the ops.
        return [f"-L{self.folder}", "-l:libtensorflow_framework.so.2"]


class Builder:
    """Compiles and links one library, reusing cached objects."""

    def __init__(self, library: NativeLibrary):
        self.library = library
        self._object = CACHE / f"{library.name}.o"
        CACHE.mkdir(parents=True, exist_ok=True)
        self._compile_flags = [*COMPILE_FLAGS, *HARDENING_FLAGS, f"-I{ROOT}"]
        self._link_flags = ["-shared", "-pthread", "-ldl", *HARDENING_LINK_FLAGS]
        self._versions = [run([compiler(), "--version"])]
        if library.packages:
            self._compile_flags += pkg_config("--cflags", library.packages)
            self._link_flags += pkg_config("--libs", library.packages)
            self._versions.append(" ".join(pkg_config("--modversion", library.packages)))
        if library.static_packages:
            self._compile_flags += pkg_config("--cflags", library.static_packages)
            libraries = pkg_config("--libs", library.static_packages)
            self._link_flags += ["-Wl,--exclude-libs,ALL", "-Wl,-Bstatic", *libraries]
            self._link_flags.append("-Wl,-Bdynamic")
            self._versions.append(" ".join(pkg_config("--modversion", library.static_packages)))
        if library.tensorflow:
            tensorflow = TensorFlow.find()
            self._compile_flags += tensorflow.compile_flags()
            self._link_flags += tensorflow.link_flags()
            self._versions.append(f"TensorFlow {tensorflow.version}")
        else:
            self._link_flags.append("-Wl,-z,defs")

    def compile(self) -> None:
        """Compiles the sources unless the cached object is up to date."""
        key = self._object.with_suffix(".key")
        if self._key() == read_text(key):
            return
        # A single write, as several threads compile.
        print(f"compiling {self.library.folder}\n", end="", flush=True)
        unit = self._object.with_suffix(".cc")
        unit.write_text(self._unit())
        run([compiler(), *self._compile_flags, "-MMD", "-c", str(unit), "-o", str(self._object)])
        key.write_text(self._key())

    def link(self, target: pathlib.Path) -> None:
        """Links the objects into `target`.

        Replaces the old file rather than overwriting it: a running program may have it mapped.
        """
        print(f"linking {target}", flush=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        new = target.with_name(f"{target.name}.{os.getpid()}.new")
        run([compiler(), str(self._object), *self._link_flags, "-o", str(new)])
        new.replace(target)

    def _unit(self) -> str:
        names = [source.relative_to(ROOT) for source in self.library.sources()]
        return "".join(f'#include "{name}"\n' for name in names)

    def _key(self) -> str:
        """A digest of everything the object depends on, according to the last compilation."""
        digest = hashlib.sha256()
        # TensorFlow's folder differs in every isolated build; its version is what matters.
        flags = [flag for flag in self._compile_flags if not flag.endswith("tensorflow/include")]
        for text in (compiler(), *flags, *self._versions, self._unit()):
            digest.update(text.encode() + b"\0")
        # -MMD omits the system's and TensorFlow's headers: their versions are hashed above.
        rule = read_text(self._object.with_suffix(".d")).replace("\\\n", " ")
        for name in sorted(set(rule.partition(":")[2].split())):
            digest.update(name.encode() + b"\0" + read_text(pathlib.Path(name)).encode() + b"\0")
        return digest.hexdigest()


def pkg_config(option: str, packages: Iterable[str]) -> list[str]:
    return shlex.split(run(["pkg-config", option, *packages]))


def read_text(path: pathlib.Path) -> str:
    return path.read_text() if path.exists() else ""


class BuildNative(build_ext):
    """Builds the libraries and records in `build_info.json` what they were built against."""

    user_options = [
        *build_ext.user_options,
        ("without-tensorflow", None, "only compile what needs no TensorFlow; link nothing"),
    ]
    boolean_options = [*build_ext.boolean_options, "without-tensorflow"]

    def initialize_options(self) -> None:
        super().initialize_options()
        self.without_tensorflow = False

    def build_extensions(self) -> None:
        libraries = [library for library in LIBRARIES if library.sources()]
        check_system_packages(libraries)
        if self.without_tensorflow:
            libraries = [library for library in libraries if not library.tensorflow]
        builders = [Builder(library) for library in libraries]
        jobs = int(os.environ.get("MAX_JOBS", 0)) or min(os.cpu_count() or 1, 8)
        with futures.ThreadPoolExecutor(jobs) as pool:
            tasks = [pool.submit(builder.compile) for builder in builders]
        for task in tasks:
            task.result()
        if self.without_tensorflow:
            return
        for builder in builders:
            builder.link(self._output(builder.library.name))
        versions = {"tensorflow": TensorFlow.find().version}
        for library in libraries:
            for package in (*library.packages, *library.static_packages):
                versions[package] = pkg_config("--modversion", [package])[0]
        self._info_path().write_text(json.dumps(versions) + "\n")

    def get_ext_filename(self, fullname: str) -> str:
        return os.path.join(*fullname.split(".")) + ".so"

    def copy_extensions_to_source(self) -> None:
        """Copies the libraries into the working tree, for in-place and editable builds."""
        for extension in self.extensions:
            self._copy(self._output(extension.name))
        self._copy(self._info_path())

    def get_outputs(self) -> list[str]:
        libraries = [self._output(extension.name) for extension in self.extensions]
        return [str(path) for path in (*libraries, self._info_path())]

    def get_output_mapping(self) -> dict[str, str]:
        if not self.inplace:
            return {}
        return {output: str(in_place(pathlib.Path(output))) for output in self.get_outputs()}

    def _copy(self, built: pathlib.Path) -> None:
        target = in_place(built)
        target.parent.mkdir(exist_ok=True)
        new = target.with_name(f"{target.name}.{os.getpid()}.new")
        shutil.copy(built, new)
        new.replace(target)

    def _output(self, name: str) -> pathlib.Path:
        return self._info_path().with_name(f"{name.rpartition('.')[2]}.so")

    def _info_path(self) -> pathlib.Path:
        return pathlib.Path(self.build_lib) / "seed_rl" / "_native" / "build_info.json"


def in_place(built: pathlib.Path) -> pathlib.Path:
    return ROOT / "seed_rl" / "_native" / built.name


class AnyPythonWheel(bdist_wheel):
    """Tags the wheel `py3-none-PLATFORM`, as nothing in it depends on Python's ABI."""

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


if platform.system() != "Linux":
    sys.exit(
        "SEED RL's native libraries are built for Linux only; use a Linux machine or container."
    )

setup(
    ext_modules=[
        Extension(f"seed_rl._native.{library.name}", [str(s) for s in library.sources()])
        for library in LIBRARIES
        if library.sources() and os.environ.get("SEED_RL_NATIVE") != "later"
    ],
    cmdclass={"build_ext": BuildNative, "bdist_wheel": AnyPythonWheel},
)
