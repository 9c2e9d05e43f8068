"""What goes wrong in a connector for a reason that its owner can change."""


class ConnectorError(Exception):
    """A connector cannot be made, or cannot go on: a sentence that says where and what to do."""


class DeclarationError(ConnectorError):
    """A file declares no connector that could run: names the file, the key, and what is wrong."""

    def __init__(self, place: str, key: str, sentence: str) -> None:
        where = f"{place}, {key}" if key else place
        super().__init__(f"{where}: {sentence}")
