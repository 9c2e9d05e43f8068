"""These tests need Java, and Kafka's jars: they are run only when they are asked for by path."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.console import Console
from tests.interop.ottla_process import OttlaProcess, ottla_process

HERE = Path(__file__).parent


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave this directory out of `make test`, which names no path below it."""
    start = config.invocation_params.dir
    asked = [start / argument.partition("::")[0] for argument in config.args]
    return None if any(path.is_relative_to(HERE) for path in asked) else True


@pytest.fixture(scope="module")
def ottla(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OttlaProcess]:
    """Run a broker for all tests of a file."""
    with ottla_process(tmp_path_factory.mktemp("ottla")) as process:
        yield process


@pytest.fixture(scope="module")
def kafka(ottla: OttlaProcess) -> Console:
    """Give Kafka's tools, with that broker to work on."""
    return Console(ottla.server)
