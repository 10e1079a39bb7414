"""What every test starts from."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import hypothesis
import pytest
import torch

# Some virtual machines announce AMX and do not allow it: torch's own bfloat16 products end the
# process there. oneDNN reads the variable when it is first asked.
_SHORT_PRODUCT = "import torch; x = torch.ones(64, 64, dtype=torch.bfloat16); x @ x"
_PROCESSOR = Path("/proc/cpuinfo")
if _PROCESSOR.is_file() and "amx_bf16" in _PROCESSOR.read_text():
    tried = subprocess.run([sys.executable, "-c", _SHORT_PRODUCT], capture_output=True, check=False)
    if tried.returncode == -signal.SIGILL:
        os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

# Times vary too much on shared machines for a limit per example; the same examples every time, so
# that a change is judged by what it changes (HYPOTHESIS_PROFILE=default looks for new ones).
hypothesis.settings.register_profile("onegate", deadline=None, derandomize=True)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "onegate"))

# Tests are small: more threads only wait for each other. A test of threads sets its own number.
torch.set_num_threads(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with slow tests begin first, so that no process is left with one at the end."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


@pytest.fixture(autouse=True)
def same_random_numbers() -> None:
    torch.manual_seed(0)
