# `make book` and `make test` need Python 3.11+ and make. They install the rest into .venv,
# the tested versions, and install again only when a requirements file has changed.
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
INSTALL := $(RUN) -m pip install --quiet --disable-pip-version-check -c constraints.txt
NBVAL := --nbval-lax --nbval-current-env --nbval-cell-timeout 300

.PHONY: book test lab clean

book: $(VENV)/book.stamp
	$(RUN) book/build.py

test: $(VENV)/test.stamp
	$(RUN) -m ruff check .
	$(RUN) -m mypy
	$(RUN) -m pytest tests --cov
	OMP_NUM_THREADS=1 $(RUN) -m pytest $(NBVAL) book/*.ipynb

lab: $(VENV)/book.stamp
	$(RUN) -m jupyterlab --notebook-dir=book

# Leaves data/ and runs/: they may have taken hours.
clean:
	rm -rf $(VENV) book/_build .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage

$(VENV)/book.stamp: requirements.txt constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	    echo "error: $(PYTHON) is missing or older than Python 3.11: install a newer one" \
	    "and name it, as in: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; exit 1; }
	@echo "Installing into $(VENV): some minutes the first time"
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) -r requirements.txt
	@touch $@

$(VENV)/test.stamp: $(VENV)/book.stamp requirements-dev.txt
	$(INSTALL) -r requirements.txt -r requirements-dev.txt
	@touch $@
