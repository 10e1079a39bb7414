"""What the tasks' test sets give to who knows only how often each answer occurs in training.

python benchmarks/baselines.py
"""

from __future__ import annotations

import numpy as np

from onegate.lab import data


def main() -> None:
    sums = data.adding(seed=0)
    mse = np.mean((sums.test.targets - sums.train.targets.mean()) ** 2)
    print(f"adding          mean of the training targets    mse {mse:.3f}")
    digits = data.mnist()
    commonest = np.bincount(digits.train.labels).argmax()
    print(
        f"mnist           the commonest digit ({commonest})         "
        f"accuracy {np.mean(digits.test.labels == commonest):.2%}"
    )
    positive = np.mean(data.imdb().test.ratings > 5)
    print(f"imdb            always the same verdict         accuracy {positive:.2%}")
    words = data.ptb()
    perplexity = data.unigram_perplexity(words.train, words.test)
    print(f"ptb             word frequencies                perplexity {perplexity:.1f}")


if __name__ == "__main__":
    main()
