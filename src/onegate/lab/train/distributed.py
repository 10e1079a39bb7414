"""One run over several processes: what they must agree on.

Every process holds the whole model and makes every batch; it computes its columns of it. Sums over
processes then make loss, gradients and metrics those of the whole batch: what a single process
computes, but for the order of additions. Started by torchrun, which sets the environment:

    torchrun --nproc-per-node 2 -m onegate train ptb --unit mgu
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from onegate import tensor_files
from onegate.lab.runs import RunError
from onegate.lab.tasks import Batch
from onegate.lab.train.checkpoints import Checkpoint
from onegate.nn.cells import States

_CPU = torch.device("cpu")


class PeerError(RunError):
    """Another process of the run is gone."""


class LeaderError(RunError):
    """The first process cannot go on; it says why itself."""


@dataclass(frozen=True)
class Part:
    """A process's share of a batch.

    weight: 0 where there are fewer columns than processes; the process then computes a column that
        another one has, so that it draws the same random numbers, and it counts for nothing.
    """

    batch: Batch
    start: int
    weight: int


class ProcessGroup:
    """A process on its own: the whole batch is its part, and all sums are its own.

    device: where it computes.
    """

    rank, size = 0, 1
    leads = True

    def __init__(self, device: torch.device = _CPU) -> None:
        self.device = device

    def part(self, batch: Batch) -> Part:
        """The columns of a batch that this process computes, on its device."""
        return Part(self._moved(batch), 0, 1)

    def _moved(self, batch: Batch) -> Batch:
        if self.device == _CPU:
            return batch
        lengths = None if batch.lengths is None else batch.lengths.to(self.device)
        return Batch(batch.inputs.to(self.device), batch.targets.to(self.device), lengths)

    @contextmanager
    def drawing(self, part: Part, batch: Batch) -> Iterator[None]:  # noqa: ARG002 - see Processes
        """Random masks inside the `with` block are those of the whole batch."""
        yield

    def sums(self, *values: float) -> list[float]:
        """Each value summed over processes."""
        return list(values)

    def largest(self, *values: int) -> list[int]:
        """The largest of each value over processes."""
        return list(values)

    def add_gradients(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        """Sums gradients over processes."""

    def own_columns(self, states: States | None) -> States | None:
        """Of states (layers, B, n), those of this process's columns, on its device."""
        return _each(lambda state: state.to(self.device), states)

    def all_columns(self, states: States | None, columns: int) -> States | None:  # noqa: ARG002
        """States of all B columns, from those of each process."""
        return states

    def lead(self, action: Callable[[], Any]) -> Any:
        """What `action` returns in the first process, as JSON; its error is everybody's."""
        return action()

    def checkpoint(self, found: Callable[[], Checkpoint | None]) -> Checkpoint | None:
        """What the first process finds."""
        return found()


class Processes(ProcessGroup):
    """One of several processes."""

    def __init__(self, device: torch.device = _CPU) -> None:
        super().__init__(device)
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.leads = self.rank == 0

    def part(self, batch: Batch) -> Part:
        """Columns in the order of the processes, as evenly as possible."""
        start, end = self._range(batch.columns)
        weight = int(end > start)
        start, end = (start, end) if weight else (0, 1)
        lengths = None if batch.lengths is None else batch.lengths[start:end]
        targets = batch.targets[..., start:end]
        own = Batch(batch.inputs[:, start:end], targets, lengths)
        return Part(self._moved(own), start, weight)

    def _range(self, columns: int) -> tuple[int, int]:
        return columns * self.rank // self.size, columns * (self.rank + 1) // self.size

    @contextmanager
    def drawing(self, part: Part, batch: Batch) -> Iterator[None]:
        """Every process draws the masks of the whole batch and takes its columns of them."""
        with _WholeBatchDropout(batch.columns, part.start):
            yield

    def sums(self, *values: float) -> list[float]:
        """Each value summed over processes, in float64."""
        numbers = torch.tensor(values, dtype=torch.float64, device=self.device)
        self._reduce(numbers, dist.ReduceOp.SUM)
        return [float(number) for number in numbers]

    def largest(self, *values: int) -> list[int]:
        numbers = torch.tensor(values, dtype=torch.int64, device=self.device)
        self._reduce(numbers, dist.ReduceOp.MAX)
        return [int(number) for number in numbers]

    def add_gradients(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        """Sums gradients over processes, all of them in one message."""
        gradients = [p.grad for p in parameters if p.grad is not None]
        together = torch.cat([gradient.flatten() for gradient in gradients])
        self._reduce(together, dist.ReduceOp.SUM)
        sizes = [gradient.numel() for gradient in gradients]
        for gradient, summed in zip(gradients, together.split(sizes), strict=True):
            gradient.copy_(summed.view_as(gradient))

    def own_columns(self, states: States | None) -> States | None:
        """A slice of each state."""

        def own(state: Tensor) -> Tensor:
            start, end = self._range(state.shape[1])
            return state[:, start:end].contiguous().to(self.device)

        return _each(own, states)

    def all_columns(self, states: States | None, columns: int) -> States | None:
        """Each process's columns at their place in zeros, summed."""

        def whole(state: Tensor) -> Tensor:
            start, end = self._range(columns)
            table = state.new_zeros(state.shape[0], columns, *state.shape[2:])
            table[:, start:end] = state
            self._reduce(table, dist.ReduceOp.SUM)
            return table

        return _each(whole, states)

    def lead(self, action: Callable[[], Any]) -> Any:
        """The first process acts and tells the others."""
        if not self.leads:
            told = json.loads(self._broadcast(b""))
            if "error" in told:
                raise LeaderError(told["error"])
            return told["value"]
        try:
            value = action()
        except Exception as error:
            self._broadcast(json.dumps({"error": str(error)}).encode())
            raise
        self._broadcast(json.dumps({"value": value}).encode())
        return value

    def checkpoint(self, found: Callable[[], Checkpoint | None]) -> Checkpoint | None:
        """The first process's, sent as safetensors and JSON."""
        own = found() if self.leads else None
        head = None if own is None else {"update": own.update, "values": dict(own.values)}
        head = json.loads(self._broadcast(json.dumps(head).encode()))
        if head is None:
            return None
        content = tensor_files.to_bytes(own.tensors) if own else b""
        loaded, _ = tensor_files.from_bytes(self._broadcast(content))
        return Checkpoint(head["update"], loaded, head["values"])

    def _broadcast(self, content: bytes) -> bytes:
        """The bytes that the first process gives; what the others give does not matter."""
        length = torch.tensor([len(content)], device=self.device)
        self._guarded(dist.broadcast, length, 0)
        room = bytearray(content if self.leads else int(length))
        message = torch.frombuffer(room, dtype=torch.uint8).to(self.device)
        self._guarded(dist.broadcast, message, 0)
        return message.cpu().numpy().tobytes()

    def _reduce(self, tensor: Tensor, how: Any) -> None:
        self._guarded(dist.all_reduce, tensor, how)

    def _guarded(self, collective: Callable[..., Any], *arguments: Any) -> None:
        try:
            collective(*arguments)
        except RuntimeError as error:
            raise PeerError(
                f"another process of this run is gone ({str(error).splitlines()[0]}); the run goes "
                "on from its last checkpoint: torchrun --max-restarts does that by itself"
            ) from None


class _WholeBatchDropout(TorchFunctionMode):
    """Dropout whose masks are columns of the mask that a single process would draw.

    columns: of the whole batch. start: the first one that is computed here.
    """

    def __init__(self, columns: int, start: int) -> None:
        super().__init__()
        self.columns, self.start = columns, start

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func is not F.dropout:
            return func(*args, **kwargs)
        given = inspect.signature(F.dropout).bind(*args, **kwargs)
        given.apply_defaults()
        return self._dropout(*(given.arguments[name] for name in ("input", "p", "training")))

    def _dropout(self, x: Tensor, p: float, training: bool) -> Tensor:
        if not training or not p:
            return x
        axis = x.ndim - 2  # (T, B, n) and (B, n)
        shape = (*x.shape[:axis], self.columns, x.shape[-1])
        mask = F.dropout(x.new_ones(shape), p, training=True)
        return x * mask.narrow(axis, self.start, x.shape[axis])


def _each(change: Callable[[Tensor], Tensor], states: States | None) -> States | None:
    if states is None or isinstance(states, Tensor):
        return None if states is None else change(states)
    return tuple(change(state) for state in states)


@contextmanager
def joined(device: str = "cpu") -> Iterator[ProcessGroup]:
    """The processes that torchrun started with this one; a process on its own otherwise.

    device: `cpu`, or `cuda` for a graphics processor of its own for every process.
    """
    own = own_device(device)
    if int(os.environ.get("WORLD_SIZE", "1")) < 2 or not dist.is_torchelastic_launched():
        yield ProcessGroup(own)
        return
    store, rank, size = next(iter(rendezvous("env://")))
    # The store outlives the processes: without a name of their own, those that are started anew
    # find the addresses of the dead and try to connect to them.
    attempt = PrefixStore(f"attempt-{_restarts()}", store)
    backend = "gloo" if own == _CPU else "nccl"
    # Optimisers import this package, in which defaults of arguments are the group of that moment:
    # they would keep the group, whose threads then bring the process down as Python ends.
    importlib.import_module("torch.distributed.nn")
    dist.init_process_group(backend, store=attempt, rank=rank, world_size=size)
    yield Processes(own)
    # Not after an error: it would wait for processes that are gone.
    dist.destroy_process_group()


def own_device(kind: str) -> torch.device:
    """The device of a kind that this process uses."""
    if kind == "cpu":
        return _CPU
    number = int(os.environ.get("LOCAL_RANK", "0"))
    if number >= torch.cuda.device_count():
        raise RunError(
            f"--device {kind}: torch sees {torch.cuda.device_count()} CUDA devices here, and this "
            f"process needs number {number}; start fewer processes, or leave --device out to "
            "train on the CPU"
        )
    torch.cuda.set_device(number)
    return torch.device("cuda", number)


def was_restarted() -> bool:
    """Whether torchrun started these processes anew after one of them had died."""
    return _restarts() > 0


def _restarts() -> int:
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
