"""Examples in --help, completion in a shell, BibTeX, and results as JSON and LaTeX."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from onegate.lab import cli
from onegate.lab.cli import COMMANDS, EXAMPLES, main
from onegate.units import UNITS
from tests.lab import small_data
from tests.lab.sweep.made import run_quickly

SMALL = ["data.train=60", "data.valid=20", "data.test=20", "model.hidden_size=4", "batch_size=20",
         "length=1"]  # fmt: skip
SETTINGS = [word for setting in SMALL for word in ("--set", setting)]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_ends_in_examples_that_can_be_typed(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert set(EXAMPLES) == set(COMMANDS)
    with pytest.raises(SystemExit, match="0"):
        main([command, "--help"])
    printed = capsys.readouterr().out
    assert printed.rstrip().endswith("\n  ".join(["examples:", *EXAMPLES[command]]))
    for example in EXAMPLES[command]:
        typed = re.sub(r"source <\((.*)\)", r"\1", example)
        program, *words = shlex.split(typed)
        assert program == "onegate"
        assert words[0] == command
        assert callable(cli._parser(words).parse_args(words).run)


@pytest.mark.parametrize("words", ["data fetch", "recipes show", "results keep"])
def test_actions_end_in_examples_too(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main([*words.split(), "--help"])
    assert f"examples:\n  onegate {words}" in capsys.readouterr().out


def completed(script: str, words: list[str]) -> set[str]:
    """What bash offers for the last of the words."""
    line = " ".join(map(shlex.quote, words))
    code = f"{script}\nCOMP_WORDS=({line}) COMP_CWORD={len(words) - 1}\n_onegate\n"
    code += 'echo "${COMPREPLY[@]}"'
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
def test_bash_completes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    assert completed(script, ["onegate", "comp"]) == {"compare", "completion"}
    assert completed(script, ["onegate", "train", "mnist"]) == {
        "mnist_rows", "mnist_pixels", "mnist_permuted",
    }  # fmt: skip
    assert completed(script, ["onegate", "train", "adding", "--unit", "mgu"]) == {
        name for name in UNITS if name.startswith("mgu")
    }
    assert completed(script, ["onegate", "compare", "adding", "--mat"]) == {"--match"}
    assert completed(script, ["onegate", "compare", "adding", "--match", ""]) == {
        "units", "parameters", "time",
    }  # fmt: skip
    assert completed(script, ["onegate", "data", "ver"]) == {"verify"}


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_have_every_command(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert all(name in script for name in (*COMMANDS, "mgu_gate_after", "mnist_permuted"))


def test_papers_of_units_once_each(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cite", "mgu", "mgu_gate_after", "gru_cho"]) == 0
    printed = capsys.readouterr().out
    assert re.findall("@misc{(.*),", printed) == ["onegate", "zhou2016minimal", "cho2014learning"]
    assert "author = {Zhou and Wu and Zhang and Zhou}," in printed
    assert "author = {Cho and others}," in printed
    assert main(["cite", *UNITS]) == 0
    entries = capsys.readouterr().out
    keys = re.findall("@misc{(.*),", entries)
    assert len(set(keys)) == len(keys)
    assert entries.count("{") == entries.count("}")


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    small_data.use(monkeypatch)
    run_quickly(monkeypatch)
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("quick")
def test_results_as_json_and_latex(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "adding", *SETTINGS, "--run", "mine", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["run"] == "mine"
    assert result["test_mse"] > 0
    command = ["compare", "adding", *SETTINGS, "--seeds", "2"]
    assert main([*command, "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert [row["unit"] for row in made["units"]] == ["mgu", "gru"]
    assert 0 <= made["units"][1]["p_against_first"] <= 1
    assert main([*command, "--latex"]) == 0
    table = capsys.readouterr().out
    assert table.startswith("% Compared at equal numbers of hidden neurons")
    assert "\\end{tabular}\n" in table
    assert main(command) == 0
    printed = capsys.readouterr().out
    assert "p: against mgu, Welch's t test over seeds" in printed


def test_data_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["data", "--json"], ["data", "list", "--json"], ["data", "--json", "list"]):
        assert main(words) == 0
        found = json.loads(capsys.readouterr().out)
        assert {"mnist", "adding"} <= {row["name"] for row in found}
        assert {type(row["parsed"]) for row in found} <= {bool, type(None)}
        assert {type(row["MB"]) for row in found} <= {float, type(None)}
