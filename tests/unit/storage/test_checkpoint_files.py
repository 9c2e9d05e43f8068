"""Checkpoints without tables: partition.metadata, .kafka_cleanshutdown, meta.properties."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.model.identifiers import ZERO_UUID
from ottla.runtime.disk import KernelDisk
from ottla.simulation.world.disk import SimulatedDisk
from ottla.storage.files.checkpoints import (
    CorruptCheckpointError,
    MetaProperties,
    read_clean_shutdown,
    read_meta_properties,
    read_topic_id,
    write_clean_shutdown,
    write_meta_properties,
    write_topic_id,
)

PATH = "/logs/checkpoint"
UUID = bytes(range(16))
UUID_TEXT = "AAECAwQFBgcICQoLDA0ODw"


def holding(content: bytes) -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_directory("/logs")
    disk.create_file(PATH).write_at(0, content)
    return disk


# -- partition.metadata ---------------------------------------------------------------------------


def test_the_file_of_the_topic_id_is_kafkas(tmp_path: Path) -> None:
    path = tmp_path / "partition.metadata"
    write_topic_id(KernelDisk(), str(path), UUID)
    assert path.read_bytes() == f"version: 0\ntopic_id: {UUID_TEXT}".encode()
    assert read_topic_id(KernelDisk(), str(path)) == UUID


@pytest.mark.parametrize(
    "raw", [f"version: 0\ntopic_id: {UUID_TEXT}\n", f"version: 3\r\ntopic_id: {UUID_TEXT}\nmore: 1"]
)
def test_a_later_version_still_tells_the_topic_id(raw: str) -> None:
    assert read_topic_id(holding(raw.encode()), PATH) == UUID


@pytest.mark.parametrize(
    "raw",
    [
        "",
        "version: 0",
        "version: 0\n",
        "version: 0\ntopic_id: ",
        f"version: 0\ntopic_id: {UUID_TEXT[:-1]}",
        f"version: 0\ntopic_id: {UUID_TEXT}A",
        "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA",
        "version: 0\ntopic_id: \u00e4AECAwQFBgcICQoLDA0ODw",
        f"version: x\ntopic_id: {UUID_TEXT}",
        f"version: -1\ntopic_id: {UUID_TEXT}",
        f"topic_id: {UUID_TEXT}\nversion: 0",
    ],
)
def test_a_damaged_topic_id_is_noticed(raw: str) -> None:
    with pytest.raises(CorruptCheckpointError, match=PATH):
        read_topic_id(holding(raw.encode()), PATH)


def test_a_partition_has_a_topic() -> None:
    with pytest.raises(AssertionError):
        write_topic_id(holding(b""), PATH, ZERO_UUID)


# -- .kafka_cleanshutdown -------------------------------------------------------------------------


@pytest.mark.parametrize("epoch", [-1, 0, 17, 2**63 - 1])
def test_the_mark_of_a_clean_stop_is_kafkas(epoch: int, tmp_path: Path) -> None:
    path = tmp_path / ".kafka_cleanshutdown"
    write_clean_shutdown(KernelDisk(), str(path), epoch)
    assert path.read_bytes() == b'{"version":0,"brokerEpoch":%d}' % epoch
    assert read_clean_shutdown(KernelDisk(), str(path)) == epoch


def test_old_kafkas_mark_is_an_empty_file() -> None:
    assert read_clean_shutdown(holding(b""), PATH) == -1


def test_fields_to_come_are_ignored() -> None:
    raw = b'{"version": 1, "brokerEpoch": 5, "more": [1]}'
    assert read_clean_shutdown(holding(raw), PATH) == 5


@pytest.mark.parametrize(
    "raw",
    [
        b"{",
        b"[]",
        b"{}",
        b"5",
        b'{"brokerEpoch":null}',
        b'{"brokerEpoch":true}',
        b'{"brokerEpoch":1.0}',
        b'{"brokerEpoch":-2}',
        b'{"brokerEpoch":9223372036854775808}',
        b'{"brokerEpoch":' + b"9" * 5000 + b"}",
        b"[" * 60_000,
        b"\xff",
    ],
)
def test_a_damaged_mark_is_noticed(raw: bytes) -> None:
    with pytest.raises(CorruptCheckpointError, match=PATH) as caught:
        read_clean_shutdown(holding(raw), PATH)
    assert len(str(caught.value)) < 300


# -- meta.properties ------------------------------------------------------------------------------


def test_the_properties_are_written_as_java_reads_them(tmp_path: Path) -> None:
    path = tmp_path / "meta.properties"
    properties = MetaProperties("4L6g3nShT-eMCtK--X86sw", 3, UUID)
    write_meta_properties(KernelDisk(), str(path), properties)
    assert path.read_text() == (
        f"#\ncluster.id=4L6g3nShT-eMCtK--X86sw\ndirectory.id={UUID_TEXT}\nnode.id=3\nversion=1\n"
    )
    assert read_meta_properties(KernelDisk(), str(path)) == properties


def test_the_properties_that_kafka_wrote_are_read() -> None:
    raw = (
        "#\n#Tue Nov 05 10:11:12 UTC 2024\nnode.id=1\n"
        f"directory.id={UUID_TEXT}\nversion=1\ncluster.id=4L6g3nShT-eMCtK--X86sw\n"
    )
    expected = MetaProperties("4L6g3nShT-eMCtK--X86sw", 1, UUID)
    assert read_meta_properties(holding(raw.encode()), PATH) == expected


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("version=0\nbroker.id=7\ncluster.id=x\n", MetaProperties("x", 7)),
        ("broker.id=7\n", MetaProperties(None, 7)),
        ("version=0\ncluster.id=x\nnode.id=7\n", MetaProperties("x", None)),
    ],
)
def test_the_properties_of_zookeeper_times_are_read(raw: str, expected: MetaProperties) -> None:
    assert read_meta_properties(holding(raw.encode()), PATH) == expected


def test_the_properties_may_look_as_strange_as_java_allows() -> None:
    raw = (
        "! comment\r\n   \t\r\n  version : 1\r  node.id\t1\ncluster\\.id = a\\\n"
        "   b\\tc\\\\\\u00e4\\ud83d\\ude00\\= \ndirectory.id=\\\n"
    )
    disk = holding((raw + UUID_TEXT + "\\").encode())
    assert read_meta_properties(disk, PATH) == MetaProperties("ab\tc\\ä😀= ", 1, UUID)


@settings(deadline=None)
@given(
    cluster_id=st.text(st.characters(codec="utf-8")),
    node_id=st.integers(0, 2**31 - 1),
    directory_id=st.none() | st.binary(min_size=16, max_size=16).filter(any),
)
def test_properties_come_back(cluster_id: str, node_id: int, directory_id: bytes | None) -> None:
    disk = holding(b"")
    properties = MetaProperties(cluster_id, node_id, directory_id)
    write_meta_properties(disk, PATH, properties)
    assert read_meta_properties(disk, PATH) == properties


@pytest.mark.parametrize(
    "raw",
    [
        "",
        "#\n",
        "version=2\nnode.id=1\ncluster.id=x\n",
        "version=one\nnode.id=1\ncluster.id=x\n",
        "version=1\nnode.id=1\n",
        "version=1\ncluster.id=x\n",
        "version=1\nbroker.id=1\ncluster.id=x\n",
        "version=1\nnode.id=-1\ncluster.id=x\n",
        "version=1\nnode.id=2147483648\ncluster.id=x\n",
        "version=1\nnode.id=one\ncluster.id=x\n",
        "version=0\nbroker.id=one\n",
        "version=1\nnode.id=1\ncluster.id=\\u12\n",
        "version=1\nnode.id=1\ncluster.id=\\ud83d\n",
        "version=1\nnode.id=1\ncluster.id=x\ndirectory.id=x\n",
        "version=1\nnode.id=1\ncluster.id=x\ndirectory.id=AAAAAAAAAAAAAAAAAAAAAA\n",
    ],
)
def test_damaged_properties_are_noticed(raw: str) -> None:
    with pytest.raises(CorruptCheckpointError, match=PATH):
        read_meta_properties(holding(raw.encode()), PATH)
