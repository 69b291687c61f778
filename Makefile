# What one types in this project. `make` alone lists the targets.

SHELL := /bin/bash
PYTHON ?= $(or $(shell command -v python3.11 || command -v python3),python3)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PIP := $(BIN)/pip --quiet --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help setup lint test test-quick test-all check rules demo demo-spark bench-quick bench-lake bench-spark-ring bench-spark-skew chaos sim oracle mutants clean

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY) ## make .venv with ringfaust in it (again only when its inputs changed)
	@:

# The stamp comes last, so a set-up that was interrupted is done again.
$(READY): pyproject.toml constraints.txt
	@echo "setting up $(VENV) (once; about a minute)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "ringfaust needs Python 3.11 or newer, this is %s; try: make PYTHON=/path/to/python3.11" % sys.version.split()[0])'
	@test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV)
	@$(PIP) install -c constraints.txt -e '.[dev]'
	@touch $@

lint: $(READY) ## style, format and types
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --quiet --check .
	@$(BIN)/mypy --no-error-summary

PROCESSES ?= 2
PYTEST := $(BIN)/pytest -n $(PROCESSES) --dist loadgroup

test-quick: $(READY) ## the tests that need no broker and no Java, within 90 s
	@$(PYTEST) -m "not java and not slow"

test: $(READY) ## all tests but the slow ones (starts real brokers and Spark), within 15 minutes
	@$(PYTEST) -m "not slow"

test-all: $(READY) ## all tests, also the slow ones
	@$(PYTEST)

check: lint test ## what CI runs

rules: $(READY) ## docs/rules.md anew: where each rule is in code and scenarios
	@$(BIN)/python -m tests.docs.rules > docs/rules.md.new && mv docs/rules.md.new docs/rules.md

demo: $(READY) ## flights through rings on a real broker, every eviction accounted for
	@$(BIN)/ringfaust demo

demo-spark: $(READY) ## flights by worker and by Spark job, with lake, audit and report; compared
	@$(BIN)/ringfaust spark demo

bench-quick: $(READY) ## throughput of one worker beside a plain pass-through
	@$(BIN)/python -m bench.quick

bench-lake: $(READY) ## bronze and silver of the lake beside a bare copy to Delta
	@$(BIN)/python -m bench.lake

bench-spark-ring: $(READY) ## the rings as a Spark job beside jobs of its shape that do nothing
	@$(BIN)/python -m bench.spark_ring

bench-spark-skew: $(READY) ## one hot ring among many on Spark; draws docs/spark-skew.svg
	@$(BIN)/python -m bench.spark_skew

chaos: $(READY) ## kill workers under load and count what comes out
	@$(BIN)/python -m tests.chaos

SEEDS ?= 2000
FIRST ?= 0

sim: $(READY) ## the Faust host under crashes on a virtual Kafka: make sim SEEDS=2000 FIRST=0
	@$(BIN)/python -m tests.sim --seeds $(SEEDS) --first $(FIRST)

RUNS ?= 200

oracle: $(READY) ## random histories beside the real ActiveMQ Artemis: make oracle RUNS=200 SEED=1
	@$(BIN)/python -m tests.oracle --runs $(RUNS) $(if $(SEED),--seed $(SEED))

mutants: $(READY) ## faults put into the engine on purpose: each must be found
	@$(BIN)/python -m tests.mutants

clean: ## remove .venv and everything built
	@rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
