"""`onegate completion`: what a shell completes, as a script for it.

The script holds all words: completing starts no Python.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from onegate.lab.cli import COMMANDS, options


@dataclass(frozen=True)
class Words:
    """What can follow a command: options, words that stand alone, and those after an option.

    several: options that take more than one word.
    """

    options: tuple[str, ...]
    alone: tuple[str, ...]
    after: dict[str, tuple[str, ...]]
    several: tuple[str, ...]


def register(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Prints a script. bash: add `source <(onegate completion bash)` to ~/.bashrc; zsh: the "
        "same with zsh to ~/.zshrc; fish: write it to ~/.config/fish/completions/onegate.fish."
    )
    parser.add_argument("shell", choices=tuple(_SCRIPTS), help="whose script to print")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    found = {name: _words(_parser(name)) for name in COMMANDS}
    print(_SCRIPTS[args.shell](found), end="")
    return 0


def _parser(name: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"onegate {name}")
    importlib.import_module(f"onegate.lab.cli.{name}").register(parser)
    return parser


def _words(parser: argparse.ArgumentParser) -> Words:
    named: list[str] = []
    alone: list[str] = []
    after: dict[str, tuple[str, ...]] = {}
    several: list[str] = []
    for action in parser._actions:  # argparse has no other way to look
        if isinstance(action, argparse._SubParsersAction):
            alone += action.choices
            for each in action.choices.values():
                inner = _words(each)
                named += [word for word in inner.options if word not in named]
                alone += inner.alone
        elif action.option_strings:
            named += action.option_strings
            several += action.option_strings if action.nargs == "+" else []
            after |= dict.fromkeys(action.option_strings, tuple(_values(action)))
        else:
            alone += _values(action)
    kept = {option: values for option, values in after.items() if values}
    return Words(tuple(dict.fromkeys(named)), tuple(dict.fromkeys(alone)), kept, tuple(several))


def _values(action: argparse.Action) -> Iterator[str]:
    """What an argument can be, where that can be listed."""
    from onegate.lab.data.sources import SOURCES
    from onegate.lab.tasks import TASKS
    from onegate.units import UNITS

    if action.choices:
        yield from map(str, action.choices)
    elif action.type is options.unit:
        yield from UNITS
    elif action.type is options.task:
        yield from TASKS
    elif action.dest == "recipe" and action.option_strings:
        yield from dict.fromkeys(name for task in TASKS.values() for name in task.recipes)
    elif action.dest == "recipe":
        yield from (f"{task.name}/{name}" for task in TASKS.values() for name in task.recipes)
    elif action.metavar == "name":
        yield from SOURCES


def _bash(found: dict[str, Words]) -> str:
    """Where no word fits, bash completes files."""
    cases = []
    for name, words in found.items():
        for option, values in words.after.items():
            cases.append(f'    "{name} {option}") words="{" ".join(values)}" ;;')
    for name, words in found.items():
        cases.append(f'    "{name} "*) words="{" ".join((*words.alone, *words.options))}" ;;')
    several = [
        f'"{name} {option}"'
        for name, words in found.items()
        for option in words.several
        if option in words.after
    ]
    return "\n".join(
        [
            "_onegate() {",
            "  local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}",
            "  local words= at",
            "  # An option that takes several words holds for all of them.",
            "  for ((at = COMP_CWORD - 1; at > 1; at--)); do",
            '    case "${COMP_WORDS[1]} ${COMP_WORDS[at]}" in',
            f"      {' | '.join(several)}) before=${{COMP_WORDS[at]}} ; break ;;",
            '      *" -"*) break ;;',
            "    esac",
            "  done",
            "  if [[ $current == -* ]]; then before=; fi",
            '  case "${COMP_WORDS[1]} $before" in',
            *cases,
            "  esac",
            f'  if [ "$COMP_CWORD" -eq 1 ]; then words="{" ".join(found)} --help --version"; fi',
            '  COMPREPLY=($(compgen -W "$words" -- "$current"))',
            "}",
            "complete -o default -F _onegate onegate",
            "",
        ]
    )


def _zsh(found: dict[str, Words]) -> str:
    return f"autoload -U +X compinit bashcompinit && compinit && bashcompinit\n{_bash(found)}"


def _fish(found: dict[str, Words]) -> str:
    lines = []
    for name, words in found.items():
        about = COMMANDS[name].replace("'", "\\'")
        lines.append(f"complete -c onegate -n __fish_use_subcommand -f -a {name} -d '{about}'")
        of = f"complete -c onegate -n '__fish_seen_subcommand_from {name}'"
        if words.alone:
            lines.append(f"{of} -a '{' '.join(words.alone)}'")
        for option in words.options:
            kind = "-l" if option.startswith("--") else "-s"
            values = words.after.get(option)
            more = f" -x -a '{' '.join(values)}'" if values else ""
            lines.append(f"{of} {kind} {option.lstrip('-')}{more}")
    return "\n".join([*lines, ""])


_SCRIPTS: dict[str, Callable[[dict[str, Words]], str]] = {
    "bash": _bash,
    "zsh": _zsh,
    "fish": _fish,
}
