"""Where the metadata of a test's cluster is: in a quorum of controllers, or in ZooKeeper."""

import pytest

IN_BOTH_MODES = pytest.mark.parametrize(
    "has_zookeeper",
    [pytest.param(False, id="quorum"), pytest.param(True, id="zookeeper")],
    indirect=True,
    scope="module",
)
"""For the main story of a file."""
IN_A_QUORUM = pytest.mark.parametrize(
    "has_zookeeper",
    [
        pytest.param(False, id="quorum"),
        pytest.param(True, id="zookeeper", marks=pytest.mark.exhaustive),
    ],
    indirect=True,
    scope="module",
)
"""For the other stories: `make test-all` runs them with ZooKeeper, too."""
