# What CI runs, by hand. `just` comes with the dev dependencies (rust-just).

python := env("PYTHON", ".venv/bin/python")

# list the recipes
default:
    @just --list

# an environment with everything for development
setup:
    python3 -m venv .venv
    {{ python }} -m pip install --upgrade pip
    {{ python }} -m pip install -e . --group dev

# everything CI checks; arguments go to pytest
check *args:
    {{ python }} tools/check.py {{ args }}

# lint and format check, docs current
lint:
    {{ python }} -m ruff check pensieve_mcp tests tools
    {{ python }} -m ruff format --check pensieve_mcp tests tools
    {{ python }} -m mypy
    {{ python }} tools/print_docs.py --check
    {{ python }} tools/make_manifests.py --check

test *args:
    {{ python }} -m pytest {{ args }}

# print the tables of the docs and the manifests from the code
docs:
    {{ python }} tools/print_docs.py
    {{ python }} tools/make_manifests.py

# rewrite snapshots; read the diff like code
snap:
    {{ python }} -m pytest --inline-snapshot=fix

# the picture in the README, from a real run
picture:
    {{ python }} -m pensieve_mcp.cli try --svg docs/sawtooth.svg
