"""Joins and tables against plain dictionaries, through several runs of the same query."""

import json
import random
import time
from pathlib import Path
from typing import Any

import pytest

from ottla import Admin, ApiError
from ottla.streams import Pipeline, run, run_batch, stream, table
from tests.pipelines.streams.topics import Sent, committed, create, latest, send

STARTED = 1_800_000_000
FLUSH = STARTED + 100_000
ORDERS = "id long, customer string, at timestamp"
PAYMENTS = "id long, paid double, at timestamp"


def define_payments(suffix: str = "") -> None:
    orders = stream("orders").json(ORDERS).event_time("at", late="200 seconds")
    payments = stream("payments").json(PAYMENTS).event_time("at", late="200 seconds")
    joined = orders.join(payments, "id", within="30 seconds", how="left")
    joined.key_by("id").map(id="id", paid="paid").to(f"paid{suffix}", key="cast(id as string)")


def test_streams_meet_within_a_time_and_who_waits_in_vain_is_told_so(
    spark: Any, broker_servers: str, tmp_path: Path
) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")  # noqa: T201
    dice = random.Random(seed)
    create(broker_servers, "orders", "payments", "paid", "paid-batch")
    order_time = {n: STARTED + dice.randrange(0, 60) for n in range(60)}
    payments = [(n, n * 1.5, at + dice.randrange(-50, 50)) for n, at in order_time.items()]
    payments = dice.sample(payments, 50)
    expected = {(n, paid) for n, paid, at in payments if abs(at - order_time[n]) <= 30}
    expected |= {(n, None) for n in order_time if n not in {n for n, _ in expected}}

    # Both in any order and in two runs, but none so late that Spark may leave it out.
    rounds: list[tuple[list[Sent], list[Sent]]] = [([], []), ([], [])]
    for n, at in order_time.items():
        order = (str(n), {"id": n, "customer": "c", "at": at})
        rounds[dice.randrange(2)][0].append(order)
    for n, paid, at in payments:
        rounds[dice.randrange(2)][1].append((str(n), {"id": n, "paid": paid, "at": at}))
    rounds.append(([("f", {"id": -1, "at": FLUSH})], [("f", {"id": -2, "at": FLUSH})]))
    for orders, paid_orders in rounds:
        send(broker_servers, "orders", orders)
        send(broker_servers, "payments", paid_orders)
        run(define_payments, Pipeline("pay", broker_servers), state_dir=tmp_path,
            until_caught_up=True)  # fmt: skip
    found = [(value["id"], value["paid"]) for _, value in committed(broker_servers, "paid")]
    assert sorted(found, key=str) == sorted(expected, key=str)

    run_batch(lambda: define_payments("-batch"), Pipeline("pay", broker_servers))
    in_batch = [(row["id"], row["paid"]) for _, row in committed(broker_servers, "paid-batch")]
    assert sorted(in_batch, key=str) == sorted([*expected, (-1, None)], key=str)


def define_customers(suffix: str = "") -> None:
    customers = table("customers").json("name string, city string")
    scores = table("scores").json("score int")
    visits = stream("visits").json("customer string, page string")
    customers.filter("city = 'Prague'").to(f"in-prague{suffix}")
    customers.join(scores, how="left").to(f"profiles{suffix}")
    visits.join(customers, "customer", how="left").map(page="page", city="city").to(
        f"visits-by-city{suffix}"
    )
    visits.group("page").count().to(f"pages{suffix}")


OUTPUTS = ("in-prague", "profiles", "visits-by-city", "pages")


def test_tables_hold_the_newest_of_each_key_and_join_by_it(
    spark: Any, broker_servers: str, tmp_path: Path
) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")  # noqa: T201
    dice = random.Random(seed)
    create(broker_servers, "customers", "scores", "visits", *OUTPUTS)
    create(broker_servers, *(f"{name}-batch" for name in OUTPUTS))
    customers: dict[Any, Any] = {}
    scores: dict[Any, Any] = {}
    pages: dict[str, int] = {}
    visited: list[tuple[str, str | None]] = []
    for _ in range(2):
        changes = [some_customer(dice) for _ in range(30)]
        rated = [(f"c{dice.randrange(8)}", dice.choice([None, {"score": 7}])) for _ in range(20)]
        visits = [(f"c{dice.randrange(10)}", f"p{dice.randrange(4)}") for _ in range(30)]
        send(broker_servers, "customers", changes)
        send(broker_servers, "scores", rated)
        send(broker_servers, "visits", [(c, {"customer": c, "page": p}) for c, p in visits])
        customers, scores = (
            latest([*customers.items(), *changes]),
            latest([*scores.items(), *rated]),
        )
        for customer, page in visits:
            pages[page] = pages.get(page, 0) + 1
            visited.append((page, customers.get(customer, {}).get("city")))
        run(define_customers, Pipeline("shop", broker_servers), state_dir=tmp_path,
            until_caught_up=True)  # fmt: skip
        check("", broker_servers, customers, scores, pages)
        assert sorted(cities(broker_servers, ""), key=str) == sorted(visited, key=str)

    run_batch(lambda: define_customers("-batch"), Pipeline("shop", broker_servers))
    check("-batch", broker_servers, customers, scores, pages)
    assert len(cities(broker_servers, "-batch")) == len(visited)


def some_customer(dice: random.Random) -> Sent:
    """Return a change of one of a few customers; some leave."""
    name = f"c{dice.randrange(8)}"
    city = dice.choice(["Prague", "Vienna", None])
    return name, None if city is None else {"name": name, "city": city}


def check(suffix: str, servers: str, customers: Any, scores: Any, pages: dict[str, int]) -> None:
    def table_of(topic: str) -> dict[Any, Any]:
        return latest(committed(servers, f"{topic}{suffix}"))

    prague = {key: value for key, value in customers.items() if value["city"] == "Prague"}
    assert table_of("in-prague") == prague
    profiles = {
        key: {**row, "score": scores.get(key, {}).get("score")} for key, row in customers.items()
    }
    assert table_of("profiles") == profiles
    assert {key: row["count"] for key, row in table_of("pages").items()} == pages


def cities(servers: str, suffix: str) -> list[tuple[str, str | None]]:
    found = committed(servers, f"visits-by-city{suffix}")
    return [(row["page"], row["city"]) for _, row in found]


def test_what_cannot_be_joined_says_why(spark: Any, broker_servers: str) -> None:
    create(broker_servers, "left", "right")
    pipeline = Pipeline("wrong", broker_servers)
    left, right = (
        pipeline.stream(name).json("id long, at timestamp") for name in ("left", "right")
    )
    with pytest.raises(ValueError, match="streams are joined within a time"):
        left.join(right, "id")
    with pytest.raises(ValueError, match="both streams need an event time"):
        left.join(right, "id", within="1 hour")
    with pytest.raises(ValueError, match="there is no column 'nothing' to join on"):
        left.event_time("at").join(right.event_time("at"), "nothing", within="1 hour")
    counted = left.group("id").count()
    with pytest.raises(ValueError, match="needs rows that change no more"):
        counted.group("count")
    with pytest.raises(ValueError, match="call it first"):
        left.json("id long")
    with pytest.raises(ValueError, match="two flows are called 'out'"):
        left.to("out"), right.to("out")


def test_a_join_with_a_table_is_shown_as_a_group_and_logs_no_warning(
    spark: Any, broker_servers: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    create(broker_servers, "people", "calls", "called")
    send(broker_servers, "people", [("f", {"name": "Felice"})])
    send(broker_servers, "calls", [(None, {"person": "f"}) for _ in range(30)])

    def define() -> None:
        people = table("people").json("name string")
        stream("calls").json("person string").join(people, "person").to("called")

    run(define, Pipeline("guests", broker_servers), state_dir=tmp_path, until_caught_up=True)
    with Admin(bootstrap_servers=broker_servers) as admin:
        while sum(_committed(admin, "ottla-query-guests/called").values()) < 30:
            assert not caplog.records
            time.sleep(0.05)
    assert len(committed(broker_servers, "called")) == 30
    assert not caplog.records


def test_micro_batches_of_updates_use_the_same_few_transactional_ids(
    spark: Any, broker_servers: str, tmp_path: Path
) -> None:
    create(broker_servers, "clicks", "clicked")
    send(broker_servers, "clicks", [(None, {"page": f"p{n % 3}"}) for n in range(60)])

    def define() -> None:
        slowly = {"maxOffsetsPerTrigger": "6"}
        clicks = stream("clicks", options=slowly).json("page string")
        clicks.group("page").count().to("clicked")

    run(define, Pipeline("clicks", broker_servers), state_dir=tmp_path, until_caught_up=True)
    assert latest(committed(broker_servers, "clicked"))["p0"]["count"] == 20
    query = json.loads((tmp_path / "pipelines/clicks/checkpoints/clicked/metadata").read_text())
    with Admin(bootstrap_servers=broker_servers) as admin:
        names = [row.transactional_id for row in admin.transactions.list()]
    of_tasks = [name for name in names if query["id"] in name and not name.endswith(".decisions")]
    assert 0 < len(of_tasks) <= int(spark.conf.get("spark.sql.shuffle.partitions"))


def _committed(admin: Admin, group: str) -> dict[Any, int]:
    try:
        return {name: found.offset for name, found in admin.groups.committed(group).items()}
    except ApiError:
        return {}
