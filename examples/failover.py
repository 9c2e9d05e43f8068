"""Mirror with fail-over: a group reads on one cluster, loses it, and continues on the other.

python -m examples.failover

Two brokers run in this process; with addresses of your own, leave them out and begin at `main`.
"""

import sys
import tempfile

from ottla import Consumer, Producer
from ottla.pipelines.mirror.options import MirrorOptions
from ottla.pipelines.mirror.running import Mirror
from ottla.pipelines.sessions import end_session, spark_session
from ottla.testing import Broker

TOPIC = "orders"
GROUP = "shipping"
ORDERS = 1_000
READ_BEFORE = 400


def write(servers: str) -> None:
    """Write orders in transactions; one is aborted, so that offsets differ on the target."""
    with Producer(bootstrap_servers=servers, transactional_id="shop") as producer:
        producer.init_transactions()
        for start in range(0, ORDERS, 100):
            producer.begin_transaction()
            producer.send(TOPIC, "never mind", partition=0)
            producer.flush()
            producer.abort_transaction()
            producer.begin_transaction()
            for number in range(start, start + 100):
                producer.send(TOPIC, str(number), partition=0)
            producer.commit_transaction()


def read(servers: str, count: int) -> list[int]:
    """Read this many orders as a member of the group, and commit their offsets."""
    found: list[int] = []
    settings = {"auto.offset.reset": "earliest", "isolation.level": "read_committed"}
    with Consumer(
        settings, bootstrap_servers=servers, group_id=GROUP, enable_auto_commit=False
    ) as consumer:
        consumer.subscribe([TOPIC])
        while len(found) < count:
            found += [int(row.value) for row in consumer.poll(count - len(found), timeout=1.0)]
        consumer.commit()
    return found


def main() -> None:
    """Write, read a part, mirror, lose the first cluster, and read the rest on the second."""
    spark = spark_session("fail-over", is_quick=True)
    with Broker() as second, tempfile.TemporaryDirectory() as folder:
        with Broker() as first:
            write(first.bootstrap_servers)
            before = read(first.bootstrap_servers, READ_BEFORE)
            options = MirrorOptions(
                {"bootstrap.servers": first.bootstrap_servers},
                {"bootstrap.servers": second.bootstrap_servers},
                (TOPIC,),
            )
            copied = Mirror(spark, options, folder).run_once()
        after = read(second.bootstrap_servers, ORDERS - READ_BEFORE)
    end_session(spark)
    sys.stdout.write(f"{copied.records} orders were copied\n")
    sys.stdout.write(f"{len(before)} were read on the first cluster, {len(after)} on the second\n")
    is_right = before + after == list(range(ORDERS))
    sys.stdout.write("each order was read once\n" if is_right else "something is wrong\n")


if __name__ == "__main__":
    main()
