"""Hooks for all tests: multi-process tests may be retried once, and the report shows it.

A story with real clients, brokers and Spark on a busy machine can be late for external reasons: a
foreign client sleeps, or another process takes a port. In a run of the whole suite such a test is
tried once more, and the report names it. Every other test has one try, and so has any test that is
run by itself.
"""

import pytest

SEVERAL_PROCESSES = {"clients", "cluster", "pipelines"}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not hasattr(config, "workerinput"):
        return
    for item in items:
        if not SEVERAL_PROCESSES.isdisjoint(item.path.relative_to(config.rootpath).parts):
            item.add_marker(pytest.mark.flaky(reruns=1))
