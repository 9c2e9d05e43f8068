"""The identity of a connector, and the changes that make it a different connector."""

import shutil
from pathlib import Path

from ottla.pipelines.connect.declaring.declaration import read_declarations
from ottla.pipelines.connect.query_builder import home_of

SINK = """
name = "orders"
connector.class = "files-sink"
bootstrap.servers = "127.0.0.1:9092"
topics = ["orders"]
path = "out"
"""


def test_a_connector_keeps_its_id_as_long_as_it_has_its_checkpoint(tmp_path: Path) -> None:
    file = tmp_path / "orders.toml"
    file.write_text(SINK, encoding="utf-8")
    (declaration,) = read_declarations(file)
    (declaration.folder / "spark").mkdir(parents=True)
    first = home_of(declaration)
    assert home_of(declaration) == first
    shutil.rmtree(declaration.folder / "spark")
    assert home_of(declaration).id != first.id
