"""The flows of `pipeline_latency` with Quix Streams: `python quix_pipeline.py KIND BROKERS FOLDER`.

It is run by a Python that has quixstreams, and has nothing else of the benchmarks.
"""

import sys
from datetime import timedelta


def main() -> None:
    """Run one flow until the process is ended."""
    from quixstreams import Application  # noqa: PLC0415 - type checkers do not have it

    kind, brokers, folder = sys.argv[1:]
    app = Application(
        broker_address=brokers,
        consumer_group="quix",
        auto_offset_reset="earliest",
        auto_create_topics=True,
        state_dir=folder,
        loglevel="ERROR",
    )
    output = app.topic("doubles", value_serializer="json")
    rows = app.dataframe(app.topic("orders", value_deserializer="json"))
    if kind == "stateless":
        rows = rows.filter(lambda row: row["amount"] > 0).apply(lambda row: {"sent": row["sent"]})
    else:
        windows = rows.tumbling_window(timedelta(seconds=1)).reduce(
            lambda most, row: {"sent": max(most["sent"], row["sent"])},
            lambda row: {"sent": row["sent"]},
        )
        rows = windows.current().apply(lambda window: window["value"])
    rows.to_topic(output)
    app.run()


if __name__ == "__main__":
    main()
