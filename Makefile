# make help     print this text, as does make alone
# make install  the environment of the pipeline, in .venv (once, two to four minutes); `make run` does it too
# make run      measure on this machine and write tables, figures and a report into results/
# make test     linters, types and the tests that this machine can run, except thorough tests and those on Kubernetes
# make test-thorough  whole scenarios, statistics and commands of documents, some minutes more; CI runs these too
# make paper    rebuild the data sets of published/ into results/paper/, and compare the documents with them;
#               `make findings` rewrites these documents
# make bench    benchmarks: the cost of the pipeline itself, and whether its intervals cover planted values
# make test-cluster  the tests on real Kubernetes (tests/cluster/README.md); `make cluster-up` and `cluster-down`
#               start and end a cluster by hand; GPU=real or GPU=real-cdi puts it on the GPU of this machine
# make gpu-env  the frameworks that tenants on a GPU need; `make run` does it where there is an NVIDIA GPU
# make docs     rebuild the documents' parts from code: keys of the config, manifests, architecture figures, pages
# make site     build the documents, with a search and the reports of `make paper`, into build/site
# make release VERSION=1.0.0  set version, date and CITATION, commit and tag; ADDRESS=https://… sets the repository's
# make clean    remove environments, caches and all of results/; wait for runs to end first
#
# `make run ARGS="--config 'strategies=[mps,mig]'"` passes arguments on to snakemake.
# `make run GPU_ENV=` installs no frameworks: for an interpreter of your own (nvidia.python), or another node.

# An environment whose set-up failed half-way must not count as ready the next time.
.DELETE_ON_ERROR:

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ARGS ?=
GPU_VENV := .venv-gpu
GPU_ENV ?= $(if $(wildcard /dev/nvidia0),$(GPU_VENV)/run.stamp)
SUPPORTED := import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14) and \
	f'needs Python 3.11 to 3.13, {sys.executable} is {sys.version.split()[0]}; name another: make PYTHON=python3.12')
GPU ?=
VERSION ?=
ADDRESS ?=
PIP_INSTALL := -m pip install --disable-pip-version-check --progress-bar off
INSTALL_COMMAND := $(PIP_INSTALL) --quiet --no-deps --no-build-isolation --editable .
# Seconds between two lines of an installation.
SHOW_SECONDS := 10
UV := $(shell command -v uv 2> /dev/null)

# Installs a lock ($(2)) into an environment ($(1)): by uv where it is there and can, or by pip. The loop, which shows the
# last line of the log from time to time, ends with this shell, also where that is killed.
define INSTALL_LOCK
	@echo "setting up $(1) from $(2) ($(3))"
	@log=$(1)/install.log; ( seconds=0; while sleep $(SHOW_SECONDS) > /dev/null 2>&1; kill -0 $$$$ 2> /dev/null; do \
		seconds=$$((seconds + $(SHOW_SECONDS))); \
		echo "  $$seconds s: $$(tail -n 1 $$log | cut -c 1-80)"; \
	done ) & shown=$$!; \
	{ $(if $(UV),$(UV) pip install --python $(1)/bin/python --no-deps --require-hashes -r $(2) ||) \
	$(1)/bin/python $(PIP_INSTALL) --no-deps --require-hashes -r $(2); } > $$log 2>&1; \
	status=$$?; kill $$shown; [ $$status = 0 ] || tail -n 20 $$log; exit $$status
endef

NAME := main
# One worker more than a small machine has cores, since a core is idle while a test waits for its windows.
WORKERS := 3
# The tests of `make test`; `make test MARKS=` runs the thorough ones too.
MARKS ?= not thorough
# Three workers, since tests mostly wait; each starts a test bed of its own. A running test bed can have one user only.
CLUSTER_WORKERS := $(if $(SHAREBENCH_TESTBED_NAME),,-n 3 --dist loadgroup)
TESTBED := PYTHONPATH=tests $(BIN)/python -m cluster.testbed

.DEFAULT_GOAL := help
.PHONY: help install run paper findings test lint bench gpu-env clean test-thorough cluster-up cluster-down test-cluster

# Prints the comment at the top of this file.
help:
	@sed -n '/^#/!q; s/^# \{0,1\}//p' $(firstword $(MAKEFILE_LIST))

install: $(VENV)/run.stamp
	@echo "$(VENV) is ready: source $(BIN)/activate, then sharebench --help; or make run ARGS=\"--configfile config/quick.yaml\""

run: $(VENV)/run.stamp $(GPU_ENV)
	@$(BIN)/python scripts/check_arguments.py $(ARGS)
	@$(BIN)/snakemake $(ARGS)

paper: $(VENV)/run.stamp
	@$(BIN)/snakemake paper --cores all $(ARGS)
	@$(BIN)/python scripts/documents.py results/paper/together/repository

findings: $(VENV)/run.stamp
	@$(BIN)/snakemake paper --cores all $(ARGS)
	@$(BIN)/python scripts/documents.py results/paper/together/repository --write

test: lint
	@$(BIN)/pytest -n $(WORKERS) --dist worksteal -m "$(MARKS)" --ignore=tests/cluster $(ARGS)

test-thorough: $(VENV)/dev.stamp
	@$(BIN)/pytest -n $(WORKERS) --dist worksteal -m thorough --ignore=tests/cluster

# The type checker takes as long as all linters, and each uses one core.
.PHONY: types linters
lint: $(VENV)/dev.stamp
	@$(MAKE) --no-print-directory --jobs 2 types linters

types:
	@$(BIN)/mypy scripts benchmarks tests

linters:
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/snakefmt --check Snakefile rules scripts/study.smk
	@PYTHONPATH=scripts $(BIN)/lint-imports --no-cache > $(VENV)/layers.log || { cat $(VENV)/layers.log; exit 1; }
	@$(BIN)/python docs/prose.py --python

test-cluster: $(VENV)/dev.stamp
	@$(BIN)/pytest $(CLUSTER_WORKERS) tests/cluster $(ARGS)

cluster-up: $(VENV)/dev.stamp
	@$(TESTBED) up --name $(NAME) $(addprefix --gpu=,$(GPU))

cluster-down: $(VENV)/dev.stamp
	@$(TESTBED) down --name $(NAME)

bench: $(VENV)/dev.stamp
	@for benchmark in benchmarks/*.py; do echo "== $$benchmark"; $(BIN)/python $$benchmark || exit 1; done

gpu-env: $(GPU_VENV)/run.stamp

.PHONY: docs
docs: $(VENV)/dev.stamp
	@$(BIN)/python scripts/config_manual.py
	@$(BIN)/python scripts/results_manual.py
	@$(BIN)/python scripts/record_schema.py
	@$(BIN)/python docs/strategies/draw.py
	@PYTHONPATH=tests:scripts $(BIN)/python docs/strategies/include.py

.PHONY: release
release: $(VENV)/run.stamp
	@$(BIN)/python scripts/release.py "$(VERSION)" $(addprefix --address=,$(ADDRESS))

.PHONY: site
site: $(VENV)/dev.stamp
	@$(BIN)/python docs/build_site.py

clean:
	rm -rf build $(VENV) $(GPU_VENV) scripts/sharebench.egg-info .snakemake .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find scripts tests benchmarks -name __pycache__ -prune -exec rm -rf {} +
	find results -mindepth 1 -maxdepth 1 ! -name README.md -exec rm -rf {} +

$(VENV)/bin/python $(GPU_VENV)/bin/python:
	@$(PYTHON) -c "$(SUPPORTED)"
	@echo "making $(@D:/bin=)"; $(PYTHON) -m venv $(@D:/bin=)

$(VENV)/run.stamp: envs/sharebench.txt pyproject.toml | $(VENV)/bin/python
	$(call INSTALL_LOCK,$(VENV),$<,once; two to four minutes)
	@echo "installing the command sharebench"; $(BIN)/python $(INSTALL_COMMAND)
	@touch $@

$(VENV)/dev.stamp: envs/dev.txt pyproject.toml | $(VENV)/bin/python
	$(call INSTALL_LOCK,$(VENV),$<,once; two to four minutes)
	@echo "installing the command sharebench"; $(BIN)/python $(INSTALL_COMMAND)
	@touch $@ $(VENV)/run.stamp

$(GPU_VENV)/run.stamp: envs/tenant-gpu.txt | $(GPU_VENV)/bin/python
	$(call INSTALL_LOCK,$(GPU_VENV),$<,once: 3 GB to download and 6 GB on disk; several minutes)
	@touch $@
