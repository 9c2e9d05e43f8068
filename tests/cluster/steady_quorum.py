"""Three controllers commit records without faults: each election after the first is false.

python -m tests.cluster.steady_quorum --minutes 60

The leader proposes one record after another, as fast as they are committed. The longest wait
between two commits shows how close the quorum came to an election.
"""

import argparse
import sys
import time
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from tests.cluster.load import say
from tests.cluster.quorum_processes import QuorumProcesses

PAUSE_MS: Final = 10
"""The pause of a node between two proposals."""
REPORT_SECONDS: Final = 60


def run(minutes: float) -> int:
    """Commit records for this time; return the number of elections after the first."""
    with TemporaryDirectory(prefix="ottla-quorum-") as folder:
        processes = QuorumProcesses(Path(folder))
        try:
            processes.start()
            for node_id in processes.ids:
                processes.wait_for("ready", nodes=(node_id,))
            first = set(processes.leaders_by_epoch()) or {
                int(processes.wait_for("leader").words[1])
            }
            processes.tell(f"propose {PAUSE_MS}")
            deadline = time.monotonic() + 60 * minutes
            while (left := deadline - time.monotonic()) > 0:
                time.sleep(min(REPORT_SECONDS, left))
                report(processes)
            return len(set(processes.leaders_by_epoch()) - first)
        finally:
            processes.close()


def report(processes: QuorumProcesses) -> None:
    times = [line.time_ms for line in list(processes.lines) if line.words[0] == "acked"]
    assert len(times) > 1, "nothing was committed"
    longest = max(after - before for before, after in pairwise(times))
    epochs = sorted(processes.leaders_by_epoch())
    say(f"{len(times)} commits, longest wait {longest:.0f} ms, epochs with leaders: {epochs}")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    elections = run(parser.parse_args().minutes)
    say(f"{elections} false elections")
    sys.exit(elections > 0)


if __name__ == "__main__":
    main()
