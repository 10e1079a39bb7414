"""The paper's numbers, against a table copied from the paper by hand."""

from __future__ import annotations

import re

import pytest

from onegate.lab.tasks import TASKS, StatedCount, Task

PUBLISHED = [(task.name, one) for task in TASKS.values() for one in task.published]

# Section 4 of the paper: task, quantity, GRU, MGU.
TEXT = """
adding        test_mse           0.0041   0.0045
adding        seconds_per_epoch  8.60     6.85
imdb          test_accuracy      61.8%    62.6%
imdb          seconds_per_epoch  14.1     5.0
mnist_rows    test_accuracy      87.53%   88.07%
mnist_rows    seconds_per_epoch  182      158
mnist_pixels  test_accuracy      -        84.25%
mnist_pixels  seconds_per_epoch  145.3    48.1
"""

# Table 2 as it stands: units; GRU and MGU of parameters, time, validation and test perplexity.
TABLE_2 = r"""
50  & 37,800 & 25,200 & 177 & 174 & 172.71 & 185.34 & 165.52 & 177.39
100 & 90,600 & 60,400 & 180 & 163 & 130.94 & 140.35 & 125.24 & 135.33
200 & 241,200 & 160,800 & 184 & 175 & 111.28 & 119.77 & 105.75 & 114.14
300 & 451,800 & 301,200 & 197 & 181 & 108.08 & 113.21 & 102.55 & 108.27
400 & 722,400 & 481,600 & 201 & 190 & 107.92 & 110.92 & 102.33 & 106.02
500 & 1,053,000 & 702,000 & 211 & 198 & 108.30 & 110.68 & 101.64 & 105.89
600 & 1,443,600 & 962,400 & 218 & 205 & 111.42 & 113.50 & 104.88 & 108.22
"""

# Section 4: parameters of GRU and MGU.
STATED = {
    "adding": (62_000, 41_400),
    "imdb": (30_600, 20_400),
    "mnist_rows": (38_700, 25_800),
    "mnist_pixels": (30_600, 20_400),
}


def by_hand() -> dict[tuple[str, str, int, str], str]:
    expected = {}
    for line in TEXT.split("\n")[1:-1]:
        task, quantity, gru, mgu = line.split()
        for unit, literal in (("gru", gru), ("mgu", mgu)):
            if literal != "-":
                expected[task, unit, 100, quantity] = literal
    for line in TABLE_2.split("\n")[1:-1]:
        size, _, _, *literals = (cell.strip() for cell in line.split("&"))
        quantities = ("seconds_per_epoch", "valid_perplexity", "test_perplexity")
        pairs = [(quantity, unit) for quantity in quantities for unit in ("gru", "mgu")]
        for (quantity, unit), literal in zip(pairs, literals, strict=True):
            expected["ptb", unit, int(size), quantity] = literal
    return expected


def test_every_published_number_is_the_papers() -> None:
    held = {(task, p.unit, p.hidden_size, p.quantity): p.printed for task, p in PUBLISHED}
    assert held == by_hand()
    assert len(PUBLISHED) == len(held)


def test_values_are_what_is_printed() -> None:
    for (task, unit, size, quantity), literal in by_hand().items():
        found = TASKS[task].find(unit, size, quantity)
        assert found is not None
        number = float(literal.strip("%"))
        assert found.value == pytest.approx(number / 100 if "%" in literal else number, rel=1e-12)


def test_places() -> None:
    sections = {"adding": "4.1", "imdb": "4.2", "mnist_rows": "4.3", "mnist_pixels": "4.3"}
    for task, p in PUBLISHED:
        assert p.place == ("Table 2" if task == "ptb" else f"Section {sections[task]}")


def test_parameter_counts_are_the_papers() -> None:
    expected = {
        (task, unit, 100): n
        for task, pair in STATED.items()
        for unit, n in zip(("gru", "mgu"), pair, strict=True)
    }
    for line in TABLE_2.split("\n")[1:-1]:
        size, gru, mgu, *_ = (int(re.sub(r"\D", "", c)) for c in line.split("&"))
        expected |= {("ptb", "gru", size): gru, ("ptb", "mgu", size): mgu}
    held = {(t.name, c.unit, c.hidden_size): c.stated for t, c in COUNTS if c.unit != "scrn"}
    assert held == expected


def test_sizes_are_those_of_the_table() -> None:
    assert [str(size) for size in TASKS["ptb"].sizes] == re.findall(r"^\d+", TABLE_2, re.MULTILINE)


def test_numbers_cited_in_words_are_the_papers() -> None:
    # Section 4 again, in its order: 100 epochs; 15,000; 1,000 and 16,000; 710; IRNN; LSTM; PTB.
    expected = """
    adding 100
    imdb 15,000
    mnist_rows 1,000 16,000
    mnist_pixels 710
    mnist_pixels 65% 16,000 80% 32,000 90% 500,000
    mnist_pixels 65% 900,000
    ptb 500 105.59 105.89
    ptb 5M 108.42
    ptb 100 300 115
    """
    years = re.compile(r"et al\. \d{4}")
    held = [
        " ".join([task.name, *re.findall(r"\d[\d,.]*\d[%M]?|\d[%M]", years.sub("", c.text))])
        for task in TASKS.values()
        for c in task.cited
    ]
    assert held == [line.strip() for line in expected.strip().splitlines()]


# The paper's numbers once more, typed from it, and ours worked out by hand: G n (n + d + 1) for one
# layer, twice that for two directions, G n (3 n + 202) for two layers of 200-wide words.
STATED_AND_OURS = {
    ("adding", "mgu", 100): (41_400, 41_200),
    ("adding", "gru", 100): (62_000, 61_800),
    ("imdb", "mgu", 100): (20_400, 20_400),
    ("imdb", "gru", 100): (30_600, 30_600),
    ("mnist_rows", "mgu", 100): (25_800, 25_800),
    ("mnist_rows", "gru", 100): (38_700, 38_700),
    ("mnist_pixels", "mgu", 100): (20_400, 20_400),
    ("mnist_pixels", "gru", 100): (30_600, 30_600),
    ("ptb", "gru", 50): (37_800, 52_800),
    ("ptb", "mgu", 50): (25_200, 35_200),
    ("ptb", "gru", 100): (90_600, 150_600),
    ("ptb", "mgu", 100): (60_400, 100_400),
    ("ptb", "gru", 200): (241_200, 481_200),
    ("ptb", "mgu", 200): (160_800, 320_800),
    ("ptb", "gru", 300): (451_800, 991_800),
    ("ptb", "mgu", 300): (301_200, 661_200),
    ("ptb", "gru", 400): (722_400, 1_682_400),
    ("ptb", "mgu", 400): (481_600, 1_121_600),
    ("ptb", "gru", 500): (1_053_000, 2_553_000),
    ("ptb", "mgu", 500): (702_000, 1_702_000),
    ("ptb", "gru", 600): (1_443_600, 3_603_600),
    ("ptb", "mgu", 600): (962_400, 2_402_400),
    # The paper cites 48,200 without saying how; A, R, P and B have 42,000 elements.
    ("ptb", "scrn", 100): (48_200, 42_000),
}


COUNTS = [(task, count) for task in TASKS.values() for count in task.counts]


def _id(value: Task | StatedCount) -> str:
    if isinstance(value, Task):
        return value.name
    return f"{value.unit}-{value.hidden_size}-paper_{value.stated}-ours_{value.exact()}"


@pytest.mark.parametrize(("task", "count"), COUNTS, ids=_id)
def test_counts_of_the_paper(task: Task, count: StatedCount) -> None:
    stated, ours = STATED_AND_OURS[task.name, count.unit, count.hidden_size]
    assert count.stated == stated
    assert count.exact() == ours
    if count.unit != "scrn":
        assert task.counted(count) == stated
    else:
        assert task.counted(count) is None


def test_no_count_of_the_paper_is_missing() -> None:
    held = {(task.name, count.unit, count.hidden_size) for task, count in COUNTS}
    assert held == set(STATED_AND_OURS)
    assert len(COUNTS) == len(STATED_AND_OURS)
