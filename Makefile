PYTHON ?= python3
# Another PYTHON has an environment of its own, .venv-3.12 for example.
VENV := .venv$(if $(filter-out python3,$(PYTHON)),-$(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])'))
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PEERS := peers-kafka-python peers-franz-go peers-librdkafka peers-schema-registry
NATIVE := $(shell find src -name '*.pyx' -o -name '*.pxd' -o -name '*.h')

.PHONY: demo help test quick test-all check bench interop peers $(PEERS) soak soak-cluster soak-pipelines simulate clean

demo: $(READY) ## Run the demo: a broker, a shop and a pipeline on Spark
	@$(BIN)/python -m examples.demo

# The help of a target follows two number signs on its line.
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-15s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

# A test that hangs is ended after ten minutes: it fails, and shows where each thread stood.
HANGING := -o faulthandler_timeout=600 -o faulthandler_exit_on_timeout=true --max-worker-restart 0

# Six workers on two cores: the tests of clusters mostly wait. `tests/scheduling.py` has the order.
TESTS := $(BIN)/python -m pytest --numprocesses 6 --dist loadfile --no-loadscope-reorder $(HANGING)

# Python caches no bytecode where this is set, and each process of a test compiles all of Ottla.
unexport PYTHONDONTWRITEBYTECODE

# Unit tests, properties, and one file of every other area.
QUICK := tests/unit tests/properties tests/contracts \
	tests/clients/test_cli_groups.py tests/clients/test_stories.py tests/cluster/test_rolling_restart.py \
	tests/conformance/test_coverage.py tests/crashes/test_torn_tail.py tests/pipelines/source/test_batches_in_spark.py \
	tests/simulation/test_quorum.py tests/test_make_help.py tests/test_request_paths.py

# Before the first run in an environment: the JVMs of the tests start with an archive of classes.
CLASSES := $(BIN)/python -m tests.pipelines.spark_classes

test: $(READY) ## Run the tests; ARGS are for pytest
	@$(CLASSES)
	$(TESTS) $(ARGS)

quick: $(READY) ## Run the unit tests and one file of each other area; ARGS are for pytest
	$(TESTS) --hypothesis-profile quick $(QUICK) $(ARGS)

test-all: $(READY) ## Run the tests with more examples and variants; ARGS are for pytest
	@$(CLASSES)
	$(TESTS) --hypothesis-profile all -m "not soak" $(ARGS)

check: $(READY) ## Run the linters, mypy and the import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python tools/tidy.py
	$(BIN)/python tools/vague_words.py

bench: $(READY) ## Run the benchmarks; ARGS name some of them
	$(BIN)/python -m benchmarks $(ARGS)

interop: $(READY) ## Run the tests against Apache Kafka; ARGS are for pytest
	@$(BIN)/python -m tools.interop $(ARGS)

peers: ## Run the test suites of other clients, or of one: peers-kafka-python, peers-franz-go, peers-librdkafka, peers-schema-registry
	@$(MAKE) --keep-going --no-print-directory $(PEERS)

$(PEERS): peers-%: $(READY)
	@$(BIN)/python -m tools.peers.$(subst -,_,$*) $(if $(BROKERS),--brokers $(BROKERS)) $(ARGS)

# Long random lives of logs, groups and transactions.
LIVES := $(patsubst %,tests/properties/test_%.py,log groups transactions transactional_partitions)

soak: $(READY) ## Kill a writer and a cleaner many times; long random runs of state machines and decoders
	$(BIN)/python -m tests.crashes.kill_writer --rounds 300
	$(BIN)/python -m tests.crashes.kill_cleaner --rounds 30
	$(BIN)/python -m pytest --hypothesis-profile soak $(LIVES)
	$(BIN)/python -m tests.properties.payload_soak --payloads $(or $(PAYLOADS),1000000)

soak-cluster: $(READY) ## Run clusters, with a quorum and with ZooKeeper, through faults for long; ROUNDS, RECORDS, MINUTES
	$(BIN)/python -m tests.cluster.soak --rounds $(or $(ROUNDS),100)
	$(BIN)/python -m tests.cluster.soak --rounds $(or $(ROUNDS),100) --zookeeper
	$(BIN)/python -m tests.cluster.copying --records $(or $(RECORDS),100000)
	$(BIN)/python -m tests.cluster.copying --records $(or $(RECORDS),100000) --zookeeper
	$(BIN)/python -m tests.cluster.copying --records $(or $(RECORDS),100000) --library Ottla
	$(BIN)/python -m tests.cluster.copying --records $(or $(RECORDS),100000) --library Ottla --zookeeper
	$(BIN)/python -m tests.cluster.registering --rounds $(or $(ROUNDS),100)
	$(BIN)/python -m tests.cluster.registering --rounds $(or $(ROUNDS),100) --zookeeper
	$(BIN)/python -m tests.cluster.steady_quorum --minutes $(or $(MINUTES),60)

soak-pipelines: $(READY) ## Run pipelines, mirrors and connectors through faults for long; ROUNDS
	$(BIN)/python -m pytest -m soak tests/pipelines
	$(BIN)/python -m tests.pipelines.soak_exactly_once --rounds 12
	$(BIN)/python -m tests.pipelines.mirror.killing --rounds $(or $(ROUNDS),100)
	$(BIN)/python -m tests.pipelines.mirror.killing --rounds 10 --spark
	$(BIN)/python -m tests.pipelines.mirror.killing_leaders --rounds 4
	$(BIN)/python -m tests.pipelines.mirror.killing_leaders --rounds 2 --spark
	$(BIN)/python -m tests.pipelines.soak_source --rounds 10
	$(BIN)/python -m tests.pipelines.soak_connect --rounds 10
	$(BIN)/python -m tests.pipelines.soak_clusters --records 12000

simulate: $(READY) ## Run simulated clusters through faults; SEEDS as 0:1000
	$(BIN)/ottla simulate --story one-broker --seeds $(or $(SEEDS),0:1000)
	$(BIN)/ottla simulate --story cluster --seeds $(or $(SEEDS),0:1000)
	$(BIN)/ottla simulate --story quorum --seeds $(or $(SEEDS),0:10000)
	$(BIN)/ottla simulate --story registry --seeds $(or $(SEEDS),0:1000)

clean: ## Delete everything that make has created
	rm -rf .venv .venv-* .interop .peers build .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	rm -rf src/ottla.egg-info
	find src \( -name '*.so' -o -name '*.c' \) -delete
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# One virtual environment for each Python, made again only when something it was made from changes.
$(READY): pyproject.toml setup.py constraints.txt $(NATIVE)
	@echo "Setting up $(VENV) (once)…"
	@$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), "Ottla needs Python 3.11 or newer"'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@
