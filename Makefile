# One command each for what is done often. Everything runs in a virtual environment of this clone's own, .venv, which every target sets up first
# and which is left alone as long as nothing that it depends on has changed.
#
#   PYTHON=python3.12   which interpreter to make it with (otherwise the first of python3, python3.13 ... python3.10 that is 3.10 to 3.13)
#   CUDA=0|1            without or with TensorFlow's CUDA libraries (otherwise: with them where an NVIDIA driver is present)
#   ARGS='...'          further words for the command of `quick`, `gpu-check`, `test` and `bench`

PYTHON ?=
CUDA ?= $(shell if [ -e /proc/driver/nvidia/version ] || nvidia-smi -L >/dev/null 2>&1; then echo 1; else echo 0; fi)
ARGS ?=

VENV := .venv
RUN := $(VENV)/bin/python
# A clone that was moved or copied with its .venv, another PYTHON and a driver that was added ask for another stamp, and so for another set-up.
STAMP := $(VENV)/.set-up-$(shell printf '%s' '$(CURDIR) $(PYTHON) $(CUDA)' | cksum | cut -d' ' -f1)

.PHONY: help setup quick gpu-check test lint types bench constraints
.DEFAULT_GOAL := help

help:
	@echo 'make quick        set up, then the quick form of the main job (python -m harness +sweep=quick)'
	@echo 'make gpu-check    set up, then what only a GPU can show, in eight minutes'
	@echo 'make test         set up, then all tests, those with TensorFlow and with a browser included'
	@echo 'make lint         ruff'
	@echo 'make types        mypy --strict on harness/'
	@echo 'make bench        how fast and how small the suite itself is'
	@echo 'make constraints  resolve constraints.txt anew (needs python3.10 to python3.13)'

setup: $(STAMP)

$(STAMP): pyproject.toml setup.py constraints.txt .ci/setup
	@sh .ci/setup '$(VENV)' '$(CUDA)' '$(PYTHON)'
	@touch '$@'

quick: setup
	$(RUN) -m harness +sweep=quick $(ARGS)

gpu-check: setup
	$(RUN) -m harness +sweep=gpu_check $(ARGS)

test: setup
	$(RUN) -m pytest $(ARGS)

lint: setup
	$(RUN) -m ruff check .

types: setup
	$(RUN) -m mypy

bench: setup
	$(RUN) -m benchmarks.figures $(ARGS)

constraints: setup
	$(RUN) .ci/constraints.py
