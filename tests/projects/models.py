"""Models of the packages of packages.txt, each trained for a few steps on small made-up data."""

# mypy: disable-error-code="import-not-found, import-untyped"
# The projects are installed in an environment of their own, where mypy does not look.

from __future__ import annotations

import statistics
import tempfile
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

Swap = Callable[[nn.Module], Any]
Run = Callable[[Swap, int], "Curve"]


class Curve:
    """Losses of training steps, and when each was known; scores, if it was evaluated after them."""

    def __init__(self) -> None:
        self.losses: list[float] = []
        self.scores: list[float] = []
        self.times: list[float] = [time.perf_counter()]

    def add(self, loss: Any) -> None:
        """After a step."""
        self.losses.append(float(loss))
        self.times.append(time.perf_counter())

    def seconds(self) -> float:
        """Of a step: the median, without the first two, which warm up."""
        taken = [b - a for a, b in zip(self.times, self.times[1:], strict=False)]
        return statistics.median(taken[2:] or taken)


def _train(model: nn.Module, loss: Callable[[Any], Tensor], steps: int) -> Curve:
    learned = [p for p in model.parameters() if p.requires_grad]
    # eps: Adam would move a parameter whose gradient is zero but for rounding by a whole step.
    optimiser = torch.optim.Adam(learned, 1e-3, eps=1e-4)
    model.train()
    curve = Curve()
    for _ in range(steps):
        optimiser.zero_grad()
        value = loss(model)
        value.backward()
        optimiser.step()
        curve.add(value.detach())
    return curve


def _waves(*shape: int) -> Tensor:
    """Sums of sines and noise along the second axis: (B, T) or (B, T, d)."""
    steps = torch.arange(shape[1]).view(1, -1, *[1] * (len(shape) - 2))
    pace = torch.rand(shape[0], 1, *shape[2:]) * 0.3 + 0.02
    return (pace * steps).sin() + 0.3 * (2.7 * pace * steps).sin() + 0.05 * torch.randn(shape)


def speechbrain(swap: Swap, steps: int) -> Curve:
    """CRDNN, its acoustic model, with LSTM."""
    from speechbrain.lobes.models.CRDNN import CRDNN
    from speechbrain.nnet.RNN import LSTM

    x, words = _waves(8, 120, 40), torch.randint(0, 40, (8, 120))
    model = CRDNN(
        input_shape=[None, None, 40],
        rnn_class=LSTM,
        rnn_neurons=128,
        rnn_layers=2,
        dnn_neurons=40,
        time_pooling=False,
        inter_layer_pooling_size=(2, 2),
    )
    return _train(
        swap(model),
        lambda m: nn.functional.cross_entropy(m(x).transpose(1, 2), words),
        steps,
    )


def deep_filter_net(swap: Swap, steps: int) -> Curve:
    """The grouped GRU and the squeezed GRU that the nets are made of."""
    from df.modules import GroupedGRU, SqueezedGRU

    x, target = _waves(4, 200, 256), _waves(4, 200, 256)
    model = nn.ModuleList(
        [
            GroupedGRU(256, 256, 2, groups=2, batch_first=True),
            SqueezedGRU(256, 256, 256, num_layers=2),
        ]
    )

    def loss(model: Any) -> Tensor:
        error: Tensor = model[1](model[0](x)[0])[0] - target
        return error.square().mean()

    return _train(swap(model), loss, steps)


def asteroid(swap: Swap, steps: int) -> Curve:
    """DPRNN-TasNet, which separates two voices."""
    from asteroid.losses import PITLossWrapper, pairwise_neg_sisdr
    from asteroid.models import DPRNNTasNet

    voices = torch.stack([_waves(2, 8000), _waves(2, 8000)], 1)
    model = DPRNNTasNet(n_src=2, n_repeats=2, hid_size=64, bn_chan=64)
    measure = PITLossWrapper(pairwise_neg_sisdr, pit_from="pw_mtx")
    return _train(swap(model), lambda m: measure(m(voices.sum(1)), voices), steps)


def _lightning(swap: Swap, curve: Curve) -> dict[str, Any]:
    """Arguments of a Trainer: few words, and what swaps and listens."""
    import lightning.pytorch as lightning
    import pytorch_lightning

    def listener(base: Any) -> Any:
        class _Listener(base):  # type: ignore[misc]
            def on_fit_start(self, _: Any, model: Any) -> None:
                swap(model)

            def on_train_start(self, *_: Any) -> None:
                curve.times = [time.perf_counter()]

            def on_train_batch_end(self, _: Any, __: Any, outputs: Any, *___: Any) -> None:
                curve.add(outputs["loss"] if isinstance(outputs, dict) else outputs)

        return _Listener()

    return {
        "lightning": listener(lightning.Callback),
        "pytorch_lightning": listener(pytorch_lightning.Callback),
        "quiet": {
            "accelerator": "cpu",
            "enable_progress_bar": False,
            "enable_model_summary": False,
            "enable_checkpointing": False,
            "logger": False,
        },
    }


def neuralforecast(swap: Swap, steps: int) -> Curve:
    """Its GRU forecaster, trained by Lightning."""
    import pandas as pd
    from neuralforecast import NeuralForecast
    from neuralforecast.models import GRU

    series = _waves(8, 400).numpy()
    times = pd.date_range("2020-01-01", periods=400, freq="D")
    frame = pd.concat(
        [pd.DataFrame({"unique_id": str(i), "ds": times, "y": y}) for i, y in enumerate(series)]
    )
    curve = Curve()
    given = _lightning(swap, curve)
    model = GRU(
        h=12,
        input_size=96,
        encoder_hidden_size=128,
        max_steps=steps,
        batch_size=8,
        windows_batch_size=64,
        callbacks=[given["pytorch_lightning"]],
        **given["quiet"],
    )
    NeuralForecast([model], "D").fit(frame)
    return curve


def darts(swap: Swap, steps: int) -> Curve:
    """Its RNNModel with GRU, trained by Lightning."""
    from darts import TimeSeries
    from darts.models import RNNModel

    curve = Curve()
    given = _lightning(swap, curve)
    values = _waves(1, 32 * steps + 99)[0].numpy().astype(np.float32)
    model = RNNModel(
        input_chunk_length=64,
        training_length=100,
        model="GRU",
        hidden_dim=128,
        n_rnn_layers=2,
        batch_size=32,
        n_epochs=1,
        random_state=0,
        pl_trainer_kwargs={**given["quiet"], "callbacks": [given["pytorch_lightning"]]},
    )
    model.fit(TimeSeries.from_values(values))
    return curve


def gluonts(swap: Swap, steps: int) -> Curve:
    """DeepAR, trained by Lightning."""
    from gluonts.dataset.common import ListDataset
    from gluonts.torch import DeepAREstimator

    data = ListDataset([{"start": "2020-01-01", "target": y.numpy()} for y in _waves(16, 400)], "D")
    curve = Curve()
    given = _lightning(swap, curve)
    # DeepAR makes its model under the trainer, which must find a place for checkpoints.
    with tempfile.TemporaryDirectory() as folder:
        quiet = {**given["quiet"], "enable_checkpointing": True, "default_root_dir": folder}
        DeepAREstimator(
            "D",
            prediction_length=24,
            context_length=48,
            hidden_size=64,
            batch_size=32,
            num_batches_per_epoch=steps,
            trainer_kwargs={"max_epochs": 1, "callbacks": [given["lightning"]], **quiet},
        ).train(data)
    return curve


def sb3_contrib(swap: Swap, steps: int) -> Curve:
    """Recurrent PPO with an LSTM policy plays CartPole."""
    from sb3_contrib import RecurrentPPO

    model = RecurrentPPO(
        "MlpLstmPolicy",
        "CartPole-v1",
        n_steps=128,
        batch_size=128,
        n_epochs=4,
        seed=0,
        device="cpu",
        policy_kwargs={"lstm_hidden_size": 128},
    )
    swap(model.policy)
    curve = Curve()
    for _ in range(steps):
        model.learn(128, reset_num_timesteps=False)
        curve.add(model.logger.name_to_value["train/loss"])
    return curve


def torchrl(swap: Swap, steps: int) -> Curve:
    """Its GRUModule over whole trajectories."""
    from tensordict import TensorDict
    from torchrl.modules import GRUModule, set_recurrent_mode

    module = GRUModule(input_size=32, hidden_size=128, in_key="seen", out_key="known")
    x, target = _waves(16, 100, 32), _waves(16, 100, 128)
    start = torch.zeros(16, 100, 1, dtype=torch.bool)
    start[:, 0] = start[::3, 40] = True
    given = TensorDict({"seen": x, "is_init": start}, [16, 100])

    def loss(model: nn.Module) -> Tensor:
        with set_recurrent_mode(True):
            known: Tensor = model(given.clone())["known"]
        return (known - target).square().mean()

    return _train(swap(module), loss, steps)


def transformers(swap: Swap, steps: int) -> Curve:
    """EnCodec of Hugging Face, with an LSTM in its encoder and its decoder."""
    from transformers import EncodecConfig, EncodecModel

    sound = _waves(2, 24000).unsqueeze(1)
    config = EncodecConfig(num_filters=8, hidden_size=64, codebook_size=64, codebook_dim=64)
    model = EncodecModel(config)
    return _train(
        swap(model), lambda m: (m.decoder(m.encoder(sound)) - sound).square().mean(), steps
    )


def tacotron2(swap: Swap, steps: int) -> Curve:
    """Of coqui-tts: an LSTM over letters, and two LSTM cells, a step for each frame of sound."""
    from TTS.tts.configs.tacotron2_config import Tacotron2Config
    from TTS.tts.models.tacotron2 import Tacotron2

    model = Tacotron2(Tacotron2Config(num_chars=40, r=2))
    letters, lengths = torch.randint(1, 40, (4, 40)), torch.tensor([40, 36, 30, 22])
    mel, frames = _waves(4, 80, 80), torch.tensor([80, 72, 60, 44])

    def loss(model: nn.Module) -> Tensor:
        made: Tensor = model(letters, lengths, mel, frames)["model_outputs"]
        return (made - mel).square().mean()

    return _train(swap(model), loss, steps)


def recbole(swap: Swap, steps: int) -> Curve:
    """Its GRU4Rec."""
    from recbole.model.sequential_recommender.gru4rec import GRU4Rec

    settings: dict[str, Any] = {
        "USER_ID_FIELD": "user", "ITEM_ID_FIELD": "item", "LIST_SUFFIX": "_list",
        "ITEM_LIST_LENGTH_FIELD": "length", "NEG_PREFIX": "neg_", "MAX_ITEM_LIST_LENGTH": 50,
        "device": "cpu", "embedding_size": 64, "hidden_size": 128, "loss_type": "CE",
        "num_layers": 1, "dropout_prob": 0.3,
    }  # fmt: skip
    model = GRU4Rec(settings, types.SimpleNamespace(num=lambda _: 500))
    lengths = torch.randint(5, 50, (64,))
    seen = torch.randint(1, 500, (64, 50)) * (torch.arange(50) < lengths[:, None])
    batch = {"item_list": seen, "length": lengths, "item": torch.randint(1, 500, (64,))}
    return _train(swap(model), lambda m: m.calculate_loss(batch), steps)


def fastai(swap: Swap, steps: int) -> Curve:
    """Its AWD-LSTM as a language model."""
    from fastai.text.models.awdlstm import AWD_LSTM

    words = _words(1000)
    model = nn.Sequential(AWD_LSTM(1000, 100, 256, 2), nn.Linear(100, 1000))

    def loss(model: Any) -> Tensor:
        x = words[: 16 * 51].view(16, 51)
        model[0].reset()
        said: Tensor = model[1](model[0](x[:, :-1]))
        return nn.functional.cross_entropy(said.transpose(1, 2), x[:, 1:])

    return _train(swap(model), loss, steps)


def _words(most: int) -> Tensor:
    """A text as numbers: the source of a module of torch, the rare words as one."""
    text = Path(torch.functional.__file__).read_text(encoding="utf-8").split()
    known = sorted(set(text), key=lambda w: (-text.count(w), w))[: most - 1]
    numbers = {word: i + 1 for i, word in enumerate(known)}
    return torch.tensor([numbers.get(word, 0) for word in text])
