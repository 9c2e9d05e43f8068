"""Log lines of a node about its place in the quorum: no leader answers, or it has no vote.

Both states are normal for a short time, at a start or during an election. After some seconds they
are mostly mistakes in settings or in formatting, and nothing else of the node shows them.
"""

import logging
from typing import Final

from ottla.broker.quorum.quorum_replica import QuorumReplica
from ottla.concurrency.first_of import pause_seconds
from ottla.environment.clock import Clock
from ottla.model.identifiers import uuid_to_text
from ottla.model.settings.broker_config import BrokerConfig
from ottla.runtime.problem_log import ProblemLog

LOOK_SECONDS: Final = 1.0
PATIENCE_MS: Final = 5_000
_log = logging.getLogger(__name__)


class QuorumWatch:
    """Looks at the replica of a node every second."""

    def __init__(
        self, config: BrokerConfig, cluster_id: str, replica: QuorumReplica, clock: Clock
    ) -> None:
        self._config = config
        self._cluster_id = cluster_id
        self._replica = replica
        self._clock = clock

    async def run(self) -> None:
        """Report problems until cancelled."""
        leader = _LastingProblem(self._clock, "a leader of the quorum is known")
        vote = _LastingProblem(self._clock, "this controller votes")
        while True:
            await pause_seconds(LOOK_SECONDS)
            leader.look(self._missing_leader())
            vote.look(self._missing_vote())

    def _missing_leader(self) -> str | None:
        """Return a sentence if no leader answers this node.

        A leader of an earlier run is known by `quorum-state`, so its name alone says nothing.
        """
        if self._replica.is_in_touch:
            return None
        if self._config.is_controller and not self._replica.voters.voters:
            return (
                "this controller knows no voters: controller.quorum.voters must name them, or a"
                f" leader must run in cluster {self._cluster_id}, for it to follow"
            )
        servers = ", ".join(map(str, self._config.controller_quorum_bootstrap_servers))
        return (
            f"no leader of the quorum of cluster {self._cluster_id} is known: a majority of"
            f" the controllers must run, with this cluster.id; asked {servers or 'voters'}"
        )

    def _missing_vote(self) -> str | None:
        """Return a sentence if this controller follows a quorum without a vote in it."""
        replica, node_id = self._replica, self._config.node_id
        if not self._config.is_controller or replica.is_voter or not replica.is_in_touch:
            return None
        known = replica.voters.voter(node_id)
        if known is None:
            return "this controller follows without a vote: `ottla quorum add` gives it the vote"
        return (
            f"this controller follows without a vote: the voter {node_id} of the quorum has the"
            f" directory {uuid_to_text(known.key.directory_id)}, and here is another directory;"
            f" `ottla quorum remove {node_id}` and then `ottla quorum add` give it the vote"
        )


class _LastingProblem:
    """Logs a problem that has lasted for some seconds, and its end."""

    def __init__(self, clock: Clock, end: str) -> None:
        self._clock = clock
        self._end = end
        self._since_ms: int | None = None
        self._log = ProblemLog(_log, logging.WARNING)

    def look(self, problem: str | None) -> None:
        """Take the present problem, None if there is none."""
        now_ms = self._clock.monotonic_ms()
        if problem is None:
            self._since_ms = None
            self._log.is_over(self._end)
        elif self._since_ms is None:
            self._since_ms = now_ms
        elif now_ms - self._since_ms >= PATIENCE_MS:
            self._log.report(problem)
