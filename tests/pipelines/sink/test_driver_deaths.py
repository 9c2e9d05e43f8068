"""A whole driver is killed with `kill -9`: Python, the JVM, and all that they have started.

More of it, at random and with brokers that die, too: `make soak-pipelines`.
"""

from pathlib import Path
from uuid import uuid4

from ottla.wire.api_key import ApiKey
from tests.pipelines.sink.lines import write_files
from tests.pipelines.sink.reading import all_committed
from tests.pipelines.sink.tripwire import Tripwire, Wire
from tests.pipelines.soak_exactly_once import ONE_BROKER, Driver


def test_a_driver_is_killed_between_its_decision_and_the_checkpoint(tmp_path: Path) -> None:
    lines = write_files(tmp_path, batches=2)
    topic = f"topic-{uuid4()}"
    with Tripwire(ONE_BROKER) as tripwire:
        first = Driver(tripwire.bootstrap_servers, tmp_path, topic, tasks=2)
        wire = Wire(ApiKey.END_TXN, first.kill, is_after=True, is_decision=False)
        tripwire.stretch(wire)
        assert not first.is_well()
        assert wire.is_tripped
        second = Driver(tripwire.bootstrap_servers, tmp_path, topic, tasks=3)
        assert second.is_well(), (tmp_path / "driver.log").read_text()
        assert sorted(all_committed(tripwire.bootstrap_servers, topic)) == lines
