# Two commands set everything up on a fresh machine: `make demo` and `make test`.

PYTHON ?= python3
VENV   ?= .venv
OUT    ?= build/demo
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check
DEMO   := -p p=2 -p m=4

.DEFAULT_GOAL := help
.PHONY: help demo test lint gallery clean

help:
	@echo "make demo   install, then check, draw, compile and train schedules/1f1b.pipe"
	@echo "make test   install, then run all tests"
	@echo "make lint   ruff, mypy and the import contracts"
	@echo "make gallery  docs/gallery.md: every schedule of the library, drawn"
	@echo "make clean  remove $(VENV) and build/"

$(VENV)/run.stamp: pyproject.toml setup.cfg constraints.txt
	@echo "installing into $(VENV) (a few minutes the first time: torch and ray are large)"
	$(PYTHON) -m venv $(VENV)
	$(PIP) --constraint constraints.txt --editable '.[run]'
	@touch $@

$(VENV)/test.stamp: $(VENV)/run.stamp
	$(PIP) --constraint constraints.txt --editable '.[run,test]'
	@touch $@

demo: $(VENV)/run.stamp
	@echo; echo "== check: is the schedule complete, and can its order run?"
	$(BIN)/piper-dsl check schedules/1f1b.pipe $(DEMO)
	@echo; echo "== the timeline, under unit costs"
	$(BIN)/piper-dsl visualize schedules/1f1b.pipe $(DEMO)
	$(BIN)/piper-dsl visualize schedules/1f1b.pipe $(DEMO) -o $(OUT)/1f1b.svg
	@echo; echo "== compile: one bind for every operation"
	$(BIN)/piper-dsl compile schedules/1f1b.pipe $(DEMO) --target ray-dag
	@echo; echo "== train a small GPT with it on Ray, and in one process to compare"
	$(BIN)/piper-dsl run schedules/1f1b.pipe $(DEMO) --target ray-dag --steps 30 --compare

# Tests start hundreds of processes: none of them is to compile the package, wherever Python is told to keep nothing.
test: $(VENV)/test.stamp
	$(BIN)/python -m compileall -q piper_dsl
	$(BIN)/python -m pytest

lint: $(VENV)/test.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

gallery: $(VENV)/run.stamp
	$(BIN)/python docs/make_gallery.py

clean:
	rm -rf $(VENV) build
