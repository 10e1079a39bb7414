"""Shapes as written on the command line, and sweeps."""

from __future__ import annotations

import pytest

from onegate.lab.bench.shapes import PAPER, SWEEPS, Shape, parse, sweep


def test_the_papers_shapes() -> None:
    sizes = {
        name: (s.steps, s.batch, s.inputs, s.hidden, s.layers, s.bidirectional, s.input_gradient)
        for name, s in PAPER.items()
    }
    assert sizes == {
        "adding": (55, 100, 2, 100, 1, True, False),
        "imdb": (128, 16, 1, 100, 1, False, False),
        "mnist_rows": (28, 100, 28, 100, 1, False, False),
        "mnist_pixels": (784, 100, 1, 100, 1, False, False),
        "ptb": (35, 20, 500, 500, 2, False, True),
    }
    assert PAPER["adding"].outputs == 200


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("7,6,5,4", Shape("7,6,5,4", 7, 6, 5, 4)),
        ("7,6,5,4,3", Shape("7,6,5,4,3", 7, 6, 5, 4, 3)),
        ("7,6,5,4,bi", Shape("7,6,5,4,bi", 7, 6, 5, 4, 1, True)),
        ("7,6,5,4,3,bi", Shape("7,6,5,4,3,bi", 7, 6, 5, 4, 3, True)),
    ],
)
def test_parse(text: str, expected: Shape) -> None:
    assert parse(text) == expected


@pytest.mark.parametrize("text", ["", "7,6,5", "7,6,5,0", "7,6,5,4,3,2", "7,6,5,4,by", "a,b,c,d"])
def test_what_is_not_a_shape_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a shape: expected T,B,d,n\[,layers\]\[,bi\]"):
        parse(text)


@pytest.mark.parametrize(
    ("field", "first", "last"), [("steps", 1, 2000), ("batch", 1, 512), ("hidden", 32, 1024)]
)
def test_a_sweep_varies_one_size_alone(field: str, first: int, last: int) -> None:
    base = PAPER["mnist_rows"]
    shapes = sweep(field, base)
    assert [getattr(s, field) for s in shapes] == list(SWEEPS[field])
    assert (SWEEPS[field][0], SWEEPS[field][-1]) == (first, last)
    for other in {"steps", "batch", "hidden", "inputs", "layers"} - {field}:
        assert {getattr(s, other) for s in shapes} == {getattr(base, other)}
    assert len({s.name for s in shapes}) == len(shapes)
