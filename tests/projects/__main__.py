"""Trains each project's model twice from one seed, the second time accelerated; prints a table.

    make test-projects PROJECTS=DIR

Nothing of theirs is kept here: packages.txt names the packages, models.py has a model of each. The
authors' code of GRU4Rec and AWD-LSTM is no package; DIR holds clones of
hidasib/GRU4Rec_PyTorch_Official and salesforce/awd-lstm-lm, and without it they are left out. Where
torchaudio or torchcodec is only imported, an empty module stands in for it.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import importlib.abc
import importlib.machinery
import importlib.metadata
import io
import json
import os
import statistics
import sys
import traceback
import types
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final
from unittest import mock

import numpy as np
import torch
from torch import nn

import onegate
from onegate import files
from onegate.nn.drop_in_rule import ALWAYS, RULES

from . import authors, models
from .models import Curve, Run, Swap

STEPS: Final = 12
SAME: Final = 1e-5  # relative difference of the first losses
CLOSE: Final = 1e-4  # of any: training amplifies the rounding of float32


# By the distribution, "" for a clone.
PROJECTS: Final[dict[str, tuple[str, Run]]] = {
    "speechbrain, CRDNN with LSTM": ("speechbrain", models.speechbrain),
    "DeepFilterNet, its GRU modules": ("deepfilternet", models.deep_filter_net),
    "asteroid, DPRNN-TasNet": ("asteroid", models.asteroid),
    "neuralforecast, GRU, by Lightning": ("neuralforecast", models.neuralforecast),
    "darts, RNNModel with GRU, by Lightning": ("darts", models.darts),
    "gluonts, DeepAR, by Lightning": ("gluonts", models.gluonts),
    "sb3-contrib, recurrent PPO with LSTM": ("sb3-contrib", models.sb3_contrib),
    "TorchRL, GRUModule": ("torchrl", models.torchrl),
    "Hugging Face, EnCodec with LSTM": ("transformers", models.transformers),
    "coqui-tts, Tacotron 2": ("coqui-tts", models.tacotron2),
    "RecBole, GRU4Rec": ("recbole", models.recbole),
    "fastai, AWD-LSTM": ("fastai", models.fastai),
    "GRU4Rec, the authors' code": ("", authors.gru4rec),
    "AWD-LSTM, the authors' code": ("", authors.awd_lstm),
}


class _NoSound(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """torchaudio and torchcodec, whose every name is a mock: enough for what only imports them."""

    def find_spec(self, name: str, *_: Any) -> importlib.machinery.ModuleSpec | None:
        if name.partition(".")[0] not in ("torchaudio", "torchcodec"):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def exec_module(self, module: types.ModuleType) -> None:
        """Fills it."""
        vars(module)["__version__"] = "2.11.0"
        vars(module)["__getattr__"] = lambda name: mock.MagicMock(name=name)


def _seeded(run: Run, swap: Swap, steps: int) -> Curve:
    torch.manual_seed(0)
    np.random.seed(0)
    import random

    random.seed(0)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        return run(swap, steps)


def _measured(run: Run, rounds: int, steps: int) -> dict[str, Any]:
    """Both runs' losses and then scores, torch's time over ours, and the engines that ran."""
    swapped: list[nn.Module] = []

    def swap(model: nn.Module) -> nn.Module:
        swapped.append(model)
        return onegate.accelerate(model)

    pairs = [(_seeded(run, _same, steps), _seeded(run, swap, steps)) for _ in range(rounds)]
    theirs, ours = pairs[0]
    found: dict[str, Any] = {
        "theirs": theirs.losses + theirs.scores,
        "ours": ours.losses + ours.scores,
        "steps": len(ours.losses),
        "faster": statistics.median(a.seconds() / b.seconds() for a, b in pairs),
        "engines": sorted({r.engine for r in onegate.engine_report(swapped[0])}),
    }
    if max(_apart(found["theirs"], found["ours"])) > CLOSE:
        # What magnifies rounding does so with torch alone, too, in another order of sums.
        threads = torch.get_num_threads()
        torch.set_num_threads(1 if threads > 1 else 2)
        other = _seeded(run, _same, steps)
        found["other"] = other.losses + other.scores
        torch.set_num_threads(threads)
    return found


def _same(model: nn.Module) -> nn.Module:
    return model


def _apart(theirs: Sequence[float], ours: Sequence[float]) -> list[float]:
    pairs = zip(theirs, ours, strict=True)
    return [abs(a - b) / max(abs(a), 1e-6) for a, b in pairs]


def _row(name: str, found: dict[str, Any]) -> tuple[str, bool]:
    """The line of the table, and whether losses are close."""
    if "why" in found:
        return f"| {name} |  | {found['why']} |  |  |  |", found["why"].startswith("not run")
    package, losses = PROJECTS[name][0], found["ours"]
    apart = _apart(found["theirs"], losses)
    close = max(apart) <= CLOSE
    far = f"{apart[0]:.0e}, {max(apart):.0e}"
    if "other" in found:
        itself = max(_apart(found["theirs"], found["other"]))
        far += f" (torch with other threads {itself:.0e})"
        close = max(apart) <= 10 * itself
    version = importlib.metadata.version(package) if package else ""
    return (
        f"| {name} | {version} | {losses[0]:.4g} to {losses[found['steps'] - 1]:.4g} | {far} | "
        f"{found['faster']:.2f} x | {', '.join(found['engines'])} |",
        apart[0] <= SAME and close,
    )


def _try(name: str, rounds: int, steps: int) -> dict[str, Any]:
    try:
        return _measured(PROJECTS[name][1], rounds, steps)
    except ModuleNotFoundError as missing:
        return {"why": f"not run: {missing}"}
    except Exception:
        return {"why": f"failed:\n{traceback.format_exc()}"}


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sources", type=Path, help="a folder with clones of what is no package")
    parser.add_argument("--only", nargs="*", default=[""], help="projects with this in their names")
    parser.add_argument("--rounds", type=int, default=3, help="of both; the ratio is their median")
    parser.add_argument("--steps", type=int, default=STEPS, help="of training")
    parser.add_argument("--always", action="store_true", help="fused, where torch is faster, too")
    parser.add_argument(
        "--json", type=Path, help="a file of results; what is in it is not run again"
    )
    asked = parser.parse_args(given)
    authors.SOURCES = asked.sources
    sys.meta_path.append(_NoSound())
    warnings.simplefilter("ignore")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
    print("| project | version | loss | apart: first, most | faster | engines, last calls |")
    print("| --- | --- | --- | --- | --- | --- |", flush=True)
    kept = asked.json
    known = json.loads(kept.read_text()) if kept is not None and kept.is_file() else {}
    if asked.always:
        RULES.update(dict.fromkeys(RULES, ALWAYS))
    far = []
    for name in [name for part in asked.only for name in PROJECTS if part in name]:
        if name not in known:
            known[name] = _try(name, asked.rounds, asked.steps)
            if kept is not None:
                files.write_json(kept, known)
        line, good = _row(name, known[name])
        far += [] if good else [name]
        print(line, flush=True)
    print(
        f"\ntorch {torch.__version__}, {torch.get_num_threads()} threads, {asked.steps} steps of "
        f"training, {datetime.datetime.now(datetime.UTC):%Y-%m-%d}"
    )
    print(f"Failed, or losses too far apart: {', '.join(far) or 'none'}")
    return bool(far)


if __name__ == "__main__":
    sys.exit(main())
