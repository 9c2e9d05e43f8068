"""A worker process on a topic; it may be killed at any moment and restarted.

Run as `python -m tests.clients.working_process SERVERS TOPIC`. It prints a line for every record
that it has handled, and `ended` at its end, after Ctrl-C.
"""

import os
import sys
import time

from ottla import Consumer, ConsumerRecord
from tests.clients.workshop import CONSUMER


def handle(record: ConsumerRecord) -> None:
    time.sleep(record.offset % 5 / 1000)
    os.write(1, f"{record.partition} {record.offset}\n".encode())  # one call: lines stay whole


def work(servers: str, topic: str) -> None:
    settings = {**CONSUMER, "auto_commit_interval_ms": 20, "session_timeout_ms": 2000}
    settings["heartbeat_interval_ms"] = 500
    with Consumer(settings, bootstrap_servers=servers, group_id=topic) as consumer:
        consumer.subscribe([topic])
        consumer.run(handle, workers=8)
    sys.stdout.write("ended\n")


if __name__ == "__main__":
    work(sys.argv[1], sys.argv[2])
