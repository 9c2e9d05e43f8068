"""The APIs of the cluster as a whole with its security, of disks, and of missing features."""

from ottla.broker.handlers import (
    alter_replica_log_dirs,
    describe_cluster,
    describe_log_dirs,
    update_features,
)
from ottla.broker.requests.routes import Route
from ottla.broker.wiring.security import security_routes
from ottla.broker.wiring.services import Services
from ottla.broker.wiring.unsupported import unsupported_routes
from ottla.wire.api_key import ApiKey


def cluster_routes(services: Services) -> dict[int, Route]:
    """Create the handlers of brokers, features and log dirs."""
    describe = describe_cluster.DescribeClusterHandler(services.view, services.controller)
    log_dirs = describe_log_dirs.DescribeLogDirsHandler(
        services.folders, services.disk, services.threads, services.slices
    )
    moves = alter_replica_log_dirs.AlterReplicaLogDirsHandler(services.moves)
    features = update_features.UpdateFeaturesHandler(services.store)
    return {
        ApiKey.DESCRIBE_CLUSTER: Route(describe_cluster.VERSIONS, describe.handle),
        ApiKey.DESCRIBE_LOG_DIRS: Route(describe_log_dirs.VERSIONS, log_dirs.handle),
        ApiKey.ALTER_REPLICA_LOG_DIRS: Route(alter_replica_log_dirs.VERSIONS, moves.handle),
        ApiKey.UPDATE_FEATURES: Route(
            update_features.VERSIONS, features.handle, is_for_controller=True
        ),
        **security_routes(),
        **unsupported_routes(),
    }
