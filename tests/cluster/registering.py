"""Clients register schemas at all brokers while the leader of `_schemas-0` dies, or hangs.

python -m tests.cluster.registering --rounds 50 [--zookeeper]

Afterwards every acknowledged id is asked of every broker. A schema that was acknowledged must be
there under its id; a text has one id, and an id one text; no id between 1 and the highest is left
out. If this fails, the directory with all logs is kept.
"""

import argparse
import json
import shutil
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import mkdtemp
from typing import Final

from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError
from httpx2 import TransportError

from ottla.testing.cluster import Cluster
from tests.cluster.load import say
from tests.cluster.watching import BROKERS, Watcher, settings_of

CLIENTS: Final = 4
SHARED_EACH: Final = 2
"""Every second schema has the same text at all clients, and is registered by all of them."""
PAUSED_EACH: Final = 3
"""Every third leader hangs until another broker leads; the others are killed."""
TOPIC: Final = "_schemas"
UNAVAILABLE_SECONDS_MAX: Final = 60
ANSWER_SECONDS_MAX: Final = 5


@dataclass
class Acknowledged:
    """The ids that the clients were told, by subject and name of the record."""

    ids_by_schema: dict[tuple[str, str], set[int]] = field(default_factory=dict)
    longest_wait_seconds: float = 0.0
    unexpected: list[str] = field(default_factory=list)

    @property
    def ids(self) -> set[int]:
        return {one for ids in self.ids_by_schema.values() for one in ids}


def schema_of(name: str) -> Schema:
    return Schema(json.dumps({"type": "record", "name": name, "fields": []}), "AVRO")


def connect(urls: Sequence[str], first: int) -> SchemaRegistryClient:
    """Return a client of all brokers with this URL first."""
    ordered = [*urls[first % len(urls) :], *urls[: first % len(urls)]]
    settings = {"url": ",".join(ordered), "timeout": ANSWER_SECONDS_MAX, "max.retries": 1}
    return SchemaRegistryClient(settings)


class RegisteringClients:
    """Four clients in threads, which register until they are stopped."""

    def __init__(self, urls: Sequence[str]) -> None:
        self.acknowledged = Acknowledged()
        self._urls = urls
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(number,), daemon=True)
            for number in range(CLIENTS)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> Acknowledged:
        self._is_over.set()
        for thread in self._threads:
            thread.join()
        return self.acknowledged

    def _run(self, number: int) -> None:
        with connect(self._urls, number) as client:
            self._register_all(client, number)

    def _register_all(self, client: SchemaRegistryClient, number: int) -> None:
        count = 0
        while not self._is_over.is_set():
            owner = "Shared" if count % SHARED_EACH == 0 else f"Client{number}_"
            # A client caches its ids by subject and text: no text comes twice from one client.
            subject, name = f"{owner.lower()}{count % 10}", f"{owner}{count}"
            try:
                self._register(client, subject, name)
            except Exception as error:  # noqa: BLE001 - reported by the check
                self.acknowledged.unexpected.append(f"{subject} {name}: {error!r}")
                return
            count += 1

    def _register(self, client: SchemaRegistryClient, subject: str, name: str) -> None:
        began = time.monotonic()
        while True:
            try:
                found = client.register_schema(subject, schema_of(name))
            except (SchemaRegistryError, TransportError) as error:
                is_ours = isinstance(error, SchemaRegistryError) and error.http_status_code < 500
                if is_ours or time.monotonic() - began > UNAVAILABLE_SECONDS_MAX:
                    raise
                self._is_over.wait(0.05)
                continue
            with self._lock:
                acknowledged = self.acknowledged
                acknowledged.ids_by_schema.setdefault((subject, name), set()).add(found)
                waited = time.monotonic() - began
                acknowledged.longest_wait_seconds = max(acknowledged.longest_wait_seconds, waited)
            return


@contextmanager
def registering(cluster: Cluster) -> Iterator[RegisteringClients]:
    """Run the clients for the block; the levels are NONE, so that any record may follow another."""
    with connect(cluster.registry_urls, 0) as client:
        client.set_compatibility(level="NONE")
    clients = RegisteringClients(cluster.registry_urls)
    clients.start()
    try:
        yield clients
    finally:
        clients.stop()


def kill_leader(cluster: Cluster, watcher: Watcher) -> int:
    """Kill the leader of `_schemas-0`; start it again once another broker leads. Return its id."""
    leader = watcher.leader(TOPIC)
    cluster.brokers[leader].kill()
    watcher.wait_until(lambda: watcher.leader(TOPIC) not in {leader, -1})
    cluster.brokers[leader].start()
    watcher.wait_until(lambda: watcher.in_sync(TOPIC) == set(cluster.brokers))
    return leader


def pause_leader(cluster: Cluster, watcher: Watcher) -> int:
    """Pause the leader of `_schemas-0` until another broker leads. Return its id."""
    leader = watcher.leader(TOPIC)
    cluster.brokers[leader].pause()
    watcher.wait_until(lambda: watcher.leader(TOPIC) not in {leader, -1})
    cluster.brokers[leader].resume()
    watcher.wait_until(lambda: watcher.in_sync(TOPIC) == set(cluster.brokers))
    return leader


def violations(urls: Sequence[str], acknowledged: Acknowledged) -> list[str]:
    """Return a sentence for every acknowledged schema that is not as it was acknowledged."""
    found = list(acknowledged.unexpected)
    if not acknowledged.ids:
        found.append("nothing was acknowledged")
    text_by_id: dict[int, str] = {}
    for (subject, name), ids in acknowledged.ids_by_schema.items():
        if len(ids) != 1:
            found.append(f"{subject} {name} has the ids {sorted(ids)}")
        found += [
            f"id {one} is of {name} and {text_by_id[one]}"
            for one in ids
            if text_by_id.setdefault(one, name) != name
        ]
    for url in urls:
        with SchemaRegistryClient({"url": url}) as client:
            found += _violations_of(url, client, acknowledged, text_by_id)
    return found


def _violations_of(
    url: str,
    client: SchemaRegistryClient,
    acknowledged: Acknowledged,
    text_by_id: dict[int, str],
) -> list[str]:
    found = []
    for (subject, name), ids in acknowledged.ids_by_schema.items():
        try:
            registered = client.lookup_schema(subject, schema_of(name))
        except SchemaRegistryError as error:
            found.append(f"{url} has lost {name} of {subject}, id {sorted(ids)}: {error}")
            continue
        if {registered.schema_id} != ids:
            found.append(f"{url} has {name} as {registered.schema_id}, not {sorted(ids)}")
    for one in range(1, max(text_by_id, default=0) + 1):
        try:
            text = client.get_schema(one).schema_str or ""
        except SchemaRegistryError as error:
            found.append(f"{url} has no id {one}: {error}")
            continue
        if one in text_by_id and json.loads(text)["name"] != text_by_id[one]:
            found.append(f"{url} has {text} as id {one}, not {text_by_id[one]}")
    return found


def run_rounds(folder: Path, rounds: int, *, zookeeper: bool) -> Acknowledged:
    """Kill and pause leaders in turn; return the acknowledged schemas, all of which are there."""
    settings = settings_of(zookeeper=zookeeper)
    with Cluster(
        BROKERS, settings, data_dir=folder, registries=True, zookeeper=zookeeper
    ) as cluster:
        watcher = Watcher(cluster)
        with registering(cluster) as clients:
            for number in range(rounds):
                fault = pause_leader if number % PAUSED_EACH == PAUSED_EACH - 1 else kill_leader
                leader = fault(cluster, watcher)
                count = len(clients.acknowledged.ids)
                say(f"round {number}: {fault.__name__} {leader}, {count} ids so far")
        watcher.close()
        broken = violations(cluster.registry_urls, clients.acknowledged)
        assert not broken, "\n".join(broken[:20])
        return clients.acknowledged


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--zookeeper", action="store_true")
    options = parser.parse_args()
    folder = Path(mkdtemp(prefix="ottla-registering-"))
    say(f"in {folder}")
    acknowledged = run_rounds(folder, options.rounds, zookeeper=options.zookeeper)
    shutil.rmtree(folder)
    say(
        f"{options.rounds} rounds: {len(acknowledged.ids)} ids, none lost or given twice;"
        f" the longest wait was {acknowledged.longest_wait_seconds:.1f} s"
    )


if __name__ == "__main__":
    main()
