"""Examples in --help, completion in a shell, BibTeX, and results as JSON and LaTeX."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pytest

from onegate.lab import cli
from onegate.lab.cli import COMMANDS, EXAMPLES, cite, main
from onegate.lab.train import progress, session
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
    assert completed(script, ["onegate", "data", "fetch", "mn"]) == {"mnist"}
    assert completed(script, ["onegate", "recipes", "show", "adding/"]) == {
        "adding/paper", "adding/tuned",
    }  # fmt: skip
    assert completed(script, ["onegate", "train", "adding", "--recipe", "fl"]) == {"flow"}
    # The second and further words of an option, and what follows them.
    assert completed(script, ["onegate", "compare", "adding", "--units", "mgu", "jan"]) == {"janet"}
    assert completed(script, ["onegate", "bench", "--sweep", "steps", "b"]) == {"batch"}
    units = ["onegate", "compare", "adding", "--units", "mgu", "gru"]
    assert completed(script, [*units, "--mat"]) == {"--match"}
    assert completed(script, [*units, "--match", "pa"]) == {"parameters"}


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_have_every_command(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert all(name in script for name in (*COMMANDS, "mgu_gate_after", "mnist_permuted"))


def test_papers_of_units_once_each(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cite", "mgu", "mgu_gate_after", "gru_cho"]) == 0
    printed = capsys.readouterr().out
    keys = re.findall(r"@\w+{(.*),", printed)
    assert keys == ["onegate", "zhou2016minimal", "cho2014learning"]
    assert "author = {Zhou, Guo-Bing and Wu, Jianxin and Zhang, Chen-Lin and " in printed
    assert main(["cite", *UNITS]) == 0
    entries = capsys.readouterr().out
    keys = re.findall(r"@\w+{(.*),", entries)
    assert len(set(keys)) == len(keys)
    assert entries.count("{") == entries.count("}")
    assert {*keys} == {"onegate", *cite.papers()}, "each paper of a unit, and no other"


@pytest.mark.parametrize("name", UNITS)
def test_entries_of_papers_say_what_the_units_say(name: str) -> None:
    citation = UNITS[name].citation
    made = cite.entry(citation, name)
    found = re.match(r"(.*?) (\d{4}), ([^;]*)", citation)
    assert found is not None
    field = dict(re.findall(r"  (\w+) = {(.*)},", made))
    assert field["title"].strip("{}").startswith(found[3].strip())
    assert int(found[2]) <= int(field["year"]) <= int(found[2]) + 2
    ascii_ = re.sub(r'{\\"o}', "oe", field["author"])
    ascii_ = re.sub(r"{\\\W\\?(\w)}", r"\1", ascii_)
    surnames = [author.partition(",")[0] for author in ascii_.split(" and ")]
    named = found[1].removesuffix(" et al.").split(", ")
    assert surnames[: len(named)] == named
    assert (len(surnames) > len(named)) == found[1].endswith(" et al.")


def test_a_paper_that_is_not_known_is_cited_by_what_the_unit_says() -> None:
    assert cite.entry("Doe et al. 2030, Cells to Come; a draft", "mine").splitlines() == [
        "@misc{doe2030cells,",
        "  author = {Doe and others},",
        "  title = {{Cells to Come}},",
        "  year = {2030},",
        "}",
    ]
    assert cite.entry("no paper", "mine") == "% mine names no paper"


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


@pytest.mark.usefixtures("quick")
def test_long_steps_say_that_they_are_alive(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []

    def alive(doing: str) -> AbstractContextManager[None]:
        told.append(doing)
        return nullcontext()

    monkeypatch.setattr(session, "alive", alive)
    assert main(["train", "adding", *SETTINGS, "--run", "other", "--quiet"]) == 0
    assert told == []  # who asks for the result alone gets it alone
    assert main(["train", "adding", *SETTINGS, "--run", "mine"]) == 0
    assert told == ["adding: reading the data"]
    monkeypatch.setattr(progress, "QUIET_SECONDS", 0.0)
    for words, said in (
        (["doctor"], "doctor: trying the engines ..."),
        (["export", "mine", "--onnx", "-o", "a.onnx"], "export: writing it in its new form ..."),
        (["sweep", "adding", *SETTINGS], "sweep: timing some updates of the runs ..."),
    ):
        assert main(words) == 0
        assert said in capsys.readouterr().err


def test_data_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["data", "--json"], ["data", "list", "--json"], ["data", "--json", "list"]):
        assert main(words) == 0
        found = json.loads(capsys.readouterr().out)
        assert {"mnist", "adding"} <= {row["name"] for row in found}
        assert {type(row["parsed"]) for row in found} <= {bool, type(None)}
        assert {type(row["MB"]) for row in found} <= {float, type(None)}
