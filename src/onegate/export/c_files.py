"""`onegate.export(model, folder, format="c")`: the files of a model in C."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from onegate import files
from onegate.export.c import texts, writer_of
from onegate.export.c_quantised import quantised_writer
from onegate.export.deployable import ExportError
from onegate.export.quantise import HeldOut, cost, told


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

    Nothing is written if the model is refused; files of an earlier export are replaced together,
    and others of these names, such as a Makefile of your own, are left alone: an error names them.
    """
    if path.exists() and not path.is_dir():
        raise ExportError(f"{path} is a file; C is written into a folder")
    if quantise is None and (calibration is not None or held_out is not None):
        raise ExportError("calibration= and held_out= are for quantise='int8' or 'integer'")
    writer = writer_of(model, stem, output, gates)
    facts: dict[str, Any] = {"weights": quantise or "float32", **(card or {})}
    if quantise is not None:
        writer = quantised = quantised_writer(writer, quantise, calibration)
        if held_out is not None:
            given = held_out if isinstance(held_out, tuple) else (held_out,)
            if not 1 <= len(given) <= 3:
                raise ExportError(f"held_out has {len(given)} parts, expected x, wanted, lengths")
            facts["quantised"] = cost(quantised.quantised, [HeldOut(*given)])
            print(told(facts["quantised"]))
    contents = texts(writer, facts)
    _refuse_others(path, contents)
    path.mkdir(parents=True, exist_ok=True)
    files.write_all({path / name: content.encode() for name, content in contents.items()})
    return path


def _refuse_others(folder: Path, names: Iterable[str]) -> None:
    """Files of these names that no export has written."""
    there = [name for name in names if (folder / name).exists()]
    if not there:
        return
    try:
        card = files.read_json(folder / "card.json")
    except (OSError, ValueError):
        card = {}
    if not card.keys() >= {"unit", "weights", "sha256"}:
        raise ExportError(
            f"{folder} has {', '.join(there)}, which no export has written: give another folder"
        )
