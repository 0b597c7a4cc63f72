# `make demo` and `make test` set up everything they need; a fresh Debian or Ubuntu with Python 3.11+ suffices.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.ready

# Debian and Ubuntu ship Python without its venv module; it is installed where that is allowed.
SUDO   := $(shell [ "$$(id -u)" = 0 ] || echo sudo -n)
APT    := $(SUDO) apt-get -qq update && $(SUDO) apt-get -qq install -y

.PHONY: demo test test-data test-cluster setup chromium check docs bench bench-flower bench-peers falsify clean

demo: setup
	$(BIN)/fedgauge demo --out demo

test: check chromium
	$(BIN)/python -m pytest -n 2 --dist worksteal

# A cluster of several nodes on this machine, of which some are killed; a minute and more.
test-cluster: setup
	$(BIN)/python -m pytest -m cluster tests

# The loaders on the real files, which are in the directory DATA in their published layouts.
test-data: setup
	@test -n "$(DATA)" || { echo "Say where the data is: make test-data DATA=DIR"; exit 2; }
	FEDGAUGE_TEST_DATA="$(abspath $(DATA))" $(BIN)/python -m pytest tests/data_real

# The tests of pages drive Debian's Chromium.
chromium:
	@command -v chromium >/dev/null || { $(APT) chromium; } \
	  || { echo "The tests of pages need Chromium; install chromium and run again."; exit 1; }

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The documentation as pages, in build/docs; `make test` builds it too, in a directory of its own.
docs: setup
	$(BIN)/python -m sphinx -W --keep-going -E -q -d build/doctrees docs build/docs
	@echo "Open build/docs/index.html"

bench: setup
	$(BIN)/python benchmarks/quadratic.py
	$(BIN)/python benchmarks/theory.py
	$(BIN)/python benchmarks/passes.py
	$(BIN)/python benchmarks/rounds.py
	$(BIN)/python benchmarks/scale.py
	$(BIN)/python benchmarks/engines.py

# Rounds over Flower's processes on this machine; a quarter of an hour.
bench-flower: setup
	$(BIN)/python benchmarks/flower.py

# Against other libraries, each installed from PyPI into its own environment under .peers; needs Python 3.11.
bench-peers: setup
	$(BIN)/python benchmarks/peers/run.py

# The whole search for violations; a few minutes on two cores.
falsify: setup
	rm -rf falsify
	$(BIN)/fedgauge falsify --samples 2500 --seed 0 --out falsify

setup: $(STAMP)

# Installed anew only when what it installs has changed.
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "fedgauge needs Python 3.11 or newer; set PYTHON=…")'
	$(PYTHON) -m venv $(VENV) || { $(APT) python3-venv && $(PYTHON) -m venv $(VENV); } \
	  || { echo "Python cannot make a virtual environment; install python3-venv and run again."; exit 1; }
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $(STAMP)

clean:
	rm -rf $(VENV) .peers demo falsify build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
