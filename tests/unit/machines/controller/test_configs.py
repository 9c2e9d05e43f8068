"""AlterConfigs and IncrementalAlterConfigs."""

from typing import Any

import pytest

from ottla.machines.controller import config_checks
from ottla.machines.controller.config_checks import UNKNOWN_SETTINGS_MAX
from ottla.machines.controller.configs import ConfigOutcome
from ottla.machines.controller.effective_configs import topic_config, topic_defaults
from ottla.machines.controller.machine import Controller
from ottla.metadata.image import EVERY_BROKER, ResourceType
from ottla.metadata.records import NO_LEADER, ConfigRecord
from ottla.model.error_code import ErrorCode
from ottla.model.settings.settings import ConfigOperation
from ottla.model.settings.topic_config import CleanupPolicy
from ottla.wire.messages import alter_configs, incremental_alter_configs
from tests.metadata_building import add_topics, controller_of, new_topic, one_broker, run
from tests.unit.machines.controller.cluster import alter, cluster, partition

TOPIC, BROKER, CLIENT_METRICS, GROUP = 2, 4, 16, 32
SET, DELETE, APPEND, SUBTRACT = ConfigOperation
Incremental = incremental_alter_configs.AlterConfigsResource


def controller_with_topic(**settings: Any) -> Controller:
    controller = controller_of(one_broker())
    add_topics(controller, new_topic("t", **settings))
    return controller


def changes(
    *configs: tuple[int, str, str | None], kind: int = TOPIC, name: str = "t"
) -> Incremental:
    return Incremental(
        resource_type=kind,
        resource_name=name,
        configs=[
            incremental_alter_configs.AlterableConfig(
                name=setting, config_operation=operation, value=value
            )
            for operation, setting, value in configs
        ],
    )


def broker_changes(*configs: tuple[int, str, str | None], name: str = "") -> Incremental:
    return changes(*configs, kind=BROKER, name=name)


def replacement(
    *configs: tuple[str, str | None], kind: int = TOPIC, name: str = "t"
) -> alter_configs.AlterConfigsResource:
    return alter_configs.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[alter_configs.AlterableConfig(name=key, value=value) for key, value in configs],
    )


def change(controller: Controller, *resources: Incremental) -> list[ConfigOutcome]:
    return run(controller, controller.incremental_alter_configs(resources))


def refusal(controller: Controller, resource: Incremental) -> tuple[ErrorCode, str]:
    before = controller.image
    (outcome,) = change(controller, resource)
    assert controller.image == before
    assert outcome[:2] == (resource.resource_type, resource.resource_name)
    assert outcome.error is not None
    return outcome.error.code, outcome.error.detail


# -- incremental ----------------------------------------------------------------------------------


def test_single_settings_are_set_and_deleted_and_others_stay() -> None:
    controller = controller_with_topic(retention_ms="1", segment_ms="2", flush_ms="3")
    decision = controller.incremental_alter_configs(
        [changes((SET, "retention.ms", "5"), (DELETE, "segment.ms", None))]
    )
    assert decision.records == (
        ConfigRecord(resource_type=TOPIC, resource_name="t", name="retention.ms", value="5"),
        ConfigRecord(resource_type=TOPIC, resource_name="t", name="segment.ms", value=None),
    )
    assert decision.response == [ConfigOutcome(TOPIC, "t", None)]
    run(controller, decision)
    assert controller.image.topic_settings("t") == {"retention.ms": "5", "flush.ms": "3"}


def test_a_change_without_effect_writes_nothing() -> None:
    controller = controller_with_topic(retention_ms="1")
    decision = controller.incremental_alter_configs(
        [changes((SET, "retention.ms", "1"), (DELETE, "flush.ms", None), (DELETE, "x", None))]
    )
    assert (decision.records, decision.response[0].error) == ((), None)


def test_lists_grow_from_kafkas_default_and_shrink() -> None:
    controller = controller_with_topic()
    change(controller, changes((APPEND, "cleanup.policy", "compact")))
    assert controller.image.topic_settings("t") == {"cleanup.policy": "delete,compact"}
    change(controller, changes((APPEND, "cleanup.policy", " compact , delete,")))
    assert controller.image.topic_settings("t") == {"cleanup.policy": "delete,compact"}
    change(controller, changes((SUBTRACT, "cleanup.policy", "delete,nothing")))
    assert controller.image.topic_settings("t") == {"cleanup.policy": "compact"}
    change(controller, changes((SUBTRACT, "cleanup.policy", "compact")))
    assert controller.image.topic_settings("t") == {"cleanup.policy": ""}


def test_a_list_of_replicas_begins_empty() -> None:
    controller = controller_with_topic()
    name = "leader.replication.throttled.replicas"
    change(controller, changes((APPEND, name, "0:1,2:3")))
    assert controller.image.topic_settings("t") == {name: "0:1,2:3"}


@pytest.mark.parametrize(
    ("resource", "code", "complaint"),
    [
        (changes((SET, "retention.ms", "x")), ErrorCode.INVALID_CONFIG, "cannot be 'x'"),
        (changes((SET, "nope", "1")), ErrorCode.INVALID_CONFIG, "nope"),
        (changes((SET, "flush.ms", None)), ErrorCode.INVALID_REQUEST, "'flush.ms' needs a value"),
        (changes((APPEND, "flush.ms", "1")), ErrorCode.INVALID_CONFIG, "'flush.ms' is no list"),
        (changes((SUBTRACT, "nope", "1")), ErrorCode.INVALID_CONFIG, "'nope' is no list"),
        (changes((APPEND, "cleanup.policy", "burn")), ErrorCode.INVALID_CONFIG, "cleanup.policy"),
        (changes((7, "flush.ms", "1")), ErrorCode.INVALID_REQUEST, "there is no operation 7"),
        (
            changes((SET, "flush.ms", "1"), (DELETE, "flush.ms", None)),
            ErrorCode.INVALID_REQUEST,
            "a setting is named more than once",
        ),
        (
            changes((SET, "segment.ms", "1" * 32_768)),
            ErrorCode.INVALID_CONFIG,
            "'segment.ms' has more than 32767 bytes",
        ),
        (changes(name="z"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no topic z"),
        (changes(name=""), ErrorCode.INVALID_REQUEST, "no settings for all topics"),
        (changes(name="a/b"), ErrorCode.INVALID_TOPIC_EXCEPTION, "has a character"),
        (changes(kind=8), ErrorCode.INVALID_REQUEST, "resources of type 8"),
        (changes(kind=-5), ErrorCode.INVALID_REQUEST, "resources of type -5"),
    ],
)
def test_a_change_that_cannot_be_is_refused_with_a_reason(
    resource: Incremental, code: ErrorCode, complaint: str
) -> None:
    found, detail = refusal(controller_with_topic(), resource)
    assert found is code
    assert complaint in detail


def test_a_resource_changes_as_a_whole_or_not_at_all() -> None:
    controller = controller_with_topic()
    refusal(controller, changes((SET, "flush.ms", "1"), (SET, "retention.ms", "x")))


def test_each_resource_changes_by_itself_and_in_order() -> None:
    controller = controller_with_topic()
    outcomes = change(
        controller,
        changes((SET, "flush.ms", "1"), name="z"),
        changes((SET, "flush.ms", "2")),
        broker_changes((SET, "log.retention.ms", "3")),
    )
    assert [outcome.error is None for outcome in outcomes] == [False, True, True]
    assert [outcome.resource_name for outcome in outcomes] == ["z", "t", ""]
    assert controller.image.topic_settings("t") == {"flush.ms": "2"}


def test_a_resource_that_comes_twice_is_refused_both_times() -> None:
    controller = controller_with_topic()
    outcomes = change(
        controller,
        changes((SET, "flush.ms", "1")),
        changes((SET, "segment.ms", "2")),
        broker_changes((SET, "log.retention.ms", "3")),
    )
    codes = [outcome.error and outcome.error.code for outcome in outcomes]
    assert codes == [ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST, None]
    assert controller.image.topic_settings("t") == {}


def test_validating_only_writes_nothing() -> None:
    controller = controller_with_topic()
    decision = controller.incremental_alter_configs(
        [changes((SET, "flush.ms", "1")), changes(name="z")], validate_only=True
    )
    assert decision.records == ()
    assert [outcome.error is None for outcome in decision.response] == [True, False]


def test_reasons_are_short_however_long_the_names_are() -> None:
    long = "x" * 32_767
    resources = [
        changes((APPEND, long, "1")),
        changes((SET, long, None)),
        changes((SET, long, "1" * 40_000)),
        changes((SET, long, "1")),
        changes(name=long),
        broker_changes((SET, long, "1")),
        broker_changes(name=long),
        broker_changes(name="1" * 32_767),
    ]
    for resource in resources:
        assert len(refusal(controller_with_topic(), resource)[1]) < 1000


# -- replacing ------------------------------------------------------------------------------------


def test_a_replacement_drops_the_settings_that_it_does_not_name() -> None:
    controller = controller_with_topic(retention_ms="1", segment_ms="2")
    decision = controller.alter_configs([replacement(("segment.ms", "2"), ("flush.ms", "3"))])
    assert decision.records == (
        ConfigRecord(resource_type=TOPIC, resource_name="t", name="flush.ms", value="3"),
        ConfigRecord(resource_type=TOPIC, resource_name="t", name="retention.ms", value=None),
    )
    run(controller, decision)
    assert controller.image.topic_settings("t") == {"segment.ms": "2", "flush.ms": "3"}


@pytest.mark.parametrize(
    ("resource", "code"),
    [
        (replacement(("flush.ms", None)), ErrorCode.INVALID_REQUEST),
        (replacement(("flush.ms", "1"), ("flush.ms", "1")), ErrorCode.INVALID_REQUEST),
        (replacement(("flush.ms", "x")), ErrorCode.INVALID_CONFIG),
        (replacement(name="z"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_a_replacement_that_cannot_be_is_refused(
    resource: alter_configs.AlterConfigsResource, code: ErrorCode
) -> None:
    controller = controller_with_topic(retention_ms="1")
    (outcome,) = run(controller, controller.alter_configs([resource]))
    assert outcome.error is not None
    assert outcome.error.code is code
    assert controller.image.topic_settings("t") == {"retention.ms": "1"}


def test_a_replacement_can_be_validated_only() -> None:
    controller = controller_with_topic(retention_ms="1")
    assert controller.alter_configs([replacement()], validate_only=True).records == ()


# -- brokers --------------------------------------------------------------------------------------


def test_topics_inherit_the_settings_of_brokers() -> None:
    controller = controller_with_topic(segment_ms="5")
    change(
        controller,
        broker_changes((SET, "log.retention.ms", "10"), (SET, "message.max.bytes", "20")),
        broker_changes((SET, "message.max.bytes", "30"), name="0"),
    )
    assert controller.image.configs[EVERY_BROKER] == {
        "log.retention.ms": "10",
        "message.max.bytes": "20",
    }
    defaults = topic_defaults(controller.image, controller.settings)
    config = topic_config(controller.image, "t", defaults)
    assert (config.retention_ms, config.max_message_bytes, config.segment_ms) == (10, 30, 5)


def test_a_list_of_brokers_grows_from_the_default_of_topics() -> None:
    controller = controller_with_topic()
    change(controller, broker_changes((APPEND, "log.cleanup.policy", "compact")))
    assert topic_defaults(controller.image, controller.settings).cleanup_policy == {
        CleanupPolicy.COMPACT,
        CleanupPolicy.DELETE,
    }


@pytest.mark.parametrize(
    ("resource", "code", "complaint"),
    [
        (broker_changes(name="7"), ErrorCode.BROKER_ID_NOT_REGISTERED, "no broker 7"),
        (broker_changes(name="00"), ErrorCode.INVALID_REQUEST, "named by its number"),
        (broker_changes(name="-1"), ErrorCode.INVALID_REQUEST, "named by its number"),
        (broker_changes(name="zero"), ErrorCode.INVALID_REQUEST, "named by its number"),
        (broker_changes(name="٣"), ErrorCode.INVALID_REQUEST, "named by its number"),
        (
            broker_changes((SET, "num.partitions", "3")),
            ErrorCode.INVALID_REQUEST,
            "'num.partitions' cannot be changed while the broker runs: set it in the broker's",
        ),
        (
            broker_changes((SET, "log.retention.ms", "x")),
            ErrorCode.INVALID_REQUEST,
            "retention.ms cannot be 'x'",
        ),
    ],
)
def test_an_invalid_change_does_not_change_a_broker(
    resource: Incremental, code: ErrorCode, complaint: str
) -> None:
    found, detail = refusal(controller_with_topic(), resource)
    assert found is code
    assert complaint in detail


def test_a_topic_must_agree_with_its_inherited_settings() -> None:
    controller = controller_with_topic()
    change(controller, broker_changes((SET, "log.cleaner.max.compaction.lag.ms", "100")))
    code, detail = refusal(controller, changes((SET, "min.compaction.lag.ms", "101")))
    assert code is ErrorCode.INVALID_CONFIG
    assert "max.compaction.lag.ms" in detail


def test_defaults_that_contradict_a_topic_are_refused() -> None:
    controller = controller_with_topic(min_compaction_lag_ms="101")
    too_short = (SET, "log.cleaner.max.compaction.lag.ms", "100")
    for name in ("", "0"):
        code, _ = refusal(controller, broker_changes(too_short, name=name))
        assert code is ErrorCode.INVALID_REQUEST


def test_defaults_that_contradict_the_settings_of_a_broker_are_refused() -> None:
    controller = controller_with_topic()
    change(controller, broker_changes((SET, "log.cleaner.min.compaction.lag.ms", "9"), name="0"))
    refusal(controller, broker_changes((SET, "log.cleaner.max.compaction.lag.ms", "8")))


def test_defaults_may_replace_those_that_they_contradict() -> None:
    controller = controller_with_topic()
    change(controller, broker_changes((SET, "log.cleaner.min.compaction.lag.ms", "9")))
    (outcome,) = change(
        controller,
        broker_changes(
            (DELETE, "log.cleaner.min.compaction.lag.ms", None),
            (SET, "log.cleaner.max.compaction.lag.ms", "8"),
        ),
    )
    assert outcome.error is None


def test_settings_that_contradict_each_other_are_refused() -> None:
    controller = controller_with_topic()
    for order in (0, 1):
        resources = [
            broker_changes((SET, "log.cleaner.max.compaction.lag.ms", "100")),
            changes((SET, "min.compaction.lag.ms", "101")),
        ]
        outcomes = controller.incremental_alter_configs(
            resources[::-1] if order else resources
        ).response
        assert [outcome.error is None for outcome in outcomes] == [True, False]


def test_settings_that_ottla_does_not_use_can_be_stored() -> None:
    controller = controller_with_topic()
    change(controller, broker_changes((SET, "num.io.threads", "16")))
    assert controller.image.configs[EVERY_BROKER] == {"num.io.threads": "16"}


def test_brokers_keep_settings_that_nothing_declares() -> None:
    controller = controller_with_topic()
    change(controller, broker_changes((SET, "my.plugin.password", "a, b")))
    assert controller.image.configs[EVERY_BROKER] == {"my.plugin.password": "a, b"}
    code, _ = refusal(controller, broker_changes((APPEND, "my.plugin.password", "c")))
    assert code is ErrorCode.INVALID_CONFIG
    change(controller, broker_changes((DELETE, "my.plugin.password", None)))
    assert EVERY_BROKER not in controller.image.configs


def test_a_broker_keeps_a_limited_number_of_undeclared_settings() -> None:
    controller = controller_with_topic()
    names = [f"my.plugin.{number}" for number in range(UNKNOWN_SETTINGS_MAX)]
    change(controller, broker_changes(*((SET, name, "x") for name in names)))
    code, _ = refusal(controller, broker_changes((SET, "one.more", "x")))
    assert code is ErrorCode.POLICY_VIOLATION


@pytest.mark.parametrize(
    ("setting", "value", "complaint"),
    [
        ("max.connections", "-1", "max.connections cannot be '-1'"),
        ("max.connections", "+0", "no client could connect to change it back"),
        ("listeners", "A://:1", "set it in the broker's configuration, and restart it"),
        ("ssl.key.password", "x", "set it in the broker's configuration, and restart it"),
        ("listener.name.a.ssl.key.password", "x", "set it in the broker's configuration"),
        ("authorizer.class.name", "x", "set it in the broker's configuration, and restart it"),
        ("x" * 250, "x", "has more than 249 characters"),
    ],
)
def test_a_refused_broker_setting_says_what_to_do(setting: str, value: str, complaint: str) -> None:
    code, detail = refusal(controller_with_topic(), broker_changes((SET, setting, value)))
    assert code is ErrorCode.INVALID_REQUEST
    assert complaint in detail


# -- groups and client metrics --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "setting", "value"),
    [(GROUP, "consumer.session.timeout.ms", "50000"), (CLIENT_METRICS, "interval.ms", "1000")],
)
def test_groups_and_subscriptions_need_not_exist(kind: int, setting: str, value: str) -> None:
    controller = controller_with_topic()
    change(controller, changes((SET, setting, value), kind=kind, name="new"))
    (resource,) = controller.image.configs
    assert resource == (kind, "new")
    change(controller, changes((DELETE, setting, None), kind=kind, name="new"))
    assert controller.image.configs == {}


def test_lists_of_subscriptions_grow() -> None:
    controller = controller_with_topic()
    for prefix in ("org.a", "org.b"):
        change(controller, changes((APPEND, "metrics", prefix), kind=CLIENT_METRICS, name="s"))
    (settings,) = controller.image.configs.values()
    assert settings == {"metrics": "org.a,org.b"}


@pytest.mark.parametrize("kind", [GROUP, CLIENT_METRICS])
@pytest.mark.parametrize(
    ("name", "setting", "value", "code"),
    [
        ("", "metrics", "x", ErrorCode.INVALID_REQUEST),
        ("x" * 250, "metrics", "x", ErrorCode.INVALID_REQUEST),
        ("x", "retention.ms", "1", ErrorCode.INVALID_CONFIG),
        ("x", "interval.ms", "1", ErrorCode.INVALID_CONFIG),
    ],
)
def test_groups_and_subscriptions_are_checked(
    kind: int, name: str, setting: str, value: str, code: ErrorCode
) -> None:
    resource = changes((SET, setting, value), kind=kind, name=name)
    assert refusal(controller_with_topic(), resource)[0] is code


def test_there_is_a_limit_to_subscriptions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(config_checks.COUNT_MAX, ResourceType.CLIENT_METRICS, 2)
    controller = controller_with_topic()
    both = [changes((SET, "metrics", "*"), kind=CLIENT_METRICS, name=name) for name in "ab"]
    change(controller, *both)
    change(controller, changes((SET, "metrics", "x"), kind=CLIENT_METRICS, name="a"))
    third = changes((SET, "metrics", "*"), kind=CLIENT_METRICS, name="c")
    deleted = changes((DELETE, "metrics", None), kind=CLIENT_METRICS, name="d")
    assert controller.incremental_alter_configs([deleted]).response[0].error is None
    code, detail = refusal(controller, third)
    assert code is ErrorCode.POLICY_VIOLATION
    assert "delete those settings first" in detail


# -- eligible leaders -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "lowering",
    [
        changes((SET, "min.insync.replicas", "1"), name="a"),
        changes((DELETE, "min.insync.replicas", None), name="a"),
    ],
    ids=["lower", "the default"],
)
def test_a_replica_that_commits_do_not_need_is_not_eligible(lowering: Incremental) -> None:
    controller = cluster(0, 1, 2, min_insync_replicas="2")
    for away in (1, 2):
        run(controller, controller.fence_broker(away))
    assert partition(controller).eligible_leader_replicas == (2,)
    change(controller, lowering)
    assert partition(controller).eligible_leader_replicas == ()
    run(controller, controller.fence_broker(0))  # it may have committed alone meanwhile
    run(controller, controller.unfence_broker(2))
    assert partition(controller).leader == NO_LEADER


def test_a_replica_stays_eligible_while_no_commit_is_possible_without_it() -> None:
    controller = cluster(0, 1, 2, min_insync_replicas="3")
    alter(controller, 0)
    change(controller, changes((SET, "min.insync.replicas", "2"), name="a"))
    assert partition(controller).eligible_leader_replicas == (1, 2)
    change(controller, broker_changes((SET, "min.insync.replicas", "1")))
    assert partition(controller).eligible_leader_replicas == (1, 2), "its topic has its own"


def test_one_broker_alone_cannot_need_fewer_in_sync() -> None:
    controller = controller_with_topic()
    fewer = broker_changes((SET, "min.insync.replicas", "2"), name="0")
    code, detail = refusal(controller, fewer)
    assert code is ErrorCode.INVALID_REQUEST
    assert "the same for all brokers" in detail
