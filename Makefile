# One command each, the same here and in CI. `make run` and `make test` need Python 3.11+ and nothing else.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
# ARGS goes to the command: make run ARGS="--game chess"
ARGS ?=

.PHONY: run test test-quick lint types ui bench clean

run: $(VENV)/.run
	$(BIN)/arena run --game janggi --agents 8 $(ARGS)

test: $(VENV)/.dev
	$(BIN)/python -m pytest -n 2 $(ARGS)

test-quick: $(VENV)/.dev
	$(BIN)/python -m pytest -n 2 -m "not slow" $(ARGS)

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/mypy

ui: $(VENV)/.run
	$(BIN)/python -m web.build

bench: $(VENV)/.dev
	$(BIN)/python scripts/bench_games.py
	$(BIN)/python scripts/bench_engine.py $(ARGS)

clean:
	rm -rf $(VENV) build dist web/static web/node_modules

# Installed once; again when the project's requirements change.
$(VENV)/.run: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make run PYTHON=python3.11")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV) (once, a few minutes)"
	$(INSTALL) -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.run
	$(INSTALL) -e ".[dev]"
	@touch $@
