"""What bfloat16 products save in the output layer of a language model, on this machine.

python benchmarks/short_products.py

Loss and gradients for the 400 words of an update of ptb/tuned, on one thread, by turns.
"""

from __future__ import annotations

import statistics
import time

import torch

from onegate.lab.train.cross_entropy import summed_cross_entropy

WORDS, WIDTH, VOCABULARY, ROUNDS = 400, 300, 10_000, 21


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    states = torch.randn(WORDS, WIDTH, requires_grad=True)
    weight = (0.1 * torch.randn(VOCABULARY, WIDTH)).requires_grad_()
    bias = torch.zeros(VOCABULARY, requires_grad=True)
    targets = torch.randint(VOCABULARY, (WORDS,))
    times: dict[str, list[float]] = {"highest": [], "medium": []}
    for _ in range(ROUNDS):
        for precision, measured in times.items():
            torch.set_float32_matmul_precision(precision)
            start = time.perf_counter()
            torch.autograd.grad(
                summed_cross_entropy(states, weight, bias, targets), (states, weight, bias)
            )
            measured.append(time.perf_counter() - start)
    whole, short = (1e3 * statistics.median(measured) for measured in times.values())
    print(f"float32 {whole:.1f} ms, bfloat16 {short:.1f} ms, ratio {short / whole:.2f}")


if __name__ == "__main__":
    main()
