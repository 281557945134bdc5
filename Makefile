# One command does all set-up: `make demo` shows the main job, `make test` proves it.
SHELL := /bin/bash
PYTHON := .venv/bin/python
.PHONY: help setup demo test quick check sim chaos soak peers bench record lock clean
.DEFAULT_GOAL := help

help:  ## list the targets
	@grep -E '^[a-z]+:.*##' Makefile | sed -E 's/:.*## /\t/' | expand -t 10

setup: .venv/.ready  ## build .venv from the hashed requirements (bootstraps uv when absent)

.venv/.ready: requirements/all.txt pyproject.toml tools/bootstrap
	@tools/bootstrap
	@touch $@

demo: setup  ## the bank as a live cluster: traffic, a kill -9, an audit on Spark, an HTML report
	@.venv/bin/ordercast demo

check: setup  ## style and types
	@.venv/bin/ruff check
	@.venv/bin/ruff format --check --quiet
	@.venv/bin/mypy

test: setup check  ## everything a change must pass (five workers on two cores: many tests wait for a clock or a disk)
	@$(PYTHON) -m pytest -n 5 --dist worksteal

quick: setup  ## the fast tests only
	@$(PYTHON) -m pytest -n 4 -m "not slow"

sim: setup  ## the random campaign: 2,000 seeds x machines x mixes of faults
	@$(PYTHON) -m benchmarks.campaign
	@$(PYTHON) -m benchmarks.campaign --nodes
	@$(PYTHON) -m benchmarks.campaign --changes --seeds 5000
	@$(PYTHON) -m benchmarks.campaign --changes --nodes --seeds 2000
	@$(PYTHON) -m benchmarks.exploration --changes
	@$(PYTHON) -m benchmarks.exploration --beside
	@$(PYTHON) -m benchmarks.exploration --races
	@$(PYTHON) -m benchmarks.exploration --markers
	@ORDERCAST_CAMPAIGN=1 $(PYTHON) -m pytest tests/protocols/test_mutants.py tests/protocols/test_machines.py tests/node/test_mutants.py tests/node/test_changing.py tests/epochs
	@ORDERCAST_CAMPAIGN=1 $(PYTHON) -m pytest tests/audit/test_faults.py tests/audit/test_spread.py tests/audit/test_against_naive.py tests/imports tests/verify tests/spark tests/test_shown.py

chaos: setup  ## real processes killed, stopped and started under load; mutated frames; damaged histories
	@$(PYTHON) -m benchmarks.chaos
	@$(PYTHON) -m benchmarks.changing_chaos
	@$(PYTHON) -m benchmarks.endurance
	@$(PYTHON) -m benchmarks.fuzz

soak: setup  ## half an hour at full speed with a change every ten seconds: memory, descriptors, disk
	@$(PYTHON) -m benchmarks.soak

peers: setup  ## Redis, NATS and Corosync (Debian packages) on the same workload, beside ordercast
	@PATH=$$PATH:/usr/sbin command -v redis-server nats-server corosync >/dev/null || { echo "installing redis-server, nats-server and corosync"; \
	  $$([ "$$(id -u)" = 0 ] || echo sudo) apt-get install -y -qq --no-install-recommends redis-server nats-server corosync libcpg4 iproute2; }
	@uv=$$(command -v uv || echo .bootstrap/bin/uv); \
	  $$uv pip install --quiet --python $(PYTHON) --require-hashes -r requirements/peers.txt
	@PATH=$$PATH:/usr/sbin $(PYTHON) -m benchmarks.peers.compare
	@PATH=$$PATH:/usr/sbin $(PYTHON) -m benchmarks.peers.failover

record: setup  ## rewrite the expected half of tests/cases
	@ORDERCAST_RECORD=1 $(PYTHON) -m pytest tests/test_cases.py

bench: setup  ## run the benchmarks and rewrite their tables in benchmarks/RESULTS.md
	@$(PYTHON) -m benchmarks.plan_quality
	@$(PYTHON) -m benchmarks.plan_speed
	@$(PYTHON) -m benchmarks.protocol_costs
	@$(PYTHON) -m benchmarks.sequencers
	@$(PYTHON) -m benchmarks.contexts
	@$(PYTHON) -m benchmarks.pictures
	@$(PYTHON) -m benchmarks.swap_latency
	@$(PYTHON) -m benchmarks.swap_places
	@$(PYTHON) -m benchmarks.sim_speed
	@$(PYTHON) -m benchmarks.exploration
	@$(PYTHON) -m benchmarks.history
	@$(PYTHON) -m benchmarks.live
	@$(PYTHON) -m benchmarks.spark_tables
	@$(PYTHON) -m benchmarks.spark_sizes
	@$(PYTHON) -m benchmarks.trials
	@$(PYTHON) -m benchmarks.streams
	@$(PYTHON) -m benchmarks.following
	@$(PYTHON) -m benchmarks.imports

lock: setup  ## pin again: newest versions that fit pyproject.toml and requirements/dev.in
	@uv=$$(command -v uv || echo .bootstrap/bin/uv); $$uv pip compile --quiet --universal --generate-hashes \
	  --python-version 3.11 --no-header --no-annotate --all-extras --upgrade pyproject.toml requirements/dev.in -o requirements/all.txt

clean:  ## remove what set-up and runs made
	@rm -rf .venv .bootstrap out
