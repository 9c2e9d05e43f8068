"""One PostgreSQL for all tests of a process."""

from collections.abc import Iterator

import pytest

from examples.local_postgres import LocalPostgres, local_postgres


@pytest.fixture(scope="session")
def postgres() -> Iterator[LocalPostgres]:
    with local_postgres() as server:
        yield server
