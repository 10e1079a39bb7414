# Every target sets up .venv by itself; nothing needs to be installed beforehand but Python >= 3.11
# (and a C++17 compiler for the fused engine; without one the reference engine runs).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip --disable-pip-version-check -q
SOURCES := pyproject.toml constraints.txt CMakeLists.txt $(wildcard csrc/*.h csrc/*.cpp)

.PHONY: help reproduce test test-peers test-versions lint docs bench sanitize fuzz clean

help:
	@echo "make reproduce   the paper's comparison, small; ends with a report to open"
	@echo "make test        lint, types and all tests"
	@echo "make test-peers  comparisons with Keras and Flax"
	@echo "make test-versions PYTHON=python3.13 TORCH=2.15.0   the layers and engines with other versions"
	@echo "make sanitize    the native code under the sanitizers"
	@echo "make fuzz        random units and programs, SECONDS=600 of each"
	@echo "make bench       speed beside torch.nn and other libraries"
	@echo "make docs        the documentation, in docs/_build"

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# A change in the native code or in the dependencies installs again.
$(VENV)/installed: $(BIN)/python $(SOURCES)
	$(PIP) install -c constraints.txt torch
	$(PIP) install -c constraints.txt -e '.[lab,test,lint]'
	@touch $@

reproduce: $(VENV)/installed
	$(BIN)/onegate reproduce

lint: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint
	$(BIN)/pytest -q

$(VENV)/installed-peers: $(VENV)/installed
	$(PIP) install -c constraints.txt -e '.[lab,peers,test]'
	@touch $@

test-peers: $(VENV)/installed-peers
	KERAS_BACKEND=jax $(BIN)/pytest -q tests/library/peers tests/lab/bench

# Another Python and torch, in an environment of its own (up to 6 GB; remove it afterwards).
TORCH ?= 2.13.0
OTHER := .venv-$(notdir $(PYTHON))-torch$(TORCH)
VERSION_TESTS := tests/library tests/lab/train

test-versions:
	$(PYTHON) -m venv $(OTHER)
	$(OTHER)/bin/pip --disable-pip-version-check -q install --no-compile torch==$(TORCH) \
		pytest hypothesis torchrecurrent '.[lab]'
	$(OTHER)/bin/python -m pytest -q $(VERSION_TESTS)

sanitize: $(VENV)/installed
	$(BIN)/python -m tests.library.native.sanitize

SECONDS ?= 600
fuzz: $(VENV)/installed
	$(BIN)/python -m tests.library.fuzz --seconds $(SECONDS)

bench: $(VENV)/installed
	$(BIN)/onegate bench

$(VENV)/installed-docs: $(VENV)/installed
	$(PIP) install -c constraints.txt -e '.[docs]'
	@touch $@

docs: $(VENV)/installed-docs
	$(BIN)/sphinx-build -W -q -b html docs docs/_build

clean:
	rm -rf build docs/_build .pytest_cache .mypy_cache .ruff_cache .hypothesis
