from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from onegate.engines.cpu.native import library
from onegate.lab.bench import deploy, latency

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")


@pytest.mark.skipif(library().problem is not None, reason="no native engine")
def test_latencies_of_all_contestants(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(latency, "SIZES", (3,))
    rows = latency.latencies(rounds=1)["streaming"]
    assert {"onegate.stream mgu", "torch GRUCell", "C file mgu"} <= {row["name"] for row in rows}
    assert all(0 < row["p50"] <= row["p99.9"] for row in rows)
    assert "p99.9" in capsys.readouterr().out


@pytest.mark.skipif(library().problem is not None, reason="no native engine")
def test_the_figures_of_exported_models(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    pytest.importorskip("onnxscript", reason="onnxscript is not installed")
    monkeypatch.setattr(deploy, "SIZES", (64,))
    found = deploy.deploy(rounds=1)
    assert [figure["limit"] for figure in found["figures"]] == [0.1, 0.04, 0.25, 1, 4, 0.55, 2048]
    assert all(figure["value"] > 0 for figure in found["figures"])
    assert "64 neurons: C / ONNX Runtime GRU" in capsys.readouterr().out


def test_code_bytes_without_the_weights(tmp_path: Path) -> None:
    sizes = {deploy.code_bytes(deploy.exported(n, tmp_path / str(n), None)) for n in (16, 64)}
    assert all(100 < size <= deploy.CODE_BYTES for size in sizes)  # weights: 2 and 32 kB
