"""One layer and one cell for every unit of the registry, each with torch's argument order.

Their docstrings are those of the units.
"""
# ruff: noqa: D101

from __future__ import annotations

from typing import Any, ClassVar, Final

import torch

from onegate.nn.cells import Cell, Device
from onegate.nn.layers import Recurrent
from onegate.units import UNITS

LAYERS: Final[dict[str, type[NamedLayer]]] = {}
CELLS: Final[dict[str, type[NamedCell]]] = {}


class NamedLayer(Recurrent):
    """`Recurrent` of the unit that the class names."""

    unit_name: ClassVar[str]

    def __init_subclass__(cls, unit: str | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if unit is not None:
            cls.unit_name, cls.__doc__ = unit, _documentation(unit, Recurrent)
            LAYERS[unit] = cls

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Device = None,
        dtype: torch.dtype | None = None,
        *,
        engine: str = "auto",
        learn_initial_state: bool = False,
        init: Any = None,
        **unit_options: Any,
    ) -> None:
        super().__init__(
            self.unit_name,
            input_size,
            hidden_size,
            num_layers,
            bias,
            batch_first,
            dropout,
            bidirectional,
            device,
            dtype,
            engine=engine,
            learn_initial_state=learn_initial_state,
            init=init,
            **unit_options,
        )


class NamedCell(Cell):
    """`Cell` of the unit that the class names."""

    unit_name: ClassVar[str]

    def __init_subclass__(cls, unit: str | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if unit is not None:
            cls.unit_name, cls.__doc__ = unit, _documentation(unit, Cell)
            CELLS[unit] = cls

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Device = None,
        dtype: torch.dtype | None = None,
        *,
        engine: str = "auto",
        init: Any = None,
        **unit_options: Any,
    ) -> None:
        super().__init__(
            self.unit_name,
            input_size,
            hidden_size,
            bias,
            device,
            dtype,
            engine=engine,
            init=init,
            **unit_options,
        )


def _documentation(name: str, base: type) -> str:
    unit = UNITS[name].__doc__ if name in UNITS else None
    return (
        f"{(unit or name).rstrip()}\n\nArguments and shapes are those of `onegate.{base.__name__}`."
    )


class SimpleRNN(NamedLayer, unit="simple"): ...


class IRNN(NamedLayer, unit="irnn"): ...


class SCRN(NamedLayer, unit="scrn"): ...


class LSTM(NamedLayer, unit="lstm"): ...


class LSTMNoForget(NamedLayer, unit="lstm_no_forget"): ...


class LSTMPeephole(NamedLayer, unit="lstm_peephole"): ...


class LSTMCoupled(NamedLayer, unit="lstm_coupled"): ...


class LSTMNIG(NamedLayer, unit="lstm_nig"): ...


class LSTMNFG(NamedLayer, unit="lstm_nfg"): ...


class LSTMNOG(NamedLayer, unit="lstm_nog"): ...


class LSTMNIAF(NamedLayer, unit="lstm_niaf"): ...


class LSTMNOAF(NamedLayer, unit="lstm_noaf"): ...


class LSTMCIFG(NamedLayer, unit="lstm_cifg"): ...


class LSTMNP(NamedLayer, unit="lstm_np"): ...


class LSTMFGR(NamedLayer, unit="lstm_fgr"): ...


class GRU(NamedLayer, unit="gru"): ...


class GRUCho(NamedLayer, unit="gru_cho"): ...


class GRUResetAfter(NamedLayer, unit="gru_reset_after"): ...


class MUT1(NamedLayer, unit="mut1"): ...


class MUT2(NamedLayer, unit="mut2"): ...


class MUT3(NamedLayer, unit="mut3"): ...


class MGU(NamedLayer, unit="mgu"): ...


class MGUGateAfter(NamedLayer, unit="mgu_gate_after"): ...


class MGU1(NamedLayer, unit="mgu1"): ...


class MGU2(NamedLayer, unit="mgu2"): ...


class MGU3(NamedLayer, unit="mgu3"): ...


class JANET(NamedLayer, unit="janet"): ...


class LiGRU(NamedLayer, unit="ligru"): ...


class MinGRU(NamedLayer, unit="mingru"): ...


class SimpleRNNCell(NamedCell, unit="simple"): ...


class IRNNCell(NamedCell, unit="irnn"): ...


class SCRNCell(NamedCell, unit="scrn"): ...


class LSTMCell(NamedCell, unit="lstm"): ...


class LSTMNoForgetCell(NamedCell, unit="lstm_no_forget"): ...


class LSTMPeepholeCell(NamedCell, unit="lstm_peephole"): ...


class LSTMCoupledCell(NamedCell, unit="lstm_coupled"): ...


class LSTMNIGCell(NamedCell, unit="lstm_nig"): ...


class LSTMNFGCell(NamedCell, unit="lstm_nfg"): ...


class LSTMNOGCell(NamedCell, unit="lstm_nog"): ...


class LSTMNIAFCell(NamedCell, unit="lstm_niaf"): ...


class LSTMNOAFCell(NamedCell, unit="lstm_noaf"): ...


class LSTMCIFGCell(NamedCell, unit="lstm_cifg"): ...


class LSTMNPCell(NamedCell, unit="lstm_np"): ...


class LSTMFGRCell(NamedCell, unit="lstm_fgr"): ...


class GRUCell(NamedCell, unit="gru"): ...


class GRUChoCell(NamedCell, unit="gru_cho"): ...


class GRUResetAfterCell(NamedCell, unit="gru_reset_after"): ...


class MUT1Cell(NamedCell, unit="mut1"): ...


class MUT2Cell(NamedCell, unit="mut2"): ...


class MUT3Cell(NamedCell, unit="mut3"): ...


class MGUCell(NamedCell, unit="mgu"): ...


class MGUGateAfterCell(NamedCell, unit="mgu_gate_after"): ...


class MGU1Cell(NamedCell, unit="mgu1"): ...


class MGU2Cell(NamedCell, unit="mgu2"): ...


class MGU3Cell(NamedCell, unit="mgu3"): ...


class JANETCell(NamedCell, unit="janet"): ...


class LiGRUCell(NamedCell, unit="ligru"): ...


class MinGRUCell(NamedCell, unit="mingru"): ...
