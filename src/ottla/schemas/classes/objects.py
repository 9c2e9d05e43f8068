"""Objects to Avro bytes and back by a plan: compiled if possible, else in plain Python."""

from typing import TYPE_CHECKING

from ottla.schemas.classes._objects_python import ObjectError

if TYPE_CHECKING:
    from ottla.schemas.classes._objects_python import Objects
else:
    try:
        from ottla.schemas.classes._objects import Objects
    except ImportError:
        from ottla.schemas.classes._objects_python import Objects

__all__ = ["ObjectError", "Objects"]
