"""Modules by the names that they had before: they are found under both, and the old one warns.

Layers that were pickled whole name the modules of their classes, and are read by this way too.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType


def _each(names: str, new: str, old: str = "{}") -> dict[str, str]:
    return {old.format(name): new.format(name) for name in names.split()}


# Within the package, old -> new; a row of a package holds for its modules that have none.
MODULES = {
    "expressions": "language",
    **_each("code differentiate program stages", "lowering.{}", "graph.{}"),
    "graph.properties": "properties",
    "graph.latex": "export.latex",
    **_each("diagram draw layering layout placement routing", "picture.{}", "graph.{}"),
    **dict.fromkeys(("graph.grid", "picture.grid"), "picture.lanes"),
    "graph": "lowering",
    "engines.fused": "engines.cpu.operator",
    "engines.choice": "engines",
    **_each("direction compiling", "engines.base", "engines.{}"),
    **_each("native memory programs", "engines.cpu.{}", "engines.{}"),
    **_each("arguments cells layers named init convert", "nn.{}"),
    **_each(
        "examples heatmaps measures page payload plots runs writing",
        "lab.inside.{}",
        "inspect.{}",
    ),
    "inspect.pictures": "lab.inside.page",
    "inspect.comparing": "lab.inside.writing",
    **_each("gradients jacobians", "probe.derivatives", "inspect.{}"),
    "inspect": "probe",
    **_each(
        "models optimizers cross_entropy text_statistics checkpoints distributed machine progress",
        "lab.train.{}",
    ),
    "profiling": "lab.train.progress",
    "trainer": "lab.train.loop",
    "training": "lab.train.session",
    "results": "lab.runs",
    **_each("doctor compare reproduce tasks", "lab.{}"),
    **_each("data recipes sweep pages report bench cli", "lab.{}"),
    **_each("locks writing", "files", "data.{}"),
    "data.errors": "lab.data.sources",
    "data.progress": "lab.data.download",
    **_each("checksums folders", "lab.data.files", "data.{}"),
    **_each("ragged vocabulary", "lab.data.arrays", "data.{}"),
    "data.batching": "lab.data.randomness",
    "data.review_words": "lab.data.movie_reviews",
    **_each("adding imdb mnist ptb", "lab.tasks.{}", "recipes.{}"),
    "recipes.fields": "lab.recipes.recipe",
    "recipes.starts": "lab.tasks.base",
    "cli.warning_lines": "lab.cli.options",
    "sweep.board": "lab.sweep.running",
    "report.scales": "lab.report.plots",
    "report.published": "lab.tasks.base",
    "report.subjects": "lab.tasks.metrics",
    "bench.compare": "lab.bench.outcomes",
    "bench.figures": "lab.bench.targets",
    "bench.report": "lab.bench.record",
    "bench.memory": "lab.bench.contestants",
    # Names that stood for two things.
    "engines.cpu.memory": "engines.cpu.pool",
    "lab.bench.streaming": "lab.bench.latency",
    "lab.bench.targets": "lab.bench.verdicts",
    "lab.data.files": "lab.data.source_files",
    "lab.inside.page": "lab.inside.inspection_page",
    "lab.inside.plots": "lab.inside.measure_plots",
    "lab.inside.runs": "lab.inside.opened",
    "lab.pages.figures": "lab.pages.figure",
    **_each("unavailable work", "lab.bench.shapes", "bench.{}"),
}


def new_name(old: str) -> str | None:
    """Where a module is now, if need be after several moves; None if it is where it was."""
    package, _, name = old.partition(".")
    if package != "onegate":
        return None
    inner = ""
    while name:
        if name in MODULES:
            new = f"onegate.{MODULES[name]}{inner}"
            return new_name(new) or new
        name, _, last = name.rpartition(".")
        inner = f".{last}{inner}"
    return None


class _Finder:
    """Finds what moved, before Python looks into folders: a module must not be loaded twice."""

    @staticmethod
    def find_spec(
        name: str, _path: Sequence[str] | None, _target: object = None
    ) -> ModuleSpec | None:
        new = new_name(name)
        return ModuleSpec(name, _Alias(new)) if new else None  # type: ignore[arg-type]


class _Alias:
    """Loads the module under its new name, and has Python keep it under the old one as well."""

    def __init__(self, new: str) -> None:
        self.new = new

    def create_module(self, _spec: ModuleSpec) -> None:
        """Leaves it to Python; what it makes is replaced."""

    def exec_module(self, module: ModuleType) -> None:
        import warnings

        old = module.__name__
        message = f"{old} is now {self.new}"
        warnings.warn(message, DeprecationWarning, stacklevel=2)
        sys.modules[old] = importlib.import_module(self.new)
        package, _, name = old.rpartition(".")
        if callable(vars(sys.modules[package]).get(name)):
            sys.modules[package].__class__ = _Package


class _Package(ModuleType):
    """Keeps a function of its own where Python would put the old module of the same name."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (isinstance(value, ModuleType) and callable(vars(self).get(name))):
            super().__setattr__(name, value)


def watch() -> None:
    """Has Python look here first from now on."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
