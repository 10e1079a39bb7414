"""The page: runs on examples, step by step, with what was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onegate.lab.inside.measure_plots import Measured, pass_label
from onegate.lab.inside.measures import PassMeasures
from onegate.lab.pages import canvas
from onegate.lab.pages.figure import Figure, element, links
from onegate.lab.pages.markup import Column, Markup, Table, code, data, document, joined, tag
from onegate.lab.runs import Run
from onegate.lab.tasks import TASKS, View
from onegate.language import Graph
from onegate.picture import draw
from onegate.picture.draw import DARK, LIGHT, Theme
from onegate.probe.memory import Keeping


@dataclass(frozen=True, eq=False)
class ShownRun:
    """A run as the page has it; values: for the script, see `payload`."""

    run: Run
    graph: Graph
    measured: Measured
    values: Mapping[str, Any]


def build(
    runs: Sequence[ShownRun],
    views: Sequence[View],
    examples: Sequence[Mapping[str, Any]],
    figures: Sequence[Figure],
) -> str:
    """The whole page; examples: `views` for the script."""
    title = f"Inside {' and '.join(shown.measured.label for shown in runs)}"
    body = joined(
        _header(title, runs),
        tag(
            "main",
            _explore(runs, views, figures),
            _section("gates", "What the gates do", _GATES, figures, _keeping_table(runs)),
            _section("memory", "Memory", _MEMORY, figures),
            _section("gradients", "Gradients through time", _GRADIENTS, figures),
            _section("jacobians", "The step's Jacobian", _JACOBIANS, figures, _exponents(runs)),
        ),
        tag("footer", tag("p", "Written by onegate inspect.")),
        data({"runs": [shown.values for shown in runs], "examples": list(examples)}, id="data"),
    )
    return document(title, body, _picture_style() + _file("page.css"), _file("page.js"))


_WEIGHTS = (("after", "after training"), ("before", "before training"))
_GATES = (
    "How open the gates are, before training and after it. A neuron hardly moves if nearly every "
    "step (more than 90%) keeps more than 0.9 of it, and is always overwritten if nearly every "
    "step keeps less than 0.1."
)
_MEMORY = (
    "How many steps each neuron remembers: as its gate values say, and as measured by disturbing "
    "the input a little and following the response of the neuron, to which the others contribute."
)
_GRADIENTS = (
    "How strongly the loss depends on the state of each step. A line that falls towards the first "
    "step is a gradient that vanishes, one that rises is one that explodes."
)
_JACOBIANS = (
    "What one step does to small differences between states, at states and inputs of test "
    "sequences. Beyond 1 they grow, below 1 they shrink; the largest Lyapunov exponent is the mean "
    "logarithm of their growth in a step."
)


def _file(name: str) -> str:
    return resources.files("onegate.lab.inside").joinpath(name).read_text(encoding="utf-8")


def _header(title: str, runs: Sequence[ShownRun]) -> Markup:
    subject = TASKS[runs[0].run.recipe.task]
    links = [
        ("explore", "Step by step"), ("gates", "Gates"), ("memory", "Memory"),
        ("gradients", "Gradients"), ("jacobians", "Jacobian"),
    ]  # fmt: skip
    return tag(
        "header",
        tag("h1", f"{title}: {subject.title}"),
        tag("p", subject.about, class_="lead"),
        *(tag("p", said, class_="notice") for said in dict.fromkeys(map(_stands_in, runs)) if said),
        tag("ul", *(tag("li", _described(shown)) for shown in runs)),
        tag(
            "nav", *(tag("a", text, href=f"#{name}") for name, text in links), aria_label="Sections"
        ),
    )


def _stands_in(shown: ShownRun) -> str:
    recipe = shown.run.recipe
    return TASKS[recipe.task].stands_in(recipe.data)


def _described(shown: ShownRun) -> Markup:
    run, metric = shown.run, TASKS[shown.run.recipe.task].metric
    recipe = run.recipe
    said = [
        f": {recipe.model.hidden_size} neurons, recipe {recipe.name}, seed {recipe.seed}, ",
        f"{run.result.get('parameters', shown.graph.parameter_count()):,} recurrent parameters",
    ]
    value = run.result.get(f"test_{metric.name}")
    said.append(
        f", test {metric.label} {metric.text(value)}" if value is not None else ", unfinished"
    )
    return joined(tag("strong", shown.measured.label), *said, " (", code(run.folder.name), ")")


def _explore(runs: Sequence[ShownRun], views: Sequence[View], figures: Sequence[Figure]) -> Markup:
    passes = max((shown.measured.after for shown in runs), key=len)
    kind = views[0].kind
    return tag(
        "section",
        tag("h2", "Step by step"),
        tag(
            "p",
            "Move along time with the slider or the keys \N{LEFTWARDS ARROW} \N{RIGHTWARDS ARROW} "
            "(with Shift by ten steps); with the slider in focus \N{UPWARDS ARROW} "
            "\N{DOWNWARDS ARROW} choose a neuron. A click into a picture does both. Each line of a "
            "picture is a neuron; the bars at its right are the values at the chosen step. The "
            "numbers in the unit's picture are those of the chosen neuron.",
            class_="note",
        ),
        tag(
            "div",
            tag("label", "Example ", _select("example", [_named(view) for view in views])),
            tag("label", "Weights ", _select("weights", _WEIGHTS)),
            tag(
                "label", "Layer ", _select("pass", [(name, pass_label(name)) for name in passes]),
                hidden="" if len(passes) == 1 else None,
            ),
            tag("label", "Sort neurons ", _select("sort", _sorts(runs))),
            class_="controls",
        ),
        tag(
            "div",
            tag("input", type="range", id="time", min=1, max=views[0].steps, value=1,
                aria_label="Step"),
            tag("output", "", id="clock", for_="time"),
            class_="time",
        ),
        tag(
            "div",
            tag("div", tag("h3", "Input"), _input(kind), tag("p", "", id="x"),
                tag("p", "", id="answer", class_="answer")),
            tag(
                "div", *(_run(place, shown) for place, shown in enumerate(runs)),
                class_="runs alone" if len(runs) == 1 else "runs",
            ),
            class_="stage" if kind == "image" else "stage wide",
        ),
        tag(
            "p", "As figures: ",
            *(joined(f"{f.caption.partition(':')[0]} ", links(f), ". ")
              for f in figures if f.section == "explore"),
            class_="note",
        ),
        id="explore",
    )  # fmt: skip


def _named(view: View) -> tuple[str, str]:
    answer = f": {view.answer}" if view.answer else ""
    return str(view.number), f"{view.number}{answer}"


def _sorts(runs: Sequence[ShownRun]) -> list[tuple[str, str]]:
    """By the gate where there is one."""
    gated = any(one.keeping for shown in runs for one in shown.measured.after.values())
    by_gate = [("span", "by memory span (gate)")] if gated else []
    return [*by_gate, ("measured", "by memory span (measured)"), ("number", "by number")]


def _select(name: str, options: Sequence[tuple[str, str]]) -> Markup:
    return tag("select", *(tag("option", text, value=value) for value, text in options), id=name)


def _input(kind: str) -> Markup:
    if kind == "image":
        return tag("canvas", id="picture", width=28, height=28, role="img",
                   aria_label="The image; what is read at this step is in colour")  # fmt: skip
    if kind == "numbers":
        return tag("canvas", id="bars", role="img", aria_label="The numbers; marked ones in colour")
    return tag("p", id="words")


def _run(place: int, shown: ShownRun) -> Markup:
    return tag(
        "div",
        tag("h3", shown.measured.label),
        tag("p", "", class_="answer"),
        tag("div", picture(shown.graph, f"unit-{place}"), class_="unit-picture"),
        tag("div", class_="maps"),
        tag("p", "", class_="neuron"),
        class_="run",
        id=f"run-{place}",
    )


def _section(name: str, title: str, about: str, figures: Sequence[Figure], *more: Markup) -> Markup:
    drawn = [element(figure) for figure in figures if figure.section == name]
    shown = tag("div", *drawn, class_="figures") if drawn else tag("p", "These units have no gate.")
    return tag("section", tag("h2", title), tag("p", about), shown, *more, id=name)


def _each(runs: Sequence[ShownRun]) -> list[tuple[str, PassMeasures, PassMeasures]]:
    """Label, before and after, for every pass."""
    return [
        (shown.measured.whose(name), shown.measured.before[name], after)
        for shown in runs
        for name, after in shown.measured.after.items()
    ]


def _keeping_table(runs: Sequence[ShownRun]) -> Markup:
    rows = []
    for label, *both in _each(runs):
        for when, one in zip(("before", "after"), both, strict=True):
            kept = one.keeping.get(one.memory)
            rows.append((label, when, *_counts(kept), _median(one.spans[one.memory])))
    columns = [
        Column("Unit", False), Column("Training", False), Column("Hardly move"),
        Column("Always overwritten"), Column("Mean share kept"), Column("Median span, gate"),
        Column("Median span, measured"),
    ]  # fmt: skip
    return Table("Neurons by what their gate does", columns, rows).html()


def _median(spans: NDArray[np.float64]) -> str:
    known = spans[np.isfinite(spans)]
    return f"{np.median(known):.3g}" if len(known) else "\N{EN DASH}"


def _counts(kept: Keeping | None) -> tuple[str, str, str, str]:
    if kept is None:
        return ("\N{EN DASH}",) * 4
    span = float(kept.span.median())
    return (
        str(int(kept.hardly_moves.sum())),
        str(int(kept.always_overwrites.sum())),
        f"{float(kept.share.mean()):.3f}",
        f"{span:.3g}" if np.isfinite(span) else "\N{INFINITY}",
    )


def _exponents(runs: Sequence[ShownRun]) -> Markup:
    rows = []
    for label, *both in _each(runs):
        for when, one in zip(("before", "after"), both, strict=True):
            radius = float(np.abs(one.eigenvalues).max())
            rows.append(
                (label, when, f"{one.singular.max(1).mean():.3f}", f"{radius:.3f}",
                 f"{one.exponent:.4f}".replace("-", "\N{MINUS SIGN}"))
            )  # fmt: skip
    columns = [
        Column("Unit", False), Column("Training", False), Column("Largest singular value"),
        Column("Largest eigenvalue (size)"), Column("Largest Lyapunov exponent"),
    ]  # fmt: skip
    return Table("Growth of differences in a step", columns, rows).html()


def _colors(theme: Theme) -> list[str]:
    return [theme.ink, theme.faint, *theme.fills.values(), *theme.lines.values()]


_PAIRS = dict(zip(_colors(LIGHT), _colors(DARK), strict=True))


def picture(graph: Graph, name: str) -> Markup:
    """A unit's picture in the page's light and dark.

    name: sets its identifiers apart from those of the page's other figures.
    """
    text = draw.svg(draw.draw(graph)).replace(LIGHT.paper, "var(--paper)")
    for light in _PAIRS:
        text = text.replace(light, f"var({_variable(light)})")
    unit = graph.unit
    return canvas.inline(text, name, f"Data flow of {unit.title or unit.name}")


def _picture_style() -> str:
    """The colours of pictures as CSS variables."""
    light, dark = (
        "".join(f" {_variable(key)}: {color};" for key, color in pairs)
        for pairs in (((key, key) for key in _PAIRS), _PAIRS.items())
    )
    return f":root {{{light} }}\n@media (prefers-color-scheme: dark) {{ :root {{{dark} }} }}\n"


def _variable(light: str) -> str:
    return f"--draw-{light.removeprefix('#')}"
