# Every target sets up .venv by itself; nothing needs to be installed beforehand but Python >= 3.11
# (and a C++17 compiler for the fused engine; without one the reference engine runs).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# On a terminal pip shows what it fetches and builds; elsewhere it is quiet.
PIP := $(BIN)/pip --disable-pip-version-check $(if $(MAKE_TERMOUT),,-q)
SOURCES := pyproject.toml constraints.txt CMakeLists.txt $(wildcard csrc/*.h csrc/*.cpp)

.PHONY: help reproduce test test-peers test-targets test-torch test-projects test-systems test-versions lint docs bench sanitize fuzz wheel \
	clean

help:
	@echo "make reproduce   the paper's comparison, small; ends with a report to open"
	@echo "make test        lint, types and all tests"
	@echo "make test-peers  comparisons with Keras, Flax, TorchRL, xlstm, speechbrain and ncps"
	@echo "make test-versions PYTHON=python3.13 TORCH=2.15.0   the layers and engines with other versions"
	@echo "make test-torch TORCH_SOURCE=DIR   torch's own tests of its recurrent layers, with ours"
	@echo "make test-projects   models of other projects, trained with and without ours"
	@echo "make test-targets  exported C files on other machines, under QEMU and Node"
	@echo "make test-systems  the native engine built for Windows and aarch64, under Wine and QEMU"
	@echo "make sanitize    the native code under the sanitizers"
	@echo "make fuzz        random units and programs, SECONDS=600 of each"
	@echo "make bench       speed beside torch.nn and other libraries"
	@echo "make wheel       a manylinux wheel in dist/, tried where there is no compiler"
	@echo "make docs        the documentation, in docs/_build/html"

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# A change in the native code or in the dependencies installs again.
$(VENV)/installed: $(BIN)/python $(SOURCES)
	@echo "Setting up $(VENV): torch, the laboratory and the native engine. This takes minutes, once."
	$(PIP) install -c constraints.txt torch
	$(PIP) install -c constraints.txt -e '.[lab,test,lint,wheel]'
	@touch $@

reproduce: $(VENV)/installed
	$(BIN)/onegate reproduce

lint: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Files of tests side by side; a file stays in one process, and what it has built with it. Those with
# tests that are marked slow begin first.
WORKERS ?= auto
test: lint
	$(BIN)/pytest -q -n $(WORKERS) --maxprocesses 4 --dist loadfile --no-loadscope-reorder --durations 25

$(VENV)/installed-peers: $(VENV)/installed
	$(PIP) install -c constraints.txt -e '.[lab,peers,test]'
	$(PIP) install --no-deps 'xlstm>=2.0.6' 'speechbrain>=1.1'  # one file each is read, on torch alone
	@touch $@

test-peers: $(VENV)/installed-peers
	KERAS_BACKEND=jax $(BIN)/pytest -q -m peers

# TORCH_SOURCE: a source tree of torch, such as Debian's source package of PyTorch.
test-torch: $(VENV)/installed
	$(PIP) install expecttest
	$(BIN)/python -m tests.torchs_own $(TORCH_SOURCE)

# An environment of its own (4 GB; remove it afterwards). PROJECTS: a folder with clones of what is no package.
PROJECTS ?= clones
.venv-projects/packages: tests/projects/requirements.txt tests/projects/packages.txt
	$(PYTHON) -m venv .venv-projects
	.venv-projects/bin/pip -q install -c constraints.txt torch -r tests/projects/requirements.txt
	.venv-projects/bin/pip -q install --no-deps -r tests/projects/packages.txt
	@touch $@

.venv-projects/installed: .venv-projects/packages $(SOURCES) $(shell find src -name '*.py' -o -name '*.json')
	.venv-projects/bin/pip -q install --no-deps -C build-dir=build/projects .
	@touch $@

test-projects: .venv-projects/installed
	.venv-projects/bin/python -m tests.projects --sources $(PROJECTS)

test-targets: $(VENV)/installed
	$(BIN)/python -m tests.library.export.targets

# Another Python and torch, in an environment of its own (up to 6 GB; remove it afterwards).
TORCH ?= 2.13.0
OTHER := .venv-$(notdir $(PYTHON))-torch$(TORCH)
VERSION_TESTS := tests/library tests/lab/train

test-versions:
	$(PYTHON) -m venv $(OTHER)
	$(OTHER)/bin/pip --disable-pip-version-check -q install --no-compile torch==$(TORCH) \
		pytest hypothesis safetensors torchrecurrent '.[lab]'
	$(OTHER)/bin/python -m pytest -q $(VERSION_TESTS)

test-systems: $(VENV)/installed
	$(BIN)/python -m tests.packaging.other_systems

sanitize: $(VENV)/installed
	$(BIN)/python -m tests.library.native.sanitize

SECONDS ?= 600
fuzz: $(VENV)/installed
	$(BIN)/python -m tests.library.fuzz --seconds $(SECONDS)

bench: $(VENV)/installed
	$(BIN)/onegate bench

wheel: $(VENV)/installed
	$(BIN)/python -m tests.packaging.wheel

$(VENV)/installed-docs: $(VENV)/installed
	$(PIP) install -c constraints.txt -e '.[docs]'
	@touch $@

docs: $(VENV)/installed-docs
	$(BIN)/sphinx-build -W -q -b html docs docs/_build/html

clean:
	rm -rf build docs/_build .pytest_cache .mypy_cache .ruff_cache .hypothesis
