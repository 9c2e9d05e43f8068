"""Runs the steps of Avro readers and writers in the compiled loop and in its fallback."""

from typing import Any

from ottla.schemas.avro import _values_python, avro_loops
from ottla.schemas.avro.avro_steps import CAUGHT


def outcome(function: Any, *arguments: Any) -> Any:
    """Return the value, or the text of the error."""
    try:
        value = function(*arguments)
    except CAUGHT as error:
        # Python's own texts about floats differ between C and Python code.
        return type(error), str(error)
    return repr(value)


def both_read(step: avro_loops.ReadStep, payload: bytes) -> bool:
    """Whether both loops return the same value, or raise errors with the same text."""
    twin = _copied(step, _values_python.ReadStep, {})
    compiled = outcome(avro_loops.read_value, step, payload, 0)
    return bool(compiled == outcome(_values_python.read_value, twin, payload, 0))


def both_write(step: avro_loops.WriteStep, value: Any) -> bool:
    """Whether both loops return the same bytes, or raise errors with the same text."""
    twin = _copied(step, _values_python.WriteStep, {})
    compiled = outcome(avro_loops.write_value, step, value, b"prefix")
    return bool(compiled == outcome(_values_python.write_value, twin, value, b"prefix"))


def _copied(step: Any, cls: Any, known: dict[int, Any]) -> Any:
    """Return a graph of steps as objects of the fallback."""
    if id(step) in known:
        return known[id(step)]
    known[id(step)] = twin = cls()
    for name in cls.__slots__:
        value = getattr(step, name)
        if name == "steps":
            value = [_copied(inner, cls, known) for inner in value]
        elif name == "inner" and value is not None:
            value = _copied(value, cls, known)
        setattr(twin, name, value)
    return twin
