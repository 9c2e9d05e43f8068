PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PEERS := peers-kafka-python peers-franz-go peers-librdkafka
NATIVE := $(shell find src -name '*.pyx' -o -name '*.pxd' -o -name '*.h')

.PHONY: demo test check bench interop peers $(PEERS) soak soak-cluster soak-pipelines simulate clean

demo: $(READY)
	@$(BIN)/python -m examples.demo

# A test that hangs is ended after ten minutes: it fails, and shows where each thread stood.
HANGING := -o faulthandler_timeout=600 -o faulthandler_exit_on_timeout=true --max-worker-restart 0

test: $(READY)
	$(BIN)/python -m pytest --numprocesses 3 --dist loadfile --no-loadscope-reorder $(HANGING) $(ARGS)

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python tools/tidy.py

bench: $(READY)
	$(BIN)/python -m benchmarks $(ARGS)

interop: $(READY)
	@$(BIN)/python -m tools.interop $(ARGS)

peers:
	@$(MAKE) --keep-going --no-print-directory $(PEERS)

$(PEERS): peers-%: $(READY)
	@$(BIN)/python -m tools.peers.$(subst -,_,$*) $(if $(BROKERS),--brokers $(BROKERS)) $(ARGS)

soak: $(READY)
	$(BIN)/python -m tests.crashes.kill_writer --rounds 300
	$(BIN)/python -m tests.crashes.kill_cleaner --rounds 30
	OTTLA_LOG_EXAMPLES=2000 $(BIN)/python -m pytest tests/properties/test_log.py

soak-cluster: $(READY)
	$(BIN)/python -m tests.cluster.soak --rounds $(or $(ROUNDS),100)
	$(BIN)/python -m tests.cluster.copying --records $(or $(RECORDS),100000)
	$(BIN)/python -m tests.cluster.copying --records $(or $(RECORDS),100000) --library Ottla

soak-pipelines: $(READY)
	$(BIN)/python -m pytest -m soak tests/pipelines
	$(BIN)/python -m tests.pipelines.soak_exactly_once --rounds 12
	$(BIN)/python -m tests.pipelines.mirror.killing --rounds $(or $(ROUNDS),100)
	$(BIN)/python -m tests.pipelines.mirror.killing --rounds 10 --spark
	$(BIN)/python -m tests.pipelines.mirror.killing_leaders --rounds 4
	$(BIN)/python -m tests.pipelines.mirror.killing_leaders --rounds 2 --spark
	$(BIN)/python -m tests.pipelines.soak_source --rounds 10
	$(BIN)/python -m tests.pipelines.soak_connect --rounds 10
	$(BIN)/python -m tests.pipelines.soak_clusters --records 12000

simulate: $(READY)
	$(BIN)/ottla simulate --story one-broker --seeds $(or $(SEEDS),0:1000)
	$(BIN)/ottla simulate --story cluster --seeds $(or $(SEEDS),0:1000)

clean:
	rm -rf $(VENV) .interop .peers build .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	rm -rf src/ottla.egg-info
	find src \( -name '*.so' -o -name '*.c' \) -delete
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# One virtual environment, made once and again only when something it was made from changes.
$(READY): pyproject.toml setup.py constraints.txt $(NATIVE)
	@echo "Setting up $(VENV) (once)…"
	@$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), "Ottla needs Python 3.11 or newer"'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@
