"""A layer of onegate where a torch.nn.GRU stood, and one with the weights of a trained GRU.

python examples/drop_in.py
"""

from __future__ import annotations

import torch

import onegate


class Tagger(torch.nn.Module):
    """A label for every step of a sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.recurrent = onegate.MGU(8, 32, bidirectional=True)  # was torch.nn.GRU(8, 32, ...)
        self.head = torch.nn.Linear(64, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        states, _ = self.recurrent(x)
        labels: torch.Tensor = self.head(states)
        return labels


def main() -> None:
    torch.manual_seed(0)
    model, x = Tagger(), torch.randn(20, 64, 8)
    labels = (x.cumsum(0)[..., 0] > 0).long() + (x[..., 1] > 0).long()  # needs memory
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for update in range(60):
        loss = torch.nn.functional.cross_entropy(model(x).flatten(0, 1), labels.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if update % 20 == 19:
            print(f"update {update + 1}: loss {loss:.3f}")

    trained = torch.nn.GRU(8, 32)
    same = onegate.from_torch(trained)  # the same function, with a copy of the weights
    difference = (same(x)[0] - trained(x)[0]).abs().max()
    print(f"converted from torch.nn.GRU: outputs differ by {difference:.1e} at most")


if __name__ == "__main__":
    main()
