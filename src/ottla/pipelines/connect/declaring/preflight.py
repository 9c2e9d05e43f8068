"""Checks of brokers before a connector runs."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from ottla.clients.admin.admin import Admin
from ottla.clients.config.settings import CLIENT_SETTINGS
from ottla.model.api_error import ApiError
from ottla.pipelines.connect.declaring.errors import ConnectorError

if TYPE_CHECKING:
    from ottla.pipelines.connect.declaring.declaration import Declaration

_NAMES: Final = frozenset(setting.name for setting in CLIENT_SETTINGS)


def admin_of(settings: Mapping[str, Any]) -> Admin:
    """Return an Admin for the cluster of a connector; producer settings are left out."""
    own = {name: value for name, value in settings["kafka."].items() if name in _NAMES}
    return Admin({"bootstrap.servers": settings["bootstrap.servers"], **own})


def check_brokers(declarations: Sequence["Declaration"]) -> None:
    """Check that the brokers respond and have the topics of the sinks; else ConnectorError.

    A missing topic is allowed if a source of the same file may create it.
    """
    is_fed = any(one.is_source for one in declarations)
    for one in declarations:
        named = () if is_fed else one.settings["topics"] or ()
        try:
            with admin_of(one.settings) as admin:
                missing = set(named) - {topic.name for topic in admin.topics.list()}
        except (ApiError, OSError) as error:
            raise ConnectorError(f"{one.place}, bootstrap.servers: {error}") from error
        if missing:
            raise ConnectorError(f"{one.place}, topics: there is no topic {min(missing)!r}")
