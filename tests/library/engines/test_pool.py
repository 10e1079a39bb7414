"""Large tensors take their memory from blocks that are used again, and from no tensor alive."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor

import onegate
from onegate.engines.cpu import pool

FLOATS = pool.SMALLEST // 4
LIKE = torch.zeros(1)


@pytest.fixture(autouse=True)
def nothing_idle() -> Iterator[None]:
    gc.collect()
    pool.release()
    yield
    pool.release()


def test_shape_and_dtype() -> None:
    for like in (torch.zeros(1), torch.zeros(1, dtype=torch.float64)):
        for shape in ((3, 5), (0,), (7, FLOATS), (1, 2 * FLOATS + 1, 1)):
            made = pool.empty(shape, like)
            assert made.shape == shape
            assert made.dtype == like.dtype
            assert made.is_contiguous()
            made.fill_(1.5)
            assert made.sum() == 1.5 * made.numel()


def test_a_block_is_used_again() -> None:
    first = pool.empty((FLOATS,), LIKE)
    place = first.data_ptr()
    del first
    assert pool.idle_bytes() == pool.SMALLEST
    again = pool.empty((FLOATS,), LIKE)
    assert again.data_ptr() == place
    assert pool.idle_bytes() == 0


def test_nearly_equal_sizes_share_blocks() -> None:
    first = pool.empty((100 * FLOATS,), LIKE)
    place = first.data_ptr()
    del first
    assert pool.empty((97, FLOATS), LIKE).data_ptr() == place


@pytest.mark.parametrize("floats", [FLOATS, FLOATS + 1, 17 * FLOATS - 3, 1000 * FLOATS + 1])
def test_a_block_is_large_enough_and_at_most_an_eighth_larger(floats: int) -> None:
    size = 4 * floats
    rounded = pool._rounded(size)
    assert size <= rounded
    assert rounded <= max(size + pool.SMALLEST, size * 9 / 8)


def test_small_tensors_are_torchs() -> None:
    made = pool.empty((FLOATS - 1,), LIKE)
    del made
    assert pool.idle_bytes() == 0


def test_a_block_in_use_is_not_handed_out() -> None:
    made = [pool.empty((FLOATS,), LIKE).fill_(i) for i in range(5)]
    assert len({tensor.data_ptr() for tensor in made}) == 5
    assert [tensor[-1].item() for tensor in made] == [0, 1, 2, 3, 4]


def test_a_view_keeps_its_block() -> None:
    def last(tensor: Tensor) -> Tensor:
        return tensor.view(2, -1)[1, -3:].detach()

    view = last(pool.empty((FLOATS,), LIKE).fill_(7))
    gc.collect()
    assert pool.idle_bytes() == 0
    other = pool.empty((FLOATS,), LIKE).fill_(0)
    assert view.tolist() == [7, 7, 7]
    del view
    assert pool.idle_bytes() == pool.SMALLEST
    del other


def test_a_numpy_array_keeps_its_block() -> None:
    array = pool.empty((FLOATS,), LIKE).fill_(7).numpy()
    pool.empty((FLOATS,), LIKE).fill_(0)
    assert (array == 7).all()


def test_not_more_than_the_reserve_lies_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "LARGEST_RESERVE", 3 * pool.SMALLEST)
    made = [pool.empty((FLOATS,), LIKE) for _ in range(5)]
    del made
    assert pool.idle_bytes() == 3 * pool.SMALLEST
    pool.release()
    assert pool.idle_bytes() == 0


def test_many_threads() -> None:
    """No two threads ever hold one block."""
    together = threading.Barrier(8)

    def work(number: int) -> bool:
        together.wait(60)
        for turn in range(200):
            made = pool.empty((FLOATS,), LIKE)
            mark = float(1000 * number + turn)
            made[:8], made[-8:] = mark, mark
            if not (made[:8] == mark).all() or not (made[-8:] == mark).all():
                return False
        return True

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(work, range(8)))


def test_layers_use_their_memory_again() -> None:
    layer, x = onegate.MGU(8, 64), torch.randn(200, 64, 8)

    def step() -> None:
        layer(x)[0].sum().backward()

    step()
    idle = pool.idle_bytes()
    assert idle > 0
    for _ in range(3):
        step()
        assert pool.idle_bytes() == idle


def test_an_output_outlives_its_layer() -> None:
    layer, x = onegate.MGU(8, 64), torch.randn(200, 64, 8)
    with torch.inference_mode():
        out, _ = layer(x)
    expected = out.clone()
    del layer
    for _ in range(3):
        onegate.MGU(8, 64)(x + 1)
    assert torch.equal(out, expected)


def test_the_interpreter_ends_in_silence() -> None:
    """With tensors alive, in whatever order modules are torn down."""
    script = (
        "import torch, onegate\n"
        "layer = onegate.MGU(8, 64)\n"
        "kept = [layer(torch.randn(200, 64, 8)) for _ in range(2)]\n"
        "layer.kept = kept\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
