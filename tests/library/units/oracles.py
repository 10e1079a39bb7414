"""One step of every unit in NumPy, written from the papers: p holds one array per symbol.

Rows are batch entries, so that a paper's `W x` is `x @ W.T`. U acts on states, W on the input, b is
a bias; the subscript is the paper's name for what the map computes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class Symbols:
    """Arrays by symbol; remembers which ones were used."""

    def __init__(self, arrays: Mapping[str, Array]) -> None:
        self.arrays = dict(arrays)
        self.used: set[str] = set()

    def __getattr__(self, symbol: str) -> Array:
        self.used.add(symbol)
        return self.arrays[symbol]


def sigma(v: Array) -> Array:
    return 1.0 / (1.0 + np.exp(-v))


def simple(p: Symbols, x: Array, h: Array) -> Array:
    return np.tanh(h @ p.U_h.T + x @ p.W_h.T + p.b_h)


def irnn(p: Symbols, x: Array, h: Array) -> Array:
    return np.maximum(h @ p.U_h.T + x @ p.W_h.T + p.b_h, 0.0)


def scrn(p: Symbols, x: Array, h: Array, s: Array, alpha: float = 0.95) -> tuple[Array, Array]:
    s_new = (1 - alpha) * (x @ p.B.T) + alpha * s
    return sigma(s_new @ p.P.T + x @ p.A.T + h @ p.R.T), s_new


def lstm(p: Symbols, x: Array, h: Array, c: Array) -> tuple[Array, Array]:
    forget = sigma(h @ p.U_f.T + x @ p.W_f.T + p.b_f)
    write = sigma(h @ p.U_i.T + x @ p.W_i.T + p.b_i)
    show = sigma(h @ p.U_o.T + x @ p.W_o.T + p.b_o)
    c_new = forget * c + write * np.tanh(h @ p.U_c.T + x @ p.W_c.T + p.b_c)
    return show * np.tanh(c_new), c_new


def lstm_no_forget(p: Symbols, x: Array, h: Array, c: Array) -> tuple[Array, Array]:
    write = sigma(h @ p.U_i.T + x @ p.W_i.T + p.b_i)
    show = sigma(h @ p.U_o.T + x @ p.W_o.T + p.b_o)
    c_new = c + write * np.tanh(h @ p.U_c.T + x @ p.W_c.T + p.b_c)
    return show * np.tanh(c_new), c_new


def lstm_coupled(p: Symbols, x: Array, h: Array, c: Array) -> tuple[Array, Array]:
    forget = sigma(h @ p.U_f.T + x @ p.W_f.T + p.b_f)
    show = sigma(h @ p.U_o.T + x @ p.W_o.T + p.b_o)
    c_new = forget * c + (1 - forget) * np.tanh(h @ p.U_c.T + x @ p.W_c.T + p.b_c)
    return show * np.tanh(c_new), c_new


# Greff et al., section II: z block input, i, f, o gates, c cell, y output, in the paper's letters
# (its z is our map c, its y our h).


def lstm_peephole(p: Symbols, x: Array, y: Array, c: Array) -> tuple[Array, Array]:
    z = np.tanh(x @ p.W_c.T + y @ p.U_c.T + p.b_c)
    i = sigma(x @ p.W_i.T + y @ p.U_i.T + p.p_i * c + p.b_i)
    f = sigma(x @ p.W_f.T + y @ p.U_f.T + p.p_f * c + p.b_f)
    c_new = z * i + c * f
    o = sigma(x @ p.W_o.T + y @ p.U_o.T + p.p_o * c_new + p.b_o)
    return np.tanh(c_new) * o, c_new


def lstm_nig(p: Symbols, x: Array, y: Array, c: Array) -> tuple[Array, Array]:
    z = np.tanh(x @ p.W_c.T + y @ p.U_c.T + p.b_c)
    f = sigma(x @ p.W_f.T + y @ p.U_f.T + p.p_f * c + p.b_f)
    c_new = z + c * f
    o = sigma(x @ p.W_o.T + y @ p.U_o.T + p.p_o * c_new + p.b_o)
    return np.tanh(c_new) * o, c_new


def lstm_nfg(p: Symbols, x: Array, y: Array, c: Array) -> tuple[Array, Array]:
    z = np.tanh(x @ p.W_c.T + y @ p.U_c.T + p.b_c)
    i = sigma(x @ p.W_i.T + y @ p.U_i.T + p.p_i * c + p.b_i)
    c_new = z * i + c
    o = sigma(x @ p.W_o.T + y @ p.U_o.T + p.p_o * c_new + p.b_o)
    return np.tanh(c_new) * o, c_new


def lstm_nog(p: Symbols, x: Array, y: Array, c: Array) -> tuple[Array, Array]:
    z = np.tanh(x @ p.W_c.T + y @ p.U_c.T + p.b_c)
    i = sigma(x @ p.W_i.T + y @ p.U_i.T + p.p_i * c + p.b_i)
    f = sigma(x @ p.W_f.T + y @ p.U_f.T + p.p_f * c + p.b_f)
    c_new = z * i + c * f
    return np.tanh(c_new), c_new


def lstm_niaf(p: Symbols, x: Array, y: Array, c: Array) -> tuple[Array, Array]:
    z = x @ p.W_c.T + y @ p.U_c.T + p.b_c
    i = sigma(x @ p.W_i.T + y @ p.U_i.T + p.p_i * c + p.b_i)
    f = sigma(x @ p.W_f.T + y @ p.U_f.T + p.p_f * c + p.b_f)
    c_new = z * i + c * f
    o = sigma(x @ p.W_o.T + y @ p.U_o.T + p.p_o * c_new + p.b_o)
    return np.tanh(c_new) * o, c_new


def lstm_noaf(p: Symbols, x: Array, y: Array, c: Array) -> tuple[Array, Array]:
    z = np.tanh(x @ p.W_c.T + y @ p.U_c.T + p.b_c)
    i = sigma(x @ p.W_i.T + y @ p.U_i.T + p.p_i * c + p.b_i)
    f = sigma(x @ p.W_f.T + y @ p.U_f.T + p.p_f * c + p.b_f)
    c_new = z * i + c * f
    o = sigma(x @ p.W_o.T + y @ p.U_o.T + p.p_o * c_new + p.b_o)
    return c_new * o, c_new


def lstm_cifg(p: Symbols, x: Array, y: Array, c: Array) -> tuple[Array, Array]:
    z = np.tanh(x @ p.W_c.T + y @ p.U_c.T + p.b_c)
    i = sigma(x @ p.W_i.T + y @ p.U_i.T + p.p_i * c + p.b_i)
    c_new = z * i + c * (1 - i)
    o = sigma(x @ p.W_o.T + y @ p.U_o.T + p.p_o * c_new + p.b_o)
    return np.tanh(c_new) * o, c_new


def lstm_np(p: Symbols, x: Array, y: Array, c: Array) -> tuple[Array, Array]:
    z = np.tanh(x @ p.W_c.T + y @ p.U_c.T + p.b_c)
    i = sigma(x @ p.W_i.T + y @ p.U_i.T + p.b_i)
    f = sigma(x @ p.W_f.T + y @ p.U_f.T + p.b_f)
    o = sigma(x @ p.W_o.T + y @ p.U_o.T + p.b_o)
    c_new = z * i + c * f
    return np.tanh(c_new) * o, c_new


def lstm_fgr(
    p: Symbols, x: Array, y: Array, c: Array, i: Array, f: Array, o: Array
) -> tuple[Array, ...]:
    """R_ab of the paper, from gate a to gate b, is U_a_b here."""
    from_gates_to_i = i @ p.U_i_i.T + f @ p.U_f_i.T + o @ p.U_o_i.T
    from_gates_to_f = i @ p.U_i_f.T + f @ p.U_f_f.T + o @ p.U_o_f.T
    from_gates_to_o = i @ p.U_i_o.T + f @ p.U_f_o.T + o @ p.U_o_o.T
    z = np.tanh(x @ p.W_c.T + y @ p.U_c.T + p.b_c)
    i_new = sigma(x @ p.W_i.T + y @ p.U_i.T + p.p_i * c + p.b_i + from_gates_to_i)
    f_new = sigma(x @ p.W_f.T + y @ p.U_f.T + p.p_f * c + p.b_f + from_gates_to_f)
    c_new = z * i_new + c * f_new
    o_new = sigma(x @ p.W_o.T + y @ p.U_o.T + p.p_o * c_new + p.b_o + from_gates_to_o)
    return np.tanh(c_new) * o_new, c_new, i_new, f_new, o_new


def gru(p: Symbols, x: Array, h: Array) -> Array:
    z = sigma(h @ p.U_z.T + x @ p.W_z.T + p.b_z)
    r = sigma(h @ p.U_r.T + x @ p.W_r.T + p.b_r)
    tilde = np.tanh((r * h) @ p.U_h.T + x @ p.W_h.T + p.b_h)
    return (1 - z) * h + z * tilde


def gru_cho(p: Symbols, x: Array, h: Array) -> Array:
    z = sigma(h @ p.U_z.T + x @ p.W_z.T + p.b_z)
    r = sigma(h @ p.U_r.T + x @ p.W_r.T + p.b_r)
    tilde = np.tanh((r * h) @ p.U_h.T + x @ p.W_h.T + p.b_h)
    return z * h + (1 - z) * tilde


def gru_reset_after(p: Symbols, x: Array, h: Array) -> Array:
    r = sigma(x @ p.W_r.T + h @ p.U_r.T + p.b_r)
    z = sigma(x @ p.W_z.T + h @ p.U_z.T + p.b_z)
    n = np.tanh(x @ p.W_h.T + p.b_h + r * (h @ p.U_h.T + p.b_Uh))
    return (1 - z) * n + z * h


def mut1(p: Symbols, x: Array, h: Array) -> Array:
    bare = x if x.shape[1] == h.shape[1] else x @ p.W_x.T
    z = sigma(x @ p.W_z.T + p.b_z)
    r = sigma(x @ p.W_r.T + h @ p.U_r.T + p.b_r)
    return np.tanh((r * h) @ p.U_h.T + np.tanh(bare) + p.b_h) * z + h * (1 - z)


def mut2(p: Symbols, x: Array, h: Array) -> Array:
    bare = x if x.shape[1] == h.shape[1] else x @ p.W_x.T
    z = sigma(x @ p.W_z.T + h @ p.U_z.T + p.b_z)
    r = sigma(bare + h @ p.U_r.T + p.b_r)
    return np.tanh((r * h) @ p.U_h.T + x @ p.W_h.T + p.b_h) * z + h * (1 - z)


def mut3(p: Symbols, x: Array, h: Array) -> Array:
    z = sigma(x @ p.W_z.T + np.tanh(h) @ p.U_z.T + p.b_z)
    r = sigma(x @ p.W_r.T + h @ p.U_r.T + p.b_r)
    return np.tanh((r * h) @ p.U_h.T + x @ p.W_h.T + p.b_h) * z + h * (1 - z)


def mgu(p: Symbols, x: Array, h: Array) -> Array:
    f = sigma(h @ p.U_f.T + x @ p.W_f.T + p.b_f)
    tilde = np.tanh((f * h) @ p.U_h.T + x @ p.W_h.T + p.b_h)
    return (1 - f) * h + f * tilde


def mgu_gate_after(p: Symbols, x: Array, h: Array) -> Array:
    f = sigma(h @ p.U_f.T + x @ p.W_f.T + p.b_f)
    tilde = np.tanh(x @ p.W_h.T + p.b_h + f * (h @ p.U_h.T))
    return (1 - f) * h + f * tilde


def mgu1(p: Symbols, x: Array, h: Array) -> Array:
    f = sigma(h @ p.U_f.T + p.b_f)
    tilde = np.tanh(x @ p.W_h.T + (f * h) @ p.U_h.T + p.b_h)
    return (1 - f) * h + f * tilde


def mgu2(p: Symbols, x: Array, h: Array) -> Array:
    f = sigma(h @ p.U_f.T)
    tilde = np.tanh(x @ p.W_h.T + (f * h) @ p.U_h.T + p.b_h)
    return (1 - f) * h + f * tilde


def mgu3(p: Symbols, x: Array, h: Array) -> Array:
    f = sigma(p.b_f)
    tilde = np.tanh(x @ p.W_h.T + (f * h) @ p.U_h.T + p.b_h)
    return (1 - f) * h + f * tilde


def janet(p: Symbols, x: Array, h: Array, beta: float = 1.0) -> Array:
    s = h @ p.U_f.T + x @ p.W_f.T + p.b_f
    tilde = np.tanh(h @ p.U_h.T + x @ p.W_h.T + p.b_h)
    return sigma(s) * h + (1 - sigma(s - beta)) * tilde


def ligru(p: Symbols, x: Array, h: Array) -> Array:
    z = sigma(x @ p.W_z.T + h @ p.U_z.T + p.b_z)
    tilde = np.maximum(x @ p.W_h.T + h @ p.U_h.T + p.b_h, 0.0)
    return z * h + (1 - z) * tilde


def mingru(p: Symbols, x: Array, h: Array) -> Array:
    z = sigma(x @ p.W_z.T + p.b_z)
    return (1 - z) * h + z * (x @ p.W_h.T + p.b_h)


ORACLES: dict[str, Callable[..., Any]] = {
    step.__name__: step
    for step in (
        simple, irnn, scrn,
        lstm, lstm_no_forget, lstm_peephole, lstm_coupled, lstm_nig, lstm_nfg, lstm_nog,
        lstm_niaf, lstm_noaf, lstm_cifg, lstm_np, lstm_fgr,
        gru, gru_cho, gru_reset_after, mut1, mut2, mut3,
        mgu, mgu_gate_after, mgu1, mgu2, mgu3,
        janet, ligru, mingru,
    )
}  # fmt: skip
