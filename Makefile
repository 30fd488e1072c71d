# Everything runs in a virtual environment of its own; `make help` lists what there is.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# Many tests start processes, which start sooner if Python may keep its bytecode.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help demo test bench bench-capture bench-training bench-operations bench-tuning bench-starting lint format clean

help:  ## what can be made
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 17

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

demo: $(READY)  ## set up, define a fusion, optimise it, run it, show the figures
	$(BIN)/ingot demo

test: $(READY)  ## set up and run the tests
	$(BIN)/pytest -n auto --dist worksteal

bench: $(READY)  ## compare eager, torch.compile and ingot; about twelve minutes on a machine that does nothing else
	$(BIN)/python -m benchmarks --json build/benchmark.json --pictures docs

bench-capture: $(READY)  ## compare how calls reach the kernels: branches and effects, slow cases, models, small calls
	$(BIN)/python -m benchmarks.capture --json build/capture.json

bench-training: $(READY)  ## compare training steps and optimizers, torch.compile included; nothing is read from the cache
	INGOT_CACHE_DIR= $(BIN)/python -m benchmarks.training --compile --json build/training.json

bench-operations: $(READY)  ## compare operations of real programs with eager and torch.compile; about six minutes
	$(BIN)/python -m benchmarks.operations --compile --json build/operations.json

bench-tuning: $(READY)  ## compare tuned schedules with the default ones; nothing is read from the cache
	INGOT_CACHE_DIR= $(BIN)/python -m benchmarks.tuning --json build/tuning.json

bench-starting: $(READY)  ## compare how soon a new process has compiled results, with an empty cache and with a full one
	$(BIN)/python -m benchmarks.starting --markdown build/starting.md

lint: $(READY)  ## style, types, and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports

format: $(READY)  ## rewrite the sources in the house style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:  ## remove the virtual environment and all caches
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
