"""Exported models in a C++ program that has no Python."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import onegate
from onegate import Affine, Unit, Vector, sigmoid, tanh

ROOT = Path(__file__).parents[3]
T, B, D = 7, 3, 5

pytestmark = [
    pytest.mark.skipif(
        shutil.which("cmake") is None or shutil.which("c++") is None,
        reason="a C++ host is built with CMake and a C++ compiler",
    ),
    # torch's own compiler uses what torch calls deprecated.
    pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec.`:FutureWarning"),
]


class OwnUnit(Unit):
    """Two states and a constant, of no registered name."""

    states = ("h", "c")
    W_f, W_c, p = Affine(), Affine(), Vector()

    def step(self, x, h, c):  # type: ignore[no-untyped-def]
        f = sigmoid(self.W_f[h, x] + self.p * c)
        c = f * c + 0.3 * tanh(self.W_c[h, x])
        return tanh(c), c


class Model(nn.Module):
    """Two layers in two directions, a layer of one's own unit, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.first = onegate.MGU(D, 6, num_layers=2, bidirectional=True, learn_initial_state=True)
        self.second = onegate.Recurrent(OwnUnit, 12, 4, init="uniform")
        self.head = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        y, _ = self.first(x)
        y, _ = self.second(y, lengths=torch.tensor([T, 4, 1]))
        out: Tensor = self.head(y)
        return out


@pytest.fixture(scope="module")
def host() -> Path:
    """Built once, and again where a source has changed."""
    build = ROOT / "build" / "host"
    prefix = f"-DCMAKE_PREFIX_PATH={torch.utils.cmake_prefix_path}"
    for command in (
        ["cmake", "-S", str(ROOT), "-B", str(build), "-DONEGATE_TORCH_HOST=ON", prefix],
        ["cmake", "--build", str(build), "--parallel", "2"],
    ):
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    return build / "host"


def _run(host: Path, package: Path, x: Tensor) -> subprocess.CompletedProcess[bytes]:
    sizes = [str(n) for n in x.shape]
    command = [str(host), str(package), *sizes]
    return subprocess.run(command, input=x.numpy().tobytes(), capture_output=True)


def _package(model: nn.Module, path: Path) -> Path:
    with torch.no_grad():
        exported = torch.export.export(model.eval(), (torch.randn(T, B, D),))
    torch._inductor.aoti_compile_and_package(exported, package_path=str(path))
    return path


def test_a_package_runs_in_a_host_without_python(host: Path, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Model()
    package, x = _package(model, tmp_path / "model.pt2"), torch.randn(T, B, D)
    linked = subprocess.run(["ldd", str(host)], capture_output=True, text=True).stdout
    assert "libonegate_torch" in linked
    assert "libpython" not in linked
    assert "libtorch_python" not in linked

    done = _run(host, package, x)

    assert done.returncode == 0, done.stderr.decode()
    out = torch.frombuffer(bytearray(done.stdout), dtype=torch.float32).view(T, B, 2)
    with torch.no_grad():
        torch.testing.assert_close(out, model(x))


def test_an_input_of_another_width_is_refused(host: Path, tmp_path: Path) -> None:
    package = _package(onegate.MGU(D, 4), tmp_path / "mgu.pt2")
    done = _run(host, package, torch.randn(T, B, D + 1))
    assert done.returncode == 1
    assert done.stderr
