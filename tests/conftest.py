"""What every test starts from."""

from __future__ import annotations

import os

import hypothesis
import pytest
import torch

# Times vary too much on shared machines for a limit per example; the same examples every time, so
# that a change is judged by what it changes (HYPOTHESIS_PROFILE=default looks for new ones).
hypothesis.settings.register_profile("onegate", deadline=None, derandomize=True)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "onegate"))

# Tests are small: more threads only wait for each other. A test of threads sets its own number.
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def same_random_numbers() -> None:
    torch.manual_seed(0)
