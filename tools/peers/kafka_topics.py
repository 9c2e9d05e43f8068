"""Stands in for `kafka-topics.sh`, by which librdkafka's tests create, alter and delete topics."""

import argparse
import sys
from typing import Final

from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

SECONDS_MAX: Final = 20


def main() -> int:
    """Run the command to its completion; KafkaException if it fails."""
    options = _options()
    admin = AdminClient({"bootstrap.servers": options.servers})
    if options.delete:
        futures = admin.delete_topics([options.topic])
    elif options.alter:
        futures = admin.create_partitions([NewPartitions(options.topic, options.partitions)])
    else:
        config = dict(setting.split("=", 1) for setting in options.config)
        copies = options.replication_factor
        topic = NewTopic(options.topic, options.partitions, copies, config=config)
        futures = admin.create_topics([topic])
    futures[options.topic].result(SECONDS_MAX)
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap-server", "--zookeeper", dest="servers", required=True)
    for act in ("--create", "--alter", "--delete"):
        parser.add_argument(act, action="store_true")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--partitions", type=int)
    parser.add_argument("--replication-factor", type=int, default=1)
    parser.add_argument("--config", action="append", default=[])
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
