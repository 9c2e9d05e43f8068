"""The Python clients in fifty lines: `python -m examples.letters [HOST:PORT]`.

A broker runs in this process if no address is given. A producer writes letters, two consumers share
them, and an admin client lists the remaining records.
"""

import sys
from contextlib import ExitStack

from ottla import Admin, Consumer, Producer
from ottla.testing import Broker

TOPIC = "letters"
COUNT = 1000


def main(servers: str) -> None:
    """Write, read, look."""
    with Admin(bootstrap_servers=servers) as admin:
        admin.topics.create([TOPIC], partitions=4)
        write(servers)
        read(servers)
        committed = admin.groups.committed("readers")
        print(f"the group has read {sum(row.offset for row in committed.values())} letters")
        admin.topics.delete([TOPIC])


def write(servers: str) -> None:
    """Send letters, a key of which always goes to the same partition."""
    with Producer(bootstrap_servers=servers, compression_type="zstd") as producer:
        for number in range(COUNT):
            producer.send(TOPIC, f"letter {number}", key=f"year {1909 + number % 16}")
        producer.flush()
        print(f"{producer.metrics()['record-send-total']} letters were sent")


def read(servers: str) -> None:
    """Read them with two consumers that share the partitions."""
    with ExitStack() as stack:
        consumers = [
            stack.enter_context(
                Consumer(
                    bootstrap_servers=servers, group_id="readers", auto_offset_reset="earliest"
                )
            )
            for _ in range(2)
        ]
        for consumer in consumers:
            consumer.subscribe([TOPIC])
        found = 0
        while found < COUNT:
            for consumer in consumers:
                found += len(consumer.poll(timeout=0.1))
        print(f"{found} letters were read")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        with Broker() as broker:
            main(broker.bootstrap_servers)
