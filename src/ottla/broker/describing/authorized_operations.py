"""The operations that a client may perform, as bits by Kafka's numbers.

There is no authorizer yet: every client may perform every operation.
"""

from typing import Final

NOT_ASKED: Final = -(1 << 31)
"""In place of the bits, if the client did not request them."""
ON_TOPIC: Final = sum(1 << number for number in (3, 4, 5, 6, 7, 8, 10, 11))
"""Read, write, create, delete, alter, describe, and describe and alter the settings."""
ON_CLUSTER: Final = sum(1 << number for number in (5, 7, 8, 9, 10, 11, 12))
"""Create, alter, describe, cluster action, describe and alter the settings, idempotent write."""
ON_GROUP: Final = sum(1 << number for number in (3, 6, 8, 10, 11))
"""Read, delete, describe, and describe and alter the settings."""
