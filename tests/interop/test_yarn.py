"""A driver under spark-submit on a YARN cluster: a batch, and an exactly-once stream."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pyspark

from ottla import Admin, Producer
from ottla.testing import Broker
from tests.interop.yarn_cluster import SPARK_JARS, yarn_cluster
from tests.pipelines.clusters.copying import SOURCE, TARGET
from tests.pipelines.sink.reading import all_committed

DRIVER_SECONDS_MAX = 400
HOME = Path(pyspark.__file__).parent
ROOT = Path(__file__).parents[2]
SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.executor.instances": "2",
    "spark.executor.memory": "512m",
    "spark.yarn.am.memory": "512m",
    "spark.yarn.jars": f"local:{SPARK_JARS}/*",
}
VALUES = sorted(f"letter {number}" for number in range(60))


def test_a_batch_and_an_exactly_once_stream_run_on_yarn(tmp_path: Path) -> None:
    with Broker() as broker, yarn_cluster(tmp_path / "yarn") as settings:
        servers = broker.bootstrap_servers
        with Admin(bootstrap_servers=servers) as admin:
            admin.topics.create([SOURCE, TARGET], partitions=2)
        with Producer(bootstrap_servers=servers, acks="all") as producer:
            for number, value in enumerate(VALUES):
                producer.send(SOURCE, value, partition=number % 2)
        command = [str(HOME / "bin" / "spark-submit"), "--master", "yarn"]
        staging = {"spark.yarn.stagingDir": (tmp_path / "staging").as_uri()}
        for name, value in (SETTINGS | staging).items():
            command += ["--conf", f"{name}={value}"]
        command += [str(ROOT / "tests" / "pipelines" / "clusters" / "copying.py")]
        environment = {
            "HADOOP_CONF_DIR": str(settings),
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": str(ROOT),
            "SPARK_HOME": str(HOME),
            "TMPDIR": str(tmp_path),
        }
        done = subprocess.run(
            [*command, "-", servers, str(tmp_path)],
            env=os.environ | environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=DRIVER_SECONDS_MAX,
        )
        assert done.returncode == 0, done.stderr[-4000:]
        assert json.loads(done.stdout) == {"master": "yarn", "values": VALUES}
        assert sorted(all_committed(servers, TARGET)) == VALUES
