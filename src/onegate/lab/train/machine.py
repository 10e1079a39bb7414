"""What a run's numbers depend on beside its recipe: versions, threads, processor, commit."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import torch

import onegate


def describe(engine: str) -> dict[str, Any]:
    """The facts for machine.json; `engine` is what the layers report."""
    return {
        "onegate": _version(),
        "commit": commit(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "system": platform.platform(),
        "processor": processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "matmul_precision": torch.get_float32_matmul_precision(),
        "engine": engine,
    }


def _version() -> str:
    try:
        return importlib.metadata.version("onegate")
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def commit() -> str | None:
    """The commit of a source tree, with `+` if files were changed since; None elsewhere."""
    folder = Path(onegate.__file__).parent
    try:
        head = _git(folder, "rev-parse", "HEAD")
        changed = _git(folder, "status", "--porcelain", "--untracked-files=no", ".")
    except (OSError, subprocess.SubprocessError):
        return None
    return head + ("+" if changed else "")


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(folder), *arguments],
        capture_output=True, text=True, check=True, timeout=10,
    )  # fmt: skip
    return done.stdout.strip()


def processor() -> str:
    """The processor's name."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
