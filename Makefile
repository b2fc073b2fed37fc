# make demo   install, then train a model with RL on this machine and show it learn
# make test   install, then run the tests
# make test-next  the loops and specs again, on the newest supported cookbook
# make check  format, lint, types, imports between rooms
# make bench  the benchmarks, each a table of ratios

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
JOBS ?= 2

# Waiting threads of torch must not spin on a busy machine.
export OMP_WAIT_POLICY = passive

.PHONY: demo test test-next check bench install
.DEFAULT_GOAL := demo

install: $(INSTALLED)

$(INSTALLED): pyproject.toml setup.py constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Python 3.11 or newer is needed; say which with: make PYTHON=python3.11"; exit 1; }
	@echo "installing into $(VENV) (once; a few minutes) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

demo: $(INSTALLED)
	$(BIN)/tinker train rl templates/rl_arithmetic.yaml --new
	$(BIN)/tinker metrics - reward --plot
	$(BIN)/tinker sample --run - "What is 17 + 25?"

test: $(INSTALLED)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) --dist loadgroup

# The newer cookbook beside the installed one: the loops and specs must hold on both.
NEXT_COOKBOOK ?= 0.6.1
NEXT := $(VENV)-next

$(NEXT)/.installed: $(INSTALLED)
	@$(BIN)/python -m venv --without-pip $(NEXT)
	@$(BIN)/python -c 'import site; print("import site; site.addsitedir(%r)" % site.getsitepackages()[0])' \
	  > "$$($(NEXT)/bin/python -c 'import site; print(site.getsitepackages()[0])')/base.pth"
	@$(BIN)/python -m pip --python $(NEXT)/bin/python install --quiet --disable-pip-version-check \
	  --no-deps tinker-cookbook==$(NEXT_COOKBOOK)
	@touch $@

test-next: $(NEXT)/.installed
	OMP_NUM_THREADS=1 $(NEXT)/bin/python -m pytest -n $(JOBS) --dist loadgroup tests/end_to_end tests/spec tests/trainer

check: $(INSTALLED)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(INSTALLED)
	@for file in benchmarks/*.py; do echo "== $$file"; $(BIN)/python $$file || exit 1; done
