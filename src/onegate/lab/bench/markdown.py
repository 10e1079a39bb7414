"""Tables of measured times in Markdown, from the JSON that `onegate bench` writes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from onegate.lab.bench.accelerate import taken
from onegate.lab.bench.contestants import (
    FLAX,
    FUSED,
    REFERENCE,
    TORCH_GRU,
    TORCH_LSTM,
    TORCHRECURRENT,
    ours_name,
    peers,
)
from onegate.lab.tasks import TASKS
from onegate.nn.drop_in_rule import FILE, read

PAIR: Final = ("mgu", "gru")
TITLES: Final = {name: task.short for name, task in TASKS.items()}
_OTHERS: Final = (TORCH_GRU, TORCH_LSTM, FLAX, TORCHRECURRENT)
_MGU: Final = ours_name("mgu", FUSED)
# Of torch's layers, the unit of ours that has the same equations.
_SAME_UNIT: Final = {peer.name: peer.unit for peer in peers() if peer.name in _OTHERS[:2]}

Content = Mapping[str, Any]


def table(headings: Sequence[str], rows: Sequence[Sequence[str]], *below: str) -> str:
    """A table, and lines below it."""
    lines = ["| " + " | ".join(row) + " |" for row in (headings, ["---"] * len(headings), *rows)]
    return "\n".join([*lines, *(line for text in below for line in ("", text))])


def speed(made: Content) -> str:
    """Training step: how many times longer others take than MGU, then torch than the same unit."""
    against_mgu, like_for_like = [], []
    for shape in made["shapes"]:
        times = {r["contestant"]: r for r in shape["results"] if r["kind"] == "train"}
        ours, sizes = times[_MGU], shape["shape"]
        about = f"T {sizes['steps']}, B {sizes['batch']}, {sizes['inputs']} in"
        about += f", {sizes['hidden']} neurons"
        about += f", {sizes['layers']} layers" if sizes["layers"] > 1 else ""
        about += ", bidirectional" if sizes["bidirectional"] else ""
        title = TITLES[sizes["name"]]
        against_mgu.append(
            [
                f"{title} ({about})",
                _milliseconds(ours),
                *(_slower(times.get(name), ours) for name in _OTHERS),
                f"{100 * ours['share_of_peak']:.0f} %",
            ]
        )
        cells = [
            cell
            for other, unit in _SAME_UNIT.items()
            for same in [times.get(ours_name(unit, FUSED))]
            for cell in (_milliseconds(same), _slower(times.get(other), same))
        ]
        like_for_like.append([title, *cells])
    headings = ["training step", "onegate.MGU", *_OTHERS, "share of sgemm peak"]
    first = table(headings, against_mgu)
    pairs = [text for other, unit in _SAME_UNIT.items() for text in (f"onegate `{unit}`", other)]
    below = table(["the same unit on both sides", *pairs], like_for_like, _where(made))
    return f"{first}\n\n{below}"


def _milliseconds(ours: Content | None) -> str:
    return f"{1e3 * ours['median']:.2f} ms" if ours else ""


def _slower(other: Content | None, ours: Content | None) -> str:
    return f"{other['median'] / ours['median']:.1f} x" if other and ours else ""


def targets(made: Content) -> str:
    """What was to be reached, and what was measured."""
    return _judged(made, _where(made))


def _judged(made: Content, where: str) -> str:
    rows = [
        [
            one["figure"],
            f"{'>=' if one['at_least'] else '<='} {one['limit']:g}",
            f"{one['value']:.3f}" if one["value"] < 100 else f"{one['value']:,.0f}",
            one["state"],
        ]
        for one in made["figures"]
        if one["value"] is not None
    ]
    return table(["figure", "to reach", "measured", "state"], rows, where)


def units(made: Content) -> str:
    """Training step of every unit: milliseconds, and share of its reference engine's time."""
    cells: dict[str, list[str]] = {}
    for shape in made["shapes"]:
        times = {r["contestant"]: r["median"] for r in shape["results"] if r["kind"] == "train"}
        for contestant, fused in times.items():
            unit = contestant.removesuffix(f" {FUSED}")
            if unit != contestant:
                ratio = fused / times[ours_name(unit, REFERENCE)]
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
        rows.append([f"{TITLES[task]}, {size} neurons", *cells])
    headings = ["seconds per epoch", "MGU", "GRU", "ratio"]
    headings += ["paper: MGU", "paper: GRU", "paper: ratio"]
    m = made["machine"]
    where = f"Updates in turns; {m['processor']}, {m['threads']} threads, torch {m['torch']}, "
    return table(headings, rows, f"{where}{made['date']}.")


def inside(made: Content) -> str:
    """Ratios by what a layer has and its unit, a column a shape, beside what was to be reached."""
    rows: dict[tuple[str, str], dict[str, float]] = {}
    limits: dict[str, float] = {}
    for one in made["rows"]:
        rows.setdefault((one["what"], one["unit"]), {})[one["shape"]] = one["ratio"]
        limits[one["what"]] = one["limit"]
    shapes = list(dict.fromkeys(one["shape"] for one in made["rows"]))
    cells = []
    for (what, unit), ratios in sorted(rows.items(), key=lambda row: list(limits).index(row[0][0])):
        measured = [f"{ratios[shape]:.2f}" if shape in ratios else "" for shape in shapes]
        missed = sum(ratio > limits[what] for ratio in ratios.values())
        state = "met" if not missed else f"not met at {missed} of {len(ratios)}"
        cells.append([what, f"`{unit}`", f"<= {limits[what]:.2f}", *measured, state])
    headings = ["", "unit", "to reach", *(TITLES[shape] for shape in shapes), "state"]
    where = _where(made).replace(" 1 threads", " processor time of one thread")
    return table(headings, cells, where)


def accelerated(made: Content) -> str:
    """Time of accelerated layers over torch's, by shape; and in brackets of the fused engine."""
    rule = read(json.loads(FILE.read_text(encoding="utf-8")), made["maker"])
    found: dict[tuple[str, bool, str], dict[tuple[int, ...], str]] = {}
    for row in made["rows"]:
        key = row["kind"], row["learns"], row["precision"]
        ratio, fused = taken(row, rule)
        text = "" if ratio is None else f"{ratio:.2f}"
        text = text if fused else f"{text} ({row['fused']:.2f})".lstrip()
        found.setdefault(key, {})[tuple(row["shape"])] = text
    shapes = sorted({s for cells in found.values() for s in cells}, key=lambda s: (s[0] * s[1], s))
    cells = [
        [kind, "training" if learns else "inference", precision]
        + [measured.get(shape, "") for shape in shapes]
        for (kind, learns, precision), measured in found.items()
    ]
    sizes = [", ".join(map(str, shape)) for shape in shapes]
    where = _where(made).replace(", float32,", ",")
    return table(["T, B, n:", "", "", *sizes], cells, where)


def recurrent_ppo(made: Content) -> str:
    """Updates per second of both ways, and how long episodes are at the end, seed by seed."""
    slowest = min(row["updates_per_second"] for row in made["rows"])
    rows = [
        [
            row["name"],
            f"{row['updates_per_second']:.1f}",
            f"{row['updates_per_second'] / slowest:.1f}",
            ", ".join(f"{end:.0f}" for end in row["ends"]),
        ]
        for row in made["rows"]
    ]
    headings = ["", "updates a second", "ratio", "steps of an episode at the end, by seed"]
    where = _where(made).replace(" 1 threads", " processor time of one thread")
    return table(headings, rows, where)


def deployed_steps(made: Content) -> str:
    """Microseconds of a step, by neurons."""
    names = list(next(iter(made["steps"].values())))
    rows = [
        [size, *(f"{found[name]:.2f}" for name in names)] for size, found in made["steps"].items()
    ]
    return table(["us a step, by neurons", *names], rows, _where_deployed(made))


def deployed_figures(made: Content) -> str:
    """What exported models were to reach."""
    return _judged(made, _where_deployed(made))


def deployed_sequences(made: Content) -> str:
    """A sequence in ONNX Runtime, beside the fused engine."""
    found, fused = made["sequence"], made["sequence"]["fused engine"]
    ratios = " / ".join(f"{found[form] / fused:.2f}" for form in ("op", "scan"))
    row = [*(f"{found[name]:.2f}" for name in ("op", "scan", "fused engine")), ratios]
    headings = ["GRU operator", "Scan", "fused engine", "of the fused engine"]
    return table(headings, [row], _where_deployed(made))


def _where_deployed(made: Content) -> str:
    m = made["machine"]
    return (
        f"The least mean of many blocks in turns; {m['processor']}, one thread, "
        f"torch {m['torch']}, ONNX Runtime {made['onnxruntime']}, {made['date'][:10]}."
    )


def streaming(made: Content) -> str:
    """Median and 99.9th percentile of a step, by contestant and neurons."""
    rows: dict[str, list[str]] = {}
    for one in made["streaming"]:
        rows.setdefault(one["name"], []).append(f"{one['p50']:.1f} / {one['p99.9']:.0f}")
    sizes = dict.fromkeys(one["units"] for one in made["streaming"])
    headings = ["us a step: p50 / p99.9", *(f"{size} neurons" for size in sizes)]
    m = made["machine"]
    where = f"In turns of 200 steps; {m['processor']}, one thread, torch {m['torch']}, "
    where += f"{made['date'][:10]}."
    return table(headings, [[name, *cells] for name, cells in rows.items()], where)


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
    "inside": ("bench/inside.json", inside),
    "norms": ("bench/norms.json", inside),
    "accelerate": ("bench/accelerate-amd.json", accelerated),
    "accelerate intel": ("bench/accelerate-intel.json", accelerated),
    "recurrent ppo": ("bench/recurrent-ppo.json", recurrent_ppo),
    "new units": ("bench/new-units.json", inside),
    "deployed steps": ("bench/deploy.json", deployed_steps),
    "deployed figures": ("bench/deploy.json", deployed_figures),
    "deployed sequences": ("bench/deploy.json", deployed_sequences),
    "streaming": ("bench/streaming.json", streaming),
    "epochs": ("time_per_epoch.json", epochs),
}
