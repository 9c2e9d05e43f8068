"""The APIs of settings, and of the metrics that clients push because of some."""

from ottla.broker.describing.client_telemetry import ClientTelemetry, LoggingSink
from ottla.broker.handlers import (
    alter_configs,
    describe_configs,
    get_telemetry_subscriptions,
    incremental_alter_configs,
    list_config_resources,
    push_telemetry,
)
from ottla.broker.requests.routes import Route
from ottla.broker.wiring.services import Services
from ottla.wire.api_key import ApiKey


def config_routes(services: Services) -> dict[int, Route]:
    """Create the handlers of settings."""
    store, live_config = services.store, services.live_config
    describe = describe_configs.DescribeConfigsHandler(store, live_config, services.slices)
    alter = alter_configs.AlterConfigsHandler(store)
    change = incremental_alter_configs.IncrementalAlterConfigsHandler(
        store, services.config.node_id
    )
    listing = list_config_resources.ListConfigResourcesHandler(store)
    return {
        ApiKey.DESCRIBE_CONFIGS: Route(describe_configs.VERSIONS, describe.handle),
        ApiKey.ALTER_CONFIGS: Route(alter_configs.VERSIONS, alter.handle, is_for_controller=True),
        ApiKey.INCREMENTAL_ALTER_CONFIGS: Route(
            incremental_alter_configs.VERSIONS, change.handle, is_for_controller=True
        ),
        ApiKey.LIST_CONFIG_RESOURCES: Route(list_config_resources.VERSIONS, listing.handle),
        **_telemetry_routes(services),
    }


def _telemetry_routes(services: Services) -> dict[int, Route]:
    telemetry = ClientTelemetry(
        services.clock, services.randomness, services.config.telemetry_max_bytes, LoggingSink()
    )
    telemetry.take(services.store.image)
    services.store.subscribe(telemetry.on_change)
    asked = get_telemetry_subscriptions.GetTelemetrySubscriptionsHandler(telemetry)
    pushed = push_telemetry.PushTelemetryHandler(telemetry)
    return {
        ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: Route(
            get_telemetry_subscriptions.VERSIONS, asked.handle, telemetry.is_wanted
        ),
        ApiKey.PUSH_TELEMETRY: Route(push_telemetry.VERSIONS, pushed.handle, telemetry.is_wanted),
    }
