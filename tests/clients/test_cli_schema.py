"""`ottla schema`, and schemas of records, as processes against a real registry and real git."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

# Imported before a broker's thread does it: in CPython 3.11 two threads cannot parse at once, and
# pytest parses every module of ottla to rewrite its assertions.
import ottla.registry.broker_registry  # noqa: F401
from ottla import Consumer, RegistryClient
from ottla.cli.main import main
from ottla.schemas.schema import Schema, SchemaType
from ottla.testing import Broker
from tests.clients.cli_calls import call, lines_of_json, refused, rows, text

ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [{"name": "id", "type": "long"}, {"name": "customer", "type": "string"}],
}
NOTE = {"name": "note", "type": ["null", "string"], "default": None}
STATUS = {"name": "status", "type": "string"}


def order(*more: dict[str, Any]) -> str:
    return json.dumps({**ORDER, "fields": [*ORDER["fields"], *more]}, indent=1)


class Repository:
    """A git repository with schemas, and checks in this process."""

    def __init__(self, folder: Path, output: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self.output = output
        self.git("init", "-q", "-b", "main", ".")

    def git(self, *words: str) -> None:
        author = ("-c", "user.name=Ottla", "-c", "user.email=ottla@example.com")
        subprocess.run(["git", *author, *words], cwd=self.folder, check=True, capture_output=True)

    def write(self, name: str, content: str) -> None:
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(content, encoding="utf-8")

    def commit(self) -> None:
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "Change schemas")

    def run(self, *words: str, expect: int) -> tuple[str, str]:
        """Check, and return stdout and stderr."""
        with pytest.raises(SystemExit) as ended:
            main(["schema", "check", *words])
        assert (ended.value.code or 0) == expect
        return self.output.readouterr()

    def check(self, *words: str, expect: int = 0) -> list[Any]:
        found = json.loads(self.run(*words, "--json", expect=expect)[0])
        assert isinstance(found, list)
        return found


@pytest.fixture
def repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Repository:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_WORKSPACE", raising=False)
    return Repository(tmp_path, capsys)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker({"offsets.topic.num.partitions": "1"}) as broker:
        yield broker


@pytest.fixture(scope="module")
def addresses(broker: Broker) -> dict[str, str]:
    return {"brokers": broker.bootstrap_servers, "registry": broker.registry_url}


@pytest.fixture
def client(broker: Broker) -> Iterator[RegistryClient]:
    with RegistryClient(url=broker.registry_url) as client:
        yield client


# -- check, without a registry --------------------------------------------------------------------


def test_a_change_in_an_imported_file_is_found_in_both_files(repository: Repository) -> None:
    money = 'syntax = "proto3";\npackage shop;\nmessage Money {\n  int64 units = 1;\n}\n'
    pay = 'syntax = "proto3";\npackage shop;\nimport "money.proto";\n'
    repository.write("schemas/money.proto", money)
    repository.write("schemas/pay.proto", f"{pay}message Pay {{\n  Money price = 1;\n}}\n")
    repository.commit()
    repository.write("schemas/money.proto", money.replace("int64", "string"))
    results = repository.check("schemas", "--against", "git:HEAD", "--level", "full", expect=1)
    assert [row["status"] for row in results] == ["incompatible", "incompatible"]
    (finding,) = results[0]["findings"]
    assert (finding["direction"], finding["field"], finding["line"]) == ("both", "Money.units", 4)
    assert {row["field"] for row in results[1]["findings"]} >= {"Pay.price"}


def test_a_transitive_level_compares_with_every_commit_of_a_file(repository: Repository) -> None:
    for content in (order(STATUS), order(), order({**STATUS, "type": "long", "default": 0})):
        repository.write("order.avsc", content)
        repository.commit()
    last = ("order.avsc", "--against", "git:HEAD", "--level")
    (near,) = repository.check(*last, "backward")
    (far,) = repository.check(*last, "backward_transitive", expect=1)
    assert len(near["compared"]) == 1
    assert len(far["compared"]) == 3
    assert [row["rule"] for row in far["findings"]] == ["TYPE_MISMATCH"]
    assert far["findings"][0]["field"] == "status"


def test_avro_names_and_json_references_are_found_in_other_files(repository: Repository) -> None:
    line = {"type": "record", "name": "shop.Line", "fields": [{"name": "n", "type": "int"}]}
    repository.write("types/line.avsc", json.dumps(line))
    repository.write(
        "order.avsc", order({"name": "lines", "type": {"type": "array", "items": "Line"}})
    )
    repository.write("types/page.json", '{"type": "string"}')
    repository.write("click.json", '{"properties": {"page": {"$ref": "types/page.json"}}}')
    results = repository.check("order.avsc", "click.json", "-I", "types")
    assert [row["status"] for row in results] == ["valid", "valid"]


def test_a_class_is_compared_with_the_class_of_the_revision(repository: Repository) -> None:
    lines = "from dataclasses import dataclass\nfrom ids import Id\n@dataclass\nclass Order:\n"
    repository.write("ids.py", "Id = int\n")
    repository.write("shop.py", f"{lines}    id: Id\n")
    repository.commit()
    repository.write("ids.py", "Id = str\n")
    repository.write("shop.py", f"{lines}    id: Id\n@dataclass\nclass Added:\n    id: Id\n")
    words = ("check", "shop:Order", "shop:Added", "--against", "git:main", "--json")
    done = call("schema", *words, expect=1, folder=repository.folder)
    changed, added = json.loads(done.stdout)
    assert [row["rule"] for row in changed["findings"]] == ["TYPE_MISMATCH"]
    assert (changed["file"], changed["findings"][0]["line"]) == ("shop.py", 3)
    assert added["status"] == "new"


def test_a_folder_has_earlier_versions(repository: Repository) -> None:
    repository.write("old/order.avsc", order())
    repository.write("new/order.avsc", order(NOTE))
    repository.write("new/other.avsc", order())
    found = repository.check("new", "--against", "old", "--level", "full")
    assert [row["status"] for row in found] == ["compatible", "new"]


def test_an_invalid_schema_is_a_finding_with_its_file(repository: Repository) -> None:
    repository.write("bad.avsc", '{"type": "record", "name": "A", "fields": [{"name": "x"}]}')
    repository.write("bad.proto", 'syntax = "proto3";\nmessage A { Missing x = 1; }\n')
    results = repository.check(".", expect=1)
    assert [row["status"] for row in results] == ["invalid", "invalid"]
    assert "Missing" in results[1]["findings"][0]["message"]


def test_github_gets_an_annotation_at_the_line(repository: Repository) -> None:
    repository.write("order.avsc", order())
    repository.commit()
    repository.write("order.avsc", order(STATUS))
    words = ("order.avsc", "--against", "git:main", "--format", "github")
    shown, _ = repository.run(*words, expect=1)
    assert shown.startswith("::error file=order.avsc,line=14,title=READER_FIELD_MISSING_DEFAULT")
    assert "%0Ado: add a default" in shown
    assert shown.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["gone.avsc"], "is no file"),
        (["order.avsc", "--against", "git:gone"], "no revision 'gone'"),
        (["order.avsc", "--against", "git:--help"], "no revision '--help'"),
        (["order.avsc", "--against", "gone"], "neither git:REVISION"),
        (["order.avsc", "--level", "sideways"], "--level is one of none"),
        (["order.avsc", "--against", "http://127.0.0.1:1"], "is unreachable"),
        (["gone.module:Class"], "no such class"),
    ],
)
def test_an_impossible_check_ends_with_2(
    repository: Repository, words: list[str], reason: str
) -> None:
    repository.write("order.avsc", order())
    repository.commit()
    shown, said = repository.run(*words, expect=2)
    assert (shown, said.count("\n")) == ("", 1)
    assert reason in said


def test_a_folder_outside_of_git_is_a_wrong_call(tmp_path: Path) -> None:
    (tmp_path / "order.avsc").write_text(order())
    words = ("check", "order.avsc", "--against", "git:main")
    assert "is in no git repository" in refused("schema", *words, expect=2, folder=tmp_path)


# -- the registry ---------------------------------------------------------------------------------


def test_a_subject_is_registered_shown_compared_and_deleted(
    addresses: dict[str, str], client: RegistryClient, tmp_path: Path
) -> None:
    registry = addresses["registry"]
    (tmp_path / "first.avsc").write_text(order())
    (tmp_path / "second.avsc").write_text(order(NOTE))
    for name in ("first", "second"):
        path = tmp_path / f"{name}.avsc"
        (made,) = rows("schema", "register", path, "-s", "life-value", registry=registry)
        assert made["status"] == "registered"
    assert rows("schema", "list", "life", registry=registry)[0]["version"] == 2
    assert json.loads(text("schema", "get", "life-value@1", registry=registry)) == ORDER
    assert rows("schema", "diff", "life-value", registry=registry) == [
        {"change": "added", "field": "note", "before": None, "after": "null | string = null"}
    ]
    words = ("schema", "delete", "life-value")
    asked = refused(*words, expect=2, registry=registry)
    assert asked.startswith(f"registry {registry}: give --yes to delete subject life-value")
    call(*words, "--dry-run", registry=registry)
    assert client.versions("life-value") == [1, 2]
    call("schema", "delete", "life-value@1", "--permanent", "--yes", registry=registry)
    assert client.versions("life-value", deleted=True) == [2]
    call(*words, "--permanent", "--yes", registry=registry)
    assert "life-value" not in client.subjects(deleted=True)


def test_level_and_mode_are_set_and_reset(addresses: dict[str, str]) -> None:
    registry = addresses["registry"]
    level = ("schema", "compatibility", "set-value")
    mode = ("schema", "mode", "set-value")
    assert rows(*level, "--set", "full-transitive", registry=registry) == {
        "subject": "set-value",
        "compatibility": "FULL_TRANSITIVE",
    }
    assert rows(*level, "--reset", registry=registry)["compatibility"] == "BACKWARD"
    assert rows(*mode, "--set", "readonly", registry=registry)["mode"] == "READONLY"
    assert rows(*mode, "--reset", registry=registry)["mode"] == "READWRITE"
    assert "--set is one of" in refused(*mode, "--set", "x", expect=2, registry=registry)


def test_imported_files_are_registered_before_the_file(
    addresses: dict[str, str], client: RegistryClient, tmp_path: Path
) -> None:
    (tmp_path / "coin.proto").write_text('syntax = "proto3";\nmessage Coin { int64 n = 1; }\n')
    content = 'syntax = "proto3";\nimport "coin.proto";\nmessage Purse { Coin coin = 1; }\n'
    (tmp_path / "purse.proto").write_text(content)
    call("schema", "register", tmp_path / "purse.proto", registry=addresses["registry"])
    (reference,) = client.latest_version("purse").schema.references
    assert (reference.name, reference.subject, reference.version) == ("coin.proto", "coin.proto", 1)


def test_a_check_takes_the_level_of_the_subject_and_names_the_readers(
    addresses: dict[str, str], client: RegistryClient, tmp_path: Path
) -> None:
    client.register("read-value", Schema(order(STATUS)))
    client.set_config({"compatibility": "FORWARD"}, "read-value")
    call("produce", "read", stdin=b"x\n", **addresses)
    settings = {"bootstrap.servers": addresses["brokers"], "group.id": "cooks"}
    with Consumer(settings | {"auto.offset.reset": "earliest"}) as consumer:
        consumer.subscribe(["read"])
        consumer.poll(1, timeout=20)
        consumer.commit()
    (tmp_path / "read-value.avsc").write_text(order())
    words = ("check", tmp_path / "read-value.avsc", "--against", "registry", "--json", "-b")
    done = call("schema", *words, addresses["brokers"], registry=addresses["registry"], expect=1)
    (result,) = json.loads(done.stdout)
    assert (result["level"], result["readers"]) == ("FORWARD", ["cooks"])
    (finding,) = result["findings"]
    assert finding["direction"] == "forward"
    assert finding["way_out"] == "keep the field: earlier consumers need it"


def test_evolve_names_the_order_and_registers_only_with_yes(
    addresses: dict[str, str], client: RegistryClient, tmp_path: Path
) -> None:
    registry = addresses["registry"]
    client.register("grow-value", Schema(order(STATUS)))
    path = tmp_path / "order.avsc"
    path.write_text(order())
    words = ("schema", "evolve", "grow-value", "--to", path)
    plan = rows(*words, registry=registry)
    assert (plan["allowed"], plan["deploy"]) == (True, "consumers first, then producers")
    assert client.versions("grow-value") == [1]
    call(*words, "--yes", registry=registry)
    assert client.versions("grow-value") == [1, 2]
    path.write_text(order(STATUS).replace('"long"', '"string"'))
    done = call(*words, "--yes", expect=1, registry=registry)
    assert b"refused by BACKWARD, version 2" in done.stderr
    assert client.versions("grow-value") == [1, 2]


# -- records --------------------------------------------------------------------------------------


def test_json_lines_are_encoded_and_decoded_by_a_schema(
    addresses: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "order.avsc").write_text(order(NOTE))
    lines = '{"id": 1, "customer": "K"}\n{"id": 2, "customer": "M", "note": "now"}\n'
    schema = ("--value-schema", tmp_path / "order.avsc")
    call("produce", "typed", *schema, stdin=lines.encode(), **addresses)
    first, second = lines_of_json(text("consume", "typed", "--decode", "value", **addresses))
    assert first == {"id": 1, "customer": "K", "note": None}
    assert second["note"] == "now"
    written = text("consume", "typed", "--decode", "value", "-f", "json", **addresses)
    assert lines_of_json(written)[1]["value"] == second
    call(
        "produce", "again", "-f", "json", "--value-schema", "typed-value@1",
        stdin=written.replace('"typed"', '"again"').encode(), **addresses,
    )  # fmt: skip
    assert text("consume", "again", **addresses) == text("consume", "typed", **addresses)


def test_a_protobuf_file_and_a_json_key_encode_records(
    addresses: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "pay.proto").write_text('syntax = "proto3";\nmessage Pay { int64 cents = 1; }\n')
    (tmp_path / "id.json").write_text('{"type": "integer"}')
    words = ("--value-schema", tmp_path / "pay.proto", "--key-schema", tmp_path / "id.json")
    call("produce", "paid", "-f", "%k %v\\n", *words, stdin=b'7 {"cents": "12"}\n', **addresses)
    shown = text("consume", "paid", "--decode", "key,value", "-f", "%k %v\\n", **addresses)
    assert shown == '7 {"cents": "12"}\n'


def test_an_error_names_the_line_and_the_field(
    addresses: dict[str, str], client: RegistryClient
) -> None:
    client.register("unfit-value", Schema(order()))
    lines = b'{"id": 1, "customer": "K"}\n{"id": "2", "customer": "K"}\n'
    words = ("produce", "unfit", "--value-schema", "unfit-value")
    said = refused(*words, stdin=lines, **addresses)
    assert said == 'record 2: the value does not fit its schema: at /id: "2" is not a long'
    shown = lines_of_json(text("consume", "unfit", "--decode", "value", **addresses))
    assert shown == [{"id": 1, "customer": "K"}]


def test_records_before_a_record_without_a_schema_are_shown(
    addresses: dict[str, str], client: RegistryClient
) -> None:
    client.register("mixed-value", Schema('{"type": "string"}', SchemaType.JSON))
    call("produce", "mixed", "--value-schema", "mixed-value", stdin=b'"a"\n', **addresses)
    call("produce", "mixed", stdin=b"plain text\n", **addresses)
    done = call("consume", "mixed", "--decode", "value", expect=1, **addresses)
    assert done.stdout == b'"a"\n'
    assert b"mixed-0, offset 1: the value cannot be decoded" in done.stderr


def test_a_schema_is_inferred_from_a_topic_and_fits_its_data(
    addresses: dict[str, str], tmp_path: Path
) -> None:
    first = b'{"id": 1, "at": "2026-05-01T12:00:00Z"}\n'
    lines = first + b'{"id": 2, "at": "2026-05-02T12:00:00Z", "x": 1.5}\n'
    call("produce", "raw", stdin=lines, **addresses)
    path = tmp_path / "raw.avsc"
    path.write_text(text("schema", "infer", "raw", **addresses))
    fields = {row["name"]: row["type"] for row in json.loads(path.read_text())["fields"]}
    assert fields["at"] == {"type": "long", "logicalType": "timestamp-micros"}
    assert fields["x"] == ["null", "double"]
    call("produce", "cooked", "--value-schema", path, stdin=lines, **addresses)
    shown = lines_of_json(text("consume", "cooked", "--decode", "value", **addresses))
    assert shown[0] == {"id": 1, "at": "2026-05-01T12:00:00+00:00", "x": None}
    said = refused("schema", "infer", "cooked", **addresses)
    assert said == (
        "cooked-0, offset 0 is not JSON: it begins with the id of a schema in a registry"
    )
