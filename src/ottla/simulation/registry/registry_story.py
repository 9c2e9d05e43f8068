"""A simulated cluster with a registry in every broker: leaders die, disks lose their tails.

The faults, and the checks of replicas and metadata, come from `cluster_story`. The clients
register, read and delete schemas (`registry_workload`); the seed also determines whether they
delete. The checks are in `registry_rules`.
"""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final

from ottla.broker.startup.broker_service import OpenService
from ottla.registry.broker_schemas_log import SCHEMAS, SCHEMAS_TOPIC
from ottla.registry.schemas_log import SchemasRecord
from ottla.simulation.checks.checkers import Violation
from ottla.simulation.checks.history import Outcome
from ottla.simulation.registry.registry_rules import registry_violations
from ottla.simulation.registry.registry_service import registry_on
from ottla.simulation.registry.registry_workload import RegistryWorkload
from ottla.simulation.stories.cluster_story import BROKERS, SECONDS, ClusterStory, Setting
from ottla.simulation.stories.report import Report
from ottla.simulation.workloads.recorded_reader import all_of
from ottla.simulation.world.machine import Machine, Program
from ottla.simulation.world.randomness import dice

CLIENTS: Final = 4
DELETES: Final = 0.5
"""In so many runs."""


def run(
    seed: int,
    *,
    seconds: float = SECONDS,
    brokers: int = BROKERS,
    setting: Setting | None = None,
    has_deletes: bool | None = None,
    keeps_lines: bool = False,
) -> Report:
    """Run it, with faults for so many simulated seconds, and check everything."""
    stream = dice(seed, "registry setting")
    drawn = setting or Setting.draw(stream, brokers)
    deletes = stream.random() < DELETES if has_deletes is None else has_deletes
    drawn = replace(drawn, writers=0, transactional_ids=0, members=0, has_operator=False)
    story = RegistryStory(seed, drawn, has_deletes=deletes, keeps_lines=keeps_lines)
    return story.run(lambda: story.nemesis.run(seconds))


class RegistryStory(ClusterStory):
    """One cluster with clients of its registries; `run` it once."""

    def __init__(
        self, seed: int, setting: Setting, *, has_deletes: bool, keeps_lines: bool = False
    ) -> None:
        names = [f"broker-{number}" for number in range(setting.brokers)]
        self.registries = RegistryWorkload(names, seed, has_deletes=has_deletes)
        super().__init__(seed, setting, keeps_lines=keeps_lines)

    def run(self, disturb: Callable[[], Awaitable[None]]) -> Report:
        """Run the clients through a disturbance; the counts are of writes and reads of schemas."""
        report = super().run(disturb)
        history = self.registries.history
        written = len(history.registered) + len(history.deleted)
        seen = len(history.read) + len(history.texts)
        return replace(report, sent={Outcome.OK: written}, read_count=seen)

    def leaders(self) -> list[str]:
        """Return the machine of the leader of `_schemas`, and of the other partitions."""
        topic = self.truth.topics.get(SCHEMAS_TOPIC)
        ids = [] if topic is None else [one.leader for one in topic.partitions if one.leader >= 0]
        return [*(self.names[one] for one in ids), *super().leaders()]

    def _service_on(self, machine: Machine) -> OpenService:
        return registry_on(machine)

    def _clients(self) -> dict[str, Program]:
        return self.registries.programs(CLIENTS)

    async def _prepare(self) -> None:
        await super()._prepare()
        await self.until(self.is_whole)  # so that `_schemas` has all its replicas
        await self.world.machine("registry-setup").start(self.registries.set_up)

    async def _end(self) -> list[Violation]:
        self.registries.is_over = True
        for name in self.clients:
            await self.world.machine(name).ended()
        shown = await self.world.machine("last-client").start(self.registries.all_schemas)
        records = await self.world.machine("last-replay").start(self._read_log)
        await self._stop_brokers()
        return list(registry_violations(records, self.registries.history, shown))

    async def _read_log(self, machine: Machine) -> list[SchemasRecord]:
        async with self.workload.view(machine) as view:
            records = await all_of(view, machine.clock, [SCHEMAS], self.workload.reading)
        return [SchemasRecord(one.offset, one.timestamp, one.key, one.value) for one in records]
