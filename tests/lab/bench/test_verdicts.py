"""Figures to reach against made-up measurements."""

from __future__ import annotations

import pytest

from onegate.lab.bench.contestants import FLAX, TORCH_GRU, TORCH_LSTM, TORCHRECURRENT
from onegate.lab.bench.outcomes import Timings
from onegate.lab.bench.shapes import PAPER
from onegate.lab.bench.verdicts import Verdict, verdicts
from tests.lab.bench.made import outcome
from tests.lab.bench.test_outcomes import made_sweep


def on(name: str, *, mgu: float = 0.1, memory: bool = True, flax: bool = True) -> Timings:
    """torch.nn.GRU takes a second; everybody else as the figures want it, if mgu does."""
    train = {
        "mgu fused": mgu,
        "mgu reference": 0.5,
        "gru fused": 0.2,
        "gru_reset_after fused": 0.3,
        "lstm fused": 0.4,
        "lstm reference": 0.8,
        TORCH_GRU: 1.0,
        TORCH_LSTM: 0.5,
        TORCHRECURRENT: 0.7,
        **({FLAX: 0.4} if flax else {}),
    }
    held = {"mgu fused": 40, TORCH_GRU: 100} if memory else None
    skipped = {} if flax else {FLAX: "flax is not installed"}
    return outcome(PAPER[name], train, held=held, skipped=skipped)


def find(found: list[Verdict], *words: str) -> Verdict:
    """The one figure whose text has all the words."""
    (verdict,) = [v for v in found if all(word in v.figure for word in words)]
    return verdict


def test_every_figure_is_there_whether_or_not_it_was_measured() -> None:
    nothing = verdicts([], [])
    assert {v.state for v in nothing} == {"not measured"}
    assert all(v.reason for v in nothing)
    everything = verdicts([on(name) for name in PAPER], [made_sweep("steps")])
    measured = [v.figure for v in everything if v.met is not None]
    for verdict in nothing:
        if "sweep over" not in verdict.figure:
            assert verdict.figure in measured


@pytest.mark.parametrize(
    ("shape", "gru", "lstm", "flax", "share"),
    [
        ("adding", 0.28, 0.35, None, 0.50),
        ("imdb", 0.12, 0.40, 0.40, 0.45),
        ("mnist_rows", 0.30, 0.40, 0.45, 0.55),
        ("mnist_pixels", 0.20, 0.30, 0.33, 0.50),
        ("ptb", 0.42, 0.42, 0.65, 0.65),
    ],
)
def test_limits_of_the_papers_shapes(
    shape: str, gru: float, lstm: float, flax: float | None, share: float
) -> None:
    found = verdicts([on(shape)], [])
    name = f"{shape}: training step, mgu fused / "
    assert find(found, name + TORCH_GRU).limit == gru
    assert find(found, name + TORCH_LSTM).limit == lstm
    assert [v.limit for v in found if name + FLAX in v.figure] == ([flax] if flax else [])
    verdict = find(found, f"{shape}: mgu fused, share")
    assert (verdict.limit, verdict.at_least, verdict.value) == (share, True, 0.6)
    assert verdict.met is (share <= 0.6)


def test_ratios_are_of_the_right_contestants() -> None:
    found = verdicts([on("imdb", mgu=0.1)], [])
    for words, value, met in (
        (f"training step, mgu fused / {TORCH_GRU}", 0.1, True),
        (f"training step, mgu fused / {TORCH_LSTM}", 0.2, True),
        ("training step, mgu fused / Flax", 0.25, True),
        ("training step, mgu fused / gru fused", 0.5, True),
        (f"gru_reset_after fused / {TORCH_GRU}", 0.3, True),
        (f"lstm fused / {TORCH_LSTM}", 0.8, True),
        ("mgu reference / torchrecurrent", 0.5 / 0.7, True),
        ("inference, mgu fused", 0.1, True),
        ("memory held", 0.4, True),
    ):
        verdict = find(found, "imdb:", words)
        assert verdict.value == pytest.approx(value)
        assert verdict.met is met
    assert find(found, "mgu: training step, fused / reference").value == pytest.approx(0.2)
    assert find(found, "lstm: training step, fused / reference").state == "not met"


def test_too_slow_is_not_met() -> None:
    found = verdicts([on("imdb", mgu=0.13)], [])
    assert find(found, f"imdb: training step, mgu fused / {TORCH_GRU}").state == "not met"
    slow = verdicts([on("imdb", mgu=1.01)], [])
    assert find(slow, "imdb: inference, mgu fused").state == "not met"


def test_what_was_not_measured_has_its_reason() -> None:
    found = verdicts([on("imdb", flax=False, memory=False)], [])
    assert find(found, "imdb:", "Flax").reason == f"{FLAX}: flax is not installed"
    assert find(found, "imdb: memory").reason == "not asked for"
    assert find(found, "ptb: memory").reason == "the shape was not run"
    assert not [v for v in found if "adding" in v.figure and TORCHRECURRENT in v.figure]


def test_engines_at_their_worst_shape() -> None:
    found = verdicts([on("imdb", mgu=0.1), on("ptb", mgu=0.3)], [])
    verdict = find(found, "mgu: training step, fused / reference, at worst")
    assert verdict.value == pytest.approx(0.6)
    assert "(ptb)" in verdict.figure
    assert verdict.state == "not met"


def test_sweeps() -> None:
    found = verdicts([], [made_sweep("steps")])
    worst = find(found, "sweep over steps", "at worst (steps 1, inference)")
    assert (worst.value, worst.state) == (1.5, "not met")
    assert find(found, "sweep over steps: training step", "linear").state == "met"
    assert find(found, "sweep over batch: training step", "linear").reason == (
        "run with --sweep batch"
    )
    assert not [v for v in found if "hidden" in v.figure and "linear" in v.figure]
