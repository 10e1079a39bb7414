"""A recipe: the frozen, complete description of one training run.

Recipes hold data and nothing else: no tensors, no files, no models. A unit and a task are named by
a string. A variant of a recipe replaces fields (`onegate.lab.recipes.overriding`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from types import UnionType
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from onegate import engines

_MOST_SHOWN = 200


class RecipeError(ValueError):
    """A recipe, or a value given for one of its fields, makes no sense."""


class NotGivenError(RecipeError):
    """A recipe's task is of a file or a package that was not given."""


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`; `above` leaves out `low` itself."""

    low: float
    high: float = float("inf")
    above: bool = False

    def __contains__(self, value: float) -> bool:
        return (self.low < value if self.above else self.low <= value) and value <= self.high

    def __str__(self) -> str:
        low = f"a number above {self.low:g}" if self.above else f"a number of at least {self.low:g}"
        return low if self.high == float("inf") else f"{low} and at most {self.high:g}"


@dataclass(frozen=True)
class Identifier:
    """Names that files, pages and commands can bear: as Python's, if `hyphens` with hyphens."""

    hyphens: bool = False
    longest: int = 100

    def __contains__(self, value: str) -> bool:
        plain = value[:1] + value[1:].replace("-", "_") if self.hyphens else value
        return len(value) <= self.longest and plain.isidentifier()

    def __str__(self) -> str:
        letters = "letters, digits, _ and -" if self.hyphens else "letters, digits and _"
        return f"a name of {letters} that begins with a letter"


@dataclass(frozen=True)
class EngineName:
    """What `engine=` of a layer may be: auto, or one of those that are registered."""

    def __contains__(self, value: str) -> bool:
        return value in engines.names()

    def __str__(self) -> str:
        return f"one of {', '.join(engines.names())}"


_WHOLE = 2**63 - 1  # what 64 bits hold
Count = Annotated[int, Range(1, _WHOLE)]
Natural = Annotated[int, Range(0, _WHOLE)]
Finite = Annotated[float, Range(-1e30, 1e30)]  # JSON has no infinity and no NaN
Positive = Annotated[float, Range(0, 1e30, above=True)]
NotNegative = Annotated[float, Range(0, 1e30)]
Share = Annotated[float, Range(0, 1)]
BelowOne = Annotated[float, Range(0, 0.999_999)]


class Checked:
    """Base of the recipe's dataclasses: a value that its field does not allow is refused."""

    def __post_init__(self) -> None:
        for name, kind in kinds(type(self)).items():
            problem = _problem(kind, getattr(self, name))
            if problem:
                raise RecipeError(f"{name}={shown(getattr(self, name))}: expected {problem}")


def shown(value: Any) -> str:
    """A value for a message: in one line, however long it is and whatever is in it."""
    text = repr(value)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."


def kinds(recipe_class: type[Any]) -> Mapping[str, Any]:
    """The type of each field of a recipe's dataclass, its range included."""
    hints = get_type_hints(recipe_class, include_extras=True)
    return {f.name: hints[f.name] for f in fields(recipe_class)}


def _problem(kind: Any, value: Any) -> str:
    """What was expected of `value`, empty if it is as it should be."""
    if get_origin(kind) is Annotated:
        plain, allowed = get_args(kind)
        return _problem(plain, value) or ("" if value in allowed else str(allowed))
    if get_origin(kind) is Literal:
        choices = get_args(kind)
        return "" if value in choices else f"one of {', '.join(choices)}"
    if kind is float:
        return "" if isinstance(value, (int, float)) and not _is_flag(value) else "a number"
    if kind is int:
        return "" if isinstance(value, int) and not _is_flag(value) else "a whole number"
    if kind is bool:
        return "" if _is_flag(value) else "true or false"
    if kind is str:
        return "" if isinstance(value, str) else "a text"
    if get_origin(kind) is Mapping:
        return _problem_of_mapping(get_args(kind), value)
    parts = get_args(kind) if isinstance(kind, UnionType) else (kind,)
    if all(is_dataclass(part) for part in parts) and not isinstance(value, parts):
        return "an object with fields"
    return ""


def _problem_of_mapping(kinds: tuple[Any, ...], value: Any) -> str:
    if not isinstance(value, Mapping):
        return "an object with fields"
    for key, inner in value.items():
        if problem := _problem(kinds[0], key):
            return f"{problem} instead of {shown(key)}"
        if problem := _problem(kinds[1], inner):
            return f"{problem} for {shown(key)}"
    return ""


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def parse(kind: Any, text: str) -> Any:
    """The value that `text` from a command line means for a field of this type."""
    if get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    if kind is bool:
        flags = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
        return flags.get(text.lower(), text)
    if kind in (int, float):
        return _number(text, kind)
    return text


def _number(text: str, kind: type[int] | type[float]) -> int | float | str:
    """A number if it is one; otherwise the text, which the field then refuses."""
    try:
        number = float(text.replace("_", ""))
    except ValueError:
        return text
    return int(number) if kind is int and number.is_integer() else number


@dataclass(frozen=True)
class Options(Checked):
    """What can be chosen about the data of a task; each has fields of its own."""


# Of `Model`, as keywords of a layer.
INSIDE = ("input_dropout", "recurrent_dropout", "candidate_dropout", "zoneout", "weight_drop")

# Of the options of tasks whose data are published files: those, or what is made here in their form.
DataSource = Literal["real", "stand-in"]


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
    input_dropout, recurrent_dropout, candidate_dropout, zoneout, weight_drop: inside the
        recurrence, see onegate.Recurrent.
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
    input_dropout: BelowOne = 0.0
    recurrent_dropout: BelowOne = 0.0
    candidate_dropout: BelowOne = 0.0
    zoneout: BelowOne = 0.0
    weight_drop: BelowOne = 0.0
    learn_initial_state: bool = False
    init: Literal["layer", "normal", "uniform", "orthogonal", "glorot", "forget_bias", "chrono"] = (
        "layer"
    )
    init_value: Finite = 0.1
    unit_options: Mapping[Annotated[str, Identifier()], Any] = field(default_factory=dict)
    engine: Annotated[str, EngineName()] = "auto"


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
    plugins: where unit or task are not of onegate: file and SHA-256, or package and version (see
        onegate.lab.plugins).
    """

    task: Annotated[str, Identifier()]
    name: Annotated[str, Identifier(hyphens=True)]
    unit: Annotated[str, Identifier()]
    data: Options
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
    plugins: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        from onegate.lab import tasks  # their files hold recipes, and so come after this one

        tasks.get(self.task).check(self)
        self._check_clock()
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

    def _check_choice(self) -> None:
        if self.optimizer.kind == "nesterov" and not self.optimizer.momentum:
            raise RecipeError("optimizer.kind=nesterov needs optimizer.momentum above 0")
        if self.chooses and not getattr(self.data, "valid", 1):
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
