# Each target is one short line that calls a program. `make demo` and `make test` are the two commands of the README.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: install install-dev demo test test-fast lint bench proto stack-up stack-down

.venv/installed: requirements.txt pyproject.toml
	$(PYTHON) -m venv .venv && $(BIN)/pip install -q --only-binary :all: --require-hashes -r requirements.txt
	touch $@

install: .venv/installed
