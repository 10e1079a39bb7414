"""A plugin of pytest: torch.nn's recurrent layers are replaced before torch's tests see them.

ONEGATE_SWAP says by what: nothing ("torch"), the accelerated ones, or our own layers.
"""

from __future__ import annotations

import inspect
import os
from typing import Any, Final

import torch
from torch import nn
from torch.testing._internal import common_cuda, common_mkldnn, common_nn, common_utils

import onegate
from onegate.nn import drop_in, drop_in_rule

KINDS: Final = ("GRU", "LSTM", "RNN", "GRUCell", "LSTMCell", "RNNCell")
OWN: Final[dict[str, Any]] = {
    "GRU": onegate.GRUResetAfter,
    "LSTM": onegate.LSTM,
    "RNN": onegate.RNN,
    "GRUCell": onegate.GRUResetAfterCell,
    "LSTMCell": onegate.LSTMCell,
    "RNNCell": onegate.RNNCell,
}


class _Absent(list[Any]):
    """A helper that the tests import and the installed torch, another version, has no more.

    A condition that does not hold, an empty list, or a decorator that changes nothing.
    """

    def __call__(self, *given: Any, **_: Any) -> Any:
        return given[0] if len(given) == 1 and inspect.isfunction(given[0]) else self


def _absent(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return _Absent()


def _swap(by: str) -> None:
    # Their tests are small: the rule would leave most of them to torch.
    drop_in_rule.RULES.update(dict.fromkeys(KINDS, drop_in_rule.ALWAYS))
    for kind in KINDS if by != "torch" else ():
        new = getattr(drop_in, kind) if by == "accelerated" else OWN[kind]
        for place in (nn, nn.modules, nn.modules.rnn):
            setattr(place, kind, new)


for _module in (common_cuda, common_mkldnn, common_nn, common_utils):
    vars(_module)["__getattr__"] = _absent
_swap(os.environ.get("ONEGATE_SWAP", "torch"))
torch.serialization.add_safe_globals(onegate.safe_globals())
