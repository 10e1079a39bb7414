"""The numbers of Zhou et al. (2016), as printed, with their place in the paper.

Parameter counts are not here: `onegate.properties.STATED_COUNTS` has them with the nets that
they belong to.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Published:
    """One measured value of the paper.

    quantity: as in a run's result: test_mse, test_accuracy, valid_perplexity, test_perplexity,
        seconds_per_epoch.
    printed: the number as the paper prints it.
    """

    task: str
    unit: str
    hidden_size: int
    quantity: str
    printed: str
    place: str

    @property
    def value(self) -> float:
        """The number; a percentage as a share of 1, as in a run's result.

        >>> find("mnist_rows", "mgu", 100, "test_accuracy").value
        0.8807
        """
        number = float(self.printed.rstrip("%"))
        return round(number / 100, 10) if self.printed.endswith("%") else number


def _pair(
    task: str, quantity: str, gru: str, mgu: str, place: str, hidden_size: int = 100
) -> tuple[Published, ...]:
    printed = {"gru": gru, "mgu": mgu}
    return tuple(
        Published(task, unit, hidden_size, quantity, text, place)
        for unit, text in printed.items()
        if text
    )


def _table_2(
    hidden_size: int, seconds: tuple[str, str], valid: tuple[str, str], test: tuple[str, str]
) -> tuple[Published, ...]:
    return (
        *_pair("ptb", "seconds_per_epoch", *seconds, "Table 2", hidden_size),
        *_pair("ptb", "valid_perplexity", *valid, "Table 2", hidden_size),
        *_pair("ptb", "test_perplexity", *test, "Table 2", hidden_size),
    )


PUBLISHED: tuple[Published, ...] = (
    *_pair("adding", "test_mse", "0.0041", "0.0045", "Section 4.1"),
    *_pair("adding", "seconds_per_epoch", "8.60", "6.85", "Section 4.1"),
    *_pair("imdb", "test_accuracy", "61.8%", "62.6%", "Section 4.2"),
    *_pair("imdb", "seconds_per_epoch", "14.1", "5.0", "Section 4.2"),
    *_pair("mnist_rows", "test_accuracy", "87.53%", "88.07%", "Section 4.3"),
    *_pair("mnist_rows", "seconds_per_epoch", "182", "158", "Section 4.3"),
    *_pair("mnist_pixels", "test_accuracy", "", "84.25%", "Section 4.3"),
    *_pair("mnist_pixels", "seconds_per_epoch", "145.3", "48.1", "Section 4.3"),
    *_table_2(50, ("177", "174"), ("172.71", "185.34"), ("165.52", "177.39")),
    *_table_2(100, ("180", "163"), ("130.94", "140.35"), ("125.24", "135.33")),
    *_table_2(200, ("184", "175"), ("111.28", "119.77"), ("105.75", "114.14")),
    *_table_2(300, ("197", "181"), ("108.08", "113.21"), ("102.55", "108.27")),
    *_table_2(400, ("201", "190"), ("107.92", "110.92"), ("102.33", "106.02")),
    *_table_2(500, ("211", "198"), ("108.30", "110.68"), ("101.64", "105.89")),
    *_table_2(600, ("218", "205"), ("111.42", "113.50"), ("104.88", "108.22")),
)

TABLE_2_SIZES: tuple[int, ...] = (50, 100, 200, 300, 400, 500, 600)


@dataclass(frozen=True)
class Cited:
    """What the paper says beside its own measurements, in words that can stand alone."""

    task: str
    text: str
    place: str


CITED: tuple[Cited, ...] = (
    Cited("adding", "MGU is slightly worse in the first 100 epochs, then alike", "Section 4.1"),
    Cited("imdb", "both curves have converged after 15,000 epochs", "Section 4.2"),
    Cited("mnist_rows", "GRU leads in the first 1,000 of 16,000 epochs, then MGU", "Section 4.3"),
    Cited("mnist_pixels", "MGU takes over after 710 epochs; GRU was not run to the end",
          "Section 4.3"),
    Cited("mnist_pixels", "IRNN: below 65% after 16,000, roughly 80% after 32,000, above 90% "
          "after 500,000 epochs (Le et al. 2015, who count updates)", "Section 4.3"),
    Cited("mnist_pixels", "LSTM: around 65% after 900,000 epochs (Le et al. 2015, who count "
          "updates)", "Section 4.3"),
    Cited("ptb", "MGU with 500 units has a test perplexity of 105.59 in the text, 105.89 in the "
          "table; the table is taken here", "Section 4.4 and Table 2"),
    Cited("ptb", "GRU with 5M parameters in all: test perplexity 108.42 (Jozefowicz et al. 2015)",
          "Section 4.4"),
    Cited("ptb", "SCRN with 100 and with 300 units: test perplexity 115 (Mikolov et al. 2015)",
          "Section 4.4"),
)  # fmt: skip


def find(task: str, unit: str, hidden_size: int, quantity: str) -> Published | None:
    """The paper's value, None where it has none for this net."""
    for published in PUBLISHED:
        if (published.task, published.unit, published.hidden_size, published.quantity) == (
            task, unit, hidden_size, quantity,
        ):  # fmt: skip
            return published
    return None
