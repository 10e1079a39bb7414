"""Models of the tasks against the same computation written out plainly."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from onegate.lab.recipes import override, recipe
from onegate.lab.recipes.overriding import from_json, to_json
from onegate.lab.recipes.recipe import INSIDE, Model
from onegate.lab.tasks import Batch, Shape
from onegate.lab.train import text_statistics
from onegate.lab.train.models import (
    LanguageModel,
    SequenceModel,
    build,
    count_parameters,
    load_weights,
)
from tests.library.comparing import X_ALONE

REFERENCE = {"engine": "reference"}
NUMBERS = Shape(inputs=3, outputs=4, steps=5, objective="class")
TEXT = np.array([0, 1, 2, 0, 1, 2, 0, 1, 3, 1], np.int32)


def mgu(model: SequenceModel, x: torch.Tensor, suffix: str = "") -> torch.Tensor:
    """(T, B, n): the states of an MGU, written out from its parameters."""
    p = {
        name.removeprefix(f"l0{suffix}."): value
        for name, value in model.recurrent.state_dict().items()
        if name.startswith(f"l0{suffix}.")
    }
    h = torch.zeros(x.shape[1], model.recurrent.hidden_size, dtype=x.dtype)
    states = []
    for step in x:
        f = torch.sigmoid(step @ p["f.W"].T + h @ p["f.U"].T + p["f.b"])
        candidate = torch.tanh(step @ p["h.W"].T + (f * h) @ p["h.U"].T + p["h.b"])
        h = (1 - f) * h + f * candidate
        states.append(h)
    return torch.stack(states)


def sequence_model(readout: str, **more: object) -> SequenceModel:
    asked = Model(hidden_size=6, readout=readout, **REFERENCE, **more)  # type: ignore[arg-type]
    return SequenceModel("mgu", asked, NUMBERS).double()


@pytest.mark.parametrize("name", INSIDE)
def test_dropout_inside_the_recurrence_is_the_layers(name: str) -> None:
    plain = recipe("mnist_rows", "flow", "mgu")
    asked = override(plain, [f"model.{name}=0.3"])
    shape = Shape(inputs=28, outputs=10, steps=5, objective="class")
    layer = build(asked, shape).recurrent
    assert {other: getattr(layer, other) for other in INSIDE} == dict.fromkeys(INSIDE, 0.0) | {
        name: 0.3
    }
    # Runs of before, which had no such field, keep their names.
    assert name in to_json(asked)["model"]
    assert name not in to_json(plain)["model"]
    assert from_json(to_json(asked)) == asked


@pytest.mark.parametrize("readout", ["last", "all", "mean"])
def test_readouts(readout: str) -> None:
    model = sequence_model(readout)
    x = torch.randn(5, 2, 3, dtype=torch.float64)
    states = mgu(model, x)
    seen = {
        "last": states[-1],
        "all": torch.cat(list(states), dim=1),
        "mean": states.sum(0) / 5,
    }[readout]
    torch.testing.assert_close(model(x), seen @ model.head.weight.T + model.head.bias)


@pytest.mark.parametrize("readout", ["last", "all", "mean"])
def test_padding_changes_nothing(readout: str) -> None:
    model = sequence_model(readout)
    x = torch.randn(5, 2, 3, dtype=torch.float64)
    lengths = torch.tensor([5, 3])
    before = model(x, lengths)
    x[3:, 1] = 1e3
    torch.testing.assert_close(model(x, lengths), before)
    short = mgu(model, x[:3, 1:])
    if readout == "last":
        torch.testing.assert_close(before[1], model.head(short[-1])[0])
    elif readout == "mean":
        torch.testing.assert_close(before[1], model.head(short.mean(0))[0])


def test_both_directions_are_read_at_their_ends() -> None:
    model = sequence_model("last", bidirectional=True)
    x = torch.randn(5, 2, 3, dtype=torch.float64)
    ends = torch.cat([mgu(model, x)[-1], mgu(model, x.flip(0), "_reverse")[-1]], dim=1)
    torch.testing.assert_close(model(x), model.head(ends))


def test_scores_add_up_over_batches() -> None:
    model = sequence_model("last")
    x, y = torch.randn(5, 8, 3), torch.randint(4, (8,))
    whole, _ = model.score(Batch(x, y), None)
    parts = [model.score(Batch(x[:, i : i + 4], y[i : i + 4]), None)[0] for i in (0, 4)]
    outputs = model(x)
    torch.testing.assert_close(whole.loss, 8 * F.cross_entropy(outputs, y))
    torch.testing.assert_close(sum(p.loss for p in parts), whole.loss)
    assert whole.correct == sum(p.correct for p in parts) == (outputs.argmax(1) == y).sum()
    assert whole.predictions == 8


def test_values_are_scored_by_squared_error() -> None:
    model = SequenceModel("mgu", Model(hidden_size=6, **REFERENCE), Shape(3, 1, 0, "value"))  # type: ignore[arg-type]
    x, y = torch.randn(5, 8, 3), torch.randn(8)
    score, _ = model.score(Batch(x, y), None)
    torch.testing.assert_close(score.loss, ((model(x)[:, 0] - y) ** 2).sum())


def language_model(unit: str = "mgu", embedding: int = 6, **more: object) -> LanguageModel:
    asked = Model(hidden_size=6, num_layers=2, embedding=embedding, **REFERENCE, **more)  # type: ignore[arg-type]
    return LanguageModel(unit, asked, Shape(11, 11, 0, "word")).double()


def test_the_language_model_s_loss_is_the_plain_one_with_gradients() -> None:
    model = language_model()
    words = torch.randint(11, (8, 3))
    batch = Batch(words[:-1], words[1:])
    score, _ = model.score(batch, None)
    outputs, _ = model(batch.inputs)
    plain = F.cross_entropy(
        F.linear(outputs, model.head.weight, model.head.bias).flatten(0, 1),
        batch.targets.flatten(),
        reduction="sum",
    )
    torch.testing.assert_close(score.loss, plain)
    assert score.predictions == 21
    parameters = list(model.parameters())
    ours = torch.autograd.grad(score.loss, parameters)
    for one, other in zip(ours, torch.autograd.grad(plain, parameters), strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("unit", ["mgu", "lstm"])
def test_carried_state_reads_on_where_it_stopped(unit: str) -> None:
    model = language_model(unit)
    words = torch.randint(11, (9, 3))
    whole, _ = model.score(Batch(words[:-1], words[1:]), None)
    first, state = model.score(Batch(words[:4], words[1:5]), None)
    second, _ = model.score(Batch(words[4:-1], words[5:]), state)
    torch.testing.assert_close(first.loss + second.loss, whole.loss)
    assert not any(s.requires_grad for s in (state if isinstance(state, tuple) else (state,)))


def test_a_tied_embedding_is_one_matrix() -> None:
    tied = language_model(tie_embedding=True)
    assert tied.head.weight is tied.embedding.weight
    free = language_model()
    assert sum(p.numel() for p in free.parameters()) == 66 + sum(
        p.numel() for p in tied.parameters()
    )
    other = language_model(tie_embedding=True)
    load_weights(other, {n: p.detach().clone() for n, p in tied.named_parameters()})
    words = torch.randint(11, (4, 2))
    torch.testing.assert_close(other(words)[0], tied(words)[0])
    with pytest.raises(ValueError, match=r"another model.*head\.weight"):
        load_weights(other, dict(free.named_parameters()))


def test_a_narrower_tied_embedding_is_reached_through_a_matrix() -> None:
    model = language_model(tie_embedding=True, embedding=4)
    assert model.head.weight is model.embedding.weight
    words = torch.randint(11, (4, 2))
    seen, _ = model(words)
    gain = math.sqrt(2)  # the fourth root of 4
    states, _ = model.recurrent(gain * model.embedding(words))
    torch.testing.assert_close(seen, states @ model.between.weight.T / gain)
    assert seen.shape == (4, 2, 4)
    score, _ = model.score(Batch(words, words), None)
    score.loss.backward()
    assert all(p.grad is not None and p.grad.any() for p in model.parameters())


def test_a_language_model_may_start_from_its_text() -> None:
    asked = Model(6, embedding=4, tie_embedding=True, start_from_text=True, engine="reference")
    model = LanguageModel("mgu", asked, Shape(11, 11, 0, "word", TEXT))
    torch.testing.assert_close(
        model.embedding.weight.detach(), 0.16 * text_statistics.word_vectors(TEXT, 11, 4)
    )
    assert model.head.weight is model.embedding.weight
    bias = model.head.bias.detach()
    assert float(bias[1] - bias[2]) == pytest.approx(math.log(4 / 2))
    assert {p.requires_grad for p in model.parameters()} == {True}


def test_dropout_acts_in_training_alone() -> None:
    model = language_model(dropout=0.5)
    words = torch.randint(11, (4, 2))
    assert not torch.equal(model(words)[0], model(words)[0])
    model.eval()
    assert torch.equal(model(words)[0], model(words)[0])


@pytest.mark.parametrize(
    ("task", "shape", "exact", "stated"),
    [
        ("adding", Shape(2, 1, 0, "value"), (41_200, 61_800), (41_400, 62_000)),
        ("imdb", Shape(1, 2, 128, "class"), (20_400, 30_600), (20_400, 30_600)),
        ("mnist_rows", Shape(28, 10, 28, "class"), (25_800, 38_700), (25_800, 38_700)),
        ("mnist_pixels", Shape(1, 10, 784, "class"), (20_400, 30_600), (20_400, 30_600)),
        ("ptb", Shape(50, 50, 0, "word", TEXT), (1_702_000, 2_553_000), (702_000, 1_053_000)),
    ],
)  # fmt: skip
def test_parameter_counts_are_the_paper_s_and_the_true_ones(
    task: str, shape: Shape, exact: tuple[int, int], stated: tuple[int, int]
) -> None:
    for unit, *expected in zip(("mgu", "gru"), exact, stated, strict=True):
        asked = recipe(task, "paper", unit)
        counts = count_parameters(asked, build(asked, shape))
        assert [counts.hidden, counts.paper] == expected
        assert counts.total > counts.hidden


@pytest.mark.parametrize("unit", X_ALONE)
def test_every_unit_fits_every_kind_of_model(unit: str) -> None:
    rows = override(recipe("mnist_rows", "flow", unit), ["model.hidden_size=7"])
    model = build(rows, Shape(28, 10, 28, "class"))
    score, _ = model.score(Batch(torch.rand(28, 2, 28), torch.tensor([3, 9])), None)
    assert math.isfinite(score.loss.item())
    text = override(recipe("ptb", "paper", unit), ["model.hidden_size=7", "model.embedding=3"])
    words = torch.randint(11, (4, 2))
    model = build(text, Shape(11, 11, 0, "word", TEXT))
    score, state = model.score(Batch(words, words), None)
    score, _ = model.score(Batch(words, words), state)
    assert math.isfinite(score.loss.item())


def test_precision() -> None:
    asked = override(recipe("adding", "tuned", "mgu"), ["precision=float64"])
    model = build(asked, Shape(2, 1, 0, "value"))
    score, _ = model.score(Batch(torch.rand(4, 3, 2), torch.rand(3)), None)
    assert score.loss.dtype == torch.float64


def test_uniform_initial_weights_are_meant_for_all_matrices() -> None:
    asked = override(recipe("ptb", "tuned", "mgu"), ["model.start_from_text=false"])
    model = build(asked, Shape(50, 50, 0, "word"))
    for name, p in model.named_parameters():
        assert p.abs().max() <= 0.05, name
