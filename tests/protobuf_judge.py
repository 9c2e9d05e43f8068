"""Compares our parser of `.proto` text with protoc."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import google.api
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from ottla.schemas.protobuf.proto_names import json_name, messages_of

PROTOC = Path(sys.executable).with_name("protoc")
INCLUDES = (Path(sys.prefix) / "include", Path(google.api.__path__[0]).parents[1])


def protoc(folder: Path, *paths: str) -> dict[str, Any]:
    """Return protoc's descriptors of files in a folder, and of the files that they import."""
    output = folder / "descriptors"
    includes = [f"-I{include}" for include in (folder, *INCLUDES)]
    options = [f"--descriptor_set_out={output}", "--include_imports", "--retain_options"]
    done = subprocess.run(
        [PROTOC, *includes, *options, *paths], check=False, capture_output=True, text=True
    )
    if done.returncode:
        raise ValueError(done.stderr)
    return {file.name: file for file in FileDescriptorSet.FromString(output.read_bytes()).file}


def comparable(descriptor: Any, pool: DescriptorPool | None = None) -> Any:
    """Return a copy without its name and without the JSON names that follow from the names.

    The entries of maps are behind the declared messages, where protoc has them between these.
    With a pool that has the extensions, custom options are equal however they were written.
    """
    copy = FileDescriptorProto()
    if pool is not None:
        copy = GetMessageClass(pool.FindMessageTypeByName("google.protobuf.FileDescriptorProto"))()
    copy.ParseFromString(descriptor.SerializeToString())
    copy.ClearField("name")
    holders = [copy, *(message for _, message in messages_of(copy))]
    for holder in holders:
        if holder is not copy:
            holder.nested_type.sort(key=lambda inner: inner.options.map_entry)
        for field in [*getattr(holder, "field", ()), *holder.extension]:
            if field.json_name == json_name(field.name):
                field.ClearField("json_name")
    return copy


def ordered(descriptor: Any, pool: DescriptorPool | None = None) -> Any:
    """Return a comparable copy with fields by number: printing moves fields of oneofs."""
    copy = comparable(descriptor, pool)
    kinds = ("public_dependency", "weak_dependency")
    named = [[copy.dependency[index] for index in getattr(copy, kind)] for kind in kinds]
    paths = sorted(copy.dependency)
    copy.dependency[:] = paths
    for kind, chosen in zip(kinds, named, strict=True):
        getattr(copy, kind)[:] = sorted(paths.index(path) for path in chosen)
    for _, message in messages_of(copy):
        message.field.sort(key=lambda field: field.number)
        message.nested_type.sort(key=lambda inner: (not inner.options.map_entry, inner.name))
    return copy
