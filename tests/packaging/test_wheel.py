"""The wheel on a machine without a compiler; the engine built by another compiler than GCC."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.packaging.wheel import AGREES, ROOT, build, check

linux = pytest.mark.skipif(sys.platform != "linux", reason="manylinux wheels are made on Linux")
needs_clang = pytest.mark.skipif(
    not (shutil.which("clang++") and shutil.which("cmake")), reason="needs clang++ and cmake"
)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if importlib.util.find_spec("auditwheel") is None:
        pytest.skip("needs auditwheel: pip install 'onegate[wheel]'")
    return build(tmp_path_factory.mktemp("wheel"))


@linux
def test_the_wheel_runs_without_a_compiler(wheel: Path) -> None:
    assert check(wheel).startswith("fused: float64 on the CPU; OpenMP of torch alone")


@linux
@needs_clang
def test_clang_builds_the_engine_without_warnings(tmp_path: Path) -> None:
    for step in (
        ("-S", str(ROOT), "-B", ".", "-DCMAKE_CXX_COMPILER=clang++", "-DONEGATE_WERROR=ON"),
        ("--build", ".", "--parallel", "2"),
    ):
        subprocess.run(["cmake", *step], cwd=tmp_path, check=True, stdout=subprocess.DEVNULL)
    environment = os.environ | {"ONEGATE_NATIVE": str(tmp_path / "onegate_native.so")}
    done = subprocess.run(
        [sys.executable, "-c", AGREES], env=environment, capture_output=True, text=True
    )
    assert done.stdout.startswith("fused: float64 on the CPU"), done.stderr
