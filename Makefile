# One verb a job; each makes the environment it needs. `make help` lists them.
#
# From a bare clone only Python 3.11+ and make are needed. Integration tests use a Kafka broker and a
# control plane: brought by the user (LOCKSTEP_TEST_KAFKA, LOCKSTEP_TEST_KUBECONFIG, KUBEBUILDER_ASSETS),
# from Docker, or built here once (Java and Maven, Go). Without any of these they are skipped, and said to be.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.ONESHELL:
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

PYTHON ?= $(firstword $(foreach p,python3 python3.13 python3.12 python3.11,$(shell $(p) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $(p))))
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.made
PYTEST := $(BIN)/pytest
# Both cores; tests that share real services stay on one worker, which starts each service once.
PARALLEL := --numprocesses 2

.PHONY: help env lock format check services unit contracts scenarios replay simulation integration test acceptance throughput soak simulate demo bench image clean

help: ## list the verbs
	@grep -E '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):[^#]*## /\1\t/' | expand -t 14

env: $(READY) ## .venv with the exact versions of requirements.lock, and the project itself
	@echo "ready: $(BIN)/lockstep --help"

$(READY): requirements.lock pyproject.toml
	@if [ -z "$(PYTHON)" ]; then echo "Python 3.11 or newer is missing; install it, or name it: make PYTHON=/path/to/python3" >&2; exit 1; fi
	[ -x $(BIN)/python ] || $(PYTHON) -m venv $(VENV) || { echo "python's venv module is missing (Debian: apt-get install python3-venv)" >&2; exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $@

lock: $(READY) ## write requirements.lock from what .venv holds now
	@{ sed '/^[^#]/,$$d' requirements.lock; $(BIN)/python -m pip freeze --all --exclude-editable | grep -E '^[A-Za-z0-9_.-]+==' | grep -v '^pip=='; } > requirements.lock.new
	mv requirements.lock.new requirements.lock

format: $(READY) ## rewrite sources as the formatter wants them
	@$(BIN)/ruff check --fix --quiet || true
	$(BIN)/ruff format

check: $(READY) ## lint, format, types, import contracts, architecture tests
	@$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(PYTEST) tests/architecture --quiet

services: $(READY) ## build the Kafka broker and the control plane for the tests, once (ten minutes at first)
	@$(BIN)/python -m tests.integration.builds

unit: $(READY) ## the arithmetic and the parts, without services
	@$(PYTEST) tests/unit $(PARALLEL)

contracts: $(READY) services ## the same suites on the embedded log and on Kafka, on the fake API server and the real one
	@$(PYTEST) tests/contracts

scenarios: $(READY) ## plays of `lockstep simulate` with what must come out, and the cases of real bug reports
	@$(PYTEST) tests/scenarios tests/cases $(PARALLEL)

replay: $(READY) ## golden journals, cold starts against checkpoints, hash seeds
	@$(PYTEST) tests/replay $(PARALLEL)

simulation: $(READY) ## seeded runs with faults, watched by an auditor
	@$(PYTEST) tests/simulation $(PARALLEL)

integration: $(READY) services ## against a real broker and a real control plane
	@$(PYTEST) tests/integration

test: check services ## everything but the long runs; one summary at the end
	@$(PYTEST) tests $(PARALLEL) -m "not acceptance" --ignore=tests/architecture

FAILOVER_RUNS ?= 10
acceptance: $(READY) services ## the long runs, in one; the output is kept as docs/acceptance/last.txt
	@mkdir -p docs/acceptance
	# Kept are what each test prints, its seconds, and what failed; not where this machine keeps its files.
	{ echo "Commit $$(git rev-parse --short HEAD), $$(date -u +%F), $$(nproc) cores, FAILOVER_RUNS=$(FAILOVER_RUNS)"
	  FAILOVER_RUNS=$(FAILOVER_RUNS) $(PYTEST) tests -m acceptance --no-header -rP --tb=line --show-capture=stdout \
	    --durations=0 --durations-min=1
	} | sed -u -e "s|$(CURDIR)/||g" -e "s|$$HOME/|~/|g" -e "s|$${TMPDIR:-/tmp}/|TMP/|g" | tee docs/acceptance/last.txt

throughput: $(READY) services ## gangs through Kafka and a real API server, with the CPU a pod of each process (THROUGHPUT_GANGS)
	@$(BIN)/python -m tests.acceptance.throughput

soak: $(READY) services ## half an hour under load with a fault a minute (SOAK_MINUTES, SOAK_RATE); plot under docs/soak/
	@$(BIN)/python -m tests.acceptance.soak

RUNS ?= 20
simulate: $(READY) ## seeded simulation by hand: make simulate SEED=7 RUNS=100
	@$(BIN)/python -m tests.simulation.run --runs $(RUNS) $(if $(SEED),--seed $(SEED))

demo: $(READY) ## see it work: a simulated GPU cluster, live, ending with a verified replay
	@$(BIN)/lockstep demo

bench: $(READY) ## the workloads of bench/RESULTS.md
	@$(BIN)/lockstep bench core
	$(BIN)/lockstep bench gangs
	$(BIN)/lockstep bench replay
	$(BIN)/lockstep bench recovery

image: ## the container image, with Docker or Podman
	@engine=$$(command -v docker || command -v podman) || { echo "no container engine; install Docker or Podman" >&2; exit 1; }
	$$engine build --tag lockstep:dev --file deploy/Containerfile .

clean: ## remove .venv and caches; builds of services stay in the cache directory
	@rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist *.egg-info
