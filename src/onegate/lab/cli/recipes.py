"""`onegate recipes`: what there is, and what is in one."""

from __future__ import annotations

import argparse
import json
from typing import Any

from rich.table import Table

from onegate.lab import plugins, recipes
from onegate.lab.cli.options import add_plugins, add_settings, console, unit
from onegate.lab.recipes import RecipeError
from onegate.lab.tasks import TASKS


def register(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run=list_all)
    add_plugins(parser)
    actions = parser.add_subparsers(metavar="action")
    show_parser = actions.add_parser("show", help="every field of a recipe, with the reasons")
    show_parser.add_argument("recipe", metavar="TASK/RECIPE", help="such as mnist_rows/flow")
    show_parser.add_argument("--unit", type=unit, default="mgu", help="default: mgu")
    add_plugins(show_parser)
    show_parser.add_argument("--json", action="store_true", help="as recipe.json has it")
    add_settings(show_parser)
    show_parser.set_defaults(run=show)


def list_all(_: argparse.Namespace) -> int:
    """Prints every task's recipes with a line each."""
    table = _table("recipe", "what it is")
    for task, kind in TASKS.items():
        for name in kind.recipes:
            table.add_row(f"{task}/{name}", recipes.summary(task, name))
    console().print(table)
    return 0


def show(args: argparse.Namespace) -> int:
    given, slash, name = args.recipe.rpartition("/")
    if not slash:
        raise RecipeError(f"{args.recipe!r}: expected task/recipe, such as mnist_rows/flow")
    recipe = recipes.override(recipes.recipe(plugins.task(given), name, args.unit), args.settings)
    if args.json:
        print(json.dumps(recipes.to_json(recipe), indent=2))
        return 0
    table = _table("field", "value", "why")
    for path, value in recipes.values(recipe):
        if path != "reasons":
            table.add_row(path, _shown(value), recipe.reasons.get(path, ""))
    for path, content in recipe.plugins.items():
        table.add_row("plugins", f"{path} {content}", "")
    console().print(table)
    return 0


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _table(*headings: str) -> Table:
    table = Table(*headings, box=None, pad_edge=False, header_style="bold")
    table.columns[0].no_wrap = True
    return table
