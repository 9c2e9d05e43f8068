"""The messages with which security requests are refused while the broker has no security."""

from typing import Final

NO_AUTHORIZER: Final = "no authorizer is configured: this broker does not support ACLs yet"
NO_QUOTAS: Final = "this broker does not support client quotas yet: nothing was changed"
NO_SCRAM: Final = "this broker does not support SCRAM credentials yet: nothing was changed"
