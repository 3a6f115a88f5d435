# Every target does its own set-up: a virtual environment in .venv with the versions of constraints.txt.
PYTHON ?= python3
BIN := $(CURDIR)/.venv/bin
READY := .venv/.ready
export PATH := $(BIN):$(PATH)
export MLFLOW_DISABLE_TELEMETRY := true
export DO_NOT_TRACK := 1
export HF_HUB_DISABLE_PROGRESS_BARS := 1
# What a user names is handed to commands in the environment, as it was typed: neither make nor a shell reads it.
override STUDY := $(value STUDY)
override VECTORS := $(value VECTORS)
override TEXTS := $(value TEXTS)
override ROW := $(value ROW)
override SEED := $(value SEED)
override DRILL := $(value DRILL)
override CORPORA_ROOT := $(value CORPORA_ROOT)
export STUDY VECTORS TEXTS ROW SEED DRILL CORPORA_ROOT

.DEFAULT_GOAL := help
.PHONY: help repro test test-all drills check bench study audit publish ui

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.11 ...")'
	@test -x .venv/bin/python || $(PYTHON) -m venv .venv
	@echo "installing the versions of constraints.txt into .venv (once)"
	@.venv/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ./dagster_dvc -e '.[dev]'
	@touch $(READY)

# The user's own corpora: CORPORA_ROOT=/somewhere make ... links it to data/raw, which studies name.
.PHONY: raw
raw:
	@if [ -n "$$CORPORA_ROOT" ] && [ ! -d "$$CORPORA_ROOT" ]; then \
	  echo "CORPORA_ROOT: $$CORPORA_ROOT: there is no such folder" >&2; exit 2; fi
	@if [ -n "$$CORPORA_ROOT" ] && [ -d data/raw ] && [ ! -L data/raw ]; then \
	  echo "data/raw is a folder: move it away, or unset CORPORA_ROOT" >&2; exit 2; fi
	@if [ -n "$$CORPORA_ROOT" ]; then mkdir -p data && ln -sfn "$$(realpath "$$CORPORA_ROOT")" data/raw; fi

# A copy without git, such as a ZIP of the repository: DVC must be told.
.PHONY: scm
scm: $(READY)
	@if [ -e .git ] || git rev-parse --git-dir >/dev/null 2>&1; then \
	  if grep -qs no_scm .dvc/config.local; then dvc config --quiet --local --unset core.no_scm; fi; \
	elif ! grep -qs no_scm .dvc/config.local; then dvc config --quiet --local core.no_scm true; fi

repro: $(READY) raw scm  ## run what changed of the active study (params.yaml), then say what was found
	@python -m pipelines.study names $${STUDY:+"$$STUDY"}
	@python -m pipelines.tool validate params.yaml
	@python -m scripts.repro
	@echo; cat report/findings.md

test: $(READY)  ## the tests, without the slow ones
	@pytest -n 2 --dist loadfile --no-loadscope-reorder -m "not slow"

test-all: $(READY)  ## every test
	@pytest

drills: $(READY)  ## break things on purpose (docs/drills.md): make drills [DRILL=kills]
	@for drill in $${DRILL:-studies hostile disk mlflow kills}; do python -m tests.drills "$$drill" || exit; done

check: $(READY)  ## ruff and pyright
	@ruff check . && pyright

bench: $(READY)  ## how an alignment grows from 10^4 to 10^6 vectors, into docs/benchmarks.md (alone on the machine)
	@python -m benchmarks.growth --write

study: $(READY) raw  ## make STUDY=real (a file of studies/, or a path) the active study
	@test -n "$$STUDY" || { echo "which? make study STUDY=<$$(ls studies | sed 's/.yaml//' | paste -sd'|')> or a path" >&2; exit 2; }
	@python -m pipelines.study activate "$$STUDY"

audit: $(READY) raw  ## make audit VECTORS=dump [TEXTS=my/texts]: what do these vectors give away?
	@test -n "$$VECTORS" || { echo "of what? make audit VECTORS=dump.parquet [TEXTS=my/texts]" >&2; exit 2; }
	@python -m pipelines.tool audit $${TEXTS:+--texts "$$TEXTS"} -- "$$VECTORS"

publish: $(READY)  ## make publish ROW=wasserstein [SEED=1]: register its translator or encoder in MLflow
	@test -n "$$ROW" || { echo "which? make publish ROW=<row of align or finetune, or row/source/target of align_jointly> [SEED=1]" >&2; exit 2; }
	@python -m pipelines.publish "$$ROW" $${SEED:+"$$SEED"}

ui: $(READY) scm  ## Dagster and MLflow side by side; Ctrl-C stops both
	@python -m pipelines.study names
	@dvc stage list --name-only >/dev/null
	@scripts/ui
