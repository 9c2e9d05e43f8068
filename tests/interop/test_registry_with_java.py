"""Confluent's registry client and serializers for Java on our registry, in both directions."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import google.api
import pytest

from ottla import RegistryClient, SchemaDeserializer, SchemaSerializer
from ottla.schemas.protobuf.protobuf_schema import parse_protobuf
from ottla.schemas.schema import Schema, SchemaReference
from ottla.testing import Broker

HERE = Path(__file__).parent
JARS = HERE.parents[1] / ".interop" / "registry"
STORY_SECONDS_MAX = 300
CITY = '{"type":"record","name":"City","namespace":"p","fields":[{"name":"name","type":"string"}]}'
ORDER = (
    '{"type":"record","name":"Order","namespace":"p","fields":[{"name":"id","type":"int"},'
    '{"name":"home","type":"p.City"}]}'
)
VALUE = {"id": 7, "home": {"name": "Wien"}}
LETTER = """
syntax = "proto3";
message Letter {
  message Other { int32 x = 1; }
  message Page { string text = 1; map<string, int32> words = 2; repeated sint32 lines = 3; }
}
"""
COMMENT = re.compile(r"(^|\s)//[^\n]*|/\*.*?\*/", re.DOTALL | re.MULTILINE)
PROTOS = [
    *(Path(sys.prefix) / "include").glob("google/protobuf/*.proto"),
    *Path(google.api.__path__[0]).parent.glob("[!p]*/**/*.proto"),
]
# The printer in Pinot's jar has another order of messages and enums, and leaves backslashes.
OTHER_ORDER = {"struct.proto", "plugin.proto"}
OTHER_ESCAPES = re.compile(r"php_namespace|feature_support")


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def client(broker: Broker) -> Iterator[RegistryClient]:
    with RegistryClient(url=broker.registry_url) as client:
        yield client


def run(jar: str, story: str, *arguments: str) -> dict[str, str]:
    """Run a program with the classes of a jar; return the words that it prints by their names."""
    java = shutil.which("java")
    assert java is not None, "there is no Java here"
    (found,) = JARS.glob(f"{jar}-*.jar")
    path = ":".join(map(str, [found, *JARS.glob("slf4j-*.jar")]))
    done = subprocess.run(
        [java, "-cp", path, str(HERE / story), *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=STORY_SECONDS_MAX,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    pairs = (line.split(" ", 1) for line in done.stdout.splitlines())
    return dict(pairs)


def test_the_client_for_java_registers_reads_refuses_and_deletes(
    broker: Broker, client: RegistryClient
) -> None:
    client.register("python-city", Schema(CITY))
    order = Schema(ORDER, references=(SchemaReference("p.City", "python-city", 1),))
    payload = SchemaSerializer(order, client).serialize("python", VALUE)
    assert payload is not None
    jar = "flink-sql-avro-confluent-registry"
    said = run(jar, "RegistryStory.java", broker.registry_url, payload.hex())
    assert json.loads(said["read"]) == VALUE
    written = bytes.fromhex(said["written"])
    assert SchemaDeserializer("schema", client).deserialize("java", written) == VALUE


def test_avro_is_exchanged_with_the_serializer_for_java(
    broker: Broker, client: RegistryClient
) -> None:
    client.register("python-city", Schema(CITY))
    order = Schema(ORDER, references=(SchemaReference("p.City", "python-city", 1),))
    payload = SchemaSerializer(order, client).serialize("python-avro", VALUE)
    assert payload is not None
    said = run("pinot-confluent-avro", "AvroStory.java", broker.registry_url, payload.hex())
    assert json.loads(said["read"]) == VALUE
    assert SchemaDeserializer("schema", client).deserialize(
        "java-avro", bytes.fromhex(said["written"])
    ) == {"id": 7, "tags": ["a", "b"], "home": {"name": "Wien"}, "note": "soon"}


def test_protobuf_is_exchanged_with_the_serializer_for_java(
    broker: Broker, client: RegistryClient, tmp_path: Path
) -> None:
    page = parse_protobuf(LETTER).message_class("Letter.Page")
    sent = page(text="Zürau", words={"a": 1}, lines=[-1])
    payload = SchemaSerializer(page, client).serialize("python-protobuf", sent)
    assert payload is not None
    files = {str(path): tmp_path / f"{n}.proto" for n, path in enumerate(PROTOS)}
    for path, file in files.items():
        file.write_text(COMMENT.sub("", Path(path).read_text()))
    given = [broker.registry_url, payload.hex(), *map(str, files.values())]
    said = {
        name: bytes.fromhex(text)
        for name, text in run("pinot-protobuf", "ProtobufStory.java", *given).items()
    }
    assert page.FromString(said["read"]) == sent
    reader = SchemaDeserializer("schema", client)
    assert reader.deserialize("java-protobuf", said["written"]) == {
        "id": "7", "home": {"city": "Wien", "at": [1.5]}, "counts": {},
    }  # fmt: skip
    assert reader.deserialize("java-nested", said["nested"]) == {"city": "Wien", "at": [1.5]}
    compared = 0
    for path, file in files.items():
        text = file.read_text()
        if OTHER_ESCAPES.search(text) or Path(path).name in OTHER_ORDER or not said[str(file)]:
            continue
        try:
            ours = parse_protobuf(text).canonical()
        except ValueError:
            assert "import " in text
            continue
        assert ours == said[str(file)].decode(), path
        compared += 1
    assert compared >= 30
