"""Measures and prints: `python -m benchmarks [name ...]`, all groups if none is named.

No benchmark fails because of its timing: a figure below its goal is printed as "short".
"""

import argparse

from benchmarks import (
    admission,
    against_kafka,
    arrow,
    broker_for_tests,
    broker_requests,
    codecs,
    compaction,
    connection,
    consumers,
    hostile,
    imports,
    messages,
    mirror,
    pipeline_latency,
    pipeline_starts,
    producers,
    quorum,
    records,
    registry,
    rest_proxy,
    restarts,
    serializers,
    spark_sink,
    spark_source,
    storage,
    three_brokers,
    transaction_floor,
    transactions,
    typed_codecs,
    typed_topics,
    wakeups,
)
from benchmarks.comparison import measure
from benchmarks.report import machine, table

GROUPS = {
    "messages": messages,
    "records": records,
    "arrow": arrow,
    "codecs": codecs,
    "typed": typed_codecs,
    "typed_topics": typed_topics,
    "admission": admission,
    "imports": imports,
    "storage": storage,
    "compaction": compaction,
    "connection": connection,
    "wakeups": wakeups,
    "broker_for_tests": broker_for_tests,
    "broker_requests": broker_requests,
    "restarts": restarts,
    "quorum": quorum,
    "registry": registry,
    "rest": rest_proxy,
    "serializers": serializers,
    "against_kafka": against_kafka,
    "three_brokers": three_brokers,
    "transactions": transactions,
    "transaction_floor": transaction_floor,
    "consumers": consumers,
    "hostile": hostile,
    "producers": producers,
    "spark_source": spark_source,
    "spark_sink": spark_sink,
    "mirror": mirror,
    "pipeline_latency": pipeline_latency,
    "pipeline_starts": pipeline_starts,
}


def main() -> None:
    """Measure the groups that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"one of {', '.join(GROUPS)}")
    names = parser.parse_args().names or list(GROUPS)
    unknown = set(names) - set(GROUPS)
    if unknown:
        parser.error(f"no group is called {', '.join(sorted(unknown))}: {', '.join(GROUPS)}")
    print("\n".join(machine()))
    for name in names:
        group = GROUPS[name]
        results = [measure(case) for case in group.cases()]
        print()
        print("\n".join(table(group.TITLE, results)), flush=True)


if __name__ == "__main__":
    main()
