"""The accumulator behind `send`: compiled if available, else in plain Python."""

from typing import TYPE_CHECKING

from ottla.clients.producer.batching._accumulator_python import NO_PARTITION
from ottla.clients.producer.batching._delivery_python import OnDelivery

if TYPE_CHECKING:
    from ottla.clients.producer.batching._accumulator_python import (
        NEVER_MS,
        Accumulator,
        OpenBatches,
    )
    from ottla.clients.producer.batching._delivery_python import Batch, Delivery
else:
    try:
        from ottla.clients.producer.batching._accumulator import (
            NEVER_MS,
            Accumulator,
            Batch,
            Delivery,
            OpenBatches,
        )
    except ImportError:
        from ottla.clients.producer.batching._accumulator_python import (
            NEVER_MS,
            Accumulator,
            OpenBatches,
        )
        from ottla.clients.producer.batching._delivery_python import Batch, Delivery

__all__ = [
    "NEVER_MS",
    "NO_PARTITION",
    "Accumulator",
    "Batch",
    "Delivery",
    "OnDelivery",
    "OpenBatches",
]
