"""A process that writes to a log on a real disk, and another that kills it and checks the log.

python -m tests.crashes.kill_writer --rounds 300

The writer prints each promise of the log on a pipe, one per line, after it was made; it prints a
truncation before it begins. The other process kills it at some moment, opens the log as a broker
does after a crash, and checks every promise. The next writer continues from the log as it was
found.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import NoReturn

from ottla.runtime.disk import KernelDisk
from ottla.storage.log.log import PartitionLog
from ottla.storage.log.retention import apply_retention, expired_segments
from ottla.wire.records.control import ControlType
from ottla.wire.records.crc32c import crc32c
from tests.crashes.invariants import check_epochs, check_indexes
from tests.log_building import NOW_MS, LogFolder, batch, batches_of, marker, stamped, tiny

CONFIG = tiny(segment_bytes=8000, index_interval_bytes=500, retention_bytes=40_000)
ROOT = Path(__file__).parents[2]
LINES_MAX = 400
START_SECONDS_MAX = 0.3

# -- the writer -----------------------------------------------------------------------------------


class Writer:
    """Performs random operations until it is killed."""

    def __init__(self, folder: str, seed: int) -> None:
        self.dice = Random(seed)
        self.folder = LogFolder(KernelDisk(), CONFIG, folder)
        self.log = self.folder.start()
        self.next_sequence = {
            entry.producer_id: entry.last_sequence + 1 for entry in self.log.producers.producers()
        }
        self.flushes_always = self.dice.random() < 0.3

    def run(self) -> NoReturn:
        steps = [self.append] * 40 + [self.flush, self.truncate, self.retain]
        while True:
            self.dice.choice(steps)()

    def say(self, *words: object) -> None:
        os.write(1, (" ".join(map(str, words)) + "\n").encode())

    def append(self) -> None:
        log = self.log
        data = memoryview(bytearray(stamped(self.next_batch(), log.end_offset, 1)))
        log.append_as_follower(data, NOW_MS)
        if self.flushes_always:
            self.folder.flush()
        self.say("appended", log.end_offset, crc32c(data))

    def next_batch(self) -> memoryview:
        dice = self.dice
        producer = dice.randrange(-1, 4)
        if producer == 3 and dice.random() < 0.3:
            return marker(dice.choice([ControlType.ABORT, ControlType.COMMIT]), 3)
        sequence = self.next_sequence.get(producer, 0)
        count = dice.randrange(1, 5)
        self.next_sequence[producer] = sequence + count
        return batch(
            count,
            NOW_MS + dice.randrange(1000),
            value=dice.randbytes(dice.randrange(300)),
            producer_id=producer,
            base_sequence=sequence if producer >= 0 else -1,
            is_transactional=producer == 3,
        )

    def flush(self) -> None:
        self.folder.flush()
        self.say("flushed", self.log.recovery_point)

    def truncate(self) -> None:
        log = self.log
        offset = log.end_offset - self.dice.randrange(20)
        if offset > log.log_start_offset:
            self.say("cutting", offset)
            log.truncate_to(offset)
            self.say("cut", offset)
            known = log.producers.producers()
            self.next_sequence = {entry.producer_id: entry.last_sequence + 1 for entry in known}

    def retain(self) -> None:
        log = self.log
        count = expired_segments(log, NOW_MS, log.end_offset)
        if 0 < count < len(log.segments):
            self.say("letting go", log.segments.base_offset_of(count))
            apply_retention(log, NOW_MS, log.end_offset)
            log.remove_deleted(1 << 60)
            self.say("let go", log.log_start_offset)


# -- the killer -----------------------------------------------------------------------------------


@dataclass
class Promises:
    """The promised contents of the log: by end offset, the CRC of each whole batch."""

    crc_by_end: dict[int, int] = field(default_factory=dict)
    start_max: int = 0
    cut_min: int | None = None

    def hear(self, line: str) -> None:
        *words, number = line.split()
        match words:
            case ["appended", end_offset]:
                self.crc_by_end[int(end_offset)] = int(number)
            case ["cutting"]:
                self.cut_min = int(number)
            case ["cut"]:
                self.cut(int(number))
            case ["letting", "go"] | ["let", "go"]:
                self.start_max = max(self.start_max, int(number))
            case _:
                assert words == ["flushed"], line

    def cut(self, offset: int) -> None:
        self.crc_by_end = {end: crc for end, crc in self.crc_by_end.items() if end <= offset}
        self.cut_min = None

    def check(self, log: PartitionLog) -> None:
        """Check every promise; from now on the found batches are the promised ones."""
        found = list(batches_of(log))
        crc_by_end = {one.end_offset: crc32c(one.raw) for one in found}
        assert log.log_start_offset <= self.start_max, "the log begins too late"
        bases = [one.base_offset for one in found]
        assert bases[1:] == [one.end_offset for one in found[:-1]], "batches are missing"
        assert bases[:1] in ([], [log.log_start_offset]), "the first batch is missing"
        for end_offset, crc in self.crc_by_end.items():
            is_to_stay = self.cut_min is None or end_offset <= self.cut_min
            if end_offset > log.log_start_offset and (is_to_stay or end_offset in crc_by_end):
                assert crc_by_end.get(end_offset) == crc, f"the batch before {end_offset}"
        check_epochs(log)
        check_indexes(log)
        self.crc_by_end = crc_by_end
        self.cut_min = None


def run_rounds(folder: str, rounds: int, seed: int) -> int:
    """Kill this many writers; return the total number of batches promised to them."""
    dice = Random(seed)
    promises = Promises()
    heard = 0
    for number in range(rounds):
        lines = killed(folder, seed=dice.randrange(1 << 30), dice=dice)
        for line in lines:
            promises.hear(line)
        heard += sum(line.startswith("appended") for line in lines)
        try:
            promises.check(LogFolder(KernelDisk(), CONFIG, folder).start())
        except AssertionError as error:
            error.add_note(f"round {number} with seed {seed}, in {folder}")
            raise
    return heard


def killed(folder: str, seed: int, dice: Random) -> list[str]:
    """Start a writer, kill it at some moment, and return all of its output."""
    command = [sys.executable, "-m", "tests.crashes.kill_writer", "--write", folder]
    writer = subprocess.Popen([*command, "--seed", str(seed)], stdout=subprocess.PIPE, cwd=ROOT)
    assert writer.stdout is not None
    lines = []
    if dice.random() < 0.2:  # possibly during recovery
        time.sleep(dice.random() * START_SECONDS_MAX)
    else:
        lines += [writer.stdout.readline() for _ in range(dice.randrange(1, LINES_MAX))]
        time.sleep(dice.random() / 1000)
    writer.send_signal(signal.SIGKILL)
    lines += writer.stdout.readlines()
    status = writer.wait()
    writer.stdout.close()
    assert status == -signal.SIGKILL, f"the writer of seed {seed} ended by itself: {status}"
    return [line.decode() for line in lines if line.endswith(b"\n")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--write", metavar="FOLDER", help="be the one that is killed")
    options = parser.parse_args()
    seed = time.time_ns() if options.seed is None else options.seed
    if options.write:
        Writer(options.write, seed).run()
    with tempfile.TemporaryDirectory() as folder:
        heard = run_rounds(folder, options.rounds, seed)
    sys.stdout.write(
        f"{options.rounds} writers killed (seed {seed}): {heard} batches promised, none lost\n"
    )


if __name__ == "__main__":
    main()
