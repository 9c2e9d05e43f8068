"""Column names as JSON keys."""

import pytest

from ottla.cli.support.output import json_key


@pytest.mark.parametrize(
    ("column", "key"),
    [
        ("LOG-END-OFFSET", "log_end_offset"),
        ("RECORDS/S", "records_per_s"),
        ("MB/S", "mb_per_s"),
        ("P99.9-MS", "p99_9_ms"),
        ("#PARTITIONS", "partitions"),
        ("#MEMBERS", "members"),
    ],
)
def test_a_key_has_only_letters_digits_and_underscores(column: str, key: str) -> None:
    assert json_key(column) == key
    assert key.isidentifier()
