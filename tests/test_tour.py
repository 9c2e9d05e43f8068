"""The tour of bytes and batches runs to its end, and its output is correct."""

import subprocess
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent


@cache
def tour() -> str:
    done = subprocess.run(
        [sys.executable, "-m", "examples.tour"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        encoding="utf-8",
    )
    assert done.stderr == ""
    return done.stdout


def part(title: str) -> list[str]:
    """Return the lines under a title."""
    (found,) = (text for text in tour().split("\n\n") if text.strip().startswith(title))
    return found.strip().splitlines()[1:]


def test_the_request_begins_with_its_length_and_its_api() -> None:
    (line,) = part("A client writes")
    size, shown = line.split(" bytes: ")
    frame = bytes.fromhex(shown.removesuffix("..."))
    assert int.from_bytes(frame[:4], "big") == int(size) - 4
    assert frame[4:12] == bytes([0, 0, 0, 9, 0, 0, 0, 7])


def test_the_broker_stamps_what_it_read_and_answers_with_the_same_number() -> None:
    asked, batch, *records, answer = part("A broker reads it")
    assert asked.strip() == "tour asks for PRODUCE v9"
    assert "offsets 1000..1002, 3 records" in batch
    assert [line.split()[0] for line in records] == ["1000", "1001", "1002"]
    assert bytes.fromhex(answer.split(": ")[1].removesuffix("..."))[4:8] == bytes([0, 0, 0, 7])


def test_every_codec_makes_the_batch_smaller() -> None:
    lines = [line.split() for line in part("A thousand records")]
    sizes = {name: int(size.replace(",", "")) for name, size, _ in lines}
    assert list(sizes) == ["none", "gzip", "snappy", "lz4", "zstd"]
    assert all(size < sizes["none"] for name, size in sizes.items() if name != "none")


def test_the_columns_have_the_rows() -> None:
    count, *rows = part("The zstd batch")
    assert count.strip().startswith("1,000 rows of key, value, topic")
    assert [row.split()[0] for row in rows] == ["0", "1", "2"]
    assert all('{"order": ' in row for row in rows)


def test_what_is_no_good_is_refused_with_a_reason() -> None:
    lines = [line.strip() for line in part("Bytes that are no good")]
    refusals = dict(zip(lines[::2], lines[1::2], strict=True))
    assert refusals["one bit flipped"].startswith("CORRUPT_MESSAGE: batch says its CRC is")
    assert "a frame of 2147483647 bytes" in refusals["a frame of 2 GB"]
    assert "topic_data[], at byte 12" in refusals["4 billion topics"]


def test_the_tour_ends_with_words_that_make_knows() -> None:
    targets = [line.split()[1] for line in part("What to try next") if "make " in line]
    makefile = (ROOT / "Makefile").read_text()
    assert targets == ["test", "bench"]
    assert all(f"\n{target}:" in makefile for target in targets)


def test_no_path_of_a_machine_is_shown() -> None:
    assert str(ROOT) not in tour()
    assert "Traceback" not in tour()
