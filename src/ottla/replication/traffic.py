"""How much came into a partition and went out of it since the broker started."""


class Traffic:
    """Plain numbers that only grow: counting must cost next to nothing."""

    __slots__ = ("batches_in", "bytes_in", "bytes_out", "reads", "records_in")

    def __init__(self) -> None:
        self.batches_in = 0
        self.records_in = 0
        self.bytes_in = 0
        self.reads = 0
        self.bytes_out = 0

    def add(self, other: "Traffic") -> None:
        """Add the counts of another instance."""
        self.batches_in += other.batches_in
        self.records_in += other.records_in
        self.bytes_in += other.bytes_in
        self.reads += other.reads
        self.bytes_out += other.bytes_out
