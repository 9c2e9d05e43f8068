from dataclasses import fields

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ottla.model.address import Address
from ottla.model.error_code import ErrorCode
from ottla.model.settings.broker_config import BrokerConfig, notes_on
from ottla.model.settings.broker_settings import BROKER_SETTINGS
from ottla.model.settings.kafka_settings import GUARDING_SETTINGS, KAFKA_SETTING_NAMES
from ottla.model.settings.listeners import Listener, SecurityProtocol
from ottla.model.settings.properties import read_properties
from ottla.model.settings.settings import INT32_MAX, INT64_MAX, InvalidSettingsError, Setting
from ottla.model.settings.topic_config import (
    TOPIC_SETTINGS,
    CleanupPolicy,
    TimestampType,
    TopicConfig,
)
from tests.unit.model.kafka_broker_settings import KAFKA_SETTINGS

# The settings file that Kafka 4 ships.
SERVER_PROPERTIES = """
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kraft-combined-logs
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""


def problems_of(settings: dict[str, str]) -> list[str]:
    with pytest.raises(InvalidSettingsError) as caught:
        BrokerConfig.parse(settings)
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    return list(caught.value.problems)


def problem_of(settings: dict[str, str]) -> str:
    (problem,) = problems_of(settings)
    return problem


# -- declarations ---------------------------------------------------------------------------------


def test_every_field_is_declared_and_has_a_default_that_could_be_set() -> None:
    assert {setting.field for setting in BROKER_SETTINGS.values()} == {
        field.name for field in fields(BrokerConfig) if field.name != "given"
    }
    assert BrokerConfig.parse(BrokerConfig().as_strings()) == BrokerConfig.parse({})
    assert BrokerConfig.parse({}) == BrokerConfig()


def test_types_and_update_modes_are_kafkas() -> None:
    assert {
        name: (setting.kind.type.name, setting.update_mode)
        for name, setting in BROKER_SETTINGS.items()
        if not name.startswith(("ottla.", "log.scrub."))
    } == {name: (kafka.type, kafka.update_mode) for name, kafka in KAFKA_SETTINGS.items()}


@pytest.mark.parametrize("setting", [*BROKER_SETTINGS.values(), *TOPIC_SETTINGS.values()])
def test_a_setting_is_explained_in_one_sentence(setting: Setting) -> None:
    documentation = setting.documentation
    assert documentation[0].isupper()
    assert documentation.endswith(".")
    assert ". " not in documentation


def test_no_name_is_both_used_and_not_used() -> None:
    assert KAFKA_SETTING_NAMES.isdisjoint(BROKER_SETTINGS)
    assert KAFKA_SETTING_NAMES.issuperset(GUARDING_SETTINGS)


# -- reading --------------------------------------------------------------------------------------


def test_a_file_of_kafka_works_as_it_is() -> None:
    config = BrokerConfig.parse(read_properties(SERVER_PROPERTIES))
    assert config.broker_listeners == (Listener("PLAINTEXT", "", 9092),)
    assert config.inter_broker_listener == "PLAINTEXT"
    assert config.log_dirs == ("/tmp/kraft-combined-logs",)
    (told,) = config.to_advertise({"PLAINTEXT": 9092}, "my-host")
    assert told == Listener("PLAINTEXT", "localhost", 9092)


def test_settings_of_kafka_without_effect_are_noted() -> None:
    notes = notes_on(read_properties(SERVER_PROPERTIES))
    assert "num.io.threads is known to Kafka, not used by Ottla yet" in notes
    assert len(notes) == 5
    assert (
        len(notes_on({"listener.name.east.ssl.keystore.type": "PEM", "num.partitions": "1"})) == 1
    )


def test_values_are_typed() -> None:
    config = BrokerConfig.parse(
        {
            "log.dirs": "/data/1, /data/2",
            "log.cleanup.policy": "compact",
            "log.message.timestamp.type": "LogAppendTime",
            "log.cleaner.io.max.bytes.per.second": "1e6",
            "auto.create.topics.enable": "FALSE",
            "broker.rack": " east ",
            "connections.max.idle.ms": "-1",
        }
    )
    assert config.log_dirs == ("/data/1", "/data/2")
    assert config.log_cleanup_policy == {CleanupPolicy.COMPACT}
    assert config.log_message_timestamp_type is TimestampType.LOG_APPEND_TIME
    assert config.log_cleaner_io_max_bytes_per_second == 1_000_000
    assert config.auto_create_topics_enable is False
    assert config.broker_rack == "east"
    assert config.connections_max_idle_ms == -1


def test_what_is_not_set_is_as_in_the_defaults() -> None:
    defaults = BrokerConfig(num_partitions=7, node_id=7)
    config = BrokerConfig.parse({"node.id": "8"}, defaults)
    assert (config.num_partitions, config.node_id) == (7, 8)


def test_the_old_name_of_an_id_and_the_short_name_of_folders_will_do() -> None:
    config = BrokerConfig.parse({"broker.id": "3", "log.dir": "/a"})
    assert (config.node_id, config.log_dirs) == (3, ("/a",))
    assert BrokerConfig.parse({"log.dir": "/a", "log.dirs": "/b"}).log_dirs == ("/b",)
    assert BrokerConfig.parse({"broker.id": "3", "node.id": "3"}).node_id == 3


def test_two_ids_are_refused() -> None:
    assert problem_of({"broker.id": "3", "node.id": "4"}) == (
        "broker.id cannot be '3': it must be node.id, 4, or left out"
    )


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [
        ("node.id", 0, INT32_MAX),
        ("num.partitions", 1, INT32_MAX),
        ("default.replication.factor", 1, 32_767),
        ("offsets.topic.replication.factor", 1, 32_767),
        ("fetch.max.bytes", 1024, INT32_MAX),
        ("log.segment.bytes", 1 << 20, INT32_MAX),
        ("log.cleaner.dedupe.buffer.size", 1 << 20, INT64_MAX),
        ("max.connections.per.ip", 1, INT32_MAX),
        ("offsets.topic.compression.codec", 0, 4),
    ],
)
def test_numbers_have_limits(name: str, least: int, most: int) -> None:
    for number in (least, most):
        assert BrokerConfig.parse({name: str(number)}).as_strings()[name] == str(number)
    for number in (least - 1, most + 1):
        assert problem_of({name: str(number)}) == (
            f"{name} cannot be '{number}': it must be a whole number from {least} to {most}"
        )


@pytest.mark.parametrize(
    ("name", "text", "allowed"),
    [
        ("log.dirs", "", "a list of different directories"),
        ("log.dirs", "/a,", "a list of different directories"),
        ("log.dirs", "/a,/a", "a list of different directories"),
        ("log.retention.ms", "0", "from 1 to 9223372036854775807, or -1, or empty"),
        ("listeners", "localhost:9092", "NAME://HOST:PORT"),
        ("listener.security.protocol.map", "A:TLS", "PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        ("log.cleaner.io.max.bytes.per.second", "0", "a number from 1"),
        ("delete.topic.enable", "yes", "true or false"),
    ],
)
def test_what_is_not_allowed_is_refused_with_what_is(name: str, text: str, allowed: str) -> None:
    problem = problem_of({name: text})
    assert problem.startswith(f"{name} cannot be {text!r}: it must be ")
    assert allowed in problem


def test_everything_that_is_wrong_is_told_at_once() -> None:
    problems = problems_of(
        {
            "num.partitions": "0",
            "retention.hours": "1",
            "log.segment.bytes": "1",
            "group.max.session.timeout.ms": "1",
        }
    )
    assert [problem.split(" cannot be ")[0] for problem in problems] == [
        "no broker setting is called 'retention.hours'; did you mean log.retention.hours?",
        "num.partitions",
        "log.segment.bytes",
        "group.min.session.timeout.ms",
    ]


def test_what_could_not_be_read_is_not_compared() -> None:
    settings = {"group.min.session.timeout.ms": "x", "group.max.session.timeout.ms": "1"}
    assert "a whole number" in problem_of(settings)


def test_an_unknown_name_may_be_near_to_one_that_is_not_used() -> None:
    assert problem_of({"num.io.thread": "1"}) == (
        "no broker setting is called 'num.io.thread'; did you mean num.io.threads?"
    )


@pytest.mark.parametrize("name", GUARDING_SETTINGS)
def test_a_guard_that_would_not_stand_is_refused(name: str) -> None:
    problem = problem_of({name: "org.example.Guard"})
    assert problem.startswith(f"{name} cannot be 'org.example.Guard': it must be empty, as Ottla ")
    assert BrokerConfig.parse({name: " "}) == BrokerConfig()


# -- listeners ------------------------------------------------------------------------------------


def test_without_a_word_only_this_machine_can_connect() -> None:
    assert BrokerConfig().to_advertise({"PLAINTEXT": 9092}, "my-host") == (
        Listener("PLAINTEXT", "127.0.0.1", 9092),
    )


def test_brokers_meet_where_it_was_said_or_at_the_plain_listener_or_at_the_first() -> None:
    names = {
        "listeners": "A://:1,PLAINTEXT://:2,B://:3",
        "listener.security.protocol.map": "A:PLAINTEXT,PLAINTEXT:PLAINTEXT,B:PLAINTEXT",
    }
    assert BrokerConfig.parse(names).inter_broker_listener == "PLAINTEXT"
    named = BrokerConfig.parse({**names, "inter.broker.listener.name": "b"})
    assert named.inter_broker_listener == "B"
    others = BrokerConfig.parse({**names, "listeners": "A://:1,B://:3"})
    assert others.inter_broker_listener == "A"


def test_a_listener_has_the_protocol_of_its_name() -> None:
    config = BrokerConfig.parse(
        {"listener.security.protocol.map": "CLIENTS:SASL_SSL,PLAINTEXT:PLAINTEXT"}
    )
    assert config.security_protocol("CLIENTS") is SecurityProtocol.SASL_SSL
    assert config.security_protocol("OTHERS") is None


def test_the_name_of_the_machine_can_be_advertised_by_leaving_out_the_host() -> None:
    config = BrokerConfig.parse({"advertised.listeners": "PLAINTEXT://:19092"})
    assert config.to_advertise({"PLAINTEXT": 9092}, "my-host") == (
        Listener("PLAINTEXT", "my-host", 19092),
    )


def test_having_no_listener_for_clients_is_one_problem_and_not_two() -> None:
    settings = {"controller.listener.names": "PLAINTEXT", "inter.broker.listener.name": "PLAINTEXT"}
    assert problem_of(settings).startswith("listeners cannot be ")


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        (
            {"listeners": "A://:1"},
            "listeners cannot have 'A://:1' without a protocol for A in"
            " listener.security.protocol.map",
        ),
        (
            {"listeners": "PLAINTEXT://:1,SSL://:2"},
            "listeners cannot have 'SSL://:2': its protocol is SSL, and must be one of the"
            " supported protocols: PLAINTEXT",
        ),
        (
            {"controller.listener.names": "PLAINTEXT"},
            "listeners cannot be 'PLAINTEXT://127.0.0.1:9092': it must have one for clients,"
            " besides the listeners in controller.listener.names",
        ),
        (
            {"advertised.listeners": "B://a:1"},
            "advertised.listeners cannot have 'B://a:1': its name must be one of PLAINTEXT, as in"
            " listeners",
        ),
        (
            {"advertised.listeners": "PLAINTEXT://0.0.0.0:1"},
            "advertised.listeners cannot have 'PLAINTEXT://0.0.0.0:1': it must be a host that"
            " clients can connect to",
        ),
        (
            {"inter.broker.listener.name": "B"},
            "inter.broker.listener.name cannot be 'B': it must be one of PLAINTEXT, as in"
            " listeners",
        ),
        (
            {"log.cleaner.min.compaction.lag.ms": "2", "log.cleaner.max.compaction.lag.ms": "1"},
            "log.cleaner.min.compaction.lag.ms cannot be 2: it must be at most"
            " log.cleaner.max.compaction.lag.ms, 1",
        ),
    ],
)
def test_what_does_not_fit_together_is_refused(settings: dict[str, str], problem: str) -> None:
    assert problem_of(settings) == problem


# -- nodes of a quorum ----------------------------------------------------------------------------

LISTENERS = "PLAINTEXT://:9092,CONTROLLER://:9093"
BOTH = {
    "process.roles": "broker,controller",
    "node.id": "3",
    "controller.quorum.bootstrap.servers": "a:9093,[::1]:9093",
    "listeners": LISTENERS,
    "controller.listener.names": "CONTROLLER",
}
BROKER = {**BOTH, "process.roles": "broker", "listeners": "PLAINTEXT://:9092"}
CONTROLLER = {**BOTH, "process.roles": "controller", "listeners": "CONTROLLER://:9093"}
MIGRATION = "zookeeper.metadata.migration.enable"


def test_a_node_is_a_broker_or_a_controller_or_both() -> None:
    both, broker, controller, alone = map(BrokerConfig.parse, (BOTH, BROKER, CONTROLLER, {}))
    assert [(node.is_broker, node.is_controller) for node in (both, broker, controller, alone)] == [
        (True, True),
        (True, False),
        (False, True),
        (True, False),
    ]
    assert [node.is_in_quorum for node in (both, broker, controller, alone)] == [True] * 3 + [False]


def test_listeners_are_for_clients_or_for_controllers() -> None:
    both, broker, controller = map(BrokerConfig.parse, (BOTH, BROKER, CONTROLLER))
    assert [node.broker_listeners for node in (both, broker)] == [
        (Listener("PLAINTEXT", "", 9092),)
    ] * 2
    assert [node.controller_listeners for node in (both, controller)] == [
        (Listener("CONTROLLER", "", 9093),)
    ] * 2
    assert controller.broker_listeners == broker.controller_listeners == ()


def test_controllers_advertise_their_listener() -> None:
    config = BrokerConfig.parse({**BOTH, "listeners": "PLAINTEXT://:9092,CONTROLLER://:0"})
    assert config.controllers_to_advertise({"CONTROLLER": 40123}, "my-host") == (
        Listener("CONTROLLER", "my-host", 40123),
    )
    named = BrokerConfig.parse({**BOTH, "advertised.listeners": "CONTROLLER://a:1"})
    assert named.controllers_to_advertise({"CONTROLLER": 9093}, "my-host") == (
        Listener("CONTROLLER", "a", 1),
    )


def test_controllers_are_plain_text_unless_the_map_of_protocols_is_set() -> None:
    assert BrokerConfig.parse(BOTH).security_protocol("CONTROLLER") is SecurityProtocol.PLAINTEXT
    problem = problem_of({**BROKER, "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT"})
    assert problem == (
        "controller.listener.names cannot have 'CONTROLLER' without a protocol for CONTROLLER in"
        " listener.security.protocol.map"
    )


def test_the_metadata_log_is_in_the_first_folder_or_in_its_own() -> None:
    assert BrokerConfig.parse({"log.dirs": "/a,/b"}).metadata_folder == "/a"
    assert BrokerConfig.parse({"log.dirs": "/a", "metadata.log.dir": "/m"}).metadata_folder == "/m"


def test_controllers_have_addresses_that_others_can_connect_to() -> None:
    config = BrokerConfig.parse({**BOTH, "controller.quorum.voters": "3@a:1,4@[::1]:2"})
    assert config.as_strings()["controller.quorum.voters"] == "3@a:1,4@[::1]:2"
    assert config.controller_quorum_bootstrap_servers == (Address("a", 9093), Address("::1", 9093))
    for text in ("a", "a:0", ":9093", "0.0.0.0:9093", "a:9093,"):
        problem = problem_of({**BOTH, "controller.quorum.bootstrap.servers": text})
        assert problem.endswith("a list of addresses to connect to, each as HOST:PORT, or empty")
    for text in ("a:1", "3@0.0.0.0:1", "3@a:1,3@b:2", "-1@a:1", "2147483648@a:1"):
        problem = problem_of({**BOTH, "controller.quorum.voters": text})
        assert problem.endswith("a list of different voters, each as ID@HOST:PORT, or empty")


def test_a_controller_migrates_with_zookeeper_and_a_broker_there_ignores_it() -> None:
    settings = {"zookeeper.connect": "z:2181", MIGRATION: "true"}
    assert BrokerConfig.parse({**CONTROLLER, **settings}).is_migrating
    assert not BrokerConfig.parse(settings).is_migrating
    assert not BrokerConfig.parse(CONTROLLER).is_migrating


def without(settings: dict[str, str], *names: str) -> dict[str, str]:
    return {name: text for name, text in settings.items() if name not in names}


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        (
            without(BOTH, "node.id"),
            "node.id must be set, as process.roles is: each node of a cluster has its own id",
        ),
        (
            without(BOTH, "process.roles"),
            "controller.quorum.bootstrap.servers cannot be set without process.roles, which must"
            " be broker, controller or both",
        ),
        (
            without(BOTH, "controller.quorum.bootstrap.servers"),
            "controller.quorum.bootstrap.servers must be set, as process.roles is: a node finds"
            " the leader of the quorum there",
        ),
        (
            {**BOTH, "zookeeper.connect": "z:2181"},
            "zookeeper.connect cannot be set together with process.roles: a cluster keeps its"
            " metadata in ZooKeeper or in a quorum of controllers",
        ),
        (
            {**BOTH, "zookeeper.connect": "z:2181", MIGRATION: "true"},
            f"{MIGRATION} cannot be true with process.roles=broker,controller: a cluster moves from"
            " ZooKeeper to nodes with process.roles=controller",
        ),
        (
            {**CONTROLLER, MIGRATION: "true"},
            f"zookeeper.connect must be set, as {MIGRATION} is: the metadata comes from there",
        ),
        (
            {**BOTH, "controller.quorum.voters": "4@a:1"},
            "controller.quorum.voters cannot be '4@a:1': it must have node 3, as its process.roles"
            " is broker,controller",
        ),
        (
            {**BROKER, "controller.quorum.voters": "3@a:1"},
            "controller.quorum.voters cannot be '3@a:1': it must not have node 3, as its"
            " process.roles is broker",
        ),
        (
            {**BROKER, "controller.quorum.auto.join.enable": "true"},
            "controller.quorum.auto.join.enable cannot be true: it must be false in a node without"
            " the role controller",
        ),
        (
            without(BROKER, "controller.listener.names"),
            "controller.listener.names must be set, as process.roles is",
        ),
        (
            {**BROKER, "listeners": LISTENERS},
            "controller.listener.names cannot have 'CONTROLLER': it must not be one of listeners,"
            " as this node is no controller",
        ),
        (
            {**BOTH, "controller.listener.names": "CONTROLLER,OTHER"},
            "controller.listener.names cannot have 'OTHER': it must be one of PLAINTEXT,"
            " CONTROLLER, as in listeners",
        ),
        (
            {**CONTROLLER, "listeners": LISTENERS},
            "listeners cannot have 'PLAINTEXT://:9092': with the role controller alone, each must"
            " be one of controller.listener.names",
        ),
        (
            {**BOTH, "listeners": "CONTROLLER://:9093"},
            "listeners cannot be 'CONTROLLER://:9093': it must have one for clients, besides the"
            " listeners in controller.listener.names",
        ),
        (
            {**BOTH, "broker.heartbeat.interval.ms": "9001"},
            "broker.heartbeat.interval.ms cannot be 9001: it must be at most"
            " broker.session.timeout.ms, 9000",
        ),
        (
            {**BOTH, "listeners": "PLAINTEXT://:9092,SSL://:1", "controller.listener.names": "SSL"},
            "listeners cannot have 'SSL://:1': its protocol is SSL, and must be one of the"
            " supported protocols: PLAINTEXT",
        ),
    ],
)
def test_a_node_that_could_not_work_in_a_quorum_is_refused(
    settings: dict[str, str], problem: str
) -> None:
    assert problem_of(settings) == problem


# -- any text -------------------------------------------------------------------------------------


def parsed_or_refused(settings: dict[str, str]) -> BrokerConfig | None:
    try:
        return BrokerConfig.parse(settings)
    except InvalidSettingsError:
        return None


texts = st.text(max_size=20) | st.sampled_from(["0", "-1", "1", "true", "A://:1", "a,b", "A:SSL"])


@given(st.dictionaries(st.sampled_from(sorted(BROKER_SETTINGS)), texts, max_size=4))
@example({"ottla.admin.listener": ""})
def test_any_texts_are_values_or_invalid(settings: dict[str, str]) -> None:
    config = parsed_or_refused(settings)
    if config is not None:
        assert BrokerConfig.parse(config.as_strings()) == config
        assert TopicConfig.parse(config.topic_defaults().as_strings()) == config.topic_defaults()


@given(st.text())
def test_any_name_is_used_or_noted_or_refused(name: str) -> None:
    accepted = parsed_or_refused({name: "1"}) is not None
    assert not accepted or name in BROKER_SETTINGS or len(notes_on({name: "1"})) == 1
