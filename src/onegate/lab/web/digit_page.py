"""`onegate export RUN --web`: draw a digit, and watch the gates read it row by row.

One file that needs nothing beside itself. The net in it is the run's C file, compiled for wasm32.
"""

from __future__ import annotations

import base64
import shutil
import subprocess
import tempfile
from importlib import resources
from pathlib import Path
from typing import Any, Final

from torch import Tensor

import onegate
from onegate import files
from onegate.export.c import gates_of
from onegate.export.deployable import Deployable, ExportError, deployable
from onegate.export.schedule import state_names
from onegate.lab.inside.opened import OpenRun
from onegate.lab.pages.markup import Markup, data, document, joined, tag
from onegate.lab.report.groups import display
from onegate.lab.tasks import TASKS
from onegate.lab.tasks.mnist import MnistData, Rows, pixel_scaling

_SIDE: Final = 28
_FLAGS: Final = (
    "--target=wasm32", "-std=c99", "-O2", "-ffp-contract=off", "-nostdlib", "-mbulk-memory",
    "-Wl,--no-entry",
)  # fmt: skip
# The self-contained program around model.c; clang makes calls of memcpy and memset of loops.
_HOST: Final = """\
#include "model.c"
#undef memcpy
#undef memset

void *memcpy(void *to, const void *from, size_t n) {
  char *t = to;
  for (const char *f = from; n > 0; n--) *t++ = *f++;
  return to;
}

void *memset(void *to, int c, size_t n) {
  for (char *t = to; n > 0; n--) *t++ = (char)c;
  return to;
}

#define PUBLIC(name) __attribute__((export_name(#name))) name
static model_state s;
static float x[MODEL_INPUTS], y[MODEL_OUTPUTS];
float *PUBLIC(input)(void) { return x; }
float *PUBLIC(output)(void) { return y; }
void PUBLIC(reset)(void) { model_reset(&s); }
void PUBLIC(step)(void) { model_step(&s, x, y); }
float *PUBLIC(seen)(int place) {
  float *const places[] = {@places@};
  return places[place];
}
"""


def write(opened: OpenRun, folder: Path) -> Path:
    """Writes index.html into a folder; returns its path."""
    task = opened.recipe.task
    if not isinstance(TASKS[task], Rows):
        raise ExportError(f"--web draws digits, row by row: the run is of {task}, not {Rows.name}")
    assert isinstance(opened.recipe.data, MnistData)
    scaling = pixel_scaling(opened.recipe.data)
    model = deployable(opened.trained)
    shown = _shown(model)
    content = {
        "wasm": base64.b64encode(_compiled(opened, [field for field, _, _ in shown])).decode(),
        "shown": [{"label": label, "size": size} for _, label, size in shown],
        "classes": model.outputs,
        "scaling": scaling,
        "examples": _examples(opened, *scaling),
    }
    page = _page(opened, content)
    folder.mkdir(parents=True, exist_ok=True)
    files.write(folder / "index.html", page.encode())
    return folder / "index.html"


def _shown(model: Deployable) -> list[tuple[str, str, int]]:
    """What is watched: its field in the state, its label, its size."""
    found = []
    for place, layer in enumerate(model.layers):
        where = f"layer {place + 1}, " if len(model.layers) > 1 else ""
        for name, gate in gates_of(layer.graph).items():
            label = f"{where}gate {name.removeprefix('gate_')}"
            found.append((f"l{place}_{name}", label, gate.size or 0))
        state, field = layer.graph.states[0], state_names(layer.graph)[0]
        found.append((f"l{place}_{field}", f"{where}state {state.name}", state.size or 0))
    return found


def _compiled(opened: OpenRun, fields: list[str]) -> bytes:
    for tool in ("clang", "wasm-ld"):
        if shutil.which(tool) is None:
            raise ExportError(f"--web needs {tool}, which is not installed (Debian: clang, lld)")
    with tempfile.TemporaryDirectory() as path:
        folder = Path(path)
        onegate.export(opened.trained, folder, format="c", output="softmax", gates=True)
        places = ", ".join(f"s.{field}" for field in fields)
        (folder / "host.c").write_text(_HOST.replace("@places@", places))
        command = ["clang", *_FLAGS, "-o", "model.wasm", "host.c"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ExportError(f"clang cannot compile for wasm32: {done.stderr.strip()[:500]}")
        return (folder / "model.wasm").read_bytes()


def _examples(opened: OpenRun, scale: float, shift: float) -> list[dict[str, Any]]:
    """The first test image of each class as bytes of grey, row by row."""
    found: dict[int, Tensor] = {}
    for batch in opened.task.evaluation("test"):
        for place, label in enumerate(batch.targets.tolist()):
            found.setdefault(label, (batch.inputs[:, place].float() - shift) / scale)
        if len(found) == opened.task.shape.outputs:
            break
    return [
        {"label": label, "pixels": image.round().clamp(0, 255).int().flatten().tolist()}
        for label, image in sorted(found.items())
    ]


def _page(opened: OpenRun, content: dict[str, Any]) -> str:
    unit, size = opened.recipe.unit, opened.recipe.model.hidden_size
    learned = TASKS[opened.recipe.task].stands_in(opened.recipe.data)
    title = f"{display(unit)} reads a digit"
    canvas = tag("canvas", id="drawing", width=280, height=280, tabindex="0",
                 aria_label="Draw a digit here")  # fmt: skip
    seen = tag("canvas", id="seen", width=_SIDE, height=_SIDE, aria_label="What the net sees")
    buttons = tag(
        "p",
        tag("button", "Clear", id="clear", type="button"),
        tag("button", "Row by row", id="play", type="button"),
        tag("label", "Rows read ", tag("output", id="row", for_="time"), for_="time"),
        tag("input", id="time", type="range", min=1, max=_SIDE, value=_SIDE),
        class_="controls",
    )
    body = joined(
        tag(
            "header",
            tag("h1", title),
            tag("p", _ABOUT.format(size=size), class_="lead"),
            *(
                [tag("p", f"{learned} Handwriting may be beyond it.", class_="notice")]
                if learned
                else []
            ),
        ),
        tag(
            "main",
            tag(
                "div",
                tag("figure", canvas, tag("figcaption", "Draw here.")),
                tag("figure", seen, tag("figcaption", "What the net reads: 28 x 28.")),
                tag(
                    "div",
                    tag("output", id="answer", aria_live="polite"),
                    tag("div", id="scores"),
                    class_="answer",
                ),
                class_="panes",
            ),
            buttons,
            tag("div", id="examples", aria_label="Test images"),
            tag("div", id="maps"),
        ),
        tag("footer", tag("p", "Written by onegate export. The net is compiled from its C file.")),
        data(content, id="data"),
    )
    return document(title, body, _file("digit_page.css"), _file("digit_page.js"), wasm=True)


_ABOUT: Final = (
    "The net has {size} neurons and sees one row of the image at a time, from the top. Each line "
    "of the maps is one row read, each column a neuron. Dark is 0, a closed gate; blue is above 0, "
    "orange below."
)


def _file(name: str) -> Markup:
    return Markup(resources.files("onegate.lab.web").joinpath(name).read_text(encoding="utf-8"))
