"""The default settings of a session, by master and version of Spark."""

import pytest

from ottla.pipelines.sessions import default_settings
from ottla.pipelines.spark.jvm import wants_sparks_own_way

UNIX_SOCKETS = "spark.python.unix.domain.socket.enabled"


def test_python_is_reached_by_a_unix_socket_only_where_its_path_is_short() -> None:
    assert default_settings((4, 3), "local[2,4]")[UNIX_SOCKETS] == "true"
    for master in ("yarn", "spark://head:7077", "k8s://https://head:6443"):
        assert UNIX_SOCKETS not in default_settings((4, 3), master)
    assert UNIX_SOCKETS not in default_settings((4, 0), "local[2,4]"), "4.0 has no such setting"


@pytest.mark.parametrize("name", ["HADOOP_CONF_DIR", "YARN_CONF_DIR"])
def test_sparks_scripts_start_it_where_hadoop_is_configured(name: str) -> None:
    assert wants_sparks_own_way({name: "/etc/hadoop/conf"})
    assert not wants_sparks_own_way({name: "", "PATH": "/bin"})
