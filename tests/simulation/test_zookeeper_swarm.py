"""Under all faults of brokers and the links between them, the metadata is one history (M10)."""

import pytest

from tests.simulation.store_swarm import Swarm


@pytest.mark.parametrize("seed", range(6))
def test_the_metadata_stays_one_history_under_any_faults(seed: int) -> None:
    swarm = Swarm(seed)
    swarm.run()
    assert swarm.told > 20
    assert swarm.faults > 5


def test_equal_seeds_make_equal_runs() -> None:
    runs = [Swarm(1), Swarm(1), Swarm(2)]
    for swarm in runs:
        swarm.run()
    first, again, other = (swarm.stores.world.trace.digest() for swarm in runs)
    assert first == again
    assert first != other
