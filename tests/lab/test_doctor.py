"""`onegate doctor` tells what is there, and what to do about what is not."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from onegate.engines.cpu import native
from onegate.engines.cpu.native import Library, library
from onegate.lab import doctor
from onegate.lab.cli import main
from onegate.lab.doctor import Finding, cpu_features, examine, openmp_runtimes, usable


def by_name(findings: list[Finding]) -> dict[str, Finding]:
    return {finding.name: finding for finding in findings}


def with_library(monkeypatch: pytest.MonkeyPatch, found: Library) -> dict[str, Finding]:
    monkeypatch.setattr(doctor, "library", lambda: found)
    monkeypatch.setattr("onegate.engines.cpu.operator._problem", lambda: found.problem)
    return by_name(examine())


def test_facts_of_this_machine() -> None:
    found = by_name(examine())
    assert found["torch"].value == torch.__version__
    assert found["numpy"].value == np.__version__
    assert found["threads"].value == str(torch.get_num_threads())
    assert found["reference engine"].value == "works"
    assert {"onegate", "python", "model", "features", "cores"} <= set(found)
    assert {"tensorboard", "ray", "torchrecurrent", "flax", "keras"} <= set(found)
    if library().problem is None:
        assert found["native library"].value == str(library().path)
        assert found["instruction set"].value == library().instruction_set
        assert found["fused engine"].state == "ok"


def test_a_missing_library_is_usable_and_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    absent = Library(None, "the native engine is not built", None)
    monkeypatch.delenv("ONEGATE_NATIVE", raising=False)
    monkeypatch.setattr(doctor, "compiler_found", lambda: None)
    found = with_library(monkeypatch, absent)
    assert found["native library"].state == "hint"
    assert found["native library"].value == "the native engine is not built"
    assert "no C++ compiler was found: install g++" in found["native library"].advice
    assert "fused engine" not in found
    assert usable(list(found.values()))
    monkeypatch.setattr(doctor, "compiler_found", lambda: "/usr/bin/g++")
    advice = with_library(monkeypatch, absent)["native library"].advice
    assert "the compiler /usr/bin/g++ is there: install onegate again" in advice


def test_a_library_of_another_version_is_to_be_installed_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    old = Library(tmp_path / "x.so", "x.so is of another version of onegate", None)
    monkeypatch.delenv("ONEGATE_NATIVE", raising=False)
    found = with_library(monkeypatch, old)["native library"]
    assert found.value == "x.so is of another version of onegate"
    assert found.advice.startswith("install onegate again")
    monkeypatch.setenv("ONEGATE_NATIVE", "/elsewhere/x.so")
    found = with_library(monkeypatch, old)["native library"]
    assert found.advice.startswith("ONEGATE_NATIVE is /elsewhere/x.so: unset it")


def test_a_library_that_is_not_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "onegate_native.so"
    path.write_bytes(b"not a library")
    monkeypatch.setenv("ONEGATE_NATIVE", str(path))
    found = with_library(monkeypatch, native.library.__wrapped__())
    assert "does not load" in found["native library"].value
    assert usable(list(found.values()))


def test_engines_that_disagree_are_a_problem(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = {"reference": [torch.zeros(2)] * 2, "fused": [torch.tensor([0.0, 0.5])] * 2}
    monkeypatch.setattr(doctor, "_small_run", lambda engine: runs[engine])
    here = Library(Path("x.so"), None, None)
    monkeypatch.setattr(Library, "instruction_set", "any")
    found = with_library(monkeypatch, here)
    assert found["fused engine"].state == "problem"
    assert "differs from the reference engine by 0.5" in found["fused engine"].value
    assert main(["doctor"]) == 1
    assert "not usable" in capsys.readouterr().out
    runs["fused"] = [torch.zeros(2), torch.tensor([0.0, torch.nan])]
    assert with_library(monkeypatch, here)["fused engine"].state == "problem"
    runs["reference"] = [torch.zeros(2), torch.tensor([0.0, torch.nan])]
    assert with_library(monkeypatch, here)["reference engine"].state == "problem"


def test_features_and_thread_pools_are_read_from_the_system(tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("model name\t: Some\nflags\t\t: fpu avx2 sse4_2 fma\nflags : fpu\n")
    assert cpu_features(cpuinfo) == ["sse4_2", "avx2", "fma"]
    cpuinfo.write_text("Features\t: fp asimd sve\n")
    assert cpu_features(cpuinfo) == ["asimd", "sve"]
    assert cpu_features(tmp_path / "nothing") == [torch.backends.cpu.get_cpu_capability()]
    maps = tmp_path / "maps"
    maps.write_text(
        "7f00-7f01 r-xp 0 00:00 1  /a b/libgomp.so.1\n7f01-7f02 r--p 0 00:00 1  /a b/libgomp.so.1\n"
        "7f02-7f03 r-xp 0 00:00 2  /c/libiomp5.so\n7f03-7f04 rw-p 0 00:00 0  [heap]\n"
    )
    assert openmp_runtimes(maps) == ["/a b/libgomp.so.1", "/c/libiomp5.so"]
    assert openmp_runtimes(tmp_path / "nothing") == []


def test_too_many_threads_and_two_pools_are_hints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1000)
    monkeypatch.setattr(doctor, "openmp_runtimes", lambda: ["/a/libgomp.so.1", "/b/libomp.so"])
    found = by_name(list(doctor._processor()))
    assert found["threads"].state == "hint"
    assert "OMP_NUM_THREADS=" in found["threads"].advice
    assert found["OpenMP"].value == "/a/libgomp.so.1, /b/libomp.so"


def test_data_that_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ONEGATE_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    found = by_name(examine())
    assert str(tmp_path) in found["looked for in"].value
    assert found["mnist"].value == "missing"
    assert found["mnist"].advice == "run: onegate data fetch mnist"


def test_the_compiler_is_the_one_an_installation_would_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def which(name: str) -> str | None:
        return f"/bin/{name}" if name in present else None

    present = {"clang++", "mine"}
    monkeypatch.setattr(shutil, "which", which)
    monkeypatch.delenv("CXX", raising=False)
    assert doctor.compiler_found() == "/bin/clang++"
    monkeypatch.setenv("CXX", "mine")
    assert doctor.compiler_found() == "/bin/mine"
    present.clear()
    assert doctor.compiler_found() is None


def test_command_prints_text_or_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    shown = capsys.readouterr().out
    for finding in examine():
        assert finding.name in shown
    assert shown.endswith("usable\n")
    assert main(["doctor", "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert found["usable"] is True
    assert [f["name"] for f in found["findings"]] == [f.name for f in examine()]
    assert set(found["findings"][0]) == {"topic", "name", "value", "state", "advice"}


def test_random_numbers_are_left_alone() -> None:
    before = torch.random.get_rng_state()
    examine()
    assert torch.equal(before, torch.random.get_rng_state())
