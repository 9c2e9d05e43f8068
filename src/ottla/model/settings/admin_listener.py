"""The HTTP listener for metrics, health and log levels."""

import re
from dataclasses import dataclass
from typing import Final

from ottla.model.settings.listeners import PORT_MAX
from ottla.model.settings.settings import Kind, SettingType

_PLACE = re.compile(r"(?:\[([0-9A-Za-z%._:-]*)\]|([0-9A-Za-z%._-]*)):([0-9]{1,5})")


@dataclass(frozen=True, slots=True)
class AdminListener:
    """A host and a port. No host means every address; port 0 is chosen by the kernel."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


DEFAULT_ADMIN_LISTENER: Final = AdminListener("127.0.0.1", 9644)


def _read(text: str) -> AdminListener | None:
    if not text:
        return None
    match = _PLACE.fullmatch(text)
    if match is None or int(match[3]) > PORT_MAX:
        raise ValueError(text)
    return AdminListener(match[1] or match[2] or "", int(match[3]))


ADMIN_LISTENER: Final = Kind(SettingType.STRING, "HOST:PORT, or empty", _read)
