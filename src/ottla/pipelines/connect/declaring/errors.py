"""Errors of a connector that its owner can correct."""


class ConnectorError(Exception):
    """A connector cannot start or continue: one sentence with the place and the remedy."""


def older_checkpoint(what: str, last_batch_id: int, batch_id: int) -> ConnectorError:
    """Return the error for a batch that is older than the last written batch."""
    return ConnectorError(
        f"the checkpoint is older than the output: {what} has batch {last_batch_id}, the "
        f"checkpoint is at {batch_id}. Restore the newer checkpoint, or begin with an empty one; "
        "nothing of this batch is written"
    )


class DeclarationError(ConnectorError):
    """An invalid declaration: names the file, the key and the fault."""

    def __init__(self, place: str, key: str, sentence: str) -> None:
        where = f"{place}, {key}" if key else place
        super().__init__(f"{where}: {sentence}")
