"""Regenerates tests/data/kafka-folder: Kafka writes it, and Kafka's own readers list its contents.

Run it as `python -m tests.interop.make_folder`, with the jars that `make interop` fetches.
"""

import json
import re
import shutil
import tempfile
from pathlib import Path

from tests.interop.kafka_clients import consume
from tests.interop.kafka_dump import Dumps, dump
from tests.interop.kafka_node import KafkaNode, kafka_node
from tests.interop.kafka_story import PARTITIONS, tell_story

FOLDER = Path(__file__).parents[1] / "data" / "kafka-folder"
_DATE_COMMENT = re.compile(r"^#[^\n]+\n", re.MULTILINE)


def main() -> None:
    """Replace the directory."""
    with tempfile.TemporaryDirectory() as temporary, kafka_node(Path(temporary)) as node:
        tell_story(node)
        expected = {
            f"{topic}-{index}": _seen_by_consumers(node, topic, index)
            for topic, index in PARTITIONS
        }
        node.stop()
        for name in expected:
            expected[name] |= _seen_by_dump_tool(node.logs / name)
        shutil.rmtree(FOLDER / "logs", ignore_errors=True)
        shutil.copytree(node.logs, FOLDER / "logs")
    (FOLDER / "logs" / "bootstrap.checkpoint").unlink()
    meta = FOLDER / "logs" / "meta.properties"
    meta.write_text(_DATE_COMMENT.sub("", meta.read_text()))
    (FOLDER / "expected.json").write_text(_written(expected))


def _seen_by_consumers(node: KafkaNode, topic: str, index: int) -> dict[str, list[object]]:
    server = node.bootstrap_server
    seen = consume(server, topic, index, isolation_level="read_uncommitted")
    stable = consume(server, topic, index, isolation_level="read_committed")
    return {"records": [*seen], "committed": [record.offset for record in stable]}


def _seen_by_dump_tool(directory: Path) -> dict[str, list[object]]:
    logs = sorted(directory.glob("*.log"))
    snapshots = sorted(directory.glob("*.snapshot"))[-1:]
    aborted = sorted(directory.glob("*.txnindex"))
    dumps = dump([*logs, *snapshots, *aborted], "--deep-iteration")
    return {
        "batches": _rows(dumps, logs),
        "producers": _rows(dumps, snapshots),
        "aborted": _rows(dumps, aborted),
    }


def _rows(dumps: Dumps, paths: list[Path]) -> list[object]:
    return [row for path in paths for row in dumps.by_path[path].rows]


def _written(expected: dict[str, dict[str, list[object]]]) -> str:
    """Write it as JSON with one record, batch or entry per line."""
    partitions = (
        f"{json.dumps(name)}: {{\n{_written_parts(parts)}}}" for name, parts in expected.items()
    )
    return "{\n" + ",\n".join(partitions) + "\n}\n"


def _written_parts(parts: dict[str, list[object]]) -> str:
    return ",\n".join(
        f" {json.dumps(name)}: [" + ",".join(_written_row(row) for row in rows) + "]"
        for name, rows in parts.items()
    )


def _written_row(row: object) -> str:
    text = json.dumps(row, ensure_ascii=False)
    return text if isinstance(row, int) else f"\n  {text}"


if __name__ == "__main__":
    main()
