# The whole of bertline in a few words:  make repro | test | test-changed | test-all | ui | try | docs | reference | lint | smoke
# Everything is installed into .venv, from the versions locked in constraints.txt.

PYTHON ?= python3
# TORCH=locked installs the locked torch; TORCH=keep uses the one that PYTHON has already (GPU images).
TORCH ?= locked
VENV := .venv
BIN := $(VENV)/bin
# Stages call `python`; it must be the one of .venv. Nothing phones home.
export PATH := $(CURDIR)/$(BIN):$(PATH)
export DVC_NO_ANALYTICS := 1
export MLFLOW_DISABLE_TELEMETRY := true
export ORT_DISABLE_TELEMETRY := 1
export HF_HUB_DISABLE_TELEMETRY := 1
export DO_NOT_TRACK := 1

.PHONY: help repro test test-changed test-all test-main test-browser test-slurm ui doctor try docs reference notebooks lint format smoke install install-dev install-browser install-slurm lock accept clean
.DEFAULT_GOAL := help

help:            ## Show what there is
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

repro: install   ## Run the pipeline: raw text to a tracked, tuned, exported encoder
	@$(BIN)/bertline plan plan.pipeline=true
	@dvc repro
	@$(BIN)/python -m bertline.cli.repro_end

# One thread each: there is a process of pytest for every core. Each begins with a half of the tests, in their order, and
# takes from the end of the other's when done: a module's tests stay together, what they share is made once.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q
test: install-dev ## Run the tests that answer in minutes
	$(PYTEST) -n auto --dist worksteal

BASE ?= main
test-changed: install-dev ## Run the tests that need what differs from the branch main: make test-changed BASE=HEAD~1
	@tests="$$($(BIN)/python tests/support/changed_tests.py $(BASE))" || exit; \
	if [ -z "$$tests" ]; then echo "no test needs what has changed"; else $(PYTEST) -n auto --dist worksteal $$tests; fi

# Runs test-main, test-browser and test-slurm, and writes tests/last_full_run.json.
test-all: install-browser ## Run all tests: also documented commands, benchmarks, servers, outages, installing, pages, Slurm
	$(BIN)/python tests/support/full_run.py

test-main: install-browser
	$(PYTEST) -n auto --dist worksteal --override-ini 'norecursedirs=browser slurm support .*'

# Two small pipelines, then their pages and the documentation's, in the Chromium that the system has.
test-browser: install-browser ## Test report, MLflow and documentation in Chromium
	$(PYTEST) tests/browser

# Clusters of two nodes on this machine. They wait for a half of the time: four at once on two cores.
test-slurm: install-slurm ## Test launching on a Slurm cluster with real daemons
	$(PYTEST) -n 4 --maxschedchunk 1 tests/slurm

install-slurm: install-dev
	@PATH="$$PATH:/usr/sbin:$$(echo /usr/lib/postgresql/*/bin | tr ' ' ':')"; \
	(for each in slurmctld slurmd sbatch munged ip tc nft postgres; do command -v $$each || exit 1; done) >/dev/null || { \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    { apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install --yes --no-install-recommends $(SLURM); } \
	      >/dev/null 2>&1 || echo "could not be installed: $(SLURM)"; \
	  else echo "not installed: apt-get install $(SLURM)"; fi; }
SLURM := slurm-wlm munge iproute2 nftables postgresql

ui: install      ## Review runs in MLflow (on this machine, port 5000)
	$(BIN)/bertline ui $(ARGS)

# A step of many tasks must not install many times at once.
doctor: $(if $(SLURM_STEP_NUM_TASKS),,install) ## Check this machine before the first run: also srun make doctor
	@test -x $(BIN)/python || { echo "error: nothing is installed here yet: first run make install, once"; exit 1; }
	@$(BIN)/bertline doctor $(ARGS)

try: install     ## Type a sentence with blanks, see the guesses (also of a run in progress)
	@$(BIN)/bertline try

docs: install-dev ## Build the documentation: docs/_build/index.html
	$(BIN)/python -m sphinx -W --keep-going -q docs docs/_build

reference: install-dev ## Write the tables of docs/ from the code, conf/ and this file: after a change to any of them
	$(BIN)/python docs/reference_tables.py

notebooks: install-dev ## Run the notebooks on the finished pipeline and write their pages: make notebooks [ARGS=00-tour]
	$(BIN)/python docs/render_notebooks.py $(ARGS)

lint: install-dev ## Check style, layers and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-logo --no-cache
	$(BIN)/mypy

format: install-dev ## Put the code in its format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

smoke: install   ## Run the whole pipeline on a tiny slice, in a temporary clone
	$(BIN)/python tests/support/smoke.py

install: $(VENV)/.installed          ## Make .venv with the locked versions
install-dev: $(VENV)/.installed-dev  ## The same, with what tests and checks need
install-browser: $(VENV)/.installed-browser  ## The same, with what drives a browser; no browser is downloaded

$(VENV)/.installed: pyproject.toml constraints.txt
	$(call install_into_venv,.)
	@touch $@

$(VENV)/.installed-dev: pyproject.toml constraints.txt
	$(call install_into_venv,.[dev])
	@touch $@ $(VENV)/.installed

# A comma of its own would end the argument of `call`.
WITH_BROWSER := dev,browser
$(VENV)/.installed-browser: pyproject.toml constraints.txt
	$(call install_into_venv,.[$(WITH_BROWSER)])
	@touch $@ $(VENV)/.installed $(VENV)/.installed-dev

# With TORCH=keep the environment sees PYTHON's own packages, and the lock's torch line is left out. Where PYTHON is of
# a virtual environment itself, --system-site-packages passes that one's packages over: a .pth file names them. Its torch
# is asked for by the version of the package: that of the module may name the CUDA build, which pip does not know.
PLACE_OF_PACKAGES := 'import sysconfig; print(sysconfig.get_path("purelib"))'
PACKAGES_OF_VENV := 'import sys, sysconfig; print(sysconfig.get_path("purelib") if sys.prefix != sys.base_prefix else "")'
define install_into_venv
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' \
	  || { echo "error: $(PYTHON) is $$($(PYTHON) --version); bertline needs Python 3.11 to 3.13. Name one: make PYTHON=python3.12"; exit 1; }
	@if [ "$(TORCH)" = keep ]; then \
	  $(PYTHON) -c 'import torch' || { echo "error: TORCH=keep, but $(PYTHON) has no torch to keep"; exit 1; }; \
	  test -x $(BIN)/python || $(PYTHON) -m venv --system-site-packages $(VENV); \
	  $(PYTHON) -c $(PACKAGES_OF_VENV) > "$$($(BIN)/python -c $(PLACE_OF_PACKAGES))/packages_of_python.pth"; \
	  grep -v '^torch==' constraints.txt > $(VENV)/constraints.txt; \
	  echo "torch==$$($(PYTHON) -c 'from importlib.metadata import version; print(version("torch"))')" >> $(VENV)/constraints.txt; \
	else \
	  test -x $(BIN)/python || $(PYTHON) -m venv $(VENV); \
	  cp constraints.txt $(VENV)/constraints.txt; \
	fi
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --constraint $(VENV)/constraints.txt --editable '$(1)'
	@# pip would compile on one core, and bertline not at all. Packages hold templates that are not Python: -qq, || true.
	@$(BIN)/python -m compileall -qq -j 0 "$$($(BIN)/python -c $(PLACE_OF_PACKAGES))" src pipelines || true
endef

lock:            ## Renew constraints.txt from the newest versions that pyproject.toml allows
	rm -rf $(VENV)-lock && $(PYTHON) -m venv $(VENV)-lock
	grep '^torch==' constraints.txt > $(VENV)-lock/torch.txt
	$(VENV)-lock/bin/python -m pip install --quiet --constraint $(VENV)-lock/torch.txt --editable '.[dev,browser]'
	{ grep '^#' constraints.txt; \
	  $(VENV)-lock/bin/python -m pip freeze --exclude-editable | sed -E 's/^(torch==[0-9.]+)\+.*/\1/'; } > $(VENV)-lock/constraints.txt
	mv $(VENV)-lock/constraints.txt constraints.txt
	rm -rf $(VENV)-lock

accept: install  ## Keep a stage's result after a change known not to matter: make accept STAGE=pretrain
	@test -n "$(STAGE)" || { echo "name the stage: make accept STAGE=pretrain"; exit 2; }
	dvc repro --single-item configure identity
	dvc commit --force $(STAGE)

clean:           ## Delete .venv and caches; artifacts, runs and data stay
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
