"""The operations that change a setting."""

from enum import IntEnum


class ConfigOperation(IntEnum):
    """The operations of IncrementalAlterConfigs, by the protocol's numbers."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3
