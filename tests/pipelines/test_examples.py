"""The worked examples have the results that their pages show."""

import json
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from examples import clicks
from ottla import Admin, Consumer, Producer
from ottla.streams import Pipeline, run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BEGIN = datetime(2012, 9, 20, 12, tzinfo=UTC)
GAP = timedelta(minutes=30)
Click = tuple[str, datetime, str]


def random_clicks(seed: int) -> list[Click]:
    dice = random.Random(seed)
    found = []
    for visitor in ("Felice", "Max", "Milena"):
        at = BEGIN
        for number in range(40):
            at += timedelta(minutes=dice.choice([1, 2, 5, 31, 60]), seconds=number)
            found.append((visitor, at, f"/page/{dice.randrange(5)}"))
    return sorted(found, key=lambda click: click[1])


def visits_of(found: list[Click]) -> list[dict[str, Any]]:
    """Compute visits from clicks in time order, in plain Python."""
    visits: list[dict[str, Any]] = []
    open_visits: dict[str, dict[str, Any]] = {}
    for visitor, at, page in found:
        visit = open_visits.get(visitor)
        if visit is None or at - visit["last"] >= GAP:
            visit = open_visits[visitor] = {"visitor": visitor, "start": at, "pages": []}
            visits.append(visit)
        visit["last"] = at
        visit["pages"].append(page)
    return visits


def write(servers: str, found: list[Click]) -> None:
    with Producer(bootstrap_servers=servers) as producer:
        for visitor, at, page in found:
            click = {"visitor": visitor, "page": page, "at": at.isoformat()}
            producer.send(clicks.CLICKS, json.dumps(click), key=visitor)


def read(servers: str, topic: str, count: int) -> list[Any]:
    with Consumer(
        bootstrap_servers=servers, group_id=f"read-{topic}", auto_offset_reset="earliest"
    ) as consumer:
        consumer.subscribe([topic])
        found: list[Any] = []
        for record in consumer.records(timeout=60):
            found.append(record)
            if len(found) == count:
                break
        return found


def test_clicks_become_visits(spark: "SparkSession", broker_servers: str, tmp_path: Path) -> None:
    with Admin(bootstrap_servers=broker_servers) as admin:
        topics = [clicks.CLICKS, clicks.VISITS, clicks.UNREADABLE]
        admin.topics.create(topics, partitions=2)
    found = random_clicks(seed=12)
    pipeline = Pipeline("clicks", broker_servers)
    write(broker_servers, found[:60])
    run(clicks.define, pipeline, state_dir=tmp_path, until_caught_up=True)
    with Producer(bootstrap_servers=broker_servers) as producer:
        producer.send(clicks.CLICKS, "no JSON", key="Max")
    later = BEGIN + timedelta(days=30)  # ends all other visits, and is not over itself
    write(broker_servers, [*found[60:], ("Nobody", later, "/")])
    run(clicks.define, pipeline, state_dir=tmp_path, until_caught_up=True)
    expected = visits_of(found)
    written = [json.loads(one.value) for one in read(broker_servers, clicks.VISITS, len(expected))]
    assert sorted(
        (one["visitor"], datetime.fromisoformat(one["window"]["start"]), one["pages"])
        for one in written
    ) == sorted((one["visitor"], one["start"], one["pages"]) for one in expected)
    (letter,) = read(broker_servers, clicks.UNREADABLE, 1)
    assert letter.value == b"no JSON"
