"""Tables of measured times in Markdown, from the JSON that `onegate bench` writes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from onegate.lab.bench.contestants import FLAX, TORCH_GRU, TORCH_LSTM, TORCHRECURRENT, ours_name
from onegate.lab.tasks import TASKS

PAIR: Final = ("mgu", "gru")
TITLES: Final = {name: task.short for name, task in TASKS.items()}
_OTHERS: Final = (TORCH_GRU, TORCH_LSTM, FLAX, TORCHRECURRENT)
_MGU: Final = ours_name("mgu", "fused")

Content = Mapping[str, Any]


def table(headings: Sequence[str], rows: Sequence[Sequence[str]], *below: str) -> str:
    """A table, and lines below it."""
    lines = ["| " + " | ".join(row) + " |" for row in (headings, ["---"] * len(headings), *rows)]
    return "\n".join([*lines, *(line for text in below for line in ("", text))])


def speed(made: Content) -> str:
    """Training step: milliseconds of MGU, and how many times longer others take."""
    rows = []
    for shape in made["shapes"]:
        times = {r["contestant"]: r for r in shape["results"] if r["kind"] == "train"}
        ours, sizes = times[_MGU], shape["shape"]
        about = f"T {sizes['steps']}, B {sizes['batch']}, {sizes['inputs']} in"
        about += f", {sizes['hidden']} units"
        about += f", {sizes['layers']} layers" if sizes["layers"] > 1 else ""
        about += ", bidirectional" if sizes["bidirectional"] else ""
        others = [
            f"{times[name]['median'] / ours['median']:.1f} x" if name in times else ""
            for name in _OTHERS
        ]
        rows.append(
            [
                f"{TITLES[sizes['name']]} ({about})",
                f"{1e3 * ours['median']:.2f} ms",
                *others,
                f"{100 * ours['share_of_peak']:.0f} %",
            ]
        )
    headings = ["training step", "onegate.MGU", *_OTHERS, "share of sgemm peak"]
    return table(headings, rows, _where(made))


def targets(made: Content) -> str:
    """What was to be reached, and what was measured."""
    rows = [
        [
            one["figure"],
            f"{'>=' if one['at_least'] else '<='} {one['limit']:g}",
            f"{one['value']:.3f}",
            one["state"],
        ]
        for one in made["figures"]
        if one["value"] is not None
    ]
    return table(["figure", "to reach", "measured", "state"], rows, _where(made))


def units(made: Content) -> str:
    """Training step of every unit: milliseconds, and share of its reference engine's time."""
    cells: dict[str, list[str]] = {}
    for shape in made["shapes"]:
        times = {r["contestant"]: r["median"] for r in shape["results"] if r["kind"] == "train"}
        for contestant, fused in times.items():
            unit = contestant.removesuffix(" fused")
            if unit != contestant:
                ratio = fused / times[ours_name(unit, "reference")]
                cells.setdefault(unit, []).append(f"{1e3 * fused:.2f} ({ratio:.2f})")
    headings = ["unit", *(TITLES[shape["shape"]["name"]] for shape in made["shapes"])]
    return table(headings, [[f"`{unit}`", *row] for unit, row in cells.items()], _where(made))


def sweeps(made: Content) -> str:
    """The worst point of each sweep, and whether time is linear."""
    rows = []
    for sweep in made["sweeps"]:
        worst = next((w for w in sweep["worst"] if w["contestant"] == _MGU), None)
        lines = (line for line in sweep["lines"] if line["contestant"] == _MGU)
        line = next((line for line in lines if line["kind"] == "train"), None)
        rows.append(
            [
                sweep["field"].replace("_", " "),
                f"{worst['ratio']:.3f}" if worst else "",
                worst["shape"] if worst else "",
                f"{line['r2']:.4f}" if line else "",
            ]
        )
    headings = ["sweep, mgu", f"largest ratio to {TORCH_GRU}", "at"]
    headings.append("r2 of a straight line, training")
    return table(headings, rows, _where(made))


def epochs(made: Content) -> str:
    """Seconds per epoch beside the paper's."""
    rows = []
    for row in made["rows"]:
        task, size = row["task"], row["hidden_size"]
        cells = [f"{row[unit]:.3g}" for unit in PAIR] + [f"{row['mgu'] / row['gru']:.2f}"]
        stated = [TASKS[task].find(unit, size, "seconds_per_epoch") for unit in PAIR]
        mgu, gru = (published.value for published in stated if published)
        cells += [f"{mgu:g}", f"{gru:g}", f"{mgu / gru:.2f}"]
        rows.append([f"{TITLES[task]}, {size} units", *cells])
    headings = ["seconds per epoch", "MGU", "GRU", "ratio"]
    headings += ["paper: MGU", "paper: GRU", "paper: ratio"]
    m = made["machine"]
    where = f"Updates in turns; {m['processor']}, {m['threads']} threads, torch {m['torch']}, "
    return table(headings, rows, f"{where}{made['date']}.")


def _where(made: Content) -> str:
    m = made["machine"]
    return (
        f"Medians, contestants taking turns in one process; {m['processor']}, {m['threads']} "
        f"threads, torch {m['torch']}, float32, {made['date'][:10]}."
    )


# Name of a table: the file in results that it is written from, and how.
TABLES: Final[Mapping[str, tuple[str, Callable[[Content], str]]]] = {
    "speed": ("bench/paper.json", speed),
    "figures": ("bench/paper.json", targets),
    "units": ("bench/all-units.json", units),
    "sweeps": ("bench/sweeps.json", sweeps),
    "epochs": ("time_per_epoch.json", epochs),
}
