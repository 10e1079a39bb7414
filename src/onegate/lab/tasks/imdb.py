"""Sentiment of movie reviews: IMDB."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Annotated, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from onegate.lab import data
from onegate.lab.recipes.recipe import (
    Count,
    DataSource,
    Model,
    Natural,
    Optimizer,
    Options,
    Positive,
    Range,
    Recipe,
    RecipeError,
    Schedule,
)
from onegate.lab.tasks.base import (
    Axis,
    Cited,
    Planned,
    Study,
    Task,
    as_released,
    check_split,
    pair,
    register,
    stated_pair,
)
from onegate.lab.tasks.loaded import Batch, Examples, Loaded, LoadedExamples, Shape, Split


@dataclass(frozen=True)
class ImdbData(Options):
    """IMDB reviews as sequences.

    input: `words` are word numbers in the order of the text, for an embedding; the others feed
        one number a step: `word_rank` the word's frequency rank in the order of the text,
        `bag_index` and `bag_count` the pairs of the provided bag of words, `frequent_count` the
        counts of the most frequent words, one step for each word.
    length: steps that are kept. long: what becomes of longer texts: their first or last steps
        are kept, or they are left out (from training and test alike).
    padding: `masked` steps do not change the state; `zeros` are read like any other number.
    vocabulary: words beyond this rank are one unknown word. scale: factor of the number fed in.
    source: `stand-in` takes texts about Python instead, 1,500 to learn from and 500 to test on, see
        `onegate.lab.data.stand_ins.documentation`.
    """

    input: Literal["words", "word_rank", "bag_index", "bag_count", "frequent_count"] = "words"
    length: Count = 128
    long: Literal["first", "last", "drop"] = "first"
    padding: Literal["masked", "zeros"] = "masked"
    vocabulary: Annotated[int, Range(100, 89_527)] = 10_000
    scale: Positive = 1.0
    train: Count = 22_500
    valid: Natural = 2_500
    test: Annotated[int, Range(1, 25_000)] = 25_000
    source: DataSource = "real"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.source == "real":
            check_split(self.train, self.valid, 25_000, "IMDB has 25,000 training reviews")
            return
        check_split(self.train, self.valid, 1_500, "the stand-in has 1,500 training texts")
        if self.test > 500:
            raise RecipeError(f"test={self.test}: the stand-in has 500 texts to test on")


def paper(unit: str) -> Recipe:
    """Section 4.2 of the paper, word for word. It would run for months; see `flow`."""
    return Recipe(
        task="imdb",
        name="paper",
        unit=unit,
        data=ImdbData(input="bag_count", length=128, train=25_000, valid=0),
        model=Model(hidden_size=100, readout="last", **as_released(unit)),
        optimizer=Optimizer("nesterov", lr=1e-8, momentum=0.99),
        batch_size=16,
        length=16_000,
        evaluate_every=100,
        test_curve=True,
        reasons={
            "data.input": "the text: `the provided bag-of-words format as our sequence input`; "
            "which number of each pair is not said, and 20,400 parameters mean one number a step",
            "data.length": "the text",
            "data.valid": "the paper has no validation set, and nothing is chosen here",
            "model.readout": "the text",
            "model.init": "not in the text; the released code's default, N(0, 0.1) and biases 0",
            "optimizer.kind": "the text says momentum; the released code takes Nesterov's",
            "optimizer.lr": "the text",
            "batch_size": "the text",
            "length": "the text: both curves converge after 15,000 epochs",
            "evaluate_every": "the figure's x axis is the epoch divided by 100",
            "keep": "the paper reports the end of the run",
            "test_curve": "the paper's figure shows the test accuracy over epochs",
        },
    )


def flow(unit: str) -> Recipe:
    """The gradient flow that `paper` follows, in a few thousand plain steps."""
    asked = paper(unit)
    return replace(
        asked,
        name="flow",
        model=replace(asked.model, readout="all"),
        optimizer=Optimizer("sgd", lr=0.01),
        batch_size=100,
        clock="flow_time",
        length=25.0,
        evaluate_every=1.25,
        reasons={
            **asked.reasons,
            "model.readout": "with the last state alone the flow stays at chance (50 %); with the "
            "states of all steps, as the released code reads MNIST, it learns",
            "optimizer.kind": "at lr 1e-8 training follows the flow dw/dtau = -gradient, and "
            "only its length tau = updates x lr / (1 - momentum) matters, which is not in seconds",
            "optimizer.lr": "the step of the flow; halving it must not move the curve",
            "batch_size": "a million tiny steps average over the data; few large ones need larger "
            "batches for the same average",
            "evaluate_every": "evaluation on 25,000 reviews is to stay a small part of the time",
            "length": "16,000 epochs of 1,563 updates, each of length 1e-6 of the flow",
        },
    )


def tuned(unit: str) -> Recipe:
    """The same 100 neurons over word vectors, in the order of the text."""
    return Recipe(
        task="imdb",
        name="tuned",
        unit=unit,
        data=ImdbData(input="words", length=400, long="last", vocabulary=20_000),
        model=Model(hidden_size=100, embedding=100, dropout=0.5, readout="mean"),
        optimizer=Optimizer("adam", lr=2e-3, momentum=0.9, clip_norm=1.0),
        schedule=Schedule("cosine"),
        batch_size=50,
        length=3,
        evaluate_every=0.5,
        keep="best",
        reasons={
            "data.input": "word order and word vectors, which the paper's single number lacks",
            "data.length": "87 % of the reviews are whole at 400 words, 27 % at 128",
            "data.long": "a review's verdict often comes last",
            "model.readout": "words that decide may stand anywhere",
            "model.dropout": "two million word vector values are learned from 22,500 reviews",
            "length": "over six epochs MGU's validation accuracy was best after two",
            "keep": "validation accuracy has its top before the end",
        },
    )


class ReviewExamples(Examples):
    """Reviews as words or as one number a step."""

    def __init__(
        self, sequences: data.Ragged, labels: NDArray[Any], asked: ImdbData, steps: int
    ) -> None:
        self.sequences, self.targets, self.asked, self.steps = sequences, labels, asked, steps
        self.lengths = np.minimum(sequences.lengths, asked.length)

    def batch(self, chosen: NDArray[np.int64]) -> Batch:
        """The chosen reviews, cut to the longest of them where no length is fixed."""
        longest = self.steps or int(self.lengths[chosen].max())
        values, lengths = self.sequences.take(chosen).padded(
            longest, keep="end" if self.asked.long == "last" else "start"
        )
        inputs = torch.from_numpy(np.ascontiguousarray(values.T))
        if self.asked.input == "words":
            inputs = inputs.long()
        else:
            inputs = inputs.float().mul_(self.asked.scale).unsqueeze(2)
        masked = self.asked.padding == "masked"
        return Batch(inputs, self.targets_of(chosen), torch.from_numpy(lengths) if masked else None)


@register
class ImdbTask(Task):
    """Section 4.2 of the paper."""

    name = "imdb"
    title = "IMDB movie reviews"
    short = "IMDB"
    about = (
        "Is a review of a film positive or negative? The paper reads one number a step, up to 128 "
        "steps; the recipe tuned reads the words themselves."
    )
    place = "Section 4.2, Figure 3"
    options = ImdbData
    source = "imdb"
    classes = ("negative", "positive")
    says = "judges it"
    recipes = MappingProxyType({"paper": paper, "flow": flow, "tuned": tuned})
    published = (
        *pair("test_accuracy", "61.8%", "62.6%", "Section 4.2"),
        *pair("seconds_per_epoch", "14.1", "5.0", "Section 4.2"),
    )
    cited = (Cited("both curves have converged after 15,000 epochs", "Section 4.2"),)
    counts = stated_pair(1, 100, mgu=20_400, gru=30_600)
    paper_axis = Axis("epoch", "epoch / 100", 100.0)
    # The flow takes its whole length to come to 60%; words in order are learned in half a minute.
    quick = (Planned("tuned", ("length=1", "data.train=10000")),)
    full = (Planned("flow"),)
    studies = (
        Study("halved imdb", "flow", ("optimizer.lr",)),
        Study(
            "readings", "flow",
            ("data.input", "data.scale", "data.long", "data.padding", "model.readout"),
            {"length": 10.0}, ("mgu",),
        ),
    )  # fmt: skip
    quick_stand_in = (Planned("tuned", ("length=6", "data.length=100")),)
    stand_in = ("data.source=stand-in", "data.train=1300", "data.valid=200", "data.test=500",
                "data.vocabulary=4000")  # fmt: skip

    def reads_words(self, options: ImdbData) -> bool:
        """Whether word vectors are learned."""
        return options.input == "words"

    def words(self, options: ImdbData) -> tuple[str, ...]:
        """Padding and the unknown word come before the frequent ones."""
        known = _published_or_made(options).vocabulary[: options.vocabulary]
        return ("\N{MIDDLE DOT}", "<unknown>", *known)

    def load(self, recipe: Recipe) -> Loaded:
        """Reviews as words or as one number a step."""
        asked = recipe.data
        assert isinstance(asked, ImdbData)
        reviews = _published_or_made(asked).split(asked.valid)
        fixed = recipe.model.readout == "all" or asked.padding == "zeros"
        steps = asked.length if fixed or asked.input == "frequent_count" else 0

        def examples(part: data.Reviews, count: int) -> Examples:
            part = part.take(_evenly(part, count, asked))
            if asked.input == "frequent_count":
                counts = _frequent_counts(part, asked.length)
                return Examples(counts[:, :, None], part.labels, scale=asked.scale)
            return ReviewExamples(_sequences(part, asked), part.labels, asked, steps)

        sets: dict[Split, Examples] = {
            "train": examples(reviews.train, asked.train),
            "valid": examples(reviews.valid, asked.valid),
            "test": examples(reviews.test, asked.test),
        }
        words = asked.vocabulary + data.FIRST_WORD if asked.input == "words" else 1
        shape = Shape(words, len(self.classes), steps, self.metric.objective)
        return LoadedExamples(recipe, self.metric, sets, shape)


def _published_or_made(options: ImdbData) -> data.Imdb:
    return data.stand_ins.documentation() if options.source == "stand-in" else data.imdb()


def _sequences(part: data.Reviews, asked: ImdbData) -> data.Ragged:
    if asked.input == "words":
        return data.keep_frequent(part.texts, asked.vocabulary)
    return {"word_rank": part.texts, "bag_index": part.words, "bag_count": part.counts}[asked.input]


def _evenly(part: data.Reviews, count: int, asked: ImdbData) -> NDArray[np.int64]:
    """`count` reviews with both classes alike, after the long ones were left out if so asked."""
    lengths = part.texts.lengths if asked.input in ("words", "word_rank") else part.words.lengths
    long = asked.long == "drop"
    kept = np.flatnonzero(lengths < asked.length) if long else np.arange(len(part))
    if count >= len(kept):
        return kept
    _, chosen = data.stratified_split(part.labels[kept], count, seed=1)
    return kept[chosen]


def _frequent_counts(part: data.Reviews, words: int) -> NDArray[np.float32]:
    """(N, words): how often each of the most frequent words occurs in each review."""
    counts = np.zeros((len(part), words), np.float32)
    review = np.repeat(np.arange(len(part)), part.words.lengths)
    frequent = part.words.values < words
    counts[review[frequent], part.words.values[frequent]] = part.counts.values[frequent]
    return counts
