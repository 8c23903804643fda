# make run    open tensorstep
# make test   linters, types, import contracts, tests
#
# Both make .venv first, with the versions of constraints.txt. PYTHON=python3.12 chooses another.

PYTHON ?= python3
BIN = .venv/bin
PIP = $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: run test slow bench-smoke snapshots clean

run: .venv/.installed
	@$(BIN)/tensorstep $(ARGS)

test: .venv/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest

slow: .venv/.installed-dev  # tests that make test leaves out
	$(BIN)/python -m pytest -m slow

bench-smoke: .venv/.installed-dev  # every benchmark in its smallest size: they run, no more
	for subject in training memory startup keys data terminal runs watch decoder; do \
		$(BIN)/python -m benchmarks.$$subject --smoke || exit 1; \
	done

snapshots: .venv/.installed-dev  # after a change of the screen that is meant: then look at them
	$(BIN)/python -m pytest tests/tui -k snapshot --snapshot-update

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "tensorstep needs Python 3.11 or newer: make PYTHON=python3.12 ..." >&2; exit 1; }
	$(PYTHON) -m venv .venv

.venv/.installed: .venv/bin/python pyproject.toml constraints.txt
	$(PIP) -e .
	@touch $@

.venv/.installed-dev: .venv/bin/python pyproject.toml constraints.txt
	$(PIP) -e '.[dev]'
	@touch $@ .venv/.installed

clean:
	rm -rf .venv build dist *.egg-info
