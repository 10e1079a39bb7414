"""Recurrent PPO on whole sequences with `reset=`, beside steps through torch.nn.LSTM.

A pole is to be balanced on a cart of which only places are seen, no velocities, so the policy
needs a memory. Episodes end inside the sequences that PPO trains on. `reset=` starts the states
anew there, within one call for all steps; torch.nn.LSTM has no such argument, so it is called step
by step. Both start from the same weights and draw the same random numbers.

python examples/recurrent_ppo.py [--seeds 3] [--rollouts 40] [--threads 1] [--figure F] [--json F]
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import onegate

STEPS, CARTS, HIDDEN = 128, 32, 64
EPOCHS, PARTS = 4, 4  # updates after a rollout: EPOCHS * PARTS
GAMMA, LAMBDA, CLIP = 0.99, 0.95, 0.2
REWARD = 0.1  # of a step: values are then of the size that a network begins with


class CartPoles:
    """Carts with poles (Barto, Sutton and Anderson 1983), with the constants of CartPole-v1.

    An episode ends when the pole is down, the cart has left its track, or after 500 steps.
    """

    def __init__(self, generator: torch.Generator) -> None:
        self.generator = generator
        self.state = torch.zeros(CARTS, 4)  # place, velocity, angle, its velocity
        self.age = torch.zeros(CARTS)
        self.begin(torch.ones(CARTS, dtype=torch.bool))

    def begin(self, where: Tensor) -> None:
        fresh = torch.rand(CARTS, 4, generator=self.generator) * 0.1 - 0.05
        self.state = torch.where(where[:, None], fresh, self.state)
        self.age = torch.where(where, 0.0, self.age)

    def seen(self) -> Tensor:
        return self.state[:, [0, 2]] * torch.tensor([1.0, 20.0])

    def step(self, action: Tensor) -> Tensor:
        """Moves all carts and begins new episodes; returns where the old ones ended."""
        x, v, angle, w = self.state.unbind(1)
        force = 20.0 * action - 10.0
        sin, cos = angle.sin(), angle.cos()
        push = (force + 0.05 * w * w * sin) / 1.1
        turn = (9.8 * sin - cos * push) / (0.5 * (4 / 3 - 0.1 * cos * cos / 1.1))
        move = push - 0.05 * turn * cos / 1.1
        self.state = torch.stack((x, v, angle, w), 1) + 0.02 * torch.stack((v, move, w, turn), 1)
        self.age = self.age + 1
        ended = (self.state[:, 0].abs() > 2.4) | (self.state[:, 2].abs() > 0.2095)
        ended = ended | (self.age >= 500)
        self.begin(ended)
        return ended


class Policy(nn.Module):
    """Logits and values of all steps. whole: one call with `reset=`, else a call for each step."""

    def __init__(self, whole: bool) -> None:
        super().__init__()
        lstm, self.head = nn.LSTM(2, HIDDEN), nn.Linear(HIDDEN, 3)
        self.lstm: Any = onegate.from_torch(lstm) if whole else lstm
        self.whole = whole

    def forward(self, seen: Tensor, reset: Tensor, state: Any) -> tuple[Tensor, Tensor, Any]:
        """seen: (T, B, 2). reset: (T, B), where an episode begins. state: before the first step."""
        if self.whole:
            out, state = self.lstm(seen, state, reset=reset)
        else:
            steps = []
            for one, begins in zip(seen, reset, strict=True):
                state = tuple(s * ~begins[:, None] for s in state)
                shown, state = self.lstm(one[None], state)
                steps.append(shown)
            out = torch.cat(steps)
        both = self.head(out)
        return both[..., :2], both[..., 2], state


def train(whole: bool, seed: int, rollouts: int) -> tuple[list[float], float]:
    """The mean length of the episodes that ended, by rollout, and the updates per second."""
    torch.manual_seed(seed)
    carts, policy = CartPoles(torch.Generator().manual_seed(seed)), Policy(whole)
    torch.manual_seed(seed)  # a converted layer has drawn numbers of its own
    optimizer = torch.optim.Adam(policy.parameters(), lr=2e-3)
    state = (torch.zeros(1, CARTS, HIDDEN), torch.zeros(1, CARTS, HIDDEN))
    begins = torch.ones(CARTS, dtype=torch.bool)
    # On one thread the processor's time, which other programs disturb least.
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    curve, spent = [], 0.0
    length = 20.0
    for _ in range(rollouts):
        first, rows, lengths = state, [], []
        with torch.no_grad():
            for _ in range(STEPS):
                seen = carts.seen()
                logits, value, state = policy(seen[None], begins[None], state)
                chances = torch.softmax(logits[0], -1)
                action = (torch.rand(CARTS, generator=carts.generator) < chances[:, 1]).long()
                chance = chances.gather(1, action[:, None])[:, 0].log()
                age, ended = carts.age + 1, carts.step(action)
                lengths.append(age[ended])
                rows.append((seen, begins, action, chance, value[0], ended))
                begins = ended
            last = policy(carts.seen()[None], begins[None], state)[1][0]
        batch = [torch.stack(column) for column in zip(*rows, strict=True)]
        begun = clock()
        update(policy, optimizer, batch, last, first)
        spent += clock() - begun
        finished = torch.cat(lengths)
        length = finished.mean().item() if len(finished) else length
        curve.append(length)
    return curve, rollouts * EPOCHS * PARTS / spent


def update(
    policy: Policy, optimizer: torch.optim.Optimizer, batch: list[Tensor], last: Tensor, first: Any
) -> None:
    """PPO (Schulman et al. 2017) on whole sequences, with advantages of Schulman et al. (2016)."""
    seen, begins, action, chance, value, ended = batch
    advantage, after, ahead = torch.zeros_like(value), last, torch.zeros(CARTS)
    for t in reversed(range(STEPS)):
        alive = (~ended[t]).float()
        ahead = REWARD + GAMMA * alive * after - value[t] + GAMMA * LAMBDA * alive * ahead
        advantage[t], after = ahead, value[t]
    target = advantage + value
    advantage = (advantage - advantage.mean()) / advantage.std()
    for _ in range(EPOCHS):
        for part in torch.randperm(CARTS).chunk(PARTS):
            start = tuple(s[:, part] for s in first)
            logits, found, _ = policy(seen[:, part], begins[:, part], start)
            logs = torch.log_softmax(logits, -1)
            ratio = (logs.gather(-1, action[:, part, None])[..., 0] - chance[:, part]).exp()
            gain = torch.minimum(
                ratio * advantage[:, part], ratio.clamp(1 - CLIP, 1 + CLIP) * advantage[:, part]
            )
            entropy = -(logs.exp() * logs).sum(-1)
            error = (found - target[:, part]).square()
            loss = (error - gain - 0.01 * entropy).mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
            optimizer.step()


def draw(curves: dict[str, list[list[float]]], path: str) -> None:
    import matplotlib as mpl

    mpl.use("agg")
    mpl.rcParams["svg.hashsalt"] = "recurrent_ppo"
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 3.2), layout="constrained")
    for (name, runs), colour in zip(curves.items(), ("C0", "C1"), strict=True):
        for k, run in enumerate(runs):
            axes.plot(run, colour, lw=1, ls="-" if colour == "C0" else "--", label="_" * k + name)
    axes.set(xlabel=f"rollouts of {STEPS} steps with {CARTS} carts", ylabel="steps of an episode")
    axes.legend(frameon=False)
    figure.savefig(path, metadata={"Date": None} if path.endswith(".svg") else None)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rollouts", type=int, default=40)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--figure")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args(arguments)
    if given.threads:
        torch.set_num_threads(given.threads)
    ways = {"onegate, whole sequences": True, "torch.nn.LSTM, step by step": False}
    curves: dict[str, list[list[float]]] = {name: [] for name in ways}
    rates: dict[str, list[float]] = {name: [] for name in ways}
    for seed in range(given.seeds):  # the two take turns
        for name, whole in ways.items():
            curve, rate = train(whole, seed, given.rollouts)
            curves[name].append(curve)
            rates[name].append(rate)
    rows = []
    for name in ways:
        ends = [statistics.mean(curve[-5:]) for curve in curves[name]]
        rate = statistics.median(rates[name])
        rows.append(
            {"name": name, "updates_per_second": rate, "ends": ends, "curves": curves[name]}
        )
        shown = ", ".join(f"{end:.0f}" for end in ends)
        print(f"{name}: {rate:.1f} updates a second; at the end {shown} steps an episode")
    ours, theirs = (statistics.median(rates[name]) for name in ways)
    print(f"{ours / theirs:.1f} times the updates a second")
    if given.figure:
        draw(curves, given.figure)
    if given.json:
        from onegate.lab.train import machine

        made = {"date": f"{datetime.now(UTC):%F}", "machine": machine.describe("fused")}
        given.json.write_text(json.dumps({**made, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
