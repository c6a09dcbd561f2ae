# Everything runs inside .venv, which these rules make with pip alone. `make help` lists the commands.
# `make test TORCH=2.15` uses another version of PyTorch, in an environment of its own.
.DEFAULT_GOAL := help
.SUFFIXES:
.DELETE_ON_ERROR:
SHELL  := /bin/bash
PYTHON ?= python3
PINNED := $(shell sed -n 's/^torch==\([0-9]*\.[0-9]*\).*/\1/p' constraints.txt)
TORCH  ?= $(PINNED)
ENV    := .venv$(if $(filter-out $(PINNED),$(TORCH)),-$(TORCH))
BIN    := $(ENV)/bin
STAMP  := $(ENV)/installed
export PYTHONDONTWRITEBYTECODE := 1

.PHONY: help run test format pretty lint types unit test-gpu test-cluster pictures tables map golden faults stale fuzz bench constraints clean

help: ## list the commands
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

# An installation that fails or is interrupted takes its environment with it; one that is killed leaves no stamp,
# and the next call starts afresh. The stamp makes later calls quick until pyproject.toml changes.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(None if v >= (3, 11) else f"Python 3.11 or newer is needed, found {v.major}.{v.minor}: try  make PYTHON=python3.12 test")'
	@echo "making $(ENV) (a few minutes the first time)"
	@set -e; rm -rf $(ENV); trap 'rm -rf $(ENV)' ERR INT TERM HUP; \
	  $(PYTHON) -m venv $(ENV); \
	  sed '/^torch==/d' constraints.txt > $(ENV)/constraints.txt; \
	  echo 'torch==$(TORCH).*' >> $(ENV)/constraints.txt; \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check -c $(ENV)/constraints.txt -e '.[dev]'; \
	  touch $(STAMP)

run: $(STAMP) ## the quickstart: simulate Ising lattices, train a transformer that finds the phase transition, report
	@$(BIN)/sciformer train spins/ising-vit --run runs/quickstart

# Types and tests go side by side: one core would be idle for a minute otherwise.
test: format lint ## format check, lint, types and tests: what CI runs
	@$(MAKE) --no-print-directory -j2 types unit

format: $(STAMP) ## check the formatting (make pretty mends it)
	@$(BIN)/ruff format --quiet --check . || { $(BIN)/ruff format --check .; exit 1; }

pretty: $(STAMP) ## format the code and mend what the linter can
	$(BIN)/ruff format . && $(BIN)/ruff check --fix .

lint: $(STAMP) ## lint
	$(BIN)/ruff check .

types: $(STAMP) ## check the types
	$(BIN)/mypy

unit: $(STAMP) ## the tests alone
	$(BIN)/python -m pytest -n 2 --dist loadfile

test-gpu: ## the tests that need a GPU, with the Python at hand (PYTHON=...)
	PYTHONPATH=src:.gpu-site $(PYTHON) -m pytest tests/gpu --record benchmarks/results/core.json

test-cluster: $(STAMP) ## the tests on a Slurm of two nodes, from Debian's packages (about 10 minutes); records the faults
	$(BIN)/python -m pytest tests/slurm --record benchmarks/results/cluster.json

pictures: $(STAMP) ## run the guides and redraw the pictures in docs/
	$(BIN)/python docs/run.py docs/attention.md

tables: $(STAMP) ## rewrite the tables in README and docs from benchmarks/results
	$(BIN)/python benchmarks/tables.py

map: $(STAMP) ## rewrite the tree in docs/architecture.md from the packages
	$(BIN)/python docs/tree.py

golden: $(STAMP) ## record the golden runs anew: batch ids, losses and predictions of every shipped recipe
	SCIFORMER_GOLDEN=1 $(BIN)/python -m pytest tests/test_recipes_shipped.py -k trains_as_recorded

faults: $(STAMP) ## rewrite docs/faults.md from the tests
	$(BIN)/python tests/faults/collect.py

stale: $(STAMP) ## list the figures whose code changed since they were measured
	$(BIN)/python benchmarks/stale.py

fuzz: $(STAMP) ## damage files of every format for 5 minutes each, and count the failures of readers and importers
	$(BIN)/python benchmarks/fuzz.py

bench: $(STAMP) ## measure the kernels on this machine's CPU
	$(BIN)/python benchmarks/attention.py --device cpu

constraints: $(STAMP) ## pin the packages of the environment as they are now
	@{ grep '^#' constraints.txt; $(BIN)/python -m pip freeze --disable-pip-version-check --exclude-editable \
	  | sed 's/^\(torch==[^+]*\)+.*/\1/'; } > $(ENV)/new && mv $(ENV)/new constraints.txt

clean: ## remove the environments and all caches
	rm -rf .venv .venv-* build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +
