"""Protobuf schemas: parser, linker, printer, compatibility and values."""

try:
    from google.protobuf import descriptor_pb2  # noqa: F401 - imported to see if it is there
except ModuleNotFoundError:
    raise ImportError("Protobuf schemas need protobuf: pip install 'ottla[schemas]'") from None
