"""Names of modules from before the library and the laboratory were told apart."""

from __future__ import annotations

import copy
import importlib
import io
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import onegate
from onegate import _moved
from onegate.nn.cells import Cell
from onegate.nn.layers import _SINCE_0_1

SOURCE = Path(onegate.__file__).parent
# All modules of version 0.1.0 that are not where they were, and such that moved since.
_NAMES = """
arguments bench bench.compare bench.contestants bench.figures bench.jax_contestant bench.measure
bench.memory bench.plot bench.report bench.shapes bench.unavailable bench.work cells checkpoints cli
cli.bench cli.compare cli.data cli.doctor cli.draw cli.gradients cli.inspect cli.options cli.recipes
cli.report cli.reproduce cli.sweep cli.train cli.units cli.warning_lines compare convert
cross_entropy data data.adding_problem data.arrays data.batching data.checksums data.download
data.errors data.files data.folders data.locks data.mnist_digits data.movie_reviews
data.penn_treebank data.progress data.ragged data.randomness data.review_words data.sources
data.verification data.vocabulary data.writing distributed doctor engines.fused engines.memory
engines.native engines.programs expressions graph graph.code graph.diagram graph.differentiate
graph.draw graph.grid graph.latex graph.layering graph.layout graph.placement graph.program
graph.properties graph.routing graph.stages init inspect inspect.comparing inspect.examples
inspect.gradients inspect.heatmaps inspect.jacobians inspect.measures inspect.memory inspect.page
inspect.payload inspect.pictures inspect.plots inspect.runs inspect.traces inspect.writing layers
machine models named optimizers pages pages.canvas pages.figures pages.markup profiling progress
recipes recipes.adding recipes.fields recipes.imdb recipes.mnist recipes.overriding recipes.ptb
recipes.recipe recipes.starts report report.curves report.figures report.groups report.inventory
report.page report.pareto report.plots report.provenance report.published report.scales
report.subjects report.tables reproduce results sweep sweep.board sweep.cluster sweep.estimates
sweep.grid sweep.local sweep.places sweep.plan sweep.preflight sweep.running sweep.worker tasks
text_statistics trainer training engines.choice engines.compiling engines.direction picture.grid
engines.cpu.memory lab.bench.streaming lab.bench.targets lab.data.files lab.inside.page
lab.inside.plots lab.inside.runs lab.pages.figures
"""
OLD = _NAMES.split()


@pytest.mark.parametrize("name", OLD)
@pytest.mark.filterwarnings("ignore:onegate.* is now:DeprecationWarning")  # of its packages
def test_a_module_is_found_under_the_name_that_it_had(name: str) -> None:
    old = f"onegate.{name}"
    new = _moved.new_name(old)
    assert new is not None
    sys.modules.pop(old, None)
    with pytest.warns(DeprecationWarning, match=rf"^{old} is now {new}$") as warned:
        found = importlib.import_module(old)
    assert found is sys.modules[new]
    assert found.__spec__ is not None
    assert found.__name__ == found.__spec__.name == new  # it was not loaded a second time
    assert warned[-1].filename != _moved.__file__


def test_every_row_is_of_a_module_that_is_not_there_any_more() -> None:
    assert {*_moved.MODULES} <= {*OLD}
    for old in _moved.MODULES:
        path = SOURCE / old.replace(".", "/")
        assert not path.with_suffix(".py").exists()
        assert not (path / "__init__.py").exists()


def test_what_stayed_is_not_touched() -> None:
    assert _moved.new_name("onegate.units.mgu") is None
    assert _moved.new_name("torch.nn") is None
    with pytest.raises(ModuleNotFoundError, match=r"onegate\.nowhere"):
        importlib.import_module("onegate.nowhere")


@pytest.mark.filterwarnings("ignore:onegate.* is now:DeprecationWarning")
def test_as_attributes() -> None:
    vars(onegate).pop("inspect", None)
    sys.modules.pop("onegate.inspect", None)
    with pytest.warns(DeprecationWarning, match="onegate.inspect is now onegate.probe"):
        old = onegate.inspect  # type: ignore[attr-defined]
    assert old is onegate.probe
    assert not hasattr(onegate, "nothing_of_this_name")


@pytest.mark.filterwarnings("ignore:onegate.* is now:DeprecationWarning")
def test_an_old_module_takes_no_function_of_its_package_away() -> None:
    from onegate.lab import recipes

    before = recipes.recipe
    sys.modules.pop("onegate.recipes.recipe", None)
    importlib.import_module("onegate.recipes.recipe")
    assert recipes.recipe is before
    assert callable(before)


def test_a_warning_points_at_the_line_that_has_the_old_name(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import torch\n\nfrom onegate.layers import Recurrent\n")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)
    assert f"{script}:3: DeprecationWarning: onegate.layers is now onegate.nn.layers" in done.stderr


@pytest.mark.filterwarnings("ignore:onegate.* is now:DeprecationWarning")
def test_layers_that_were_pickled_whole_are_read() -> None:
    layer = onegate.MGU(3, 5)
    older = copy.copy(layer)
    older.__dict__ = {key: value for key, value in vars(layer).items() if key not in _SINCE_0_1}
    text = pickle.dumps(older, protocol=0)
    before = text.replace(b"onegate.nn.", b"onegate.").replace(
        b"onegate.language", b"onegate.expressions"
    )
    assert before != text
    assert b"conegate.named\nMGU" in before
    assert b"conegate.cells\nWeights" in before
    for name in [name for name in sys.modules if _moved.new_name(name)]:
        del sys.modules[name]
    read = pickle.loads(before)
    x = torch.randn(4, 2, 3)
    assert type(read) is onegate.MGU
    torch.testing.assert_close(read(x), layer(x), rtol=0, atol=0)

    saved = io.BytesIO()
    torch.save(onegate.MGUCell(3, 5), saved)
    saved.seek(0)
    assert isinstance(torch.load(saved, weights_only=False), Cell)


def test_what_a_probe_records_had_the_name_of_something_else() -> None:
    with pytest.warns(DeprecationWarning, match=r"onegate\.probe\.trace is now record"):
        assert onegate.probe.trace is onegate.probe.record
