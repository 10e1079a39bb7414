"""Everything that is measured of a model on examples of its task's test set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from onegate.lab.inside import examples
from onegate.lab.tasks import Loaded
from onegate.lab.train.models import TaskModel
from onegate.probe.derivatives import lyapunov_exponents, step_jacobians, through_time
from onegate.probe.memory import Keeping, keeping, measured_spans
from onegate.probe.traces import Pass, named_values, traced
from onegate.properties import gates

Numbers = NDArray[np.float64]

# How many sequences each measurement takes: what costs more takes fewer.
SEQUENCES = 64
_DISTURBED = 16
_WITH_JACOBIANS = 3
_STEPS_WITH_JACOBIANS = 8
_MOST_EIGENVALUES = 600
BINS = 50


@dataclass(frozen=True, eq=False)
class PassMeasures:
    """What was measured of one direction of one layer.

    gates: by name, how the gate's values at all steps, neurons and sequences spread over `BINS`
        equal parts of 0 to 1 (their shares), and its mean over all.
    keeping: by state, see `Keeping`. spans: by state, the measured memory of each neuron.
    singular: (steps, N), singular values of the step's Jacobian, falling, mean over sequences.
    eigenvalues: complex, of the Jacobians at a step in the middle. exponents: the largest Lyapunov
        exponent of each sequence.
    gradients: by state, the norm of dL/dh[t] (T,), mean over the sequences that reach t.
    """

    name: str
    gates: Mapping[str, Numbers]
    gate_means: Mapping[str, float]
    keeping: Mapping[str, Keeping]
    spans: Mapping[str, Numbers]
    singular: Numbers
    eigenvalues: NDArray[np.complex128]
    exponents: Numbers
    gradients: Mapping[str, Numbers]

    @property
    def memory(self) -> str:
        """The state that holds the memory: the first one that is kept, else the output."""
        return next(iter(self.keeping or self.spans))

    @property
    def exponent(self) -> float:
        """The largest Lyapunov exponent, mean over sequences."""
        return float(self.exponents.mean())


def measure(task: Loaded, model: TaskModel, sequences: int = SEQUENCES) -> dict[str, PassMeasures]:
    """Measures a model on examples of the test set of every class, pass by pass."""
    numbers = examples.varied(task, sequences)
    chosen, state = examples.batch(task, model, numbers)
    with torch.no_grad():
        passes = traced(model.recurrent, lambda: model.score(chosen, state))
    norms = gradient_norms(task, model, numbers)
    return {name: _measured(one, norms[name]) for name, one in passes.items()}


def gradient_norms(
    task: Loaded, model: TaskModel, numbers: Sequence[int]
) -> dict[str, dict[str, Numbers]]:
    """The norm of dL/dh[t] by pass and state, (T,), mean over the examples that reach t."""
    chosen, state = examples.batch(task, model, numbers)
    found = through_time(model.recurrent, lambda: examples.loss_at_the_end(model, chosen, state))
    steps = len(chosen.inputs)
    reached = np.full(steps, chosen.columns)
    if chosen.lengths is not None:
        reached = (np.arange(steps)[:, None] < chosen.lengths.numpy()).sum(1)
    return {
        name: {
            which: norms.double().sum(1).numpy() / np.maximum(reached, 1)
            for which, norms in states.items()
        }
        for name, states in found.items()
    }


def gate_names(one: Pass) -> list[str]:
    """The names of a pass's gates."""
    wanted = set(gates(one.graph))
    return [name for name, node in named_values(one.graph).items() if node in wanted]


def _measured(one: Pass, norms: Mapping[str, Numbers]) -> PassMeasures:
    inside = one.inside
    spread, means = {}, {}
    for name in gate_names(one):
        values = one[name][inside].flatten().double()
        spread[name] = (torch.histc(values, BINS, 0, 1) / len(values)).numpy()
        means[name] = float(values.mean())
    few = one.first(_WITH_JACOBIANS)
    shortest = int(few.inside.sum(0).min())
    steps = np.unique(np.linspace(0, shortest - 1, _STEPS_WITH_JACOBIANS).astype(int)).tolist()
    jacobians = step_jacobians(few, steps)
    # As many points as a picture can hold.
    sequences = max(1, _MOST_EIGENVALUES // jacobians.shape[-1])
    middle = jacobians[len(steps) // 2, :sequences]
    some = one.first(_DISTURBED)
    return PassMeasures(
        name=one.name,
        gates=spread,
        gate_means=means,
        keeping=keeping(one),
        spans={state: spans.numpy() for state, spans in measured_spans(some).items()},
        singular=torch.linalg.svdvals(jacobians).double().mean(1).numpy(),
        eigenvalues=torch.linalg.eigvals(middle).flatten().numpy(),
        exponents=lyapunov_exponents(some).numpy(),
        gradients=norms,
    )
