# Two commands for a newcomer: `make demo` and `make test`. Each makes .venv the first time
# and costs nothing extra the second.

PYTHON ?= python3
VENV ?= .venv
# Keeps pip from fetching gigabytes of CUDA on a machine without a GPU.
# Your own torch build instead: make demo CONSTRAINTS=
CONSTRAINTS ?= constraints-cpu.txt
# Test processes. One thread each: two single-threaded workers beat one with two threads.
JOBS ?= 2
# Passed on to pytest, such as: make test ARGS="-k eps -x"
ARGS ?=

BIN := $(VENV)/bin
PIP_INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check $(if $(CONSTRAINTS),-c $(CONSTRAINTS))
ONE_THREAD = OMP_NUM_THREADS=1 MKL_NUM_THREADS=1
PYTEST = $(ONE_THREAD) $(BIN)/python -m pytest -n $(JOBS) --dist worksteal

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test test-slow lint format docs docs-serve bench build clean

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/.core  ## train and certify a small network on the embedded MNIST subset
	@BIN=$(BIN) scripts/demo

test: $(VENV)/.dev  ## run the test suite (ARGS="..." goes to pytest)
	$(PYTEST) $(ARGS)

test-slow: $(VENV)/.dev  ## run the tests that take minutes
	$(PYTEST) -m slow $(ARGS)

lint: $(VENV)/.dev  ## ruff check, ruff format --check, pyright
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/pyright --pythonpath $(BIN)/python

format: $(VENV)/.dev  ## let ruff repair and format the code
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

docs: $(VENV)/.docs  ## build the documentation into site/ (strict)
	NO_MKDOCS_2_WARNING=true $(BIN)/mkdocs build --strict

docs-serve: $(VENV)/.docs  ## show the documentation on localhost while writing it
	NO_MKDOCS_2_WARNING=true $(BIN)/mkdocs serve

bench: $(VENV)/.dev  ## measure the bounds and print one table
	$(BIN)/python -m benchmarks.bounds

build: $(VENV)/.dev  ## build the wheel and the source distribution into dist/
	$(BIN)/hatchling build

clean:  ## remove what make made: .venv, site, dist and caches (runs/ stays)
	rm -rf $(VENV) site dist build .pytest_cache .ruff_cache .hypothesis
	find src tests benchmarks scripts -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamps: an environment is installed again only when its inputs change.
INPUTS := pyproject.toml $(CONSTRAINTS)

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and \
	  "maar needs Python 3.10 or later, this is " + sys.version.split()[0] + "; try: make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.core: $(INPUTS) | $(BIN)/python
	@echo "installing maar into $(VENV) (the first time: a minute or two, most of it torch)"
	$(PIP_INSTALL) -e .
	@touch $@

$(VENV)/.dev: $(INPUTS) | $(BIN)/python
	@echo "installing maar[dev] into $(VENV) (the first time: a minute or two, most of it torch)"
	$(PIP_INSTALL) -e '.[dev]'
	@touch $@ $(VENV)/.core

$(VENV)/.docs: $(INPUTS) | $(BIN)/python
	@echo "installing maar[docs] into $(VENV)"
	$(PIP_INSTALL) -e '.[docs]'
	@touch $@ $(VENV)/.core
