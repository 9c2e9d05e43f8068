"""Decompress every bomb in a directory, named by its codec; print the growth of the process."""

import sys
from pathlib import Path

from ottla.wire.protocol_error import ProtocolError
from ottla.wire.records.compression.codecs import Compression, compress, decompress

STATUS = Path("/proc/self/status")
CLEAR = Path("/proc/self/clear_refs")


def memory_bytes(field: str) -> int:
    lines = STATUS.read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(field))


def main(folder: Path) -> None:
    for codec in Compression:
        decompress(codec, compress(codec, b"loads the library"))
    for path in sorted(folder.iterdir()):
        bomb = path.read_bytes()
        CLEAR.write_text("5")  # resets the high-water mark
        before_bytes = memory_bytes("VmRSS")
        try:
            decompress(Compression(int(path.name.split()[0])), bomb)
        except ProtocolError:
            grown_bytes = memory_bytes("VmHWM") - before_bytes
            sys.stdout.write(f"{path.name}={grown_bytes}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
