"""A recipe: the frozen, complete description of one training run.

Recipes hold data and nothing else: no tensors, no files, no models. A unit is named by a string.
A variant of a recipe replaces fields (`onegate.lab.recipes.overriding`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated, Any, Literal

from onegate.lab.recipes.fields import (
    BelowOne,
    Checked,
    Count,
    Finite,
    Identifier,
    Natural,
    NotNegative,
    Positive,
    Range,
    RecipeError,
    Share,
)


@dataclass(frozen=True)
class AddingData(Checked):
    """The adding problem: generated sequences of random numbers, two of them marked.

    variant: `paper` marks with +1 and puts -1 at both ends; `released` is the authors' code (marks
        0 or 1, inputs and targets centred).
    shortest, longest: lengths, both included (`released`: the longest is never reached).
    """

    variant: Literal["paper", "released"] = "paper"
    shortest: Annotated[int, Range(10)] = 50
    longest: Annotated[int, Range(10)] = 55
    train: Count = 10_000
    valid: Count = 1_000
    test: Count = 1_000
    seed: Natural = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.longest < self.shortest:
            raise RecipeError(f"longest={self.longest} is below shortest={self.shortest}")


@dataclass(frozen=True)
class MnistData(Checked):
    """MNIST digits as sequences; the task says whether by rows, pixels or permuted pixels.

    train, valid: how many of the 60,000 training images are learned from, and how many are held
        out for choosing.
    scaling: `unit` keeps pixels within 0 and 1, `standard` gives them mean 0 and deviation 1.
    permutation_seed: the order of pixels in `mnist_permuted`.
    """

    train: Count = 50_000
    valid: Count = 10_000
    test: Annotated[int, Range(1, 10_000)] = 10_000
    scaling: Literal["unit", "standard"] = "unit"
    permutation_seed: Natural = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_split(self.train, self.valid, 60_000, "MNIST has 60,000 training images")


@dataclass(frozen=True)
class ImdbData(Checked):
    """IMDB reviews as sequences.

    input: `words` are word numbers in the order of the text, for an embedding; the others feed
        one number a step: `word_rank` the word's frequency rank in the order of the text,
        `bag_index` and `bag_count` the pairs of the provided bag of words, `frequent_count` the
        counts of the most frequent words, one step for each word.
    length: steps that are kept. long: what becomes of longer texts: their first or last steps
        are kept, or they are left out (from training and test alike).
    padding: `masked` steps do not change the state; `zeros` are read like any other number.
    vocabulary: words beyond this rank are one unknown word. scale: factor of the number fed in.
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

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_split(self.train, self.valid, 25_000, "IMDB has 25,000 training reviews")


@dataclass(frozen=True)
class PtbData(Checked):
    """Penn TreeBank: one long text in `batch_size` columns, read `steps` words at a time.

    train: how many words of the training text are learned from.
    """

    steps: Count = 35
    train: Annotated[int, Range(1_000, 929_589)] = 929_589


def _check_split(train: int, valid: int, total: int, fact: str) -> None:
    if train + valid > total:
        raise RecipeError(f"train={train} and valid={valid} together exceed {total}: {fact}")


Data = AddingData | MnistData | ImdbData | PtbData

DATA: Mapping[str, type[Data]] = MappingProxyType(
    {
        "adding": AddingData,
        "imdb": ImdbData,
        "mnist_rows": MnistData,
        "mnist_pixels": MnistData,
        "mnist_permuted": MnistData,
        "ptb": PtbData,
    }
)
TASKS = tuple(DATA)


@dataclass(frozen=True)
class Model(Checked):
    """Embedding (if any), recurrent layers, readout, dense head.

    readout: the dense layer sees the last state, the states of all steps side by side, or their
        mean.
    embedding: width of the word vectors, 0 for none. tie_embedding: the language model's head
        uses the embedding's vectors, through a matrix if they are not as wide as the states.
    start_from_text: word vectors start from which words stand near each other in the training text,
        the head's biases from how frequent they are.
    dropout: on embeddings, between layers and before the head.
    init, init_value: of the recurrent layers, see onegate.nn.init. `layer` is the layer's own
        default; the value is the deviation of `normal`, the bound of `uniform`, the gain of
        `orthogonal` and `glorot`, the bias towards keeping of `forget_bias`, the longest memory
        in steps of `chrono`.
    unit_options: of the recurrent unit, by name.
    """

    hidden_size: Count
    num_layers: Count = 1
    bidirectional: bool = False
    readout: Literal["last", "all", "mean"] = "last"
    embedding: Natural = 0
    tie_embedding: bool = False
    start_from_text: bool = False
    dropout: BelowOne = 0.0
    learn_initial_state: bool = False
    init: Literal["layer", "normal", "uniform", "orthogonal", "glorot", "forget_bias", "chrono"] = (
        "layer"
    )
    init_value: Finite = 0.1
    unit_options: Mapping[Annotated[str, Identifier()], Any] = field(default_factory=dict)
    engine: Literal["auto", "fused", "reference"] = "auto"


@dataclass(frozen=True)
class Optimizer(Checked):
    """How a gradient becomes a step.

    momentum: of `sgd` and `nesterov`; Adam's first decay. second: Adam's second decay.
    weight_decay_on: `all` parameters, or `matrices` but for word vectors.
    clip_norm: gradients longer than this are shortened to it, 0 for never.
    loss: `mean` over everything predicted, or `sum_over_steps`, a mean over the batch alone.
    """

    kind: Literal["sgd", "nesterov", "adagrad", "adam", "adamw"]
    lr: Positive
    momentum: BelowOne = 0.0
    second: BelowOne = 0.999
    eps: Positive = 1e-8
    weight_decay: NotNegative = 0.0
    weight_decay_on: Literal["all", "matrices"] = "all"
    clip_norm: NotNegative = 0.0
    loss: Literal["mean", "sum_over_steps"] = "mean"


@dataclass(frozen=True)
class Schedule(Checked):
    """How the learning rate changes.

    `cosine` falls to `floor` times lr at the end; `decay` multiplies by `factor` after every epoch
    beyond the first `start`; `plateau` does so after more than `patience` evaluations without a
    better validation metric. warmup: updates over which lr rises from 0.
    """

    kind: Literal["constant", "cosine", "decay", "plateau"] = "constant"
    factor: Annotated[float, Range(0, 1, above=True)] = 0.5
    start: NotNegative = 0.0
    patience: Natural = 0
    floor: Share = 0.0
    warmup: Natural = 0


@dataclass(frozen=True)
class Recipe(Checked):
    """One training run.

    length, evaluate_every: in units of `clock`: epochs, updates, or the flow time
        s = updates x lr / (1 - momentum).
    test_curve: the test metric is logged at every evaluation, as in the paper's figures. It never
        chooses anything; without it the test set is read once, at the end. The validation metric
        is logged unless it would choose nothing and only cost time beside a test curve.
    keep: the model that counts at the end, the `last` one or the `best` on the validation set.
    reasons: for fields, by dotted path, why they are what they are.
    """

    task: Literal["adding", "imdb", "mnist_rows", "mnist_pixels", "mnist_permuted", "ptb"]
    name: Annotated[str, Identifier(hyphens=True)]
    unit: Annotated[str, Identifier()]
    data: Data
    model: Model
    optimizer: Optimizer
    batch_size: Count
    length: Positive
    evaluate_every: Positive
    clock: Literal["epochs", "updates", "flow_time"] = "epochs"
    schedule: Schedule = field(default_factory=Schedule)
    test_curve: bool = False
    keep: Literal["last", "best"] = "last"
    precision: Literal["float32", "float64"] = "float32"
    seed: Natural = 0
    reasons: Mapping[str, str] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.data, DATA[self.task]):
            raise RecipeError(
                f"data of {self.task} is {DATA[self.task].__name__}, got {type(self.data).__name__}"
            )
        self._check_clock()
        self._check_model()
        self._check_choice()

    def _check_clock(self) -> None:
        if self.clock != "flow_time":
            return
        if self.optimizer.kind not in ("sgd", "nesterov"):
            raise RecipeError(
                f"clock=flow_time with optimizer.kind={self.optimizer.kind}: only plain steps "
                "(sgd, nesterov) follow the gradient flow"
            )
        if self.schedule != Schedule():
            raise RecipeError("clock=flow_time needs a constant schedule without warmup")

    def _check_model(self) -> None:
        model, text = self.model, self.task == "ptb"
        words = text or (isinstance(self.data, ImdbData) and self.data.input == "words")
        if words and not model.embedding:
            raise RecipeError("model.embedding=0: words need an embedding, give its width")
        if model.embedding and not words:
            raise RecipeError(
                f"model.embedding={model.embedding}: the input of this task is numbers, not words; "
                "set it to 0"
            )
        if text and (model.bidirectional or model.readout != "last"):
            raise RecipeError(
                "ptb predicts each word from the state before it: model.bidirectional must be "
                "false and model.readout last"
            )
        for name in ("tie_embedding", "start_from_text"):
            if getattr(model, name) and not text:
                raise RecipeError(
                    f"model.{name}=true: the head of {self.task} does not choose among words; "
                    "set it to false"
                )

    def _check_choice(self) -> None:
        if self.optimizer.kind == "nesterov" and not self.optimizer.momentum:
            raise RecipeError("optimizer.kind=nesterov needs optimizer.momentum above 0")
        if self.chooses and isinstance(self.data, ImdbData) and not self.data.valid:
            raise RecipeError(
                "keep=best and schedule.kind=plateau choose on a validation set: "
                "data.valid must be above 0"
            )

    @property
    def chooses(self) -> bool:
        """Whether anything depends on the validation metric."""
        return self.keep == "best" or self.schedule.kind == "plateau"

    @property
    def curves(self) -> set[Literal["valid", "test"]]:
        """The sets on which every evaluation measures."""
        tested: set[Literal["valid", "test"]] = {"test"} if self.test_curve else set()
        return tested | ({"valid"} if self.chooses or not self.test_curve else set())

    @property
    def flow_step(self) -> float:
        """Flow time of one update: lr / (1 - momentum)."""
        return self.optimizer.lr / (1 - self.optimizer.momentum)

    def updates(self, amount: float, updates_per_epoch: int) -> int:
        """How many updates `amount` is on the recipe's clock, at least one."""
        rates = {
            "epochs": float(updates_per_epoch),
            "updates": 1.0,
            "flow_time": 1 / self.flow_step,
        }
        return max(1, round(amount * rates[self.clock]))
