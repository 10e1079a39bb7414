"""Writes the measured tables into README.md and docs, from what lies in results.

    onegate bench --check --json results/bench/paper.json
    onegate bench --all-units --check --seconds 0.4 --json results/bench/all-units.json
    onegate bench --sweep steps batch hidden single_batch single_hidden --check \\
        --json results/bench/sweeps.json
    python benchmarks/time_per_epoch.py
    python benchmarks/keep_runs.py runs
    python benchmarks/write_tables.py

A table stands between the lines `<!-- NAME -->` and `<!-- end NAME -->`; nothing else is touched.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from onegate.lab import files
from onegate.lab.report.groups import Group, display, grouped
from onegate.lab.runs import Comparison, Run, comparisons, finished_runs
from onegate.lab.tasks import TASKS

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results" / "bench"
PAIR = ("mgu", "gru")
TITLES = {name: task.short for name, task in TASKS.items()}
OTHERS = ("torch.nn.GRU", "torch.nn.LSTM", "Flax MGUCell (jit)", "torchrecurrent MGU")


@dataclass(frozen=True)
class Study:
    """Runs of a recipe with some fields replaced; `fixed` ones are the same in all of them.

    size: hidden units, if the runs have several.
    """

    name: str
    task: str
    recipe: str
    varied: tuple[str, ...]
    fixed: Mapping[str, Any] = field(default_factory=dict)
    units: tuple[str, ...] = PAIR
    size: int | None = None


# Penn TreeBank without what keeps its `paper` recipe from learning the text by heart.
PLAIN = {"model.start_from_text": False, "optimizer.weight_decay": 0.0}
FORGET_BIAS = ("model.init", "model.init_value")
STUDIES = (
    Study("readings adding", "adding", "paper", ("data.variant",)),
    Study("halved rows", "mnist_rows", "flow", ("optimizer.lr",)),
    Study("halved imdb", "imdb", "flow", ("optimizer.lr",)),
    Study(
        "readings", "imdb", "flow",
        ("data.input", "data.scale", "data.long", "data.padding", "model.readout"),
        {"length": 10.0}, ("mgu",),
    ),
    Study(
        "overfitting", "ptb", "paper",
        ("model.dropout", "optimizer.lr", "optimizer.weight_decay", "schedule.kind",
         "schedule.factor", "schedule.start", "length"),
        {"data.train": 300_000, "model.start_from_text": False}, ("mgu",),
    ),
    Study(
        "overfitting 400", "ptb", "paper",
        ("model.start_from_text", "optimizer.weight_decay", "length"), size=400,
    ),
    *(
        Study(
            f"lengths {epochs:g}", "adding", "tuned",
            ("data.shortest", "data.longest", *FORGET_BIAS), {"length": epochs},
        )
        for epochs in (12.0, 30.0)
    ),
    Study(
        "permuted", "mnist_permuted", "tuned", (*FORGET_BIAS, "optimizer.lr"), {"length": 2.0}
    ),
    Study("gate after rows", "mnist_rows", "tuned", (), units=("mgu", "mgu_gate_after")),
    Study("gate after adding", "adding", "tuned", (), units=("mgu", "mgu_gate_after")),
    Study(
        "forget bias adding", "adding", "tuned", FORGET_BIAS, {"length": 20.0}, ("mgu", "lstm")
    ),
    Study(
        "forget bias rows", "mnist_rows", "tuned", FORGET_BIAS, {"length": 5.0}, ("mgu", "lstm")
    ),
)  # fmt: skip


def main() -> None:
    paper = json.loads((RESULTS / "paper.json").read_text())
    tables = {"speed": _speed(paper), "figures": _figures(paper)}
    for name, path, table in (
        ("units", RESULTS / "all-units.json", _units),
        ("sweeps", RESULTS / "sweeps.json", _sweeps),
        ("epochs", ROOT / "results" / "time_per_epoch.json", _epochs),
    ):
        if path.exists():
            tables[name] = table(json.loads(path.read_text()))
    runs = finished_runs(ROOT / "results" / "runs")
    tables["results"] = _results(runs)
    tables["table 2"] = _table_2(runs, {})
    tables["table 2 plain"] = _table_2(runs, PLAIN)
    tables["parameters"] = _parameters()
    for study in STUDIES:
        tables[study.name] = _study(runs, study)
    for made in comparisons(ROOT / "results" / "comparisons"):
        tables[f"ranking {made.task} {made.match}"] = _ranking(made)
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        text = page.read_text()
        for name, table in tables.items():
            text = _replace(text, name, table)
        files.write(page, text.encode())


def _replace(text: str, name: str, table: str) -> str:
    begin, end = f"<!-- {name} -->\n", f"<!-- end {name} -->"
    if begin not in text:
        return text
    before, rest = text.split(begin, 1)
    return before + begin + table + "\n" + end + rest.split(end, 1)[1]


def _speed(run: dict[str, Any]) -> str:
    """Training step: milliseconds of MGU, and how many times longer others take."""
    lines = [
        "| training step | onegate.MGU | " + " | ".join(OTHERS) + " | share of sgemm peak |",
        "| --- " * (len(OTHERS) + 3) + "|",
    ]
    for shape in run["shapes"]:
        times = {r["contestant"]: r for r in shape["results"] if r["kind"] == "train"}
        ours = times["mgu fused"]
        cells = [
            f"{times[o]['median'] / ours['median']:.1f} x" if o in times else "" for o in OTHERS
        ]
        s = shape["shape"]
        sizes = f"T {s['steps']}, B {s['batch']}, {s['inputs']} in, {s['hidden']} units"
        sizes += f", {s['layers']} layers" if s["layers"] > 1 else ""
        sizes += ", bidirectional" if s["bidirectional"] else ""
        lines.append(
            f"| {TITLES[s['name']]} ({sizes}) | {1e3 * ours['median']:.2f} ms | "
            + " | ".join(cells)
            + f" | {100 * ours['share_of_peak']:.0f} % |"
        )
    return "\n".join([*lines, "", _where(run)])


def _figures(run: dict[str, Any]) -> str:
    lines = ["| figure | to reach | measured | |", "| --- | --- | --- | --- |"]
    for figure in run["figures"]:
        if figure["value"] is None:
            continue
        sign = ">=" if figure["at_least"] else "<="
        lines.append(
            f"| {figure['figure']} | {sign} {figure['limit']:g} | {figure['value']:.3f} | "
            f"{figure['state']} |"
        )
    return "\n".join([*lines, "", _where(run)])


def _units(run: dict[str, Any]) -> str:
    """Training step of every unit: milliseconds, and share of its reference engine's time."""
    names = [s["shape"]["name"] for s in run["shapes"]]
    lines = [
        "| unit | " + " | ".join(TITLES[n] for n in names) + " |",
        "| --- " * (len(names) + 1) + "|",
    ]
    cells: dict[str, list[str]] = {}
    for shape in run["shapes"]:
        times = {r["contestant"]: r["median"] for r in shape["results"] if r["kind"] == "train"}
        for contestant, fused in times.items():
            unit = contestant.removesuffix(" fused")
            if unit != contestant:
                ratio = fused / times[f"{unit} reference"]
                cells.setdefault(unit, []).append(f"{1e3 * fused:.2f} ({ratio:.2f})")
    lines += [f"| `{unit}` | " + " | ".join(row) + " |" for unit, row in cells.items()]
    return "\n".join([*lines, "", _where(run)])


def _sweeps(run: dict[str, Any]) -> str:
    lines = [
        "| sweep, mgu | largest ratio to torch.nn.GRU | at | r2 of a straight line, training |",
        "| --- | --- | --- | --- |",
    ]
    for sweep in run["sweeps"]:
        worst = next((w for w in sweep["worst"] if w["contestant"] == "mgu fused"), None)
        line = next(
            (
                each
                for each in sweep["lines"]
                if each["kind"] == "train" and each["contestant"] == "mgu fused"
            ),
            None,
        )
        ratio, place = (f"{worst['ratio']:.3f}", worst["shape"]) if worst else ("", "")
        straight = f"{line['r2']:.4f}" if line else ""
        lines.append(f"| {sweep['field'].replace('_', ' ')} | {ratio} | {place} | {straight} |")
    return "\n".join([*lines, "", _where(run)])


def _epochs(measured: dict[str, Any]) -> str:
    lines = [
        "| seconds per epoch | MGU | GRU | ratio | paper: MGU | paper: GRU | paper: ratio |",
        "| --- " * 7 + "|",
    ]
    for row in measured["rows"]:
        task, size = row["task"], row["hidden_size"]
        cells = [f"{row[unit]:.3g}" for unit in PAIR] + [f"{row['mgu'] / row['gru']:.2f}"]
        stated = [TASKS[task].find(unit, size, "seconds_per_epoch") for unit in PAIR]
        mgu, gru = (published.value for published in stated if published)
        cells += [f"{mgu:g}", f"{gru:g}", f"{mgu / gru:.2f}"]
        lines.append(f"| {TITLES[task]}, {size} units | " + " | ".join(cells) + " |")
    m = measured["machine"]
    return "\n".join(
        [
            *lines,
            "",
            f"Updates in turns; {m['processor']}, {m['threads']} threads, torch {m['torch']}, "
            f"{measured['date']}.",
        ]
    )


def _results(runs: list[Run]) -> str:
    """The recipes as named, MGU and GRU, beside what the paper has."""
    lines = [
        "| task, recipe | units | measure | MGU | GRU | paper: MGU | paper: GRU |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    rows: dict[tuple[str, str, int], dict[str, Group]] = {}
    for group in grouped(runs):
        if group.is_as_named and group.unit in PAIR:
            row = rows.setdefault((group.task, group.recipe.name, group.hidden_size), {})
            row[group.unit] = group
    for task, recipe, size in sorted(rows, key=lambda row: (list(TITLES).index(row[0]), row)):
        groups = rows[task, recipe, size]
        metric = next(iter(groups.values())).metric
        quantity = f"test_{metric.name}"
        cells = [f"{TITLES[task]}, `{recipe}`", str(size), f"test {metric.label}"]
        cells += [_measured(groups[unit]) if unit in groups else "" for unit in PAIR]
        for unit in PAIR:
            stated = None if recipe == "tuned" else TASKS[task].find(unit, size, quantity)
            cells.append(stated.printed if stated else "")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _table_2(runs: list[Run], changed: Mapping[str, Any]) -> str:
    """The paper's Table 2: perplexities on Penn TreeBank by number of hidden units."""
    quantities = ("valid_perplexity", "test_perplexity")
    heads = [f"{q.split('_')[0]}, {unit.upper()}" for q in quantities for unit in PAIR]
    lines = [
        "| hidden units | " + " | ".join(f"{head}: ours | paper" for head in heads) + " |",
        "| --- " * (2 * len(heads) + 1) + "|",
    ]
    ours: dict[tuple[str, int], Group] = {
        (group.unit, group.hidden_size): group
        for group in grouped(runs)
        if group.task == "ptb" and group.recipe.name == "paper" and _changes(group) == changed
    }
    for size in TASKS["ptb"].sizes:
        if not any((unit, size) in ours for unit in PAIR):
            continue
        cells = []
        for quantity in quantities:
            for unit in PAIR:
                group, stated = ours.get((unit, size)), TASKS["ptb"].find(unit, size, quantity)
                mean = group.mean(quantity) if group else None
                cells += ["" if mean is None else f"{mean:.2f}", stated.printed if stated else ""]
        lines.append(f"| {size} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _parameters() -> str:
    """What the paper states, the same counted in its way, and every number that is learned."""
    lines = ["| task | units | stated | counted so | exact |", "| --- " * 5 + "|"]
    for task, one in [(t, one) for t in TASKS.values() for one in t.counts]:
        papers = task.counted(one)
        lines.append(
            f"| {task.short.lower()} | {one.hidden_size} `{one.unit}` | {one.stated:,} | "
            f"{'not known' if papers is None else format(papers, ',')} | {one.exact():,} |"
        )
    return "\n".join(lines)


def _study(runs: list[Run], study: Study) -> str:
    """One row for each setting of the fields that a study varies."""
    rows: dict[tuple[tuple[str, Any], ...], dict[str, str]] = {}
    for group in grouped(runs):
        here = _changes(group)
        if (group.task, group.recipe.name) != (study.task, study.recipe):
            continue
        if study.size not in (None, group.hidden_size):
            continue
        if here.keys() - study.fixed.keys() - {*study.varied} or study.fixed.items() - here.items():
            continue
        varied = tuple((path, here[path]) for path in study.varied if path in here)
        rows.setdefault(varied, {})[group.unit] = _measured(group)
    named = " ".join([f"`{study.recipe}`", *(f"`{k}={v}`" for k, v in study.fixed.items())])
    lines = [
        f"| {named}, with | " + " | ".join(display(unit) for unit in study.units) + " |",
        "| --- " * (len(study.units) + 1) + "|",
    ]
    for varied, values in sorted(rows.items(), key=lambda row: (len(row[0]), row[0])):
        cells = [values.get(unit, "") for unit in study.units]
        if any(cells):
            settings = ", ".join(f"`{path}={value}`" for path, value in varied)
            lines.append(f"| {settings or 'as it is'} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", f"Test {TASKS[study.task].metric.label}."])


def _changes(group: Group) -> dict[str, Any]:
    """What the runs have instead of the recipe's own."""
    return {change.path: change.here for change in group.changes}


def _ranking(made: Comparison) -> str:
    """Units of one comparison, the best first."""
    metric = TASKS[made.task].metric
    best_first = sorted(made.units, key=lambda row: row.mean, reverse=metric.higher_is_better)
    lines = [
        f"| unit | hidden units | parameters | test {metric.label} |",
        "| --- " * 4 + "|",
    ]
    for row in best_first:
        value = metric.text(row.mean, row.spread if len(row.metric_values) > 1 else None)
        lines.append(f"| `{row.unit}` | {row.hidden_size} | {row.parameters:,} | {value} |")
    asked = " ".join(f"--set {setting}" for setting in made.settings)
    seeds = len(made.units[0].metric_values)
    command = f"onegate compare {made.task} --recipe {made.recipe} --match {made.match}"
    return "\n".join([*lines, "", f"`{command} --seeds {seeds} {asked}` with `--units` as above."])


def _measured(group: Group) -> str:
    """Mean over seeds, with their standard deviation."""
    text = group.metric.text(group.value, group.spread(group.quantity))
    return text if len(group.seeds) == 1 else f"{text} ({len(group.seeds)} seeds)"


def _where(run: dict[str, Any]) -> str:
    m = run["machine"]
    return (
        f"Medians, contestants taking turns in one process; {m['processor']}, {m['threads']} "
        f"threads, torch {m['torch']}, float32, {run['date'][:10]}."
    )


if __name__ == "__main__":
    main()
