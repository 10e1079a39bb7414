"""Recipes of sentiment classification on IMDB."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

from onegate.lab.recipes.recipe import ImdbData, Model, Optimizer, Recipe, Schedule
from onegate.lab.recipes.starts import as_released


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
            "optimizer.kind": "at lr 1e-8 training follows dw/ds = -gradient, and only the flow "
            "time s = updates x lr / (1 - momentum) matters",
            "optimizer.lr": "the step of the flow; halving it must not move the curve",
            "batch_size": "a million tiny steps average over the data; few large ones need larger "
            "batches for the same average",
            "evaluate_every": "evaluation on 25,000 reviews is to stay a small part of the time",
            "length": "16,000 epochs of 1,563 updates, each of flow time 1e-6",
        },
    )


def tuned(unit: str) -> Recipe:
    """The same 100 units over word vectors, in the order of the text."""
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


RECIPES = MappingProxyType({"paper": paper, "flow": flow, "tuned": tuned})
