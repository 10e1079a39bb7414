"""The page holds what the runs hold, beside what the paper holds."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from onegate.lab import report
from onegate.lab.recipes import override, recipe
from onegate.lab.tasks import TASKS
from tests.lab.report import synthetic
from tests.lab.report.reading import Cell, ReadPage

NAMES = {"gru": "GRU", "mgu": "MGU", "lstm": "LSTM", "irnn": "IRNN", "scrn": "SCRN"}


def means(root: Path) -> dict[tuple[str, str, str, int], float]:
    """By task, recipe, unit, size: the mean of the test metric, from the run folders."""
    values: dict[tuple[str, str, str, int], list[float]] = {}
    for run in synthetic.read(root):
        made = run.recipe
        key = made.task, made.name, made.unit, made.model.hidden_size
        values.setdefault(key, []).append(run.result[f"test_{synthetic.metric_of(made.task)}"])
    return {key: sum(found) / len(found) for key, found in values.items()}


def test_every_result_is_in_the_table_of_its_task(everything: Path, page: ReadPage) -> None:
    for (task, name, unit, size), mean in means(everything).items():
        table = page.sections[task].table("Results")
        headings = [cell.text for cell in table.rows[0]]
        label = f"{name}, {NAMES.get(unit, unit)}"
        rows = [
            row
            for row in table.rows[1:]
            if row[0].text in (label, f"{label}, {size}", f"{label}1")  # 1: the mark of a note
            and row[headings.index("hidden neurons")].values == [size]
        ]
        assert len(rows) == 1, (task, name, unit, size)
        assert rows[0][headings.index("test")].values == [pytest.approx(mean, rel=1e-12)]


def test_differences_are_measured_minus_published(page: ReadPage) -> None:
    table = page.sections["mnist_rows"].table("Results")
    measured = (0.880 + 0.883 + 0.878) / 3  # as tests.lab.report.synthetic has it
    assert table.cell("flow, MGU", "paper").text == "88.07%"
    assert table.cell("flow, MGU", "paper").values == [0.8807]
    difference = table.cell("flow, MGU", "difference")
    assert difference.values == [pytest.approx(measured - 0.8807)]
    assert difference.text == "\N{MINUS SIGN}0.04"
    assert table.cell("tuned, LSTM", "paper").values == []


def test_at_a_glance(everything: Path, page: ReadPage) -> None:
    table = page.sections["glance"].table("Results")
    found = means(everything)
    for unit in ("gru", "mgu"):
        row = f"Penn TreeBank, {NAMES[unit]}, 500"
        assert table.cell(row, "measured").values == [found["ptb", "paper", unit, 500]]
        assert table.cell(row, "tuned").values == [found["ptb", "tuned", unit, 500]]
    assert table.cell("Penn TreeBank, GRU, 500", "paper").text == "101.64"
    assert table.cell("MNIST by pixels, GRU", "paper").values == []
    # These runs were cut down.
    assert table.cell("MNIST by pixels, MGU", "measured").text == "85.00%†"
    assert "†" not in table.cell("MNIST by rows, MGU", "measured").text


def test_changes_of_a_recipe_are_told_in_a_note(page: ReadPage) -> None:
    section = page.sections["mnist_pixels"]
    rows = section.table("Results").rows[1:]
    assert [row[0].text for row in rows] == ["flow, GRU1", "flow, MGU1"]
    named = recipe("mnist_pixels", "flow", "mgu")
    told = (
        f"1 flow, but data.train 10,000 (not {vars(named.data)['train']:,}), "
        f"length 0.8 (not {named.length:g})"
    )
    assert section.text.count(told) == 1


def test_a_comparison_tells_of_changes_by_its_runs(tmp_path: Path) -> None:
    (run,) = synthetic.seeds(tmp_path, "mnist_rows", "flow", "mgu", [0.5], ["length=1"])
    made = synthetic.compared(tmp_path)
    units = tuple(
        replace(unit, runs=(run.name,)) if unit.unit == "mgu" else unit for unit in made.units
    )
    replace(made, units=units).write(tmp_path / "comparison-mnist_rows.json")
    read = ReadPage(report.write(tmp_path, tmp_path / "report").read_text())
    rows = read.sections["mnist_rows"].table("Compared").rows[1:]
    assert [row[0].text for row in rows] == ["GRU", "MGU1"]
    assert read.sections["mnist_rows"].text.count("1 flow, but length 1 (not ") == 2


def test_table_2_has_every_published_value_in_its_place(everything: Path, page: ReadPage) -> None:
    table = page.sections["ptb"].table("The paper's Table 2")
    order = [
        (quantity, unit)
        for quantity in ("seconds_per_epoch", "valid_perplexity", "test_perplexity")
        for unit in ("gru", "mgu")
    ]
    cells: dict[tuple[str, str, int], tuple[Cell, Cell]] = {}
    for row in table.rows[2:]:
        for position, (quantity, unit) in enumerate(order):
            pair = row[1 + 2 * position], row[2 + 2 * position]
            cells[quantity, unit, int(row[0].text)] = pair
    published = TASKS["ptb"].published
    assert len(cells) == len(published) == 42
    found = means(everything)
    for p in published:
        paper, ours = cells[p.quantity, p.unit, p.hidden_size]
        assert paper.text == p.printed
        if p.quantity == "test_perplexity":
            expected = found.get(("ptb", "paper", p.unit, p.hidden_size))
            assert ours.values == ([] if expected is None else [expected])


def test_parameters_are_counted_in_both_ways(page: ReadPage) -> None:
    table = page.sections["parameters"].table("Parameters")
    headings = [cell.text for cell in table.rows[1]]
    assert headings[2:] == ["stated", "counted so", "exact"] * 2
    rows = {(row[0].text, row[1].values[0]): row[2:] for row in table.rows[2:]}
    for task, stated in [(t, one) for t in TASKS.values() for one in t.counts]:
        if stated.unit != "scrn":
            row = rows[task.title, stated.hidden_size]
            cells = row[:3] if stated.unit == "gru" else row[3:]
            assert cells[0].values == cells[1].values == [stated.stated]
    # G n (n + d + 1): both directions of the adding problem; both layers of Penn TreeBank.
    adding = rows["The adding problem", 100]
    assert (adding[2].values, adding[5].values) == ([2 * 30_900], [2 * 20_600])
    assert rows["Penn TreeBank", 50][5].values == [2 * 50 * (3 * 50 + 202)]


def test_times_as_a_share_of_gru(page: ReadPage) -> None:
    rows = page.sections["times"].table("Seconds").rows[2:]
    by_task = {(row[0].text, row[1].values[0]): row for row in rows}
    in_turns = by_task["MNIST by rowsflow", 100]
    assert in_turns[4].values == [pytest.approx(158 / 182)]
    assert in_turns[7].values == [pytest.approx(2.9 / 4.1)]
    assert in_turns[8].text.split(", ")[0] == "in turns"
    whole_runs = by_task["The adding problempaper", 100]
    assert whole_runs[4].text == "0.80"
    assert whole_runs[7].values == [pytest.approx(0.7)]
    assert whole_runs[8].text == "whole runs"


def test_comparisons_are_shown(page: ReadPage) -> None:
    table = page.sections["mnist_rows"].table("Compared at equal numbers of hidden neurons")
    assert table.cell("MGU", "test accuracy").values == [pytest.approx((0.880 + 0.883) / 2)]
    assert table.cell("GRU", "parameters").values == [38_700]


def test_a_task_has_one_time_per_epoch(page: ReadPage) -> None:
    """That of the comparison, taken in turns, where there is one; else that of whole runs."""
    for task, label in (("mnist_rows", "Compared"), ("adding", "Results:")):
        timed = [
            table.label.split()[0]
            for table in page.sections[task].tables
            if any(cell.text == "s / epoch" for cell in table.rows[0])
        ]
        assert timed == [label]


def test_every_run_is_listed_with_where_it_ran(everything: Path, page: ReadPage) -> None:
    listed = {
        row[0].text: row
        for section in page.sections.values()
        for table in section.tables
        if table.label == "Finished runs"
        for row in table.rows[1:]
    }
    found = {run.folder.name: run for run in synthetic.read(everything)}
    assert set(listed) == set(found)
    for name, run in found.items():
        assert listed[name][3].values == [run.recipe.seed]
        assert listed[name][6].text == "A"
    machines = page.sections["machines"].table("Machines")
    for fact, value in synthetic.MACHINE.items():
        shown = value[:12] if fact == "commit" else str(value)
        assert machines.row(fact)[1].text == shown


def test_commands_give_the_runs_again(page: ReadPage) -> None:
    text = page.sections["mnist_pixels"].text
    assert (
        "onegate train mnist_pixels --unit mgu --recipe flow --set data.train=10000 "
        "--set length=0.8 --set seed=0"
    ) in text


def test_what_was_not_run_is_told_with_the_reason(everything: Path, page: ReadPage) -> None:
    assert "GRU and MGU, recipe paper: " in page.sections["mnist_rows"].text
    assert "It would run for months; see flow" in page.sections["mnist_rows"].text
    assert "GRU of Table 2 with 300, 400, 600 neurons" in page.sections["ptb"].text
    permuted = page.sections["mnist_permuted"]
    assert "onegate compare mnist_permuted --recipe flow --units gru mgu" in permuted.text
    (stopped,) = everything.glob("mnist_permuted-*")
    assert f"recipe tuned: no finished run (unfinished: {stopped.name})" in permuted.text
    assert "Not run" not in page.sections["adding"].text


def test_a_reason_left_in_the_folder_is_told(tmp_path: Path) -> None:
    synthetic.seeds(tmp_path, "adding", "tuned", "mgu", [0.001])
    report.note_not_run(tmp_path, {"imdb": "aclImdb_v1.tar.gz was not found"})
    read = ReadPage(report.write(tmp_path, tmp_path / "report").read_text())
    glance = read.sections["glance"].table("Results")
    assert glance.cell("IMDB movie reviews, MGU", "paper").text == "62.6%"
    assert glance.cell("IMDB movie reviews, MGU", "measured").text == "not run"
    assert glance.cell("Penn TreeBank, MGU, 500", "paper").text == "105.89"
    assert glance.cell("The adding problem, MGU", "tuned").values == [0.001]
    assert not [row for row in glance.rows if "permuted" in row[0].text]
    text = read.sections["imdb"].text
    assert text.count("aclImdb_v1.tar.gz was not found") == 1
    assert "no finished run" not in text
    assert "GRU, recipe tuned: no finished run" in read.sections["adding"].text


def test_left_out_runs_are_named(page: ReadPage) -> None:
    text = page.sections["left-out"].text
    assert re.search(r"mnist_permuted-tuned-mgu-\S+: stopped after update 550", text)
    assert "damaged: damaged/recipe.json is not JSON" in text
    assert "Left out: 1 unfinished, 1 damaged." in page.sections[""].text


def test_every_figure_is_there_with_words_for_it(reported: Path, page: ReadPage) -> None:
    files = {path.stem for path in (reported.parent / "figures").iterdir()}
    shown = {name for section in page.sections.values() for name in section.figures}
    assert shown == files
    assert len(shown) == 11
    alts = [alt for section in page.sections.values() for alt in section.alts]
    assert len(alts) == len(shown)
    assert any("MGU: 88.03% (paper: 88.07%)" in alt for alt in alts)


def test_the_page_asks_for_nothing_outside(reported: Path, page: ReadPage) -> None:
    style = reported.read_text().partition("<style>")[2].partition("</style>")[0]
    assert "url(" not in style
    assert "@import" not in style
    tags = {tag for tag, _, _ in page.attributes}
    assert not tags & {"script", "img", "iframe", "object", "audio", "video"}
    for tag, name, value in page.attributes:
        if name in ("src", "href", "xlink:href", "srcset", "action"):
            inside = value.startswith("#") or value == "data:,"
            beside = (reported.parent / value).is_file()
            assert inside or beside, (tag, name, value)


def test_a_folder_with_a_nasty_name(tmp_path: Path) -> None:
    name = """<script>alert("x")</script>&amp;"""
    (run,) = synthetic.seeds(tmp_path, "adding", "tuned", "mgu", [0.001])
    nasty = tmp_path / name.replace("/", "\N{DIVISION SLASH}")
    run.rename(nasty)
    content = report.write(tmp_path, tmp_path / "report").read_text()
    assert content.count("<script") == 1  # that of the tables
    assert nasty.name in ReadPage(content).sections["adding"].text


def test_two_machines_are_told_apart(tmp_path: Path) -> None:
    resumed = {**synthetic.MACHINE, "resumed_with": [{"torch": "9.9"}]}
    facts = {"gru": {**synthetic.MACHINE, "threads": 8}, "mgu": synthetic.MACHINE, "lstm": resumed}
    for unit, machine in facts.items():
        synthetic.seeds(tmp_path, "adding", "tuned", unit, [0.001, 0.002], machine=machine)
    read = ReadPage(report.write(tmp_path, tmp_path / "report").read_text())
    threads = read.sections["machines"].table("Machines").row("threads")
    assert [cell.text for cell in threads] == ["threads", "8", "2", "2"]
    machines = [row[6].text for row in read.sections["adding"].table("Finished runs").rows[1:]]
    assert machines == ["A", "A", "C", "C", *["Bresumed with torch 9.9"] * 2]


def test_recipes_and_units_of_other_versions_are_shown_with_a_note(tmp_path: Path) -> None:
    known = recipe("adding", "tuned", "mgu")
    synthetic.finished(tmp_path, replace(known, name="older"), 0.25)
    synthetic.finished(tmp_path, replace(known, unit="unheard_of"), 0.5)
    flowing = override(recipe("ptb", "tuned", "mgu"), ["schedule.kind=constant", "clock=flow_time",
                       "schedule.start=0", "schedule.factor=0.5"])  # fmt: skip
    synthetic.finished(tmp_path, flowing, 90.0)
    read = ReadPage(report.write(tmp_path, tmp_path / "report").read_text())
    table = read.sections["adding"].table("Results")
    assert table.cell("older, MGU2", "test").values == [0.25]
    assert table.cell("tuned, unheard_of1", "test").values == [0.5]
    assert "2 older, but the recipe or the unit is not known" in read.sections["adding"].text
    assert "--recipe older" not in read.sections["adding"].text
    assert read.sections["ptb"].figures == ["ptb-tuned-flow-curves"]
