"""The report as one HTML page that needs nothing beside itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from onegate import units
from onegate.lab.pages.figure import Figure, element
from onegate.lab.pages.markup import Markup, code, document, joined, prose, tag
from onegate.lab.report import committed, provenance, tables
from onegate.lab.report.committed import REGULARISED, Committed
from onegate.lab.report.groups import PAPER_UNITS, Group, display
from onegate.lab.report.inventory import Inventory, LeftOut
from onegate.lab.report.provenance import Machines
from onegate.lab.tasks import TASKS, Task

_TITLE = "Minimal gated unit: the paper's experiments, measured again"


def build(
    groups: Sequence[Group],
    figures: Sequence[Figure],
    inventory: Inventory,
    kept: Committed | None = None,
) -> str:
    """The whole page; kept: the committed results, told apart from the runs of the inventory."""
    machines = Machines(inventory.finished)
    shown = [t for t in TASKS.values() if "paper" in t.recipes or _of(t, groups)]
    sections = [
        _glance(groups, kept),
        *(_task(task, groups, figures, inventory, machines, kept) for task in shown),
        _times(groups, inventory, kept),
        _parameters(),
        *_machines(machines, inventory),
        *_left_out(inventory),
    ]
    body = joined(
        _header(shown, inventory, kept),
        tag("main", *sections),
        tag("footer", tag("p", "Written by onegate report from the finished runs alone.")),
    )
    return document(_TITLE, body)


def _of(task: Task, groups: Sequence[Group]) -> list[Group]:
    return [group for group in groups if group.task == task.name]


def _machines(machines: Machines, inventory: Inventory) -> Iterator[Markup]:
    if inventory.finished:
        heading = tag("h2", "Machines and versions")
        yield tag("section", heading, machines.table().html(), id="machines")


def _header(shown: Sequence[Task], inventory: Inventory, kept: Committed | None) -> Markup:
    links = [
        *((task.name, task.title) for task in shown),
        ("times", "Time per epoch"),
        ("parameters", "Parameters"),
        *([("machines", "Machines")] if inventory.finished else []),
    ]
    left_out = sum(len(found) for found in inventory.left_out.values())
    if left_out:
        links.append(("left-out", "Left out"))
    said = [] if kept else [f"{_runs(len(inventory.finished))} read."]
    notice = Markup()
    if left_out:
        kinds = ", ".join(f"{len(found)} {kind}" for kind, found in inventory.left_out.items())
        text = f"Left out: {kinds}. They are "
        notice = tag("p", text, tag("a", "named below", href="#left-out"), ".", class_="notice")
    return tag(
        "header",
        tag("h1", _TITLE),
        tag(
            "p",
            "What ", tag("cite", units.get("mgu").citation), " reports, beside what was measured "
            "with this library. ", *said,
            class_="lead",
        ),
        tag(
            "p", "To watch the gate of a trained unit step by step: ",
            code("onegate inspect --example"), ".",
        ),
        _two_kinds(inventory, kept) if kept else Markup(),
        notice,
        tag(
            "nav",
            *(tag("a", text, href=f"#{name}") for name, text in links),
            aria_label="Sections",
        ),
    )  # fmt: skip


def _two_kinds(inventory: Inventory, kept: Committed) -> Markup:
    """What is told apart, with the colours that tell it."""
    count = len(inventory.finished)
    here = f"{_runs(count)} found where this page was written." if count else ""
    nothing = "Nothing was run yet. `onegate reproduce` does it in minutes, without any data."
    runs = sum(len(group.runs) for group in kept.groups)
    return tag(
        "ul",
        tag("li", _badge("here"), " ", prose(here or nothing)),
        tag(
            "li", _badge("kept"), f" {runs} runs of the paper's two units on the real data, "
            "which come with onegate. Differences from the paper are taken of these, and of runs "
            "here that had its data and were not shortened.",
        ),
        class_="kinds",
    )  # fmt: skip


_KINDS = {"here": "Measured here", "kept": "Committed results"}


def _badge(kind: str) -> Markup:
    return tag("span", _KINDS[kind], class_=f"badge {kind}")


def _evidence(kind: str, *parts: str) -> Markup:
    """A part of a task's section that is of one kind."""
    return tag("div", tag("h3", _badge(kind)), *parts, class_=f"evidence {kind}")


def _runs(number: int) -> str:
    return f"{number} finished {'run was' if number == 1 else 'runs were'}"


_DAGGER = (
    "† The runs differ from the recipe of that name, in length for example; the table of the task "
    "has a note on it. "
)


def _glance(groups: Sequence[Group], kept: Committed | None) -> Markup:
    table = tables.at_a_glance(groups, kept.groups if kept else None).html()
    return tag(
        "section",
        tag("h2", "At a glance"),
        table,
        tag(
            "p",
            "Measured: by the recipes paper or flow, which stand for the paper's own training. "
            "Tuned: the same units, trained as well as we know. Mean \N{PLUS-MINUS SIGN} standard "
            "deviation over seeds, if there are several. Differences of percentages are in points, "
            "and in colour if they exceed the deviation. ",
            _DAGGER if "†" in table else "",
            prose(REGULARISED) if kept else "",
            class_="note",
        ),
        id="glance",
    )


def _task(
    task: Task,
    groups: Sequence[Group],
    figures: Sequence[Figure],
    inventory: Inventory,
    machines: Machines,
    kept: Committed | None,
) -> Markup:
    ours = _of(task, groups)
    measured = _measured(task, ours, figures, inventory, machines, kept is None)
    return tag(
        "section",
        tag("h2", task.title),
        tag("p", task.about, " ", tag("span", task.place or "", class_="place")),
        _said_in_the_paper(task),
        *(measured if kept is None else [_evidence("here", *measured)] if measured else []),
        *(_committed(task, kept) if kept else ()),
        id=task.name,
    )


def _committed(task: Task, kept: Committed) -> Iterator[Markup]:
    groups = _of(task, kept.groups)
    if not groups:
        return
    parts = [*_drawn(task, kept.figures), tables.results(groups, timed=False).html()]
    if task.sizes:
        names = dict.fromkeys(g.recipe.name for g in groups if g.recipe.name != "tuned")
        parts += [tables.over_sizes(task, groups, name, timed=False).html() for name in names]
    if "regularised" in task.recipes:
        parts.append(tag("p", prose(REGULARISED), class_="note"))
    told = f"{committed.where(groups)}. Every run with its recipe, machine and curve is a line of "
    times = tag("a", "Time per epoch", href="#times")
    told = joined(
        told, code(f"results/{task.name}.jsonl"), ". Many runs shared a machine, so their times "
        "say little; ", times, " was measured in turns.",
    )  # fmt: skip
    parts.append(tag("p", told, class_="note"))
    yield _evidence("kept", *parts)


def _drawn(task: Task, figures: Sequence[Figure]) -> list[Markup]:
    drawn = [element(figure) for figure in figures if figure.section == task.name]
    return [tag("div", *drawn, class_="figures")] if drawn else []


def _measured(
    task: Task,
    ours: Sequence[Group],
    figures: Sequence[Figure],
    inventory: Inventory,
    machines: Machines,
    alone: bool,
) -> list[Markup]:
    """What was measured here; alone: nothing else is shown of the task."""
    made = dict.fromkeys(task.stands_in(group.recipe.data) for group in ours)
    parts = [tag("p", said, class_="notice") for said in made if said]
    parts += _drawn(task, figures)
    comparisons = [found for found in inventory.comparisons if found.task == task.name]
    if ours:  # times that were taken in turns say more than those of whole runs
        parts.append(tables.results(ours, timed=not comparisons).html())
    parts += [tables.comparison(compared, ours).html() for compared in comparisons]
    if task.sizes and alone:
        parts.append(tables.over_sizes(task, ours).html())
    if ours:
        parts.append(_was_run(ours, inventory, machines))
    missing = provenance.not_run(task.name, ours, inventory)
    if missing and (alone or task.name in inventory.not_run):
        parts += [tag("h3", "Not run"), tag("ul", *(tag("li", prose(line)) for line in missing))]
    return parts


def _said_in_the_paper(task: Task) -> Markup:
    """The end results that the paper states, and what it says beside them."""
    quantity = f"test_{task.metric.name}"
    stated = [
        f"{display(p.unit)} {p.printed}"
        for unit in PAPER_UNITS
        for p in task.published
        if (p.unit, p.quantity) == (unit, quantity) and not task.sizes
    ]
    items = [f"Test {task.metric.label}: {', '.join(stated)}."] if stated else []
    items += [f"{_capital(c.text)} ({c.place})." for c in task.cited]
    if not items:
        return Markup()
    return joined(tag("h3", "In the paper"), tag("ul", *(tag("li", item) for item in items)))


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def _was_run(groups: Sequence[Group], inventory: Inventory, machines: Machines) -> Markup:
    commands = "\n".join(provenance.command(group) for group in groups if group.named)
    inside = provenance.look_inside(groups, inventory)
    offered = tag("p", "Gates and states step by step: ", code(inside)) if inside else Markup()
    return joined(
        offered,
        _details(groups, inventory, machines, commands),
    )


def _details(
    groups: Sequence[Group], inventory: Inventory, machines: Machines, commands: str
) -> Markup:
    return tag(
        "details",
        tag("summary", "What was run: ", provenance.in_short(groups, machines)),
        provenance.runs(groups, inventory, machines).html(),
        tag("p", "To run them again, each with its seeds:"),
        tag("pre", tag("code", commands), tabindex=0),
    )


def _times(groups: Sequence[Group], inventory: Inventory, kept: Committed | None) -> Markup:
    table = tables.times(groups, inventory.comparisons, kept)
    told = table.html() if table.rows else tag("p", "No pair of MGU and GRU runs was found.")
    return tag(
        "section",
        tag("h2", "Time per epoch"),
        tag(
            "p",
            "Seconds can be compared within a line only: the paper's are of another machine, and "
            "cut-down runs have shorter epochs. In turns: measured alternately, so that noise hits "
            "both units alike. Whole runs: from separate runs.",
        ),
        told,
        id="times",
    )


def _parameters() -> Markup:
    ways = ", ".join(task.counting for task in TASKS.values() if task.counting)
    unknown = [
        f"How the {one.stated:,} parameters that it states for {display(one.unit)} with "
        f"{one.hidden_size} neurons were counted, nobody knows."
        for task in TASKS.values()
        for one in task.counts
        if not one.understood
    ]
    exact = "Exact: every number that the recurrent layers learn."
    return tag(
        "section",
        tag("h2", "Parameters"),
        tag("p", " ".join([f"The paper counts by task: {ways}.", exact, *unknown])),
        tables.parameters().html(),
        id="parameters",
    )


def _left_out(inventory: Inventory) -> Iterator[Markup]:
    if inventory.left_out:
        lists = [
            joined(tag("h3", _capital(kind)), tag("ul", *map(_named, found)))
            for kind, found in inventory.left_out.items()
        ]
        yield tag("section", tag("h2", "Left out"), *lists, id="left-out")


def _named(one: LeftOut) -> Markup:
    return tag("li", code(one.name), f": {one.why}")
