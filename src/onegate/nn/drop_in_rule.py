"""Where torch's own kernel is the faster one: `onegate bench accelerate` prints the table."""

from __future__ import annotations

from typing import Final, NamedTuple

import torch


class Rule(NamedTuple):
    """The fused engine is taken from so many row-steps (T times B), and from so many steps T.

    Below so many neurons, that is.
    """

    row_steps: int
    hidden: int
    steps: int = 1

    def leaves(self, steps: int, row_steps: int, hidden: int) -> str | None:
        """Why torch's kernel is taken, or None."""
        if row_steps < self.row_steps or steps < self.steps:
            return _FEW
        return _LARGE if hidden >= self.hidden else None


ANY: Final = 1 << 30
_NEVER: Final = Rule(ANY, ANY)
# By the class, whether gradients are on, and whether autocast is.
RULES: Final[dict[tuple[str, bool, bool], Rule]] = {
    ("GRU", True, False): Rule(8, 512, 10),
    ("GRU", True, True): Rule(8, ANY, 10),
    ("GRU", False, False): Rule(8, ANY, 10),
    ("LSTM", True, False): Rule(8, ANY, 50),
    ("LSTM", True, True): Rule(11, ANY),
    ("LSTM", False, False): Rule(801, 256),
    ("LSTM", False, True): Rule(8, 500, 20),
    ("RNN", True, False): Rule(8, 512, 10),
    ("RNN", True, True): Rule(8, ANY, 10),
    ("RNN", False, False): Rule(8, 512, 20),
    ("GRUCell", True, False): _NEVER,
    ("GRUCell", True, True): _NEVER,
    ("GRUCell", False, False): _NEVER,
    ("LSTMCell", True, False): _NEVER,
    ("LSTMCell", True, True): _NEVER,
    ("LSTMCell", False, False): _NEVER,
    ("LSTMCell", False, True): Rule(9, ANY),
    ("RNNCell", True, False): _NEVER,
    ("RNNCell", True, True): _NEVER,
    ("RNNCell", False, False): _NEVER,
    ("RNNCell", False, True): Rule(65, ANY),
}
DEFAULT: Final = Rule(8, ANY)


def torch_is_faster(kind: str, row_steps: int, hidden: int, steps: int = 1) -> str | None:
    """Why torch's kernel is taken, as things are set now, or None."""
    if row_steps < DEFAULT.row_steps:  # asked first: such a call takes but microseconds
        return _FEW
    key = kind, torch.is_grad_enabled(), torch.is_autocast_enabled("cpu")
    return RULES.get(key, DEFAULT).leaves(steps, row_steps, hidden)


_FEW: Final = "measured faster: so few rows and steps"
_LARGE: Final = "measured faster: so many neurons"
