"""Confluent's registry client for Java on our registry, and values in both directions."""

import json
import shutil
import subprocess
from pathlib import Path

from ottla import RegistryClient, SchemaDeserializer, SchemaSerializer
from ottla.schemas.schema import Schema, SchemaReference
from ottla.testing import Broker

HERE = Path(__file__).parent
JARS = HERE.parents[1] / ".interop" / "registry"
STORY_SECONDS_MAX = 120
CITY = '{"type":"record","name":"City","namespace":"p","fields":[{"name":"name","type":"string"}]}'
ORDER = (
    '{"type":"record","name":"Order","namespace":"p","fields":[{"name":"id","type":"int"},'
    '{"name":"home","type":"p.City"}]}'
)
VALUE = {"id": 7, "home": {"name": "Wien"}}


def test_the_client_for_java_registers_reads_refuses_and_deletes() -> None:
    java = shutil.which("java")
    assert java is not None, "there is no Java here"
    with Broker() as broker, RegistryClient(url=broker.registry_url) as client:
        client.register("python-city", Schema(CITY))
        order = Schema(ORDER, references=(SchemaReference("p.City", "python-city", 1),))
        payload = SchemaSerializer(order, client).serialize("python", VALUE)
        assert payload is not None
        program = [java, "-cp", f"{JARS}/*", str(HERE / "RegistryStory.java")]
        done = subprocess.run(
            [*program, broker.registry_url, payload.hex()],
            capture_output=True,
            text=True,
            check=False,
            timeout=STORY_SECONDS_MAX,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        said = dict(line.split(" ", 1) for line in done.stdout.splitlines())
        assert json.loads(said["read"]) == VALUE
        written = bytes.fromhex(said["written"])
        assert SchemaDeserializer("schema", client).deserialize("java", written) == VALUE
