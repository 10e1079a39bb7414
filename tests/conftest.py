"""What every test starts from."""

from __future__ import annotations

import hypothesis
import pytest
import torch

# Times vary too much on shared machines for a limit per example.
hypothesis.settings.register_profile("onegate", deadline=None)
hypothesis.settings.load_profile("onegate")

# Tests are small: more threads only wait for each other. A test of threads sets its own number.
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def same_random_numbers() -> None:
    torch.manual_seed(0)
