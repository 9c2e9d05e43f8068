"""Protobuf schemas: parser, linker, printer, compatibility and values."""

try:
    import google.protobuf  # noqa: F401 - tells a user without the extra how to get it
except ModuleNotFoundError:
    raise ImportError("Protobuf schemas need protobuf: pip install 'ottla[schemas]'") from None
