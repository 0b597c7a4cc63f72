# `make demo` and `make test` set up everything they need; a fresh Debian or Ubuntu with Python 3.11+ is enough.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.ready

# Some machines forbid it, but every test process would then compile the same files again.
unexport PYTHONDONTWRITEBYTECODE

# Packages are only ever installed into this clone's own environment: one inside the clone, one that does not exist
# yet, or one whose stamp names this clone. Any other VENV is used as it is.
HOME_OF := $(or $(realpath $(VENV)),$(abspath $(VENV)))
STAMPED := $(shell cat '$(STAMP)' 2>/dev/null)
OWN     := $(or $(filter $(CURDIR)/%,$(HOME_OF)),$(if $(realpath $(VENV)),,new),$(filter $(CURDIR),$(STAMPED)))

# What stands beside the library: distributions of their own, installed from this clone like the library itself. Each comes
# after those that it needs, as pip otherwise looks for one with extras on the package index.
BESIDE := \
	planning \
	verification[sdp] \
	papers/wang2024 \
	explorer \
	inspection \
	integrations/datasets \
	integrations/flower[data] \
	integrations/ray
PLACES := $(foreach each,$(BESIDE),$(firstword $(subst [, ,$(each))))

# Which versions are installed: those that the tests passed with last. LOCK=torch.txt takes the newest of all but torch.
LOCK   ?= constraints.txt

# Debian and Ubuntu ship Python without its venv module; it is installed where we may do so.
SUDO   := $(shell [ "$$(id -u)" = 0 ] || echo sudo -n)
APT    := $(SUDO) apt-get -qq update && $(SUDO) apt-get -qq install -y

.PHONY: demo test suite quick quick-suite test-data test-long test-nvflare setup lock chromium check lint types docs axe dist test-dist test-lowest test-container bench bench-flower bench-peers falsify clean

demo: setup
	$(BIN)/fedgauge demo --out demo

# Many tests write small files and wait for them to be on the disk; they are kept in memory where there is enough.
MEMORY := $(shell df --output=avail /dev/shm 2>/dev/null | awk 'NR == 2 && $$1 > 4000000 { print "/dev/shm" }')

# Tests of servers and browsers wait, which two processes more than there are cores make use of. Every core is taken, so
# that torch's threads would only wait for each other. Types are checked beside the first tests, which wait most.
TESTERS := $(shell expr $$(nproc) + 2)
test: lint chromium
	@$(MAKE) --no-print-directory --jobs 2 types suite

suite: setup
	$(if $(MEMORY),TMPDIR=$(MEMORY)) OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(TESTERS) --dist worksteal

# While you work: lint, types and the tests of what the rest is built on, without those that are marked slow; at most 90
# seconds on two quiet cores.
QUICK := tests/contract tests/theory tests/exact tests/algorithms tests/federation tests/values tests/test_layers.py
quick: lint
	@$(MAKE) --no-print-directory --jobs 2 types quick-suite

quick-suite: setup
	$(if $(MEMORY),TMPDIR=$(MEMORY)) OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n $$(nproc) --dist worksteal -m 'not long and not slow' $(QUICK)

# What takes a minute for itself: a cluster of several nodes on this machine, some of which are killed, jobs of replicas that
# fail and join, everything on another device, and a user's program checked with the types of the wheel.
test-long: setup
	$(BIN)/python -m pytest -m long tests planning/tests integrations/ray/tests

# The integration with NVFlare, in an environment of its own, and a job in NVFlare's simulator; takes a few minutes.
test-nvflare: build/nvflare/.ready
	env -u PYTHONPATH OMP_NUM_THREADS=1 build/nvflare/bin/python -m pytest integrations/nvflare

build/nvflare/.ready: pyproject.toml torch.txt integrations/nvflare/pyproject.toml
	$(PYTHON) -m venv build/nvflare
	env -u PYTHONPATH build/nvflare/bin/pip install --quiet --constraint torch.txt --editable '.[data]' --editable integrations/nvflare pytest hypothesis
	touch $@

# The loaders on real data sets, which lie in the directory DATA as they were published.
test-data: setup
	@test -n "$(DATA)" || { echo "Name the directory of the data: make test-data DATA=DIR"; exit 2; }
	FEDGAUGE_TEST_DATA="$(abspath $(DATA))" $(BIN)/python -m pytest integrations/datasets/tests/data_real

# The tests of pages drive Debian's Chromium.
chromium:
	@command -v chromium >/dev/null || { $(APT) chromium; } \
	  || { echo "The tests of pages need Chromium; install chromium and run again."; exit 1; }

check: lint types

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy

# A wheel and a source distribution of the library and of what stands beside it, in dist/.
DISTRIBUTIONS := . $(PLACES) integrations/nvflare
dist: setup
	rm -rf dist
	for each in $(DISTRIBUTIONS); do $(BIN)/python -m build --no-isolation --outdir dist $$each || exit 1; done

# Check them with twine, and try them in clean environments of every Python in PYTHONS (python3.11 python3.13, say);
# takes several minutes for each.
PYTHONS ?= $(PYTHON)
test-dist: dist build/tools/.ready
	build/tools/bin/twine check --strict dist/*
	rm -rf build/test-dist
	for python in $(PYTHONS); do $$python tests/packaging/try_dist.py dist build/test-dist/$$(basename $$python) || exit 1; done

build/tools/.ready:
	$(PYTHON) -m venv build/tools
	build/tools/bin/pip install --quiet twine uv
	touch $@

# The oldest versions that pyproject.toml allows, but for torch, and the tests of the core with them. The oldest matplotlib
# calls functions that pyparsing warns of since 3.3. uv is told where pip finds wheels, as one of torch may lie there.
LOWEST := tests/values tests/algorithms tests/theory/test_oracle.py tests/report tests/cli/test_help.py
test-lowest: build/tools/.ready
	rm -rf build/lowest
	$(PYTHON) -m venv build/lowest
	env -u PYTHONPATH UV_FIND_LINKS="$$PIP_FIND_LINKS" \
	  build/tools/bin/uv pip install --quiet --python build/lowest/bin/python --resolution lowest-direct \
	  --constraint torch.txt --editable '.[data,tensorboard,parquet]' \
	  $(foreach each,$(filter-out integrations/flower integrations/ray,$(PLACES)),--editable $(each)) \
	  'pytest>=8.4' 'pytest-xdist>=3.6' 'hypothesis>=6.130' 'mpmath>=1.3' 'ipython>=8.20' 'pandas>=2.1' 'pyparsing>=3.1,<3.3'
	env -u PYTHONPATH OMP_NUM_THREADS=1 build/lowest/bin/python -m pytest -q -n $$(nproc) -m 'not long and not slow' $(LOWEST)

# What is installed here becomes what every set-up installs. For newer versions: make clean, make test LOCK=torch.txt,
# and this.
lock: setup
	{ echo '# What is installed for the tests, as make lock found it after they had passed.'; \
	  $(BIN)/pip freeze --exclude-editable | sed 's/+cpu$$//'; } > constraints.txt
	$(if $(OWN),touch $(STAMP))

# The steps of Containerfile in an empty Debian, without a container engine; needs root and debootstrap.
test-container:
	$(PYTHON) tests/packaging/try_container.py build/container

# The documentation as pages, in build/docs; `make test` builds it too, in a directory of its own.
docs: setup
	$(BIN)/python -m sphinx -W --keep-going -E -q -d build/doctrees docs build/docs
	@echo "Open build/docs/index.html"

# The documentation by the rules of WCAG 2.1 AA; needs npm, and takes some minutes.
axe: docs chromium
	mkdir -p build/axe && cd build/axe && npm pack --silent axe-core@4 && tar xzf axe-core-*.tgz package/axe.min.js
	$(BIN)/python scripts/check_site.py build/docs build/axe/package/axe.min.js

bench: setup
	$(BIN)/python benchmarks/quadratic.py
	$(BIN)/python benchmarks/theory.py
	$(BIN)/python benchmarks/passes.py
	$(BIN)/python benchmarks/rounds.py
	$(BIN)/python benchmarks/scale.py
	$(BIN)/python benchmarks/engines.py

# Rounds over Flower's processes on this machine; takes a quarter of an hour.
bench-flower: setup
	$(BIN)/python benchmarks/flower.py

# Against other libraries, each installed from PyPI into its own environment under .peers; needs Python 3.11.
bench-peers: setup
	$(BIN)/python benchmarks/peers/run.py

# The whole search for violations of the bounds; takes a few minutes on two cores.
falsify: setup
	rm -rf falsify
	$(BIN)/fedgauge falsify --samples 2500 --seed 0 --out falsify

ifneq ($(OWN),)
setup: $(STAMP)
else
# Another clone may be installed there; this one's source comes first.
EMPTY :=
export PYTHONPATH := $(subst $(EMPTY) ,:,$(strip $(CURDIR)/src $(PLACES:%=$(CURDIR)/%/src) $(PYTHONPATH)))
setup:
	@test -x '$(BIN)/python' || { echo "$(VENV) is not a virtual environment; name another VENV."; exit 2; }
	@echo "$(VENV) is not this clone's own environment, so nothing is installed into it; it is used as it is."
endif

# Installs again only when what it installs has changed.
$(STAMP): pyproject.toml $(LOCK) $(PLACES:%=%/pyproject.toml)
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "fedgauge needs Python 3.11 or newer; set PYTHON=…")'
	$(PYTHON) -m venv $(VENV) || { $(APT) python3-venv && $(PYTHON) -m venv $(VENV); } \
	  || { echo "Python cannot make a virtual environment; install python3-venv and run again."; exit 1; }
	echo '$(CURDIR)' > $(STAMP) && touch -d @0 $(STAMP)
	$(BIN)/pip install --quiet --constraint $(LOCK) --editable '.[dev]' $(BESIDE:%=--editable '%')
	touch $(STAMP)

clean:
	rm -rf $(if $(OWN),$(VENV)) .peers demo falsify build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
