"""`onegate export`: a trained run as C, as ONNX, or as a page that runs in the browser."""

from __future__ import annotations

import argparse
import logging
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onegate.lab.cli.options import add_plugins, plain_warnings
from onegate.lab.train.progress import alive

if TYPE_CHECKING:
    from torch import Tensor, nn

    from onegate.lab.inside.opened import OpenRun
    from onegate.lab.tasks import Loaded

_CALIBRATING = 500  # sequences of the validation set


def register(parser: argparse.ArgumentParser) -> None:
    add_plugins(parser)
    parser.add_argument("run_folder", type=Path, metavar="RUN", help="folder of a run")
    form = parser.add_mutually_exclusive_group(required=True)
    form.add_argument("--c", action="store_true", help="C99 files that need no library")
    form.add_argument("--onnx", action="store_true", help="a file for ONNX Runtime and others")
    form.add_argument(
        "--web", action="store_true",
        help="a page that reads drawn digits, with the net in it (mnist_rows; needs clang and lld)",
    )  # fmt: skip
    parser.add_argument(
        "-o", dest="out", type=Path, help="default: RUN/c, RUN/model.onnx, or RUN/web"
    )
    parser.add_argument("--stem", default="model", help="the files' name (default: model)")
    parser.add_argument(
        "--output", default="linear", choices=("linear", "softmax", "argmax"),
        help="what the head gives: scores, probabilities, or scores and a function argmax",
    )  # fmt: skip
    parser.add_argument(
        "--quantise", choices=("int8", "integer"),
        help="eight-bit weights; integer: no float at all. Prints what it costs on the test set",
    )  # fmt: skip
    parser.set_defaults(run=run, parser=parser)


_OF_C = ("stem", "output", "quantise")


def run(args: argparse.Namespace) -> int:
    """Writes the files and prints where they are."""
    from onegate.lab.inside.opened import open_run

    for name in () if args.c else _OF_C:
        if getattr(args, name) != args.parser.get_default(name):
            raise ValueError(f"--{name} is for --c")
    write = _c if args.c else _onnx if args.onnx else _web
    with plain_warnings(), alive("export") as notify:
        notify("reading the run and its data")
        opened = open_run(args.run_folder)
        notify("writing it in its new form")
        said = write(args, opened)
    print(*said, sep="\n")
    return 0


def _web(args: argparse.Namespace, opened: OpenRun) -> list[object]:
    from onegate.lab.web import digit_page

    return [digit_page.write(opened, args.out or args.run_folder / "web")]


def _onnx(args: argparse.Namespace, opened: OpenRun) -> list[object]:
    """The whole model: inputs (T, B, ...), and lengths where sequences have several."""
    import torch

    import onegate
    from onegate import files

    path: Path = args.out or args.run_folder / "model.onnx"
    files.require_writable(path)
    batch = next(iter(opened.task.evaluation("test")))
    given, dynamic = [batch.inputs], torch.export.Dim.AUTO
    if batch.lengths is not None:
        given.append(batch.lengths)
    # Torch's exporter uses what torch calls deprecated, and logs that torchvision is not there.
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = torch.onnx.export(
            _scoring(opened.trained), tuple(given), dynamo=True, verbose=False,
            input_names=["inputs", "lengths"][: len(given)], output_names=["scores"],
            dynamic_shapes=tuple(dict.fromkeys(range(min(2, x.dim())), dynamic) for x in given),
            custom_translation_table=onegate.onnx_table(),
        )  # fmt: skip
    assert made is not None
    files.write(path, made.model_proto.SerializeToString())
    return [path]


def _scoring(model: nn.Module) -> nn.Module:
    """A model that gives scores; that of a text gives what its head sees, for speed."""
    from torch import nn

    from onegate.lab.train.models import LanguageModel

    class Scores(nn.Module):
        def __init__(self, inner: LanguageModel) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, words: Tensor) -> Tensor:
            scores: Tensor = self.inner.head(self.inner(words)[0])
            return scores

    return Scores(model).eval() if isinstance(model, LanguageModel) else model


def _c(args: argparse.Namespace, opened: OpenRun) -> list[object]:
    import onegate
    from onegate.export.quantise import told
    from onegate.lab.tasks.mnist import MnistData, pixel_scaling

    measured = {k: v for k, v in opened.run.result.items() if k.startswith(("test_", "valid_"))}
    card: dict[str, Any] = {
        "task": opened.run.recipe.task,
        "recipe": opened.run.recipe.name,
        "seed": opened.run.recipe.seed,
        **measured,
    }
    if isinstance(opened.recipe.data, MnistData):
        scale, shift = pixel_scaling(opened.recipe.data)
        card["input"] = f"pixel (0 to 255) * {scale:.9g} + {shift:.9g}"
    options: dict[str, Any] = {}
    said: list[object] = []
    if args.quantise:
        options = {"quantise": args.quantise, "calibration": _calibration(opened.task)}
        card["quantised"] = found = _cost(opened, **options)
        said.append(told(found))
    path = onegate.export(
        opened.trained, args.out or args.run_folder / "c", format="c",
        stem=args.stem, output=args.output, card=card, **options,
    )  # fmt: skip
    return [*said, path]


def _calibration(task: Loaded) -> Tensor:
    """The inputs of the first sequences of the validation set."""
    import torch

    found: list[Tensor] = []
    for batch in task.evaluation("valid"):
        found.append(batch.inputs)
        if sum(each.shape[1] for each in found) >= _CALIBRATING:
            break
    steps = max(len(each) for each in found)  # what is shorter goes on with zeros
    longer = [each.new_zeros(steps - len(each), *each.shape[1:]) for each in found]
    padded = [torch.cat(pair) for pair in zip(found, longer, strict=True)]
    return torch.cat(padded, 1)[:, :_CALIBRATING]


def _cost(opened: OpenRun, quantise: str, calibration: Tensor) -> dict[str, float]:
    """What eight bits cost on the test set."""
    from onegate.export.quantise import HeldOut, cost, quantised

    found = quantised(opened.trained, quantise, calibration)
    batches = opened.task.evaluation("test")
    at_end = hasattr(opened.trained, "readout")  # of a text something is wanted at every step
    return cost(
        found, (HeldOut(b.inputs, b.targets if at_end else None, b.lengths) for b in batches)
    )
