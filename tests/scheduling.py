"""The order of test files, and which of them run in one worker of pytest-xdist.

A file runs in one worker, so that its tests share a broker or a cluster. Files that use the
session-wide Spark run in two lanes: a lane runs in one worker, so that two JVMs start, and not one
in each worker.
"""

from pathlib import PurePath

from xdist.scheduler import LoadFileScheduling

LANE_BY_FOLDER = {
    "tests/pipelines/connect": "spark-1",
    "tests/pipelines/streams": "spark-1",
    "tests/pipelines/mirror": "spark-2",
    "tests/pipelines/sink": "spark-2",
    "tests/pipelines/source": "spark-2",
}
FIRST = ("tests/pipelines", "tests/cluster")
"""Long files: begun last, one of them would run alone at the end. Spark keeps the cores busy while
the tests of clusters wait for sessions to end."""


class Scheduling(LoadFileScheduling):
    """Distributes lanes, and all other tests file by file."""

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.partition("::")[0]
        return LANE_BY_FOLDER.get(str(PurePath(path).parent), path)


def rank(nodeid: str) -> int:
    """Return the place of a test's folder in the order; tests of one rank stay as collected."""
    return next((place for place, name in enumerate(FIRST) if nodeid.startswith(name)), len(FIRST))
