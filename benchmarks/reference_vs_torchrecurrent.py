"""One training step of MGU: the reference engine against torchrecurrent, alternately, medians.

    python benchmarks/reference_vs_torchrecurrent.py

The reference engine is written to be read, and is still not to lose: the ratio is below 1.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
import torchrecurrent

import onegate
from onegate import machine

# name: T, B, input width; 100 units
SHAPES = {"MNIST rows": (28, 100, 28), "IMDB": (128, 16, 1)}
UNITS = 100


def training_step(layer: torch.nn.Module, x: torch.Tensor) -> Callable[[], None]:
    def step() -> None:
        layer.zero_grad()
        layer(x)[0].sum().backward()

    return step


def seconds(step: Callable[[], None]) -> float:
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--repeats", type=int, default=40)
    repeats = parser.parse_args().repeats
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {machine.processor()}")
    print(f"{'shape':12} {'onegate ms':>11} {'torchrecurrent ms':>18} {'ratio':>6}")
    for name, (steps, batch, width) in SHAPES.items():
        x = torch.randn(steps, batch, width)
        ours = training_step(onegate.MGU(width, UNITS, engine="reference"), x)
        theirs = training_step(torchrecurrent.MGU(width, UNITS), x)
        for warm_up in (ours, theirs):
            warm_up()
        times = [(seconds(ours), seconds(theirs)) for _ in range(repeats)]
        a, b = (1e3 * statistics.median(column) for column in zip(*times, strict=True))
        print(f"{name:12} {a:11.2f} {b:18.2f} {a / b:6.2f}")


if __name__ == "__main__":
    main()
