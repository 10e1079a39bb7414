"""A task of one's own: name the first symbol of a sequence, a dozen symbols later.

python examples/own_task.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from onegate.lab.recipes import override, recipe
from onegate.lab.tasks import Task, register
from onegate.lab.train.session import train


@register
class FirstSymbol(Task):
    """Accuracy is the metric of a task that names no other."""

    name = "first_symbol"
    about = "Twelve random symbols are read: which was the first?"
    vocabulary = classes = ("a", "b", "c", "d", "e", "f")

    def sets(self, options: Any) -> dict[Any, Any]:
        """Words (N, T), and the class of each sequence (N,)."""
        rng = np.random.default_rng(options.seed)
        sets = {}
        for split in ("train", "valid", "test"):
            words = rng.integers(len(self.vocabulary), size=(getattr(options, split), 12))
            sets[split] = words, words[:, 0]
        return sets


def main() -> None:
    """Trains an MGU of 64 neurons for some seconds."""
    asked = override(recipe("first_symbol", "default", "mgu"), ["length=25"])
    with tempfile.TemporaryDirectory() as folder:
        result = train(asked, Path(folder))
    print(f"accuracy on the test set: {result['test_accuracy']:.1%}")


if __name__ == "__main__":
    main()
