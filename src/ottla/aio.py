"""The clients for asyncio; `ottla` has their argument, result and error types.

Each name is imported when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from ottla.clients.admin.async_admin import AsyncAdmin as Admin
    from ottla.clients.consumer.async_consumer import AsyncConsumer as Consumer
    from ottla.clients.producer.async_producer import AsyncProducer as Producer
    from ottla.clients.schemas.registry_client import AsyncRegistryClient as RegistryClient

__all__ = ["Admin", "Consumer", "Producer", "RegistryClient"]

_PLACE_BY_NAME: Final = {
    "Admin": ("ottla.clients.admin.async_admin", "AsyncAdmin"),
    "Consumer": ("ottla.clients.consumer.async_consumer", "AsyncConsumer"),
    "Producer": ("ottla.clients.producer.async_producer", "AsyncProducer"),
    "RegistryClient": ("ottla.clients.schemas.registry_client", "AsyncRegistryClient"),
}


def __getattr__(name: str) -> Any:
    if name not in _PLACE_BY_NAME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _PLACE_BY_NAME[name]
    return getattr(import_module(module), attribute)
