"""Bad input: each is refused with a message that says what, what came, and what to do."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import pack_sequence

import onegate
from onegate import UnitError

T, B, D, N = 5, 3, 4, 6


def zeros(*shape: int, **kwargs: Any) -> torch.Tensor:
    return torch.zeros(shape, **kwargs)


def refused(kind: type[Exception], message: str) -> Any:
    return pytest.raises(kind, match=f"^{re.escape(message)}")


@pytest.fixture
def gru() -> onegate.GRU:
    return onegate.GRU(D, N)


@pytest.fixture
def lstm() -> onegate.LSTM:
    return onegate.LSTM(D, N, 2, bidirectional=True)


WHOLE = "expected a whole number of 1 or more"


@pytest.mark.parametrize(
    "bad", [0, -3, 2.0, float("nan"), True, "7", None, torch.zeros(2), torch.tensor(True)]
)
@pytest.mark.parametrize("place", ["input_size", "hidden_size", "num_layers"])
def test_sizes(place: str, bad: Any) -> None:
    sizes: dict[str, Any] = {"input_size": 2, "hidden_size": 3, "num_layers": 1}
    kind: type[Exception] = TypeError
    told = f"should be of type int, got: {type(bad).__name__};"
    if type(bad) is int:
        kind, told = ValueError, "must be greater than zero:"
    with refused(kind, f"{place} {told} it is {bad!r}, {WHOLE}"):
        onegate.MGU(**{**sizes, place: bad})
    if place != "num_layers":
        del sizes["num_layers"]
        with refused(kind, f"{place} {told} it is {bad!r}, {WHOLE}"):
            onegate.MGUCell(**{**sizes, place: bad})


def test_whole_numbers_of_numpy_are_sizes() -> None:
    assert onegate.MGU(np.int64(3), np.int32(4)).hidden_size == 4  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "bad", [-0.1, 1.5, float("nan"), True, "0.1", np.float32(2), torch.tensor(0.1)]
)
def test_dropout(bad: Any) -> None:
    with refused(ValueError, f"dropout should be a number in range [0, 1]: it is {bad!r}"):
        onegate.MGU(2, 3, 2, dropout=bad)


def test_numbers_of_numpy_are_probabilities() -> None:
    assert onegate.MGU(2, 3, 2, dropout=np.float32(0.25)).dropout == 0.25  # type: ignore[arg-type]


def no_flag(bad: object) -> str:
    return f"should be of type bool, got: {type(bad).__name__}; it is {bad!r}, expected True or"


FLAGS = ["bias", "batch_first", "bidirectional", "learn_initial_state"]


class TestFlags:
    @pytest.mark.parametrize("bad", [0, 1, 1.0, None, [], torch.tensor(True)])
    @pytest.mark.parametrize("flag", FLAGS)
    def test_of_layers(self, flag: str, bad: Any) -> None:
        with refused(TypeError, f"{flag} {no_flag(bad)}"):
            onegate.MGU(2, 3, **{flag: bad})

    @pytest.mark.parametrize("bad", [0, 1, 1.0, None, [], "no", torch.tensor(True)])
    def test_of_cells(self, bad: Any) -> None:
        with refused(TypeError, f"bias {no_flag(bad)}"):
            onegate.MGUCell(2, 3, bad)

    @pytest.mark.parametrize("bad", [0, 1])
    def test_torch_refuses_0_and_1_too(self, bad: Any) -> None:
        for flag in ("bias", "batch_first"):
            with pytest.raises(TypeError, match=f"{flag} should be of type bool, got: int"):
                torch.nn.GRU(2, 3, **{flag: bad})

    @pytest.mark.parametrize("value", [True, False])
    def test_of_numpy(self, value: bool) -> None:
        layer = onegate.MGU(2, 3, **dict.fromkeys(FLAGS, np.bool_(value)))  # type: ignore[arg-type]
        assert [getattr(layer, flag) for flag in FLAGS] == [value] * 4
        assert all(type(getattr(layer, flag)) is bool for flag in FLAGS)
        assert onegate.MGUCell(2, 3, np.bool_(value)).bias is value  # type: ignore[arg-type]

    @pytest.mark.parametrize("place", [onegate.SimpleRNN, onegate.IRNN])
    def test_the_nonlinearity_of_torch_by_place(self, place: Any) -> None:
        message = (
            "bias should be of type bool, got: str; it is 'relu', expected True or False; "
            "onegate.RNN and onegate.RNNCell alone take a nonlinearity, where torch.nn's do"
        )
        with refused(TypeError, message):
            place(5, 7, 1, "relu")

    def test_the_nonlinearity_of_torchs_cell_by_place(self) -> None:
        with refused(TypeError, "device is 'relu', expected a device of torch; onegate.RNN and"):
            onegate.SimpleRNNCell(5, 7, True, "relu")

    @pytest.mark.parametrize("kind", ["RNNCell", "GRUCell"])
    def test_the_nonlinearity_in_the_place_of_a_cells_bias(self, kind: str) -> None:
        torch.nn.__dict__[kind](5, 7, "relu")  # which says nothing
        with pytest.warns(UserWarning, match="bias is 'relu', which counts as True, as in") as told:
            cell = getattr(onegate, kind)(5, 7, "relu")
        assert cell.bias is True
        assert getattr(cell, "nonlinearity", "tanh") == "tanh"
        assert told[0].filename == __file__

    def test_of_the_language(self) -> None:
        with refused(TypeError, f"Affine: bias {no_flag('h')}"):
            onegate.Affine(None, "h")  # type: ignore[arg-type]


class TestDtypes:
    @pytest.mark.parametrize(
        "bad", [torch.int64, torch.bool, torch.float8_e4m3fn, "float32", np.float32]
    )
    def test_refused(self, bad: Any) -> None:
        message = f"dtype is {bad!r}, expected a floating or complex dtype of torch, such as torch"
        for kind in (onegate.MGU, onegate.MGUCell):
            with refused(TypeError, message):
                kind(2, 3, dtype=bad)


def test_engine() -> None:
    message = "engine is 'fast', expected one of 'auto', 'fused', 'reference'"
    with refused(ValueError, message):
        onegate.MGU(2, 3, engine="fast")
    with refused(ValueError, message):
        onegate.MGUCell(2, 3, engine="fast")


def test_unknown_units_and_options() -> None:
    with refused(UnitError, "no unit is called 'mgru'; did you mean 'mgu'?"):
        onegate.Recurrent("mgru", 2, 3)
    with refused(UnitError, "mgu has no option 'context_size'; it has none"):
        onegate.MGU(2, 3, context_size=2)


@pytest.mark.parametrize("bad", [5, None, onegate.MGU, torch.nn.GRU])
def test_what_is_no_unit(bad: Any) -> None:
    message = f"unit is {bad!r}, expected a name such as 'mgu', an onegate.Unit, or its class"
    with refused(UnitError, message):
        onegate.Recurrent(bad, 2, 3)


class TestOptions:
    """Options of a unit are of the types they are annotated with."""

    class Gateless(onegate.Unit):
        plain: bool = True
        scale: float = 1
        W_h = onegate.Affine()

        def step(self, x: Any, h: Any) -> Any:
            return self.scale * (self.W_h[h, x] if self.plain else onegate.tanh(self.W_h[h, x]))

    @pytest.mark.parametrize("bad", ["no", 0, None])
    def test_flags(self, bad: Any) -> None:
        with refused(UnitError, f"Gateless: plain {no_flag(bad)}"):
            onegate.Recurrent(self.Gateless, D, N, plain=bad)
        with refused(UnitError, f"Gateless: plain {no_flag(bad)}"):
            self.Gateless(plain=bad)

    @pytest.mark.parametrize("bad", ["x", 2.0, True, None])
    def test_whole_numbers(self, bad: Any) -> None:
        with refused(UnitError, f"scrn: context_size is {bad!r}, expected a whole number"):
            onegate.SCRN(D, N, context_size=bad)

    @pytest.mark.parametrize("bad", ["x", True, None, float("nan"), float("inf")])
    def test_numbers(self, bad: Any) -> None:
        with refused(UnitError, f"scrn: alpha is {bad!r}, expected a number"):
            onegate.SCRN(D, N, alpha=bad)

    @pytest.mark.parametrize("bad", [0, -1])
    def test_sizes_of_states(self, bad: int) -> None:
        with refused(UnitError, f"scrn: the size of s is {bad}, expected 1 or more"):
            onegate.SCRN(D, N, context_size=bad)

    def test_of_numpy(self) -> None:
        layer = onegate.SCRN(D, N, context_size=np.int64(3), alpha=np.float32(0.5))
        assert repr(layer.unit) == "SCRN(context_size=3, alpha=0.5)"
        unit = onegate.units.get(self.Gateless, plain=np.bool_(False), scale=2)
        assert unit.options() == {"plain": False, "scale": 2}
        layer(zeros(T, B, D))


class TestInput:
    def test_no_tensor(self, gru: onegate.GRU) -> None:
        with refused(TypeError, "input is a list, expected a torch.Tensor"):
            gru([1.0, 2.0])

    def test_number_of_axes(self, gru: onegate.GRU) -> None:
        message = (
            "Expected input to be 2D or 3D, got 1D instead: input is (4,), expected (T, B, 4), or "
            "without a batch (T, 4)"
        )
        with refused(ValueError, message):
            gru(zeros(D))
        told = "Expected input to be 2D or 3D, got 4D instead: input is (1, 5, 3, 4), expected"
        with refused(ValueError, f"{told} (T, B, 4), or without a batch"):
            gru(zeros(1, T, B, D))
        with refused(ValueError, f"{told} (B, T, 4), or without a batch"):
            onegate.GRU(D, N, batch_first=True)(zeros(1, T, B, D))

    def test_width(self, gru: onegate.GRU) -> None:
        message = (
            "input.size(-1) must be equal to input_size. Expected 4, got 7, the last axis of "
            "(5, 3, 7); pass 4 features, or set input_size=7"
        )
        with refused(ValueError, message):
            gru(zeros(T, B, 7))

    def test_no_step(self, gru: onegate.GRU) -> None:
        told = "Expected sequence length to be larger than 0 in RNN: input is"
        for shape in ((0, B, D), (0, D)):
            with refused(ValueError, f"{told} {shape}, no step (T = 0), expected 1 or more"):
                gru(zeros(*shape))
        with refused(ValueError, f"{told} (3, 0, 4), no step (T = 0), expected 1 or more"):
            onegate.GRU(D, N, batch_first=True)(zeros(B, 0, D))

    def test_dtype(self, gru: onegate.GRU) -> None:
        message = (
            "RNN input dtype (torch.float64) does not match weight dtype (torch.float32). Convert "
            "input: input.to(torch.float32), or convert model: model.to(torch.float64)"
        )
        with refused(ValueError, message):
            gru(zeros(T, B, D, dtype=torch.float64))
        with pytest.raises(ValueError, match=r"input\.to\(torch\.float32\)$"):  # no other way
            gru(zeros(T, B, D, dtype=torch.int64))

    def test_device(self, gru: onegate.GRU) -> None:
        message = (
            "Input and parameter tensors are not at the same device, found input tensor at meta "
            "and parameter tensor at cpu; move it with .to('cpu'), or the module with .to('meta')"
        )
        with refused(ValueError, message):
            gru(zeros(T, B, D, device="meta"))


class TestStates:
    def test_no_tensor(self, gru: onegate.GRU, lstm: onegate.LSTM) -> None:
        with refused(TypeError, "hx is a float, expected a torch.Tensor"):
            gru(zeros(T, B, D), 0.0)
        with refused(TypeError, "hx is a NoneType, expected a torch.Tensor"):
            lstm(zeros(T, B, D), (zeros(4, B, N), None))

    def test_number_of_states(self, gru: onegate.GRU, lstm: onegate.LSTM) -> None:
        state = zeros(4, B, N)
        with refused(ValueError, "hx is one tensor, expected a tuple (h, c)"):
            lstm(zeros(T, B, D), state)
        with refused(ValueError, "hx is a tuple of 3, expected a tuple (h, c)"):
            lstm(zeros(T, B, D), (state, state, state))
        with refused(ValueError, "hx is a tuple of 1, expected one tensor, h"):
            gru(zeros(T, B, D), (zeros(1, B, N),))

    def test_shape(self, gru: onegate.GRU, lstm: onegate.LSTM) -> None:
        with refused(
            ValueError,
            "Expected hidden size (1, 3, 6), got [1, 3, 8]; "
            "hx: h is (1, 3, 8), expected (layers and directions 1, B 3, size of h 6)",
        ):
            gru(zeros(T, B, D), zeros(1, B, 8))
        message = (
            "Expected hidden[1] size (4, 3, 6), got [2, 3, 6]; "
            "hx: c is (2, 3, 6), expected (layers and directions 4, B 3,"
        )
        with refused(ValueError, message):
            lstm(zeros(T, B, D), (zeros(4, B, N), zeros(2, B, N)))
        message = "Expected hidden size (1, 6), got [1, 3, 6]; hx: h is (1, 3, 6), expected (layers"
        with refused(ValueError, f"{message} and directions 1, size of"):
            gru(zeros(T, D), zeros(1, B, N))

    def test_each_state_has_its_own_size(self) -> None:
        layer = onegate.SCRN(D, N, context_size=2)
        message = "hx: s is (1, 3, 6), expected (layers and directions 1, B 3, size of s 2)"
        with pytest.raises(ValueError, match=re.escape(message)):
            layer(zeros(T, B, D), (zeros(1, B, N), zeros(1, B, N)))

    def test_dtype_and_device(self, gru: onegate.GRU) -> None:
        with refused(ValueError, "hx: h is torch.float64, the parameters are torch.float32;"):
            gru(zeros(T, B, D), zeros(1, B, N, dtype=torch.float64))
        with pytest.raises(ValueError, match=r"convert it with \.to\(torch\.float32\)$"):
            gru(zeros(T, B, D), zeros(1, B, N, dtype=torch.int64))
        with refused(ValueError, "hx: h is on meta, the parameters are on cpu;"):
            gru(zeros(T, B, D), zeros(1, B, N, device="meta"))


class TestLengths:
    @pytest.mark.parametrize("bad", [0, -2])
    def test_too_short(self, gru: onegate.GRU, bad: int) -> None:
        message = f"lengths hold {bad}, expected 1 to 5, the steps of the input; leave empty rows"
        with refused(ValueError, message):
            gru(zeros(T, B, D), lengths=[2, bad, 5])

    def test_too_long(self, gru: onegate.GRU) -> None:
        message = "lengths hold 6, expected 1 to 5, the steps of the input; pad the input further"
        with refused(ValueError, message):
            gru(zeros(T, B, D), lengths=torch.tensor([1, 6, 2]))

    def test_one_for_each_row(self, gru: onegate.GRU) -> None:
        message = "lengths are (2,), expected one for each row of the batch: (3,)"
        with refused(ValueError, message):
            gru(zeros(T, B, D), lengths=[1, 2])
        with refused(ValueError, "lengths are (), expected one for each row of the batch: (3,)"):
            gru(zeros(T, B, D), lengths=3)

    @pytest.mark.parametrize("bad", [[1.0, 2.0, 3.0], [True, True, True]])
    def test_whole_numbers(self, gru: onegate.GRU, bad: list[Any]) -> None:
        with refused(ValueError, f"lengths are {torch.tensor(bad).dtype}, expected whole numbers"):
            gru(zeros(T, B, D), lengths=bad)

    def test_one_sequence(self, gru: onegate.GRU) -> None:
        with refused(ValueError, "lengths= is for batches; cut the one sequence to its length"):
            gru(zeros(T, D), lengths=[3])

    def test_packed(self, gru: onegate.GRU) -> None:
        packed = pack_sequence([zeros(2, D)])
        with refused(ValueError, "lengths= is for padded tensors; a PackedSequence has its own"):
            gru(packed, lengths=[2])


class TestPacked:
    packed = pack_sequence([zeros(2, 7), zeros(1, 7)])

    def test_width(self, gru: onegate.GRU) -> None:
        with refused(
            ValueError,
            "input.size(-1) must be equal to input_size. Expected 4, got 7, the last axis",
        ):
            gru(self.packed)

    def test_states(self) -> None:
        message = "hx: h is (1, 3, 6), expected (layers and directions 1, B 2,"
        with pytest.raises(ValueError, match=re.escape(message)):
            onegate.GRU(7, N)(self.packed, zeros(1, 3, N))

    def test_dtype(self) -> None:
        with refused(ValueError, "RNN input dtype (torch.float32) does not match weight dtype"):
            onegate.GRU(7, N, dtype=torch.float64)(self.packed)


class TestCells:
    def test_input(self) -> None:
        cell = onegate.GRUCell(D, N)
        with refused(TypeError, "input is a list, expected a torch.Tensor"):
            cell([0.0] * D)
        message = (
            "Expected input to be 1D or 2D, got 3D instead: input is (5, 3, 4), expected (B, 4)"
        )
        with refused(ValueError, f"{message}, or without a batch (4)"):
            cell(zeros(T, B, D))
        with refused(
            ValueError,
            "input has inconsistent input_size: got 7 expected 4, the last axis of (3, 7);",
        ):
            cell(zeros(B, 7))
        with refused(ValueError, "RNN input dtype (torch.float64) does not match weight dtype"):
            cell(zeros(B, D, dtype=torch.float64))

    def test_states(self) -> None:
        cell = onegate.GRUCell(D, N)
        own = "hx: h is (2, 6), expected (B 3, size of h 6)"
        with refused(ValueError, f"Input batch size 3 doesn't match hidden0 batch size 2; {own}"):
            cell(zeros(B, D), zeros(2, N))
        own = "hx: h is (3, 7), expected (B 3, size of h 6)"
        with refused(ValueError, f"hidden0 has inconsistent hidden_size: got 7, expected 6; {own}"):
            cell(zeros(B, D), zeros(B, 7))
        own = "hx: h is (3, 1, 6), expected (B 3, size of h 6)"
        with refused(ValueError, f"Expected hidden to be 1D or 2D, got 3D instead; {own}"):
            cell(zeros(B, D), zeros(B, 1, N))
        with refused(ValueError, "hx: h is (1, 6), expected (size of h 6)"):
            cell(zeros(D), zeros(1, N))
        with refused(ValueError, "hx: h is torch.float64, the parameters are torch.float32;"):
            cell(zeros(B, D), zeros(B, N, dtype=torch.float64))
        with refused(
            ValueError, "hidden1 has inconsistent hidden_size: got 7, expected 6; hx: c is"
        ):
            onegate.LSTMCell(D, N)(zeros(B, D), (zeros(B, N), zeros(B, 7)))
        with refused(ValueError, "hx is one tensor, expected a tuple (h, c)"):
            onegate.LSTMCell(D, N)(zeros(B, D), zeros(B, N))


def _states(kind: str, *shape: int, **kwargs: Any) -> Any:
    one = zeros(*shape, **kwargs)
    return (one, one) if kind.startswith("LSTM") else one


_OURS = {name: name for name in ("LSTM", "RNN", "LSTMCell", "RNNCell")}
_OURS |= {"GRU": "GRUResetAfter", "GRUCell": "GRUResetAfterCell"}
_LAYER_CALLS: dict[str, Any] = {
    "width": lambda make, kind: make(kind, D, N)(zeros(T, B, 7)),
    "packed width": lambda make, kind: make(kind, D, N)(pack_sequence([zeros(2, 7)])),
    "packed axes": lambda make, kind: make(kind, D, N)(pack_sequence([zeros(2)])),
    "axes": lambda make, kind: make(kind, D, N)(zeros(1, T, B, D)),
    "no step": lambda make, kind: make(kind, D, N)(zeros(0, B, D)),
    "dtype": lambda make, kind: make(kind, D, N)(zeros(T, B, D, dtype=torch.float64)),
    "device": lambda make, kind: make(kind, D, N)(zeros(T, B, D, device="meta")),
    "rows": lambda make, kind: make(kind, D, N)(zeros(T, B, D), _states(kind, 1, 2, N)),
    "layers": lambda make, kind: make(kind, D, N)(zeros(T, B, D), _states(kind, 2, B, N)),
    "size": lambda make, kind: make(kind, D, N)(zeros(T, B, D), _states(kind, 1, B, 9)),
    "hidden_size 0": lambda make, kind: make(kind, D, 0),
    "hidden_size 2.0": lambda make, kind: make(kind, D, 2.0),
    "input_size -1": lambda make, kind: make(kind, -1, N),
    "input_size '3'": lambda make, kind: make(kind, "3", N),
    "num_layers 0": lambda make, kind: make(kind, D, N, 0),
    "bias 1": lambda make, kind: make(kind, D, N, bias=1),
    "bias 'True'": lambda make, kind: make(kind, D, N, bias="True"),
    "batch_first None": lambda make, kind: make(kind, D, N, batch_first=None),
    "dropout": lambda make, kind: make(kind, D, N, dropout=1.5),
    "dropout True": lambda make, kind: make(kind, D, N, dropout=True),
}
_CELL_CALLS: dict[str, Any] = {
    "width": lambda make, kind: make(kind, D, N)(zeros(B, 7)),
    "axes": lambda make, kind: make(kind, D, N)(zeros(1, B, D)),
    "rows": lambda make, kind: make(kind, D, N)(zeros(B, D), _states(kind, 2, N)),
    "size": lambda make, kind: make(kind, D, N)(zeros(B, D), _states(kind, B, 9)),
    "one size": lambda make, kind: make(kind, D, N)(zeros(D), _states(kind, 9)),
    "state's axes": lambda make, kind: make(kind, D, N)(zeros(B, D), _states(kind, B, 1, 1, N)),
    # Shapes are told before dtypes.
    "dtype and size": lambda make, kind: make(kind, D, N)(
        zeros(B, D, dtype=torch.float64), _states(kind, B, 9, dtype=torch.float64)
    ),
}


class TestWordsOfTorch:
    """Where torch.nn refuses the same, ours is of torch's type and begins in torch's words."""

    @pytest.mark.parametrize("call", _LAYER_CALLS)
    @pytest.mark.parametrize("kind", ["GRU", "LSTM", "RNN"])
    def test_of_layers(self, kind: str, call: str) -> None:
        # With a packed input torch.nn.LSTM fails inside, in other words.
        kind = "GRU" if kind == "LSTM" and call.startswith("packed") else kind
        self._compare(_LAYER_CALLS[call], kind)

    @pytest.mark.parametrize("call", _CELL_CALLS)
    @pytest.mark.parametrize("kind", ["GRUCell", "LSTMCell", "RNNCell"])
    def test_of_cells(self, kind: str, call: str) -> None:
        self._compare(_CELL_CALLS[call], kind)

    @pytest.mark.parametrize(("kind", "size"), [("GRU", 2), ("RNN", 2), ("LSTM", -1)])
    def test_of_projections(self, kind: str, size: int) -> None:
        self._compare(lambda make, kind: make(kind, D, N, proj_size=size), kind)

    @staticmethod
    def _compare(call: Any, kind: str) -> None:
        with pytest.raises(Exception) as theirs:  # noqa: PT011 - whichever torch raises
            call(lambda name, *a, **k: getattr(torch.nn, name)(*a, **k), kind)
        with pytest.raises(theirs.type) as ours:
            call(lambda name, *a, **k: getattr(onegate, _OURS[name])(*a, **k), kind)
        # Without the class, which torch names in places, and what a dropout is.
        words = re.sub(r"^\w+: | tensor(?= instead)| representing .*", "", str(theirs.value))
        assert str(ours.value).startswith(words.rstrip("."))
        assert len(str(ours.value)) > len(words) or "Convert input" in words


class TestStateDicts:
    def test_missing_and_unexpected_keys_are_named(self, gru: onegate.GRU) -> None:
        with pytest.raises(RuntimeError, match=r"Missing key\(s\) in state_dict: \"l0\.z\.U\""):
            gru.load_state_dict(onegate.MGU(D, N).state_dict())
        with pytest.raises(RuntimeError, match=r"Unexpected key\(s\) in state_dict: \"l0\.f\.U\""):
            gru.load_state_dict(onegate.MGU(D, N).state_dict())

    @pytest.mark.parametrize("strict", [True, False])
    def test_those_of_torch(self, gru: onegate.GRU, strict: bool) -> None:
        model, theirs = torch.nn.Sequential(gru), torch.nn.Sequential(torch.nn.GRU(D, N))
        message = (
            "0.weight_ih_l0 is a weight of torch.nn's layers, which have no 'gru', only simple, "
            "irnn, lstm, lstm_np, gru_reset_after; onegate.GRU resets before the matrix, "
            "torch.nn.GRU is onegate.GRUResetAfter"
        )
        with pytest.raises(RuntimeError, match=re.escape(message)):
            model.load_state_dict(theirs.state_dict(), strict)

    def test_sizes_are_named(self, gru: onegate.GRU) -> None:
        with pytest.raises(RuntimeError, match=r"size mismatch for l0\.z\.U: .*\[8, 8\].*\[6, 6\]"):
            gru.load_state_dict(onegate.GRU(D, 8).state_dict())
