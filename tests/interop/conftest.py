"""These tests need Java, and Kafka's jars: they are run only when they are asked for by path."""

from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave everything here out of `make test`, which names no path below this one."""
    start = config.invocation_params.dir
    asked = [start / argument.partition("::")[0] for argument in config.args]
    return None if any(path.is_relative_to(HERE) for path in asked) else True
