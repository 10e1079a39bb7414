"""Handwritten digits read as a sequence: MNIST by rows, by pixels, and by permuted pixels."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from onegate.lab import data
from onegate.lab.data import randomness
from onegate.lab.recipes.recipe import (
    Count,
    DataSource,
    Model,
    Natural,
    Optimizer,
    Options,
    Range,
    Recipe,
    Schedule,
)
from onegate.lab.tasks.base import (
    FORGET_BIAS,
    Axis,
    Cited,
    Planned,
    Study,
    Task,
    View,
    as_released,
    check_split,
    pair,
    register,
    remembering,
    stated_pair,
)
from onegate.lab.tasks.loaded import Examples, Loaded, LoadedExamples, Shape, Split

_Task = Literal["mnist_rows", "mnist_pixels", "mnist_permuted"]

_SIDE = 28
# Mean and deviation of the pixels of the training images, on the scale 0 to 1.
_MEAN, _DEVIATION = 0.1307, 0.3081


@dataclass(frozen=True)
class MnistData(Options):
    """MNIST digits as sequences; the task says whether by rows, pixels or permuted pixels.

    train, valid: how many of the 60,000 training images are learned from, and how many are held
        out for choosing.
    scaling: `unit` keeps pixels within 0 and 1, `standard` gives them mean 0 and deviation 1.
    permutation_seed: the order of pixels in `mnist_permuted`.
    source: `stand-in` takes printed digits instead, see `onegate.lab.data.stand_ins.digits`.
    """

    train: Count = 50_000
    valid: Count = 10_000
    test: Annotated[int, Range(1, 10_000)] = 10_000
    scaling: Literal["unit", "standard"] = "unit"
    permutation_seed: Natural = 0
    source: DataSource = "real"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_split(self.train, self.valid, 60_000, "MNIST has 60,000 training images")


def pixel_scaling(asked: MnistData) -> tuple[float, float]:
    """What a pixel from 0 to 255 is multiplied by, and what is then added."""
    if asked.scaling == "standard":
        return 1 / 255 / _DEVIATION, -_MEAN / _DEVIATION
    return 1 / 255, 0.0


def _paper(task: _Task, unit: str) -> Recipe:
    """Section 4.3 of the paper, word for word. It would run for months; see `flow`."""
    return Recipe(
        task=task,
        name="paper",
        unit=unit,
        data=MnistData(),
        model=Model(hidden_size=100, readout="last", **as_released(unit)),
        optimizer=Optimizer("nesterov", lr=1e-8, momentum=0.99),
        batch_size=100,
        length=16_000,
        evaluate_every=100,
        test_curve=True,
        reasons={
            "data.train": "not in the text; the released code's split, 50,000 of 60,000",
            "data.scaling": "not in the text; the released code's 0 to 1",
            "model.readout": "the text: `the last row's hidden state`",
            "model.init": "not in the text; the released code's default, N(0, 0.1) and biases 0",
            "optimizer.kind": "the text says momentum; the released code takes Nesterov's",
            "optimizer.lr": "the text",
            "batch_size": "the text",
            "length": "the text",
            "evaluate_every": "the figure's x axis is the epoch divided by 100",
            "keep": "the paper reports the end of the run",
            "test_curve": "the paper's figure shows the test accuracy over epochs",
        },
    )


def _flow(task: _Task, unit: str) -> Recipe:
    """The gradient flow that `paper` follows, in hundreds of plain steps instead of millions."""
    asked = _paper(task, unit)
    rows = task == "mnist_rows"
    return replace(
        asked,
        name="flow",
        model=replace(asked.model, readout="all"),
        optimizer=Optimizer("sgd", lr=0.02 if rows else 0.002),
        batch_size=500 if rows else 100,
        clock="flow_time",
        length=8.0 if rows else 1.6,
        evaluate_every=0.4 if rows else 0.2,
        reasons={
            **asked.reasons,
            "model.readout": "the released code's dense layer sees the states of all steps; with "
            "the last state alone the flow is at 27 % where the paper is at 88 %",
            "optimizer.kind": "at lr 1e-8 training follows the flow dw/dtau = -gradient, and "
            "only its length tau = updates x lr / (1 - momentum) matters, which is not in seconds",
            "optimizer.lr": "the step of the flow; halving it must not move the curve",
            "batch_size": "a million tiny steps average over the data; few large ones need "
            "batches that are large enough for the same average",
            "evaluate_every": "evaluation on 10,000 images is to stay a small part of the time",
            "length": "16,000 epochs of 500 updates (batch 100), each of length 1e-6 of the flow"
            if rows
            else "16,000 epochs of 100 updates (batch 500, as in the released code by pixels), "
            "each of length 1e-6 of the flow",
        },
    )


def _tuned(task: _Task, unit: str) -> Recipe:
    """The last state of the same 100 neurons, trained as we would today."""
    asked = Recipe(
        task=task,
        name="tuned",
        unit=unit,
        data=MnistData(train=55_000, valid=5_000, scaling="standard"),
        model=Model(hidden_size=100),
        optimizer=Optimizer("adam", lr=4e-3, momentum=0.9, clip_norm=1.0),
        schedule=Schedule("cosine", warmup=100),
        batch_size=100,
        length=20,
        evaluate_every=1,
        keep="best",
        reasons={
            "batch_size": "as in the paper",
            "model.init": "28 steps need no help",
            "optimizer.clip_norm": "a guard against single steep batches",
            "schedule.kind": "in the end accuracy is limited by the step size, so the steps become "
            "ever smaller",
            "schedule.warmup": "Adam's estimates of the gradient's scale are poor at first",
        },
    )
    if task == "mnist_rows":
        return asked
    asked = replace(
        asked,
        model=Model(hidden_size=100, **remembering(unit, 784)),
        optimizer=replace(asked.optimizer, lr=2e-3),
        batch_size=32,
        length=10,
        reasons={
            **asked.reasons,
            "batch_size": "an epoch of MGU by pixels takes as long as with 100, and comes to 87 % "
            "on the validation set instead of 79",
            "model.init": "784 steps: the neurons start with memory spans spread over the sequence "
            "(Tallec and Ollivier 2018)",
        },
    )
    if task == "mnist_pixels":
        return asked
    return replace(
        asked,
        model=Model(hidden_size=100, **remembering(unit, 60)),
        optimizer=replace(asked.optimizer, lr=5e-3),
        length=20,
        reasons={
            **asked.reasons,
            "batch_size": "as by pixels",
            "model.init": "spans of up to 60 steps: two epochs of MGU come to 79 % on the "
            "validation set, with spans of up to 784 to 71, without help to 61 (lr 0.002)",
            "optimizer.lr": "two epochs of MGU come to 79 % on the validation set, with 0.002 to "
            "66, with 0.01 to 65",
            "length": "the order of the pixels is learned slowly: with ten epochs the validation "
            "accuracy still rises when the steps end",
        },
    )


def _all(task: _Task) -> MappingProxyType[str, Callable[[str], Recipe]]:
    builders = {"paper": _paper, "flow": _flow, "tuned": _tuned}
    return MappingProxyType({name: functools.partial(b, task) for name, b in builders.items()})


class MnistTask(Task):
    """Section 4.3 of the paper."""

    options = MnistData
    source = "mnist"
    says = "reads it as"
    digits = True
    paper_axis = Axis("epoch", "epoch / 100", 100.0)
    stand_in = ("data.source=stand-in",)

    def values(self, images: NDArray[np.uint8], options: MnistData) -> NDArray[np.uint8]:
        """Images (N, 28, 28) as sequences (N, T, d)."""
        raise NotImplementedError

    def order(self, options: MnistData) -> NDArray[np.int64]:  # noqa: ARG002
        """The numbers of the pixels in the order in which they are read."""
        return np.arange(_SIDE * _SIDE)

    def load(self, recipe: Recipe) -> Loaded:
        """Pixels from 0 to 1, or of mean 0 and deviation 1."""
        asked = recipe.data
        assert isinstance(asked, MnistData)
        found = data.stand_ins.digits() if asked.source == "stand-in" else data.mnist()
        digits = found.split(asked.valid)
        scale, shift = pixel_scaling(asked)

        def examples(part: data.Digits) -> Examples:
            values = self.values(part.images, asked)
            return Examples(values, part.labels, scale=scale, shift=shift)

        sets: dict[Split, Examples] = {
            "train": examples(digits.train[: asked.train]),
            "valid": examples(digits.valid),
            "test": examples(digits.test[: asked.test]),
        }
        steps, width = sets["train"].values.shape[1:]
        shape = Shape(width, 10, steps, self.metric.objective)
        return LoadedExamples(recipe, self.metric, sets, shape)

    def answer(self, target: Tensor) -> str:
        return f"digit {self.told(target.item())}"

    def view(self, options: MnistData, number: int, read: Tensor, target: Tensor) -> View:
        """The image, whatever the order in which it is read."""
        order = self.order(options)
        pixels = np.empty(len(order), np.float32)
        pixels[order] = read.reshape(-1).numpy()
        low, high = pixels.min(), pixels.max()
        image = (pixels - low) / max(high - low, 1e-6)
        return View(
            number,
            len(read),
            "image",
            self.answer(target),
            image=image.reshape(_SIDE, _SIDE),
            pixels=order.reshape(len(read), -1),
        )


@register
class Rows(MnistTask):
    """28 rows of 28 pixels."""

    name = "mnist_rows"
    title = "MNIST by rows"
    short = "MNIST rows"
    about = "An image of a handwritten digit is read as 28 rows of 28 pixels, top to bottom."
    place = "Section 4.3, Figure 4"
    recipes = _all("mnist_rows")
    published = (
        *pair("test_accuracy", "87.53%", "88.07%", "Section 4.3"),
        *pair("seconds_per_epoch", "182", "158", "Section 4.3"),
    )
    cited = (Cited("GRU leads in the first 1,000 of 16,000 epochs, then MGU", "Section 4.3"),)
    counts = stated_pair(28, 100, mgu=25_800, gru=38_700)
    quick = full = (Planned("flow"),)
    studies = (
        Study("halved rows", "flow", ("optimizer.lr",)),
        Study("gate after rows", "tuned", (), units=("mgu", "mgu_gate_after")),
        Study("forget bias rows", "tuned", FORGET_BIAS, {"length": 5.0}, ("mgu", "lstm")),
    )
    quick_stand_in = (
        Planned("tuned", ("length=2", "data.train=20000", "data.valid=2000", "data.test=2000")),
    )

    def values(self, images: NDArray[np.uint8], options: MnistData) -> NDArray[np.uint8]:  # noqa: ARG002
        """(N, 28, 28)."""
        return data.rows(images)


@register
class Pixels(MnistTask):
    """784 pixels, row by row."""

    name = "mnist_pixels"
    title = "MNIST by pixels"
    short = "MNIST pixels"
    about = "The same images read pixel by pixel: 784 steps."
    place = "Section 4.3"
    recipes = _all("mnist_pixels")
    published = (
        *pair("test_accuracy", "", "84.25%", "Section 4.3"),
        *pair("seconds_per_epoch", "145.3", "48.1", "Section 4.3"),
    )
    cited = (
        Cited("MGU takes over after 710 epochs; GRU was not run to the end", "Section 4.3"),
        Cited(
            "IRNN: below 65% after 16,000, roughly 80% after 32,000, above 90% after 500,000 "
            "epochs (Le et al. 2015, who count updates)",
            "Section 4.3",
        ),
        Cited(
            "LSTM: around 65% after 900,000 epochs (Le et al. 2015, who count updates)",
            "Section 4.3",
        ),
    )
    counts = stated_pair(1, 100, mgu=20_400, gru=30_600)
    quick = (Planned("flow", ("batch_size=50", "evaluate_every=0.4")),)
    full = (Planned("flow"),)
    quick_stand_in = (
        Planned(
            "flow",
            (
                "batch_size=50",
                "length=0.6",
                "evaluate_every=0.1",
                "data.valid=1000",
                "data.test=2000",
            ),
        ),
    )

    def values(self, images: NDArray[np.uint8], options: MnistData) -> NDArray[np.uint8]:  # noqa: ARG002
        """(N, 784, 1)."""
        return data.pixels(images)


@register
class Permuted(MnistTask):
    """784 pixels in an order that is fixed and random. The paper does not have it."""

    name = "mnist_permuted"
    title = "MNIST by permuted pixels"
    short = "MNIST permuted pixels"
    about = "The same 784 pixels in one fixed random order. The paper does not have this task."
    recipes = _all("mnist_permuted")
    studies = (Study("permuted", "tuned", (*FORGET_BIAS, "optimizer.lr"), {"length": 2.0}),)

    def values(self, images: NDArray[np.uint8], options: MnistData) -> NDArray[np.uint8]:
        """(N, 784, 1)."""
        return data.permuted(images, options.permutation_seed)

    def order(self, options: MnistData) -> NDArray[np.int64]:
        return randomness.order(_SIDE * _SIDE, options.permutation_seed)
