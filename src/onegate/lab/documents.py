"""The tables and figures of README.md and docs, from what lies in results.

    onegate bench --check --json results/bench/paper.json
    onegate bench --all-units --check --seconds 0.4 --json results/bench/all-units.json
    onegate bench --sweep steps batch hidden single_batch single_hidden --check \\
        --json results/bench/sweeps.json
    onegate bench epochs --json results/time_per_epoch.json
    onegate results keep runs
    onegate results tables
    onegate results figures

A table stands between the lines `<!-- NAME -->` and `<!-- end NAME -->`; nothing else is touched.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from onegate import files
from onegate.lab.archive import comparisons, finished_runs
from onegate.lab.bench import markdown
from onegate.lab.bench.markdown import PAIR, TITLES
from onegate.lab.report import figures
from onegate.lab.report.committed import REGULARISED
from onegate.lab.report.groups import Group, display, grouped
from onegate.lab.runs import Comparison
from onegate.lab.tasks import TASKS, Task
from onegate.lab.tasks.base import Study


def write_tables(root: Path) -> list[Path]:
    """Writes every table into README.md and docs/*.md of the folder `root`; gives those changed."""
    made = tables(_results_of(root))
    changed = []
    for page in (root / "README.md", *sorted((root / "docs").glob("*.md"))):
        text = before = page.read_text(encoding="utf-8")
        for name, table in made.items():
            text = _replaced(text, name, table, page)
        if text != before:
            files.write(page, text.encode())
            changed.append(page)
    return changed


def write_figures(root: Path) -> list[Path]:
    """Draws the figures that docs/reproduction.md of the folder `root` shows; gives their paths."""
    page = root / "docs" / "reproduction.md"
    drawn = {f.name: f for f in figures.draw(grouped(finished_runs(_results_of(root))))}
    paths = []
    for name in re.findall(r"\]\(figures/([\w-]+)\.svg\)", page.read_text(encoding="utf-8")):
        if name not in drawn:
            raise ValueError(f"{page} shows figures/{name}.svg, which no run in results gives")
        paths.append(page.parent / "figures" / f"{name}.svg")
        files.write(paths[-1], drawn[name].svg.encode())
    return paths


def _results_of(root: Path) -> Path:
    if not (root / "results").is_dir() or not (root / "README.md").is_file():
        raise ValueError(
            f"{root.resolve()} has no results and README.md: give the folder of the repository"
        )
    return root / "results"


def tables(results: Path) -> dict[str, str]:
    """Every table that the files in `results` give, by name."""
    made = {
        name: table(files.read_json(results / path))
        for name, (path, table) in markdown.TABLES.items()
        if (results / path).exists()
    }
    groups = grouped(finished_runs(results))
    made["results"] = _results(groups)
    made["table 2"] = _table_2(groups, "paper")
    made["table 2 regularised"] = _table_2(groups, "regularised")
    made["parameters"] = _parameters()
    for task in TASKS.values():
        made |= {study.name: _study(groups, task, study) for study in task.studies}
    for compared in comparisons(results):
        made[f"ranking {compared.task} {compared.match}"] = _ranking(compared)
    return made


def _replaced(text: str, name: str, table: str, page: Path) -> str:
    begin, end = f"<!-- {name} -->\n", f"<!-- end {name} -->"
    if begin not in text:
        return text
    before, rest = text.split(begin, 1)
    if end not in rest:
        raise ValueError(f"{page} has no line {end} after {begin.strip()}")
    return before + begin + table + "\n" + end + rest.split(end, 1)[1]


def _results(groups: Sequence[Group]) -> str:
    """The recipes as named, MGU and GRU, beside what the paper has."""
    found: dict[tuple[str, str, int], dict[str, Group]] = {}
    for group in groups:
        if group.is_as_named and group.unit in PAIR:
            row = found.setdefault((group.task, group.recipe.name, group.hidden_size), {})
            row[group.unit] = group
    rows = []
    for task, recipe, size in sorted(found, key=lambda row: (list(TITLES).index(row[0]), row)):
        pair = found[task, recipe, size]
        metric = next(iter(pair.values())).metric
        quantity = f"test_{metric.name}"
        cells = [f"{TITLES[task]}, `{recipe}`", str(size), f"test {metric.label}"]
        cells += [_measured(pair[unit]) if unit in pair else "" for unit in PAIR]
        for unit in PAIR:
            stated = None if recipe == "tuned" else TASKS[task].find(unit, size, quantity)
            cells.append(stated.printed if stated else "")
        rows.append(cells)
    headings = ["task, recipe", "neurons", "measure", "MGU", "GRU", "paper: MGU", "paper: GRU"]
    return markdown.table(headings, rows, REGULARISED)


def _table_2(groups: Sequence[Group], recipe: str) -> str:
    """The paper's Table 2: perplexities on Penn TreeBank by number of hidden neurons."""
    quantities = ("valid_perplexity", "test_perplexity")
    (task,) = (task for task in TASKS.values() if task.sizes)
    ours: dict[tuple[str, int], Group] = {
        (group.unit, group.hidden_size): group
        for group in groups
        if group.task == task.name and group.recipe.name == recipe and group.is_as_named
    }
    rows = []
    for size in task.sizes:
        if not any((unit, size) in ours for unit in PAIR):
            continue
        cells = [str(size)]
        for quantity in quantities:
            for unit in PAIR:
                group, stated = ours.get((unit, size)), task.find(unit, size, quantity)
                mean = group.mean(quantity) if group else None
                cells += ["" if mean is None else f"{mean:.2f}", stated.printed if stated else ""]
        rows.append(cells)
    pairs = [(quantity.split("_")[0], unit) for quantity in quantities for unit in PAIR]
    ours_and_paper = [[f"{part}, {display(unit)}: ours", "paper"] for part, unit in pairs]
    return markdown.table(["hidden neurons", *chain.from_iterable(ours_and_paper)], rows)


def _parameters() -> str:
    """What the paper states, the same counted in its way, and every number that is learned."""
    rows = []
    for task in TASKS.values():
        for one in task.counts:
            papers = task.counted(one)
            counted = "not known" if papers is None else f"{papers:,}"
            cells = [task.short.lower(), f"{one.hidden_size} `{one.unit}`", f"{one.stated:,}"]
            rows.append([*cells, counted, f"{one.exact():,}"])
    return markdown.table(["task", "neurons", "stated", "counted so", "exact"], rows)


def _study(groups: Sequence[Group], task: Task, study: Study) -> str:
    """One row for each setting of the fields that a study varies."""
    found: dict[tuple[tuple[str, Any], ...], dict[str, str]] = {}
    for group in groups:
        here = _changes(group)
        if (group.task, group.recipe.name) != (task.name, study.recipe):
            continue
        if study.size not in (None, group.hidden_size):
            continue
        if here.keys() - study.fixed.keys() - {*study.varied} or study.fixed.items() - here.items():
            continue
        varied = tuple((path, here[path]) for path in study.varied if path in here)
        found.setdefault(varied, {})[group.unit] = _measured(group)
    named = " ".join([f"`{study.recipe}`", *(f"`{k}={v}`" for k, v in study.fixed.items())])
    rows = []
    for varied, values in sorted(found.items(), key=lambda row: (len(row[0]), row[0])):
        cells = [values.get(unit, "") for unit in study.units]
        if any(cells):
            settings = ", ".join(f"`{path}={value}`" for path, value in varied)
            rows.append([settings or "as it is", *cells])
    headings = [f"{named}, with", *map(display, study.units)]
    return markdown.table(headings, rows, f"Test {task.metric.label}.")


def _changes(group: Group) -> dict[str, Any]:
    """What the runs have instead of the recipe's own."""
    return {change.path: change.here for change in group.changes}


def _ranking(made: Comparison) -> str:
    """Units of one comparison, the best first."""
    metric = TASKS[made.task].metric
    best_first = sorted(made.units, key=lambda row: row.mean, reverse=metric.higher_is_better)
    rows = []
    for row in best_first:
        value = metric.text(row.mean, row.spread if len(row.metric_values) > 1 else None)
        rows.append([f"`{row.unit}`", str(row.hidden_size), f"{row.parameters:,}", value])
    asked = " ".join(f"--set {setting}" for setting in made.settings)
    seeds = len(made.units[0].metric_values)
    command = f"onegate compare {made.task} --recipe {made.recipe} --match {made.match}"
    return markdown.table(
        ["unit", "hidden neurons", "parameters", f"test {metric.label}"],
        rows,
        f"`{command} --seeds {seeds} {asked}` with `--units` as above.",
    )


def _measured(group: Group) -> str:
    """Mean over seeds, with their standard deviation."""
    text = group.metric.text(group.value, group.spread(group.quantity))
    return text if len(group.seeds) == 1 else f"{text} ({len(group.seeds)} seeds)"
