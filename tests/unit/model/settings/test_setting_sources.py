import re
from pathlib import Path

import pytest

from ottla.model.settings.broker_config import BrokerConfig
from ottla.model.settings.setting_sources import gather_settings, settings_from_environment
from ottla.model.settings.settings import InvalidSettingsError

# The environment of a Kubernetes pod next to services called ottla and kafka.
IN_KUBERNETES = {
    f"{service}_{rest}": "tcp://10.96.0.1:9092"
    for service in ("OTTLA", "OTTLA_HEADLESS", "KAFKA")
    for rest in (
        "SERVICE_HOST",
        "SERVICE_PORT",
        "SERVICE_PORT_CLIENTS",
        "PORT",
        "PORT_9092_TCP",
        "PORT_9092_TCP_PROTO",
        "PORT_9092_TCP_PORT",
        "PORT_9092_TCP_ADDR",
    )
}


def test_an_override_goes_before_the_environment_and_that_before_the_file() -> None:
    gathered = gather_settings(
        overrides=["num.partitions=3"],
        environ={"OTTLA_NUM_PARTITIONS": "2", "OTTLA_NODE_ID": "2"},
        properties="num.partitions=1\nnode.id=1\nlog.dirs=/data",
    )
    assert gathered.settings == {"num.partitions": "3", "node.id": "2", "log.dirs": "/data"}
    assert gathered.notes == ()


def test_a_value_may_have_equals_signs_and_the_last_override_counts() -> None:
    gathered = gather_settings(overrides=["broker.rack=a", " broker.rack =b=c"])
    assert gathered.settings == {"broker.rack": "b=c"}


@pytest.mark.parametrize(
    ("variable", "name"),
    [
        ("LOG_RETENTION_MS", "log.retention.ms"),
        ("LISTENERS", "listeners"),
        ("LISTENER_NAME_EAST___1_SSL_KEYSTORE_TYPE", "listener.name.east-1.ssl.keystore.type"),
        ("LISTENER_NAME_A__B_SSL_KEYSTORE_TYPE", "listener.name.a_b.ssl.keystore.type"),
        ("LISTENER_NAME_A____SSL_KEYSTORE_TYPE", "listener.name.a-.ssl.keystore.type"),
    ],
)
def test_variables_stand_for_dotted_names(variable: str, name: str) -> None:
    for prefix in ("KAFKA_", "OTTLA_"):
        assert settings_from_environment({prefix + variable: "x"}) == {name: "x"}


def test_ottlas_own_variable_goes_before_kafkas() -> None:
    both = {"OTTLA_NODE_ID": "1", "KAFKA_NODE_ID": "2"}
    assert settings_from_environment(both) == {"node.id": "1"}
    assert settings_from_environment(dict(reversed(both.items()))) == {"node.id": "1"}


def test_what_is_not_for_the_broker_is_left_alone() -> None:
    environ = {
        "PATH": "/bin",
        "OTTLA_BROKERS": "localhost:9092",
        "OTTLA_PROFILE": "east",
        "KAFKA_HEAP_OPTS": "-Xmx1g",
        "KAFKA_OPTS": "",
        "KAFKA_LOG4J_ROOT_LOGLEVEL": "WARN",
        "KAFKA_TOOLS_LOG4J_LOGLEVEL": "WARN",
        "KAFKA_JMX_PORT": "9999",
        "KAFKA_HOME": "/opt/kafka",
    }
    gathered = gather_settings(environ=environ | IN_KUBERNETES)
    assert gathered.settings == {}
    assert gathered.notes == ()


def test_a_broker_starts_beside_every_variable_that_other_commands_take() -> None:
    named = re.compile(r'"(OTTLA_[A-Z_]+[A-Z])"')
    sources = (Path(__file__).parents[4] / "src").rglob("*.py")
    variables = {name for path in sources for name in named.findall(path.read_text())}
    assert {"OTTLA_BROKERS", "OTTLA_STATE_DIR", "OTTLA_JAVA_HOME"} <= variables
    assert gather_settings(environ=dict.fromkeys(variables, "/here")).settings == {}


def test_a_variable_of_kafka_that_stands_for_nothing_is_noted() -> None:
    gathered = gather_settings(environ={"KAFKA_ADVERTISED_LISTENER": "PLAINTEXT://a:9092"})
    assert gathered.settings == {}
    assert gathered.notes == (
        "KAFKA_ADVERTISED_LISTENER stands for no setting, and was left out;"
        " did you mean advertised.listeners?",
    )


def test_a_variable_of_ottla_that_stands_for_nothing_is_refused() -> None:
    settings = gather_settings(environ={"OTTLA_NUM_PARTITION": "3"}).settings
    with pytest.raises(InvalidSettingsError, match=r"did you mean num\.partitions\?"):
        BrokerConfig.parse(settings)


@pytest.mark.parametrize(
    ("higher", "lower", "field", "value"),
    [
        ("node.id=5", "broker.id=0", "node_id", 5),
        ("broker.id=5", "node.id=0", "node_id", 5),
        ("log.dir=/a", "log.dirs=/b,/c", "log_dirs", ("/a",)),
        ("log.retention.hours=1", "log.retention.ms=5", "log_retention_ms", None),
        ("log.roll.hours=1", "log.roll.ms=5", "log_roll_ms", None),
    ],
)
def test_a_setting_hides_what_says_the_same_further_down(
    higher: str, lower: str, field: str, value: object
) -> None:
    gathered = gather_settings(overrides=[higher], properties=lower)
    assert getattr(BrokerConfig.parse(gathered.settings), field) == value


def test_the_rest_period_of_flushing_hides_no_interval() -> None:
    gathered = gather_settings(
        overrides=["log.flush.scheduler.interval.ms=10"], properties="log.flush.interval.ms=5"
    )
    assert len(gathered.settings) == 2


def test_what_has_no_effect_is_noted() -> None:
    gathered = gather_settings(properties="num.io.threads=8\nnum.partitions=3")
    assert gathered.notes == ("num.io.threads is known to Kafka, not used by Ottla yet",)


def test_what_cannot_be_read_is_told_all_at_once() -> None:
    with pytest.raises(InvalidSettingsError) as caught:
        gather_settings(overrides=["verbose", "=1"], properties="a=1\nb=\\u12")
    assert caught.value.problems == (
        "the file of settings cannot be read at line 2:"
        " an escape has fewer than four hexadecimal digits",
        "-X cannot be 'verbose': it must be name=value",
        "-X cannot be '=1': it must be name=value",
    )
