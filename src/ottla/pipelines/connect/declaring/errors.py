"""What goes wrong in a connector for a reason that its owner can change."""


class ConnectorError(Exception):
    """A connector cannot be made, or cannot go on: a sentence that says where and what to do."""


def older_checkpoint(what: str, last_batch_id: int, batch_id: int) -> ConnectorError:
    """Say that something has later batches than the checkpoint knows of."""
    return ConnectorError(
        f"the checkpoint is older than what was written: {what} has batch {last_batch_id}, the "
        f"checkpoint is at {batch_id}. Restore the newer checkpoint, or begin with a new one; "
        "nothing of this batch is written"
    )


class DeclarationError(ConnectorError):
    """A file declares no connector that could run: names the file, the key, and what is wrong."""

    def __init__(self, place: str, key: str, sentence: str) -> None:
        where = f"{place}, {key}" if key else place
        super().__init__(f"{where}: {sentence}")
