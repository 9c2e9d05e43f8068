"""Reassignment plans keep their guarantees on any cluster."""

from collections import Counter
from collections.abc import Sequence
from itertools import combinations, product
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.clients.admin.reassignment_plan import (
    Assignment,
    ImpossiblePlanError,
    Plan,
    Site,
    drain,
    loads,
    spread,
)
from ottla.model.identifiers import TopicPartition

BROKERS = range(1, 8)
RACKS = st.sampled_from(["prague", "berlin", "vienna", None])


class Case(NamedTuple):
    current: Assignment
    sites: list[Site]


@st.composite
def cases(
    draw: st.DrawFn, racks: st.SearchStrategy[str | None] = RACKS, sites_max: int = len(BROKERS)
) -> Case:
    ids = st.lists(st.sampled_from(BROKERS), min_size=1, max_size=sites_max, unique=True)
    sites = [Site(broker_id, draw(racks)) for broker_id in draw(ids)]
    replicas = st.lists(
        st.sampled_from(BROKERS), min_size=1, max_size=min(len(sites), 4), unique=True
    )
    rows = draw(st.lists(replicas, min_size=1, max_size=12))
    return Case({TopicPartition("letters", number): row for number, row in enumerate(rows)}, sites)


@st.composite
def drains(draw: st.DrawFn) -> tuple[Case, int]:
    sites = [Site(broker_id, draw(RACKS)) for broker_id in range(1, draw(st.integers(2, 7)) + 1)]
    ids = [site.broker_id for site in sites]
    replicas = st.lists(st.sampled_from(ids), min_size=1, max_size=len(ids) - 1, unique=True)
    rows = draw(st.lists(replicas, min_size=1, max_size=12))
    current = {TopicPartition("letters", number): row for number, row in enumerate(rows)}
    return Case(current, sites), draw(st.sampled_from(ids))


def after(current: Assignment, plan: Plan) -> Plan:
    return {name: plan.get(name, tuple(replicas)) for name, replicas in current.items()}


def moved_replicas(current: Assignment, plan: Plan) -> int:
    """Count the copies that a plan makes."""
    return sum(len(set(replicas) - set(current[name])) for name, replicas in plan.items())


def crowding(replicas: Sequence[int], sites: Sequence[Site]) -> int:
    """Return the imbalance of a partition over racks; smaller is better."""
    rack = {site.broker_id: site.rack for site in sites}
    return sum(count**2 for count in Counter(rack[one] for one in replicas).values())


def least_crowding(size: int, sites: Sequence[Site]) -> int:
    """Return the smallest possible imbalance: each replica goes to the emptiest rack."""
    left, used = Counter(site.rack for site in sites), Counter[str | None]()
    for _ in range(size):
        rack = min((rack for rack in left if used[rack] < left[rack]), key=lambda rack: used[rack])
        used[rack] += 1
    return sum(count**2 for count in used.values())


@given(cases())
def test_a_spread_keeps_replication_factors_and_the_named_brokers(case: Case) -> None:
    planned = after(case.current, spread(*case))
    allowed = {site.broker_id for site in case.sites}
    for name, replicas in case.current.items():
        assert len(planned[name]) == len(set(planned[name])) == len(replicas)
        assert set(planned[name]) <= allowed


@given(cases())
def test_a_spread_uses_as_many_racks_as_can_be(case: Case) -> None:
    for replicas in after(case.current, spread(*case)).values():
        assert crowding(replicas, case.sites) == least_crowding(len(replicas), case.sites)


@given(cases(st.none(), sites_max=4))
def test_without_racks_replicas_are_even_and_hardly_a_copy_is_made_in_vain(case: Case) -> None:
    plan = spread(*case)
    load = loads(after(case.current, plan))
    counts = [load[site.broker_id] for site in case.sites]
    assert max(counts) - min(counts) <= 1
    assert moved_replicas(case.current, plan) <= fewest_moves(case) + 1


def fewest_moves(case: Case) -> int:
    """Return the fewest moves to an even load: tries all placements, grouped by their loads."""
    ids = [site.broker_id for site in case.sites]
    moves_by_load = {(0,) * len(ids): 0}
    for replicas in case.current.values():
        reached: dict[tuple[int, ...], int] = {}
        for chosen in combinations(ids, len(replicas)):
            moves = len(set(chosen) - set(replicas))
            for load, before in moves_by_load.items():
                key = tuple(count + (one in chosen) for count, one in zip(load, ids, strict=True))
                reached[key] = min(reached.get(key, before + moves), before + moves)
        moves_by_load = reached
    return min(moves for load, moves in moves_by_load.items() if max(load) - min(load) <= 1)


@given(cases())
def test_no_single_move_or_swap_would_make_a_spread_more_even(case: Case) -> None:
    planned = after(case.current, spread(*case))
    load, leads = loads(planned), Counter(replicas[0] for replicas in planned.values())
    for replicas in planned.values():
        free = [site.broker_id for site in case.sites if site.broker_id not in replicas]
        assert all(leads[replicas[0]] - leads[one] <= 1 for one in replicas)
        for one, other in product(replicas, free):
            changed = [other if kept == one else kept for kept in replicas]
            is_worse = crowding(changed, case.sites) > crowding(replicas, case.sites)
            assert is_worse or load[one] - load[other] <= 1


@given(cases())
def test_what_is_spread_already_stays(case: Case) -> None:
    planned = after(case.current, spread(*case))
    assert spread(planned, case.sites) == {}


@given(drains())
def test_a_drain_moves_what_is_on_the_broker_and_nothing_else(drained: tuple[Case, int]) -> None:
    case, leaving = drained
    others = [site for site in case.sites if site.broker_id != leaving]
    plan = drain(case.current, leaving, others)
    assert moved_replicas(case.current, plan) == loads(case.current)[leaving]
    planned = after(case.current, plan)
    for name, replicas in case.current.items():
        assert len(set(planned[name])) == len(replicas)
        assert leaving not in planned[name]
        stays = [one for one in replicas if one != leaving]
        assert [one for one in planned[name] if one in stays] == stays


@given(drains())
def test_a_drain_crowds_no_rack_and_loads_no_broker_that_could_be_spared(
    drained: tuple[Case, int],
) -> None:
    case, leaving = drained
    others = [site for site in case.sites if site.broker_id != leaving]
    plan = drain(case.current, leaving, others)
    load = loads(after(case.current, plan))
    for name, replicas in plan.items():
        stays = [one for one in case.current[name] if one != leaving]
        (heir,) = set(replicas) - set(stays)
        for site in others:
            if site.broker_id not in replicas:
                other = crowding([*stays, site.broker_id], others)
                assert other >= crowding(replicas, others)
                is_equal = other == crowding(replicas, others)
                assert not is_equal or load[heir] - load[site.broker_id] <= 1


def test_a_drain_loads_the_emptiest_brokers_first() -> None:
    current: Assignment = {TopicPartition("letters", number): (1,) for number in range(6)}
    plan = drain(current, 1, [Site(2), Site(3), Site(4)])
    assert loads(plan) == {2: 2, 3: 2, 4: 2}


def test_a_drain_thinks_again_where_the_first_choice_makes_loads_uneven() -> None:
    rows: list[tuple[int, ...]] = [(4, 3), (2, 4), (1, 3), (3, 1), (2, 4), (1, 2)]
    current: Assignment = {TopicPartition("letters", n): row for n, row in enumerate(rows)}
    plan = drain(current, 4, [Site(1), Site(2), Site(3)])
    assert loads(after(current, plan)) == {1: 4, 2: 4, 3: 4}


def test_a_new_broker_takes_its_share_and_leads_its_share() -> None:
    ring = [(1, 2, 3), (2, 3, 1), (3, 1, 2)]
    current: Assignment = {TopicPartition("letters", n): ring[n % 3] for n in range(12)}
    plan = spread(current, [Site(one) for one in (1, 2, 3, 4)])
    assert moved_replicas(current, plan) == 9
    planned = after(current, plan)
    assert set(loads(planned).values()) == {9}
    assert Counter(replicas[0] for replicas in planned.values()) == dict.fromkeys((1, 2, 3, 4), 3)


@given(st.integers(0, 2), st.permutations(range(8)))
def test_a_second_broker_in_a_rack_leads_half_of_it(turn: int, order: list[int]) -> None:
    racks = ("prague", "berlin", "vienna", "prague")
    sites = [Site(number, rack) for number, rack in enumerate(racks, 1)]
    ring = [(1, 2, 3), (2, 3, 1), (3, 1, 2)]
    current = {TopicPartition("letters", n): ring[(n + turn) % 3] for n in order}
    planned = after(current, spread(current, sites))
    assert loads(planned) == {1: 4, 2: 8, 3: 8, 4: 4}
    assert set(Counter(replicas[0] for replicas in planned.values()).values()) == {2}


def test_of_two_brokers_the_one_with_less_of_other_topics_is_taken() -> None:
    current: Assignment = {TopicPartition("letters", 0): (9,)}
    assert spread(current, [Site(1), Site(2)], {1: 5, 2: 3}) == {TopicPartition("letters", 0): (2,)}


def test_too_few_brokers_are_one_sentence() -> None:
    name = TopicPartition("letters", 0)
    with pytest.raises(
        ImpossiblePlanError, match="letters-0 has 3 replicas: they need as many brokers, not 2"
    ):
        spread({name: (1, 2, 3)}, [Site(1), Site(2)])
    with pytest.raises(
        ImpossiblePlanError, match="no other broker can take the replica of broker 3"
    ):
        drain({name: (1, 2, 3)}, 3, [Site(1), Site(2)])
    with pytest.raises(ImpossiblePlanError, match="letters-0"):
        drain({name: (1, 2)}, 2, [Site(1), Site(3)], to=[1])
