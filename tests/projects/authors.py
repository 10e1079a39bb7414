"""GRU4Rec and AWD-LSTM by their authors' own code: it trains, stores, loads and evaluates.

The code is no package; it is read from clones in `SOURCES`, and left out without them.
"""

# mypy: disable-error-code="import-not-found, import-untyped"
# The clones are not where mypy looks.

from __future__ import annotations

import contextlib
import functools
import os
import runpy
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from onegate.lab import data

from .models import Curve, Swap

SOURCES: Path | None = None  # Set by the command line.


def gru4rec(swap: Swap, steps: int) -> Curve:
    """Sessions side by side, a GRU cell a click; ranked by its evaluation.py after loading."""
    import pandas as pd

    with _source("GRU4Rec_PyTorch_Official"):
        import evaluation
        import gru4rec_pytorch as official

    clicks = 60 * steps
    random = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "SessionId": np.repeat(np.arange(clicks // 4 * 2), 4),
            "ItemId": (random.zipf(1.3, clicks // 4 * 8) % 700),
            "Time": np.arange(clicks // 4 * 8),
        }
    )
    curve = Curve()
    model = official.GRU4Rec(
        layers=[256], batch_size=32, n_sample=128, n_epochs=2, device=torch.device("cpu"),
        dropout_p_hidden=0.4, momentum=0.2,
    )  # fmt: skip
    with (
        # What `fit` does with its model first.
        mock.patch.object(official.GRU4RecModel, "to", lambda self, _: swap(self)),
        _listening(curve, model, "loss_function"),
    ):
        model.fit(table, sample_cache_max_size=128 * 1000, compatibility_mode=False)
    with _trusting(), tempfile.TemporaryDirectory() as folder:
        kept = str(Path(folder, "model.pt"))
        model.savemodel(kept)
        loaded = official.GRU4Rec.loadmodel(kept, device="cpu")
    recall, rank = evaluation.batch_eval(loaded, table.copy(), batch_size=32)
    curve.scores += [float(recall[20]), float(rank[20])]
    return curve


def awd_lstm(swap: Swap, steps: int) -> Curve:
    """Its main.py as its README runs it on the Penn Treebank, one epoch of a short piece of it."""
    curve = Curve()
    with _source("awd-lstm-lm") as clone, tempfile.TemporaryDirectory() as folder:
        from model import RNNModel
        from splitcross import SplitCrossEntropyLoss

        made = RNNModel.__init__

        def making(self: Any, *given: Any) -> None:
            made(self, *given)
            swap(self)

        _write_text(Path(folder, "penn"), 20 * 70 * steps)
        # --cuda turns it off.
        told = (
            "main.py --batch_size 20 --data penn --dropouti 0.4 --dropouth 0.25 --seed 141 "
            "--epochs 1 --save PTB.pt --cuda"
        )
        with (
            _trusting(),
            contextlib.chdir(folder),  # Where it keeps what it has read, and the model.
            mock.patch.object(sys, "argv", told.split()),
            mock.patch.object(RNNModel, "__init__", making),
            _listening(curve, SplitCrossEntropyLoss, "forward"),
        ):
            ran = runpy.run_path(str(clone / "main.py"), run_name="__main__")
    curve.scores += [ran["val_loss"], ran["test_loss"]]
    return curve


def _write_text(folder: Path, words: int) -> None:
    try:
        text = data.ptb(download=False)
    except data.MissingDataError:
        text = data.stand_ins.manual()
    folder.mkdir()
    for part, many in (("train", words), ("valid", 1400), ("test", 140)):
        told = " ".join(text.vocabulary[number] for number in getattr(text, part)[:many])
        # Its reader closes every line with <eos>.
        Path(folder, f"{part}.txt").write_text(told.replace(" <eos>", "\n"), encoding="utf-8")


@contextlib.contextmanager
def _source(folder: str) -> Iterator[Path]:
    if SOURCES is None or not (SOURCES / folder).is_dir():
        raise ModuleNotFoundError(f"no clone of {folder}: give its parent folder")
    clone = (SOURCES / folder).resolve()
    sys.path.insert(0, str(clone))
    try:
        yield clone
    finally:
        sys.path.remove(str(clone))


@contextlib.contextmanager
def _listening(curve: Curve, owner: Any, name: str) -> Iterator[None]:
    """After each step of an optimiser, `curve` gets what the method `name` returned last."""
    measure = getattr(owner, name)
    last: list[Any] = []

    @functools.wraps(measure)
    def noted(*given: Any) -> Any:
        last[:] = [measure(*given)]
        return last[0]

    step = register_optimizer_step_post_hook(lambda *_: curve.add(last[0].detach()))
    try:
        with mock.patch.object(owner, name, noted):
            yield
    finally:
        step.remove()


@contextlib.contextmanager
def _trusting() -> Iterator[None]:
    """torch.load reads whole pickled models, as it did when this code was written."""
    with mock.patch.dict(os.environ, {"TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1"}):
        yield
