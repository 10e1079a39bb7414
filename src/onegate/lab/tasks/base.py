"""What a task is: its data and recipes, what it is judged by, what the paper says of it.

A task of one's own is a subclass with a name, a metric and `sets`:

>>> @register
... class Parity(Task):
...     name = "parity"
...     def sets(self, options):
...         bits = np.random.default_rng(options.seed).integers(2, size=(1000, 20))
...         data = bits, bits.sum(1) % 2
...         return {"train": data, "valid": data, "test": data}
>>> recipe("parity", "default", "mgu")
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from onegate import units
from onegate.lab.data import stand_ins
from onegate.lab.recipes.recipe import (
    Count,
    Identifier,
    Model,
    Natural,
    Optimizer,
    Options,
    Recipe,
    RecipeError,
    Schedule,
)
from onegate.lab.tasks.loaded import (
    Loaded,
    LoadedExamples,
    LoadedText,
    Shape,
    Split,
    given_examples,
    given_texts,
)
from onegate.lab.tasks.metrics import ACCURACY, Metric
from onegate.language import Graph
from onegate.properties import parameter_count, retention
from onegate.tracing import trace

_MOST_NUMBERS = 4
# Of a default recipe: how many updates there are in all, and at least in an epoch.
_UPDATES, _UPDATES_AN_EPOCH = 2_000, 20


@dataclass(frozen=True)
class Published:
    """One measured value of the paper, Zhou et al. (2016).

    quantity: as in a run's result: test_mse, test_accuracy, valid_perplexity, test_perplexity,
        seconds_per_epoch.
    printed: the number as the paper prints it.
    """

    unit: str
    hidden_size: int
    quantity: str
    printed: str
    place: str

    @property
    def value(self) -> float:
        """The number; a percentage as a share of 1, as in a run's result.

        >>> Published("mgu", 100, "test_accuracy", "88.07%", "Section 4.3").value
        0.8807
        """
        number = float(self.printed.rstrip("%"))
        return round(number / 100, 10) if self.printed.endswith("%") else number


def pair(
    quantity: str, gru: str, mgu: str, place: str, hidden_size: int = 100
) -> tuple[Published, ...]:
    """What the paper has of its two units; an empty text where it has nothing."""
    printed = {"gru": gru, "mgu": mgu}
    return tuple(
        Published(unit, hidden_size, quantity, text, place)
        for unit, text in printed.items()
        if text
    )


@dataclass(frozen=True)
class Cited:
    """What the paper says beside its own measurements, in words that can stand alone."""

    text: str
    place: str


@dataclass(frozen=True)
class StatedCount:
    """A parameter count that the paper states, and the net that it belongs to.

    understood: whether it is `Task.paper_count` of that net; nobody has found out otherwise.
    """

    unit: str
    input_size: int
    hidden_size: int
    stated: int
    layers: int = 1
    directions: int = 1
    understood: bool = True

    def exact(self) -> int:
        """Every number that the net's recurrent layers learn."""
        return parameter_count(
            units.get(self.unit), self.input_size, self.hidden_size, self.layers, self.directions
        )


def stated_pair(
    input_size: int, hidden_size: int, mgu: int, gru: int, layers: int = 1, directions: int = 1
) -> tuple[StatedCount, StatedCount]:
    """The counts of the paper's two units."""
    return (
        StatedCount("mgu", input_size, hidden_size, mgu, layers, directions),
        StatedCount("gru", input_size, hidden_size, gru, layers, directions),
    )


@dataclass(frozen=True)
class Axis:
    """An x axis: `column` of the metrics, divided by `unit`.

    second: name and factor of an axis above that shows `factor * x`, if there is one.
    """

    column: str
    label: str
    unit: float = 1.0
    second: tuple[str, float] | None = None


class Planned(NamedTuple):
    """A recipe that `onegate reproduce` runs, with these settings."""

    recipe: str
    settings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Study:
    """A table of runs of one recipe with some fields replaced, for the documents.

    name: of the table. fixed: fields that are the same in all runs. size: hidden neurons, if the
        runs have several.
    """

    name: str
    recipe: str
    varied: tuple[str, ...]
    fixed: Mapping[str, Any] = field(default_factory=dict)
    units: tuple[str, ...] = ("mgu", "gru")
    size: int | None = None


FORGET_BIAS: Final = ("model.init", "model.init_value")  # of studies of how a gate starts


@dataclass(frozen=True, eq=False)
class View:
    """An example as a reader sees it.

    kind: `image` has the pixels (28, 28), 0 to 1, and for each step the numbers of those that it
        reads; `numbers` has a number a step, and which of them are marked; `words` a word a step.
    """

    number: int
    steps: int
    kind: Literal["image", "numbers", "words"]
    answer: str
    image: NDArray[np.float32] | None = None
    pixels: NDArray[np.int64] | None = None
    numbers: NDArray[np.float32] | None = None
    marked: NDArray[np.bool_] | None = None
    words: tuple[str, ...] = ()


@dataclass(frozen=True)
class Generated(Options):
    """Examples that are generated from a seed, so many for each set."""

    train: Count = 2_000
    valid: Natural = 500
    test: Count = 500
    seed: Natural = 0


class Task:
    """A task. What stands here are the defaults for a task of one's own.

    title, short, about: for readers. place: in the paper, None if it is not there.
    metric: also says what a model gives: a number, a class, or the next word at every step.
    options: the dataclass of what can be chosen about the data.
    vocabulary: the words, or how many, where inputs are words. classes: their names, if any.
    says: how a model's answer is told. digits: whether the classes are the digits of images.
    generated: whether the data are made, not read from files. source: of `onegate.lab.data`, if its
        files are fetched.
    recipes: by name, the function of a unit's name that gives the recipe.
    published, cited, counts: the paper's numbers. counting: how it counts parameters, if not
        every number of one layer.
    axis: over which training is drawn; paper_axis: that of the recipe `paper`, if another.
    quick, full: what `onegate reproduce` runs; quick_stand_in: where the data are not to be had.
    stand_in: settings of every recipe on stand-in data, without which there are none.
    studies: tables for the documents.
    """

    name: str
    title: str = ""
    short: str = ""
    about: str = ""
    place: str | None = None
    metric: Metric = ACCURACY
    options: type[Options] = Generated
    vocabulary: int | Sequence[str] = 0
    classes: Sequence[str] = ()
    says: str = "answers"
    digits: bool = False
    generated: bool = False
    source: str = ""
    published: tuple[Published, ...] = ()
    cited: tuple[Cited, ...] = ()
    counts: tuple[StatedCount, ...] = ()
    counting: str = ""
    axis: Axis = Axis("epoch", "epoch")
    paper_axis: Axis | None = None
    quick: tuple[Planned, ...] = ()
    full: tuple[Planned, ...] = ()
    studies: tuple[Study, ...] = ()
    quick_stand_in: tuple[Planned, ...] = ()
    stand_in: tuple[str, ...] = ()

    def __init__(self) -> None:
        name = getattr(self, "name", None)
        if not isinstance(name, str) or name not in Identifier():
            raise RecipeError(f"name={name!r}: a task has {Identifier()}")
        plain = name.replace("_", " ")
        self.title = self.title or plain[0].upper() + plain[1:]
        self.short = self.short or plain

    @property
    def recipes(self) -> Mapping[str, Callable[[str], Recipe]]:
        """By name, the function of a unit's name that gives the recipe."""
        return {"default": self.default}

    @property
    def usual(self) -> str:
        """The recipe that is taken where none is named."""
        return "tuned" if "tuned" in self.recipes else next(iter(self.recipes))

    def default(self, unit: str) -> Recipe:
        """Adam with falling steps; the model that is best on the validation set counts."""
        options = self.options()
        examples = getattr(options, "train", 2_000)
        text = self.metric.objective == "word"
        batch_size = 20 if text else max(1, min(100, examples // _UPDATES_AN_EPOCH))
        epochs = 5 if text else max(1, _UPDATES * batch_size // examples)
        return Recipe(
            task=self.name,
            name="default",
            unit=unit,
            data=options,
            model=Model(hidden_size=64, embedding=32 if self.reads_words(options) else 0),
            optimizer=Optimizer("adam", lr=2e-3, momentum=0.9, clip_norm=1.0),
            schedule=Schedule("cosine"),
            batch_size=batch_size,
            length=epochs,
            evaluate_every=max(1, epochs // 20),
            keep="best" if getattr(options, "valid", 1) else "last",
        )

    def stands_in(self, options: Any) -> str:
        """What a page says of data that are a stand-in; empty where they are not."""
        return stand_ins.notice(self.source, options)

    def check(self, recipe: Recipe) -> None:
        """Refuses a recipe whose data or model are of another task."""
        if not isinstance(recipe.data, self.options):
            raise RecipeError(
                f"data of {self.name} is {self.options.__name__}, got {type(recipe.data).__name__}"
            )
        model, text = recipe.model, self.metric.objective == "word"
        words = self.reads_words(recipe.data)
        if words and not model.embedding:
            raise RecipeError("model.embedding=0: words need an embedding, give its width")
        if model.embedding and not words:
            raise RecipeError(
                f"model.embedding={model.embedding}: the input of this task is numbers, not words; "
                "set it to 0"
            )
        if text and (model.bidirectional or model.readout != "last"):
            raise RecipeError(
                f"{self.name} predicts each word from the state before it: model.bidirectional "
                "must be false and model.readout last"
            )
        for name in ("tie_embedding", "start_from_text"):
            if getattr(model, name) and not text:
                raise RecipeError(
                    f"model.{name}=true: the head of {self.name} does not choose among words; "
                    "set it to false"
                )

    def reads_words(self, options: Any) -> bool:  # noqa: ARG002 - some tasks let one choose
        """Whether inputs are words, with these options."""
        return bool(self.vocabulary)

    def words(self, options: Any) -> Sequence[str]:  # noqa: ARG002
        """The words by number, where inputs are words."""
        known = self.vocabulary
        return tuple(map(str, range(known))) if isinstance(known, int) else known

    def sets(self, options: Any) -> Mapping[Split, Any]:
        """The sets `train`, `valid` and `test`.

        Each is (inputs, targets) or (inputs, targets, lengths): inputs (N, T, d) or (N, T) numbers,
        (N, T) words, or a list of sequences; targets (N,). Where the next word is predicted, each
        is a text, (length,) words.
        """
        raise NotImplementedError(f"{type(self).__qualname__} has no method sets(options)")

    def load(self, recipe: Recipe) -> Loaded:
        """The data as a recipe asks for it."""
        sets: dict[Split, Any] = dict(self.sets(recipe.data))
        missing = {"train", "test", *(["valid"] if recipe.chooses else [])} - sets.keys()
        if missing or sets.keys() - {"train", "valid", "test"}:
            raise RecipeError(
                f"{self.name} gives the sets {', '.join(sets)}: expected train, test and, to "
                "choose by keep=best or schedule.kind=plateau, valid"
            )
        words = len(self.words(recipe.data)) if self.reads_words(recipe.data) else 0
        objective = self.metric.objective
        if objective == "word":
            texts = given_texts(sets, words)
            return LoadedText(recipe, self.metric, texts, words, getattr(recipe.data, "steps", 35))
        examples, steps = given_examples(sets, words, objective, recipe.model.readout == "all")
        outputs = 1
        if objective == "class":
            targets = [one.targets for one in examples.values() if len(one)]
            outputs = len(self.classes) or 1 + int(max(found.max() for found in targets))
        inputs = words or examples["train"].values.shape[2]
        return LoadedExamples(
            recipe, self.metric, examples, Shape(inputs, outputs, steps, objective)
        )

    def told(self, value: float) -> str:
        """A number or a class, for reading."""
        if self.metric.objective == "value":
            return f"{value:.3f}"
        return self.classes[int(value)] if self.classes else str(int(value))

    def answer(self, target: Tensor) -> str:
        """What is right for an example; nothing of a text."""
        return "" if target.dim() else self.told(target.item())

    def view(self, options: Any, number: int, read: Tensor, target: Tensor) -> View:
        """An example of the test set; read: its inputs (T, d) or (T,), target: () or (T,)."""
        answer = self.answer(target)
        if self.reads_words(options):
            known = self.words(options)
            words = tuple(known[word] for word in read.tolist())
            return View(number, len(read), "words", answer, words=words)
        if read.shape[1] == 1:
            return View(number, len(read), "numbers", answer, numbers=read[:, 0].numpy())
        more = " \N{HORIZONTAL ELLIPSIS}" if read.shape[1] > _MOST_NUMBERS else ""
        words = tuple(
            " ".join(f"{value:.2g}" for value in step[:_MOST_NUMBERS]) + more
            for step in read.tolist()
        )
        return View(number, len(read), "words", answer, words=words)

    def paper_count(self, graph: Graph, directions: int = 1) -> int:
        """The parameters of a net of this task in the paper's way: one layer, one bias a map.

        With two directions also the initial state of each, which Lasagne lists among them.
        """
        count = graph.parameter_count()
        states = sum(state.size or 0 for state in graph.states)
        return count if directions == 1 else directions * (count + states)

    def counted(self, stated: StatedCount) -> int | None:
        """A net of which the paper states a count, counted in its way; None if that is unknown."""
        graph = trace(units.get(stated.unit), stated.input_size, stated.hidden_size)
        return self.paper_count(graph, stated.directions) if stated.understood else None

    def find(self, unit: str, hidden_size: int, quantity: str) -> Published | None:
        """The paper's value, None where it has none for this net."""
        for one in self.published:
            if (one.unit, one.hidden_size, one.quantity) == (unit, hidden_size, quantity):
                return one
        return None

    @property
    def sizes(self) -> tuple[int, ...]:
        """The hidden sizes of the paper's table, where it has one of several."""
        found = sorted({one.hidden_size for one in self.published})
        return tuple(found) if len(found) > 1 else ()


_T = TypeVar("_T")
_Definition = TypeVar("_Definition", bound=type[Task])

TASKS: dict[str, Task] = {}


def register(kind: _Definition) -> _Definition:
    """Class decorator: enters the task under its name in `TASKS`."""
    task = kind()
    taken = TASKS.get(task.name)
    if taken is not None and _defined_in(type(taken)) != _defined_in(kind):
        raise RecipeError(f"the name {task.name!r} is taken by {type(taken).__qualname__}")
    TASKS[task.name] = task
    return kind


def _defined_in(kind: type) -> tuple[str, str]:
    """The same for a class that is defined again, as in a notebook."""
    return kind.__module__, kind.__qualname__


def known() -> str:
    """The names of all tasks, for a message about another one."""
    return f"{', '.join(TASKS)}; one's own is known once the file that registers it was imported"


def get(name: str) -> Task:
    """The task of a name."""
    return look_up(TASKS, name, "task", known())


def look_up(table: Mapping[str, _T], name: str, what: str, there_are: str = "") -> _T:
    """The entry of a name; an error has the nearest one, or says what there is."""
    if name not in table:
        near = difflib.get_close_matches(name, table, 1)
        hint = f"did you mean {near[0]}?" if near else f"there are {there_are or ', '.join(table)}"
        raise RecipeError(f"no {what} is called {name!r}; {hint}")
    return table[name]


def check_split(train: int, valid: int, total: int, fact: str) -> None:
    """Refuses more examples than a data set has."""
    if train + valid > total:
        raise RecipeError(f"train={train} and valid={valid} together exceed {total}: {fact}")


def as_released(unit: str) -> dict[str, Any]:
    """N(0, 0.1) as in the released code; a unit with initial weights of its own keeps them."""
    return {} if units.get(unit).init else {"init": "normal", "init_value": 0.1}


def remembering(unit: str, steps: int) -> dict[str, Any]:
    """Memories of up to `steps` steps, for units with a gate that keeps a state."""
    kept = retention(trace(units.get(unit), 1, 1))
    gated = any(state.keeps.key for state in kept)
    return {"init": "chrono", "init_value": float(steps)} if gated else {}
