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


def blocks(v: Array, R: Array) -> Array:
    """v times the block-diagonal matrix whose blocks are R (heads, rows, columns)."""
    if R.ndim == 2:
        return v @ R.T
    heads, rows, columns = R.shape
    whole = np.zeros((heads * rows, heads * columns))
    for k in range(heads):
        whole[k * rows : (k + 1) * rows, k * columns : (k + 1) * columns] = R[k]
    return v @ whole.T


def layer_norm(v: Array) -> Array:
    """Ba et al.: mean 0 and variance 1 over a row."""
    variance: Array = v.var(1, keepdims=True)
    found: Array = (v - v.mean(1, keepdims=True)) / np.sqrt(variance + 1e-5)
    return found


def rms(v: Array) -> Array:
    """With the epsilon of DreamerV3."""
    square: Array = (v * v).mean(1, keepdims=True)
    return v / np.sqrt(square + 1e-4)


def silu(v: Array) -> Array:
    return v * sigma(v)


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


def ligru_layer_norm(p: Symbols, x: Array, h: Array) -> Array:
    """The paper's batch norm replaced by a norm of both maps of x, stacked."""
    of_x = layer_norm(x @ np.concatenate([p.V_z, p.V_h]).T)
    gain = np.concatenate([p.gain_1_N_x, p.gain_2_N_x])
    z, a = np.split(gain * of_x + np.concatenate([p.shift_1_N_x, p.shift_2_N_x]), 2, axis=1)
    z = sigma(z + h @ p.U_z.T)
    return z * h + (1 - z) * np.maximum(a + h @ p.U_h.T, 0.0)


def ligru(p: Symbols, x: Array, h: Array) -> Array:
    z = sigma(x @ p.W_z.T + h @ p.U_z.T + p.b_z)
    tilde = np.maximum(x @ p.W_h.T + h @ p.U_h.T + p.b_h, 0.0)
    return z * h + (1 - z) * tilde


def mingru(p: Symbols, x: Array, h: Array) -> Array:
    z = sigma(x @ p.W_z.T + p.b_z)
    return (1 - z) * h + z * (x @ p.W_h.T + p.b_h)


def minlstm(p: Symbols, x: Array, h: Array) -> Array:
    forget, write = sigma(x @ p.W_f.T + p.b_f), sigma(x @ p.W_i.T + p.b_i)
    tilde = x @ p.W_h.T + p.b_h
    return (forget * h + write * tilde) / (forget + write)


def ugrnn(p: Symbols, x: Array, h: Array) -> Array:
    g = sigma(x @ p.W_g.T + h @ p.U_g.T + p.b_g)
    return g * h + (1 - g) * np.tanh(x @ p.W_c.T + h @ p.U_c.T + p.b_c)


def cfn(p: Symbols, x: Array, h: Array) -> Array:
    theta = sigma(h @ p.U_f.T + x @ p.W_f.T + p.b_f)
    eta = sigma(h @ p.U_i.T + x @ p.W_i.T + p.b_i)
    return theta * np.tanh(h) + eta * np.tanh(x @ p.W_h.T)


def cornn(
    p: Symbols, x: Array, y: Array, z: Array, dt: float = 0.042, gamma: float = 2.7,
    epsilon: float = 4.7,
) -> tuple[Array, Array]:  # fmt: skip
    drive = np.tanh(y @ p.U_z.T + z @ p.U_z_z.T + x @ p.W_z.T + p.b_z)
    z_new = z + dt * drive - dt * gamma * y - dt * epsilon * z
    return y + dt * z_new, z_new


def lem(p: Symbols, x: Array, y: Array, z: Array, dt: float = 1.0) -> tuple[Array, Array]:
    """The paper's sigma hat is (1 + tanh(v / 2)) / 2."""
    fast = dt * 0.5 * (1 + np.tanh(0.5 * (y @ p.U_f.T + x @ p.W_f.T + p.b_f)))
    slow = dt * 0.5 * (1 + np.tanh(0.5 * (y @ p.U_g.T + x @ p.W_g.T + p.b_g)))
    z_new = (1 - fast) * z + fast * np.tanh(y @ p.U_z.T + x @ p.W_z.T + p.b_z)
    return (1 - slow) * y + slow * np.tanh(z_new @ p.U_h.T + x @ p.W_h.T + p.b_h), z_new


def indrnn(p: Symbols, x: Array, h: Array) -> Array:
    return np.maximum(x @ p.W_h.T + p.u * h + p.b_h, 0.0)


def slstm(
    p: Symbols, x: Array, h: Array, c: Array, n: Array, m: Array, exponential_forget: bool = False
) -> tuple[Array, ...]:
    """Without a stabiliser, of c and n times exp(m): the paper's equations 8 to 15, then 16."""
    raw_i = blocks(h, p.R_i) + x @ p.W_i.T + p.b_i
    raw_f = blocks(h, p.R_f) + x @ p.W_f.T + p.b_f
    f = np.exp(raw_f) if exponential_forget else sigma(raw_f)
    c_true = f * (c * np.exp(m)) + np.exp(raw_i) * np.tanh(blocks(h, p.R_z) + x @ p.W_z.T + p.b_z)
    n_true = f * (n * np.exp(m)) + np.exp(raw_i)
    shown = sigma(blocks(h, p.R_o) + x @ p.W_o.T + p.b_o) * (c_true / n_true)
    m_new = np.maximum(np.log(f) + m, raw_i)
    return shown, c_true / np.exp(m_new), n_true / np.exp(m_new), m_new


def lstm_layer_norm(p: Symbols, x: Array, h: Array, c: Array) -> tuple[Array, Array]:
    f = p.gain_N_f * layer_norm(h @ p.U_f.T + x @ p.W_f.T) + p.shift_N_f
    i = p.gain_N_i * layer_norm(h @ p.U_i.T + x @ p.W_i.T) + p.shift_N_i
    o = p.gain_N_o * layer_norm(h @ p.U_o.T + x @ p.W_o.T) + p.shift_N_o
    g = p.gain_N_g * layer_norm(h @ p.U_c.T + x @ p.W_c.T) + p.shift_N_g
    c_new = sigma(f) * c + sigma(i) * np.tanh(g)
    return sigma(o) * np.tanh(p.gain_N_c * layer_norm(c_new) + p.shift_N_c), c_new


def gru_layer_norm(p: Symbols, x: Array, h: Array) -> Array:
    of_h = layer_norm(h @ np.concatenate([p.U_z, p.U_r]).T)
    of_x = layer_norm(x @ np.concatenate([p.W_z, p.W_r]).T)
    alpha_1 = np.concatenate([p.gain_1_N_h, p.gain_2_N_h])
    alpha_2 = np.concatenate([p.gain_1_N_x, p.gain_2_N_x])
    beta = np.concatenate([p.shift_1_N_x, p.shift_2_N_x])
    z, r = np.split(alpha_1 * of_h + alpha_2 * of_x + beta, 2, axis=1)
    from_x = p.gain_N_w * layer_norm(x @ p.W_h.T) + p.shift_N_w
    from_h = p.gain_N_u * layer_norm(h @ p.U_h.T) + p.shift_N_u
    return (1 - sigma(z)) * h + sigma(z) * np.tanh(from_x + sigma(r) * from_h)


def gru_block(p: Symbols, x: Array, h: Array) -> Array:
    """Of each block the input is its share of h and all features, as the authors lay it out."""
    features_x = silu(p.gain_N_x * rms(x @ p.W_x.T + p.b_x))
    features_h = silu(p.gain_N_p * rms(h @ p.U_p.T + p.b_p))
    mixed = blocks(h, p.U_s) + features_h @ p.U_s_of_p.T + features_x @ p.W_s.T + p.b_s
    s = silu(p.gain_N_s * rms(mixed))
    reset = sigma(blocks(s, p.U_r) + p.b_r)
    cand = np.tanh(reset * (blocks(s, p.U_h) + p.b_h))
    update = sigma(blocks(s, p.U_z) + p.b_z - 1)
    return update * cand + (1 - update) * h


def fastgrnn(p: Symbols, x: Array, h: Array, low_rank: bool = False) -> Array:
    W = p.L_x @ p.L_x_low if low_rank else p.W
    U = p.L_h @ p.L_h_low if low_rank else p.U
    z = sigma(x @ W.T + h @ U.T + p.b_z)
    tilde = np.tanh(x @ W.T + h @ U.T + p.b_h)
    return (sigma(p.zeta) * (1 - z) + sigma(p.nu)) * tilde + z * h


def gru_d(
    p: Symbols, x: Array, mask: Array, gap: Array, h: Array, learn_mean: bool = False
) -> Array:
    """Che et al., section 3, where x is observed or else the last observation."""
    mean = p.mean if learn_mean else 0.0
    decay_x = np.exp(-np.maximum(0.0, gap @ np.diag(p.w_x) + p.b_x))
    decay_h = np.exp(-np.maximum(0.0, gap @ p.W_d.T + p.b_d))
    x_hat = mask * x + (1 - mask) * (decay_x * x + (1 - decay_x) * mean)
    h_hat = decay_h * h
    r = sigma(x_hat @ p.W_r.T + h_hat @ p.U_r.T + mask @ p.V_r.T + p.b_r)
    z = sigma(x_hat @ p.W_z.T + h_hat @ p.U_z.T + mask @ p.V_z.T + p.b_z)
    tilde = np.tanh(x_hat @ p.W_h.T + (r * h_hat) @ p.U_h.T + mask @ p.V_h.T + p.b_h)
    return (1 - z) * h_hat + z * tilde


ORACLES: dict[str, Callable[..., Any]] = {
    step.__name__: step
    for step in (
        simple, irnn, scrn, indrnn,
        lstm, lstm_no_forget, lstm_peephole, lstm_coupled, lstm_nig, lstm_nfg, lstm_nog,
        lstm_niaf, lstm_noaf, lstm_cifg, lstm_np, lstm_fgr, lstm_layer_norm, slstm,
        gru, gru_cho, gru_reset_after, gru_layer_norm, gru_block, mut1, mut2, mut3,
        mgu, mgu_gate_after, mgu1, mgu2, mgu3,
        janet, ligru, mingru, minlstm, ugrnn, cfn, fastgrnn,
        cornn, lem, gru_d,
    )
}  # fmt: skip
