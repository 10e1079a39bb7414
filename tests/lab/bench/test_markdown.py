"""Tables of measured times say what was compared with what."""

from __future__ import annotations

from onegate.lab.bench import markdown


def result(contestant: str, milliseconds: float) -> dict[str, object]:
    return {
        "contestant": contestant,
        "kind": "train",
        "median": milliseconds / 1e3,
        "share_of_peak": 0.5,
    }


def test_the_speed_table_compares_with_mgu_and_like_with_like() -> None:
    sizes = {"name": "adding", "steps": 5, "batch": 4, "inputs": 3, "hidden": 2, "layers": 1,
             "bidirectional": False}  # fmt: skip
    results = [result("mgu fused", 2), result("torch.nn.GRU", 12), result("torch.nn.LSTM", 9),
               result("gru_reset_after fused", 4), result("lstm fused", 6)]  # fmt: skip
    made = {
        "shapes": [{"shape": sizes, "results": results}],
        "machine": {"processor": "P", "threads": 2, "torch": "2"},
        "date": "2026-01-01",
    }
    lines = markdown.speed(made).splitlines()
    assert lines[2].startswith("| adding (T 5, B 4, 3 in, 2 neurons) | 2.00 ms | 6.0 x | 4.5 x |")
    assert lines[4] == (
        "| the same unit on both sides | onegate `gru_reset_after` | torch.nn.GRU | onegate `lstm` "
        "| torch.nn.LSTM |"
    )
    assert lines[6] == "| adding | 4.00 ms | 3.0 x | 6.00 ms | 1.5 x |"
    del results[3:]
    assert markdown.speed(made).splitlines()[6] == "| adding |  |  |  |  |"


def test_the_table_of_what_is_inside_says_where_a_figure_is_missed() -> None:
    def row(shape: str, ratio: float) -> dict[str, object]:
        return {"unit": "mgu", "shape": shape, "what": "reset", "ratio": ratio, "limit": 1.05}

    made = {
        "rows": [row("adding", 1.01), row("imdb", 1.072)],
        "machine": {"processor": "P", "threads": 2, "torch": "2"},
        "date": "2026-01-01",
    }
    assert markdown.inside(made).splitlines()[2] == (
        "| reset | `mgu` | <= 1.05 | 1.01 | 1.07 | not met at 1 of 2 |"
    )
