"""Where torch's own kernel is the faster one: drop_in_rule.json, which `onegate bench accelerate`
writes from what it measures."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch
from torch.nn.utils.rnn import PackedSequence

FILE: Final = Path(__file__).with_suffix(".json")
ANY: Final = 1 << 40
OTHERS: Final = ""  # makers of processors of which none was measured


class Rule(NamedTuple):
    """The fused engine is taken from so many row-steps (T times B), and from so many steps T.

    Below so many neurons, that is.
    """

    row_steps: int
    hidden: int = ANY
    steps: int = 1

    def leaves(self, steps: int, row_steps: int, hidden: int) -> str | None:
        """Why torch's kernel is taken, or None."""
        if row_steps < self.row_steps or steps < self.steps:
            return FEW
        return _LARGE if hidden >= self.hidden else None


NEVER: Final = Rule(ANY)


# Of float32 and float64; of autocast; of modules that are themselves of half precision.
PRECISIONS: Final = ("float32", "autocast", "bfloat16", "float16")
_HALVES: Final = {torch.bfloat16: 2, torch.float16: 3}


class Rules(NamedTuple):
    """Of a class: by whether gradients are on, and the number of the precision."""

    least: int  # row-steps of any
    rules: tuple[tuple[Rule, ...], ...]

    @classmethod
    def of(cls, rules: Mapping[tuple[bool, str], Rule]) -> Rules:
        """Those that are not named never take the fused engine."""
        found = [
            tuple([rules.get((learns, name), NEVER) for name in PRECISIONS])
            for learns in (False, True)
        ]
        return cls(min(rule.row_steps for each in found for rule in each), tuple(found))


def read(written: Mapping[str, list[dict[str, Any]]], maker: str) -> dict[str, Rules]:
    """The rules of a maker's processors, by class."""
    found: dict[str, dict[tuple[bool, str], Rule]] = {}
    for row in written[maker if maker in written else OTHERS]:
        rule = Rule(row["row_steps"], row.get("hidden", ANY), row["steps"])
        found.setdefault(row["kind"], {})[row["learns"], row["precision"]] = rule
    return {kind: Rules.of(found.get(kind, {})) for kind in KINDS}


def maker() -> str:
    """Of this machine's processors, as they say it themselves; "" if that is not known."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return OTHERS
    found = re.search(r"^vendor_id\s*:\s*(\S+)", text, re.MULTILINE)
    return found[1] if found else OTHERS


def torch_is_faster(module: Any, input: Any) -> str | None:
    """Why a layer or cell leaves this call to torch's kernel, as things are set now, or None."""
    packed = type(input) is PackedSequence
    data = input.data if packed else input
    count = data.numel()
    low = 1 if torch.is_autocast_enabled("cpu") else _HALVES.get(data.dtype, 0)
    rule = RULES[module._kind].rules[torch.is_grad_enabled()][low]
    steps = 1
    if packed:
        steps = len(input.batch_sizes)
    elif rule.steps > 1:
        dims = input.dim()
        steps = input.shape[1 if dims == 3 and module.batch_first else 0] if dims > 1 else 1
    return rule.leaves(steps, count // (module.input_size or 1), module.hidden_size)


FEW: Final = "measured faster: so few rows and steps"
_LARGE: Final = "measured faster: so many neurons"
KINDS: Final = ("GRU", "LSTM", "RNN", "GRUCell", "LSTMCell", "RNNCell")
# Where the fused engine is taken whatever was measured: RULES is made of these by tests.
ALWAYS: Final = Rules.of(
    {(learns, name): Rule(0) for learns in (False, True) for name in PRECISIONS}
)
MAKER: Final = maker()
RULES: Final = read(json.loads(FILE.read_text(encoding="utf-8")), MAKER)
