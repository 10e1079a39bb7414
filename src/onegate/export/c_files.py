"""`onegate.export(model, folder, format="c")`: the files of a model in C."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from onegate import files
from onegate.export.c import texts
from onegate.export.c_quantised import quantised_writer, required
from onegate.export.deployable import ExportError
from onegate.export.quantise import HeldOut, cost, quantised, told
from onegate.ops import identity


def write(
    model: nn.Module,
    path: Path,
    *,
    stem: str = "model",
    output: str = "linear",
    card: Mapping[str, Any] | None = None,
    quantise: str | None = None,
    calibration: Tensor | None = None,
    held_out: Tensor | tuple[Tensor, ...] | None = None,
    gates: bool = False,
) -> Path:
    """Writes `stem`.h, `stem`.c, a self-test, a Makefile, a README and a card into a folder.

    stem: the file's name, and the prefix of all names in it. output: what a dense head gives,
    "linear" scores, "softmax" probabilities, or "argmax": scores, and a function that takes the
    largest. card: facts for the model card, such as {"test_accuracy": 0.984}.
    quantise: "int8" for eight-bit weights, "integer" for no float at all; calibration: sequences
    (T, B, inputs), or (T, B) words, that show how large values become. See
    `onegate.export.quantise`. held_out: sequences like them that the model was not tuned with; or
    these, what is wanted after the last step (B,), and if need be their lengths (B,): what eight
    bits cost there is printed and stands on the card. gates: the state also holds the gates of the
    last step, to look at.

    Nothing is written if the model is refused; files that were there are replaced together.
    """
    if path.exists() and not path.is_dir():
        raise ExportError(f"{path} is a file; C is written into a folder")
    if quantise is None and (calibration is not None or held_out is not None):
        raise ExportError("calibration= and held_out= are for quantise='int8' or 'integer'")
    arithmetic = (
        identity
        if quantise is None
        else functools.partial(quantised_writer, mode=quantise, calibration=calibration)
    )
    facts = dict(card or {})
    if held_out is not None:
        assert quantise is not None
        found = quantised(model, quantise, required(quantise, calibration))
        given = held_out if isinstance(held_out, tuple) else (held_out,)
        facts["quantised"] = cost(found, [HeldOut(*given)])
        print(told(facts["quantised"]))
    contents = texts(model, stem, output, facts, quantise or "float32", arithmetic, gates)
    path.mkdir(parents=True, exist_ok=True)
    files.write_all({path / name: content.encode() for name, content in contents.items()})
    return path
