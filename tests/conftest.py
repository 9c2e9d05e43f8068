"""Requirements of tests, their order, and the number of examples of property tests."""

from importlib.util import find_spec
from typing import Any

import pytest
from hypothesis import settings

# Not first in the registry's thread: CPython 3.11 fails with "AST constructor recursion depth
# mismatch" where two threads parse at the same time, and pytest parses the tests that it imports.
import ottla.registry.broker_registry  # noqa: F401
from ottla.testing.zookeeper_server import why_not
from tests.examples import FULL
from tests.scheduling import Scheduling, rank

EXAMPLES_BY_PROFILE = {"quick": 10, "suite": 30, "all": FULL, "soak": 15 * FULL}
for name, count in EXAMPLES_BY_PROFILE.items():
    # The time of an example depends on the machine's load: there is no deadline.
    settings.register_profile(name, max_examples=count, deadline=None)
settings.load_profile("suite")


@pytest.fixture(scope="session")
def needs_zookeeper() -> None:
    """Skip the test where a ZooKeeper server cannot run."""
    if reason := why_not():
        pytest.skip(reason)


@pytest.fixture(scope="session")
def needs_compiled_loops() -> None:
    """Skip a comparison of compiled code with its fallback where only the fallback exists."""
    if find_spec("ottla.wire.records._reading") is None:
        pytest.skip("the loops are not compiled: that needs a C compiler")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: rank(item.nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Scheduling:
    return Scheduling(config, log)
