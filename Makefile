# Each target is a short line that calls a program. `make demo` and `make test` are the two commands of the README.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check
LOCKED := --only-binary :all: --require-hashes
SELF := --no-deps --no-build-isolation --no-index --editable .

.PHONY: install install-dev demo test test-fast lint bench proto kafka kubernetes stack-up stack-down lock

install: .venv/installed
install-dev: .venv/installed-dev

.venv/installed: requirements.txt pyproject.toml
	$(PYTHON) -m venv .venv
	$(PIP) $(LOCKED) -r requirements.txt && $(PIP) $(SELF)
	touch $@

.venv/installed-dev: requirements-dev.txt pyproject.toml
	$(PYTHON) -m venv .venv
	$(PIP) $(LOCKED) -r requirements-dev.txt && $(PIP) $(SELF)
	touch $@ .venv/installed

demo: install
	$(BIN)/gir demo

test: install-dev kafka
	$(BIN)/python -m tests.support.core_coverage
	$(BIN)/pytest

test-fast: install-dev
	$(BIN)/pytest -m "not server and not scenario"

lint: install-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python protos/generate.py --check

bench: install
	$(BIN)/gir bench route && $(BIN)/gir bench http && $(BIN)/gir bench picker

proto: install-dev
	$(BIN)/python protos/generate.py

# Apache Kafka's jars, by Maven; says so and goes on where Maven or Java is missing.
kafka: install
	$(BIN)/python -m deploy.stack fetch

# A Kubernetes API server and etcd, by Go from their modules: some six minutes once, so not part of `make test`.
kubernetes: install-dev
	$(BIN)/python -m deploy.stack build

stack-up: install
	$(BIN)/python -m deploy.stack up

stack-down: install
	$(BIN)/python -m deploy.stack down

# Rewrites both lock files after a change of pyproject.toml (needs uv on PATH).
LOCK := uv pip compile pyproject.toml --python-version 3.11 --universal --generate-hashes --no-emit-index-url --no-header --quiet
lock:
	$(LOCK) --extra build -o requirements.txt
	$(LOCK) --extra build --extra dev -c requirements.txt -o requirements-dev.txt
