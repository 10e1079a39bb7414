"""One run over several processes: the same curve, stops and deaths that all share."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from onegate.lab import StoppedError
from onegate.lab.recipes import override
from onegate.lab.runs import Run, RunError, RunFolder
from onegate.lab.tasks import Batch
from onegate.lab.train import session
from onegate.lab.train.checkpoints import Checkpoints
from onegate.lab.train.distributed import Processes, ProcessGroup, _WholeBatchDropout, own_device
from onegate.lab.train.loop import Trainer
from onegate.lab.train.session import train
from tests.lab import small_data
from tests.lab.train.train_together import ADDING, STOP_AT, WHOLE, Always, StopAt

_SECONDS = 600


def torchrun(*arguments: str, cwd: Path) -> subprocess.Popen[str]:
    root = str(Path(__file__).parents[3])
    return subprocess.Popen(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1",
         "--nproc-per-node=2", *arguments],
        env={**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "PYTHONPATH": root},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=cwd,
    )  # fmt: skip


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    small_data.use(monkeypatch)
    monkeypatch.setattr(session, "Throttle", Always)


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What two processes and, before and after them, one process made of the same runs."""
    root = tmp_path_factory.mktemp("together")
    with pytest.MonkeyPatch.context() as monkeypatch:
        small_data.use(monkeypatch)
        monkeypatch.setattr(session, "Throttle", Always)
        for name, made in WHOLE.items():
            train(made, root / f"{name}-alone")
            with pytest.raises(StoppedError):
                train(made, root / f"{name}-resumed", observers=[StopAt(STOP_AT)])
        process = torchrun("-m", "tests.lab.train.train_together", str(root), cwd=root)
        output, _ = process.communicate(timeout=_SECONDS)
        assert process.returncode == 0, output
        for name, made in WHOLE.items():
            with pytest.warns(UserWarning, match="processes: 2, now 1"):
                train(made, root / f"{name}-stopped", resume=True)
    return root


def curve(folder: Path) -> list[dict[str, float]]:
    run = Run.read(folder)
    assert run.state == "done"
    return [{k: v for k, v in line.items() if "second" not in k} for line in run.metrics]


def agree(one: Path, other: Path) -> None:
    """Equal but for the order of additions in float64."""
    for line, there in zip(curve(one), curve(other), strict=True):
        assert line == pytest.approx(there, rel=1e-9)
    first, second = (Checkpoints(folder / "checkpoints").last() for folder in (one, other))
    assert first is not None
    assert second is not None
    assert first.tensors.keys() == second.tensors.keys()
    for name, tensor in first.tensors.items():
        torch.testing.assert_close(tensor, second.tensors[name], rtol=1e-7, atol=1e-10)
    assert torch.equal(first.tensors["random"], second.tensors["random"])
    results = [
        {k: v for k, v in Run.read(f).result.items() if k.startswith(("valid_", "test_"))}
        for f in (one, other)
    ]
    assert results[0] == pytest.approx(results[1], rel=1e-9)


@pytest.mark.parametrize("name", WHOLE)
def test_two_processes_give_the_curve_of_one(name: str, together: Path) -> None:
    agree(together / f"{name}-together", together / f"{name}-alone")
    assert Run.read(together / f"{name}-together").machine["processes"] == 2
    assert Run.read(together / f"{name}-alone").machine["processes"] == 1


@pytest.mark.parametrize("name", WHOLE)
def test_a_run_goes_on_with_another_number_of_processes(name: str, together: Path) -> None:
    """From one to two in the folder `resumed`, from two to one in the folder `stopped`."""
    agree(together / f"{name}-resumed", together / f"{name}-alone")
    agree(together / f"{name}-stopped", together / f"{name}-alone")


@pytest.mark.parametrize("rank", [0, 1])
def test_all_processes_stop_fail_and_finish_together(rank: int, together: Path) -> None:
    seen = json.loads((together / f"seen-{rank}.json").read_text())
    assert seen["processes"] == "2"
    for name in WHOLE:
        assert f"stopped after update {STOP_AT}" in seen[name]
    assert "test_mse" in seen["finished"]
    assert seen["diverging"].startswith("DivergedError: the ")
    kind = "RunError" if rank == 0 else "LeaderError"
    assert seen["in the way"].startswith(f"{kind}: ")
    assert "holds a run already" in seen["in the way"]
    assert RunFolder(together / "diverging").status()["state"] == "failed"


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs Linux's /proc")
@pytest.mark.parametrize("rank", [0, 1])
def test_no_thread_of_the_group_outlives_it(rank: int, together: Path) -> None:
    """One that runs while Python ends brings the process down."""
    seen = json.loads((together / f"seen-{rank}.json").read_text())
    assert "python" in seen["threads"]
    assert "gloo" not in seen["threads"]


def test_a_killed_process_is_restarted_and_the_run_goes_on(tmp_path: Path, small: None) -> None:
    length = "length=60"
    settings = [f"{path}={value}" for path, value in
                (("data.train", 50), ("data.valid", 21), ("data.test", 11), ("data.shortest", 10),
                 ("data.longest", 14), ("model.hidden_size", 5), ("model.num_layers", 2),
                 ("model.dropout", 0.3), ("batch_size", 7), ("precision", "float64"),
                 ("optimizer.clip_norm", 0.3))]  # fmt: skip
    options = [word for s in (*settings, length) for word in ("--set", s)]
    process = torchrun(
        "--max-restarts=1", "-m", "onegate", "train", "adding", "--folder", "run", *options,
        "--checkpoint-every", "0.1", cwd=tmp_path,
    )  # fmt: skip
    folder = RunFolder(tmp_path / "run")
    deadline = time.monotonic() + _SECONDS
    while not any(u > line["update"] for u in folder.checkpoints.updates()
                  for line in folder.metrics()[:1]):  # fmt: skip
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.kill(worker_of(process.pid, rank=1), signal.SIGKILL)
    first = folder.metrics()[0]
    output, _ = process.communicate(timeout=_SECONDS)
    assert process.returncode == 0, output
    assert output.count("test_mse ") == 1
    assert folder.metrics()[0] == first, "its first line has other times: it began anew"
    train(override(ADDING, [length]), tmp_path / "alone")
    agree(tmp_path / "run", tmp_path / "alone")


def worker_of(launcher: int, rank: int) -> int:
    """The process of a rank among the children of torchrun."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                environment = (entry / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if parent == launcher and f"RANK={rank}".encode() in environment:
                return int(entry.name)
    raise AssertionError(f"torchrun has no process of rank {rank}")


def of(rank: int, size: int, monkeypatch: pytest.MonkeyPatch) -> Processes:
    monkeypatch.setattr("torch.distributed.get_rank", lambda: rank)
    monkeypatch.setattr("torch.distributed.get_world_size", lambda: size)
    return Processes()


@pytest.mark.parametrize(("columns", "size"), [(7, 2), (8, 2), (5, 3), (1, 2), (2, 5)])
def test_every_column_counts_once(columns: int, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = torch.arange(3 * columns).reshape(3, columns, 1)
    lengths = torch.arange(columns)
    for targets in (torch.arange(columns), torch.arange(4 * columns).reshape(4, columns)):
        batch = Batch(inputs, targets, lengths)
        parts = [of(rank, size, monkeypatch).part(batch) for rank in range(size)]
        counted = [part for part in parts if part.weight]
        assert torch.equal(torch.cat([p.batch.inputs for p in counted], 1), inputs)
        assert torch.equal(torch.cat([p.batch.targets for p in counted], -1), targets)
        assert torch.equal(torch.cat([p.batch.lengths for p in counted]), lengths)  # type: ignore[misc]
        assert all(part.batch.columns for part in parts)
        sizes = [part.batch.columns for part in counted]
        assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("shape", [(4, 7, 3), (7, 5)], ids=str)
@pytest.mark.parametrize("call", [F.dropout, lambda x, p: torch.nn.Dropout(p)(x)])
def test_masks_are_columns_of_the_whole_mask(
    shape: tuple[int, ...], call: Callable[[Tensor, float], Tensor]
) -> None:
    x = torch.randn(shape, dtype=torch.float64)
    torch.manual_seed(3)
    whole = call(x, 0.4)
    after = torch.get_rng_state()
    axis = len(shape) - 2
    parts = []
    for start, count in ((0, 3), (3, 4)):
        torch.manual_seed(3)
        with _WholeBatchDropout(7, start):
            parts.append(call(x.narrow(axis, start, count), 0.4))
        assert torch.equal(torch.get_rng_state(), after)
    assert torch.equal(torch.cat(parts, axis), whole)
    with _WholeBatchDropout(7, 0):
        assert torch.equal(F.dropout(x, 0.4, False), x)


def test_a_batch_that_cannot_be_shared_is_refused() -> None:
    class Many(ProcessGroup):
        size = 8

    with pytest.raises(RunError, match="batch_size=7 cannot be shared by 8 processes"):
        Trainer(ADDING, None, Many())  # type: ignore[arg-type]


def test_a_device_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    monkeypatch.setenv("LOCAL_RANK", "1")
    with pytest.raises(RunError, match=r"torch sees 1 CUDA devices here, .* needs number 1"):
        own_device("cuda")
    chosen: list[int] = []
    monkeypatch.setattr("torch.cuda.set_device", chosen.append)
    monkeypatch.setenv("LOCAL_RANK", "0")
    assert own_device("cuda") == torch.device("cuda", 0)
    assert chosen == [0]


def test_batches_and_states_go_to_the_device() -> None:
    """The device `meta` stands for one that is not the CPU."""
    group = ProcessGroup(torch.device("meta"))
    for lengths in (None, torch.ones(2)):
        part = group.part(Batch(torch.ones(3, 2, 1), torch.ones(2), lengths))
        assert part.batch.inputs.device == part.batch.targets.device == group.device
        assert lengths is None or part.batch.lengths.device == group.device  # type: ignore[union-attr]
    state = group.own_columns((torch.ones(1, 2, 3), torch.ones(1, 2, 3)))
    assert state is not None
    assert all(tensor.device == group.device for tensor in state)
