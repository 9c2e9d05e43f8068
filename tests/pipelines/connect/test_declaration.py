"""A connector file is read as Kafka's users expect, and errors name the wrong setting."""

from pathlib import Path

import pytest

from ottla.pipelines.connect import DeclarationError, SinkConnector
from ottla.pipelines.connect.declaring.declaration import Declaration, read_declarations

SINK = """
name = "shelf"
connector.class = "files-sink"
topics = ["letters"]
path = "out"
"""


class Shelf(SinkConnector):
    """A connector of one's own, for the test that names it."""

    def write(self, batch: object, batch_id: int) -> None:
        raise NotImplementedError


def declared(folder: Path, text: str, name: str = "c.toml") -> tuple[Declaration, ...]:
    (folder / name).write_text(text, encoding="utf-8")
    return read_declarations(folder / name)


def complaint(folder: Path, text: str, name: str = "c.toml") -> str:
    with pytest.raises(DeclarationError) as caught:
        declared(folder, text, name)
    return str(caught.value).replace(str(folder) + "/", "")


def test_a_sink_has_the_defaults_of_what_it_does_not_say(tmp_path: Path) -> None:
    (sink,) = declared(tmp_path, SINK)
    assert not sink.is_source
    assert sink.settings["topics"] == ("letters",)
    assert sink.settings["value.converter"] == "json"
    assert sink.settings["errors.tolerance"] == "none"
    assert sink.folder == tmp_path / "connect-checkpoints" / "shelf"


def test_yaml_with_kafkas_flat_keys_says_the_same_as_toml(tmp_path: Path) -> None:
    flat = """
name: shelf
connector.class: files-sink
topics: letters,parcels
path: out
transforms: hide,there
transforms.hide.type: org.apache.kafka.connect.transforms.MaskField$Value
transforms.hide.fields: card
transforms.there.type: org.apache.kafka.connect.transforms.RegexRouter
transforms.there.regex: (.*)
transforms.there.replacement: $1-copy
"""
    nested = """
name = "shelf"
connector = "files-sink"
topics = ["letters", "parcels"]
path = "out"
[[transforms]]
type = "mask"
fields = ["card"]
[[transforms]]
type = "route"
regex = "(.*)"
replacement = "$1-copy"
"""
    (one,) = declared(tmp_path, flat, "c.yaml")
    (other,) = declared(tmp_path, nested)
    assert one.settings == other.settings
    assert [(step.type, step.settings) for step in one.transforms] == [
        (step.type, step.settings) for step in other.transforms
    ]


def test_what_is_said_at_the_top_holds_for_every_connector_that_knows_it(tmp_path: Path) -> None:
    text = """
bootstrap.servers = "here:1"
database.dbname = "shop"
[[connectors]]
name = "in"
connector.class = "postgres-source"
topic.prefix = "shop"
[[connectors]]
name = "out"
connector.class = "files-sink"
topics = "a"
path = "out"
"""
    source, sink = declared(tmp_path, text)
    assert source.is_source
    assert source.settings["database.dbname"] == "shop"
    assert "database.dbname" not in sink.settings
    assert sink.settings["bootstrap.servers"] == "here:1"
    said = complaint(tmp_path, text.replace("database.dbname", "database.dbnam"))
    assert said == (
        "c.toml, database.dbnam: there is no such setting; did you mean database.dbname?"
    )


def test_a_password_comes_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = SINK.replace('"out"', '"${env:SHELF}/new"')
    assert complaint(tmp_path, text) == "c.toml, path: the environment has no 'SHELF'"
    monkeypatch.setenv("SHELF", "/mnt/shelf")
    (sink,) = declared(tmp_path, text)
    assert sink.settings["path"] == "/mnt/shelf/new"


def test_a_class_of_ones_own_is_named_by_its_module(tmp_path: Path) -> None:
    text = SINK.replace("files-sink", f"{__name__}:Shelf").replace('path = "out"', "")
    (sink,) = declared(tmp_path, text)
    assert sink.connector.__name__ == "Shelf"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("topics", "topcs"), "c.toml, topcs: there is no such setting; did you mean topics?"),
        (("files-sink", "file-sink"), "did you mean files-sink?"),
        (("files-sink", "no.such.module:X"), "no.such.module cannot be imported"),
        (("files-sink", "pathlib:Path"), "Path in pathlib is no SourceConnector"),
        (('path = "out"', ""), "c.toml, path: is missing: the directory for the files"),
        (('"shelf"', '"a shelf"'), "c.toml, name: may have letters"),
        (('topics = ["letters"]', ""), "c.toml, topics: is missing"),
        (('path = "out"', 'path = "out"\nformat = "parket"'), "did you mean parquet?"),
        (('path = "out"', 'path = "out"\ncompact.min.files = "few"'), "is to be a whole number"),
        (('path = "out"', 'path = "out"\n[[transforms]]\ntype = "maks"'), "did you mean mask?"),
        (
            ('path = "out"', 'path = "out"\n[[transforms]]\ntype = "drop"\nfield = "a"'),
            "c.toml, transforms[0].fields: is missing",
        ),
        (('path = "out"', "path = "), "c.toml: "),
    ],
)
def test_what_is_wrong_is_named_with_its_key_and_the_nearest_name(
    tmp_path: Path, change: tuple[str, str], said: str
) -> None:
    assert said in complaint(tmp_path, SINK.replace(*change, 1))


def test_files_that_are_missing_or_of_no_known_kind_are_named(tmp_path: Path) -> None:
    with pytest.raises(DeclarationError, match=r"none\.toml: there is no such file"):
        read_declarations(tmp_path / "none.toml")
    assert "c.ini: is to end in" in complaint(tmp_path, SINK, "c.ini")
    assert "c.yaml: " in complaint(tmp_path, "a: [", "c.yaml")
