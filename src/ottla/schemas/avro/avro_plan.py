"""Plans of the loops: schemas as graphs of steps, made once and run for every value.

Steps are made from a queue, and not recursively, because types may nest deeper than Python calls.
"""

from collections import deque
from collections.abc import Mapping
from typing import Any, Final

from ottla.schemas.avro.avro_compatibility import Comparison, match_fields
from ottla.schemas.avro.avro_defaults import check_default, fits
from ottla.schemas.avro.avro_logical import (
    own_conversion,
    reading_conversion,
    timestamp_epoch,
    writing_conversion,
)
from ottla.schemas.avro.avro_loops import ReadStep, WriteStep
from ottla.schemas.avro.avro_steps import CAUGHT, Code
from ottla.schemas.avro.avro_types import (
    NO_DEFAULT,
    Array,
    AvroType,
    Enum,
    Field,
    Fixed,
    Kind,
    Map,
    Primitive,
    Record,
    Union,
)
from ottla.schemas.avro.avro_unions import branch_by_type, picking

_CODES: Final = {kind: Code[kind.name] for kind in Kind}
_FLOATS: Final = (Kind.FLOAT, Kind.DOUBLE)
_INTEGERS: Final = (Kind.INT, Kind.LONG)
_TEXTS: Final = (Kind.BYTES, Kind.STRING)


def plan_reading(writer: AvroType, reader: AvroType) -> ReadStep:
    """Return the steps that read data of the writer's type as values of the reader's type.

    A part of the data that the reader cannot read fails when it is read.
    """
    planner = _ReadPlanner(Comparison(reader, writer))
    root = planner.step(writer, reader)
    planner.run()
    return root


class _ReadPlanner:
    def __init__(self, comparison: Comparison) -> None:
        self._comparison = comparison
        self._steps: dict[tuple[int, int], ReadStep] = {}
        self._waiting: deque[tuple[ReadStep, AvroType, AvroType | None]] = deque()
        self._sizes: dict[tuple[int, int], int] = {}

    def step(self, writer: AvroType, reader: AvroType | None) -> ReadStep:
        """Return a step that will be complete after `run`; without a reader its value is unused."""
        key = id(writer), id(reader)
        step = self._steps.get(key)
        if step is None:
            step = self._steps[key] = ReadStep()
            self._waiting.append((step, writer, reader))
        return step

    def run(self) -> None:
        while self._waiting:
            step, writer, reader = self._waiting.popleft()
            if isinstance(writer, Union):
                step.code = Code.UNION
                step.steps = [self.step(branch, reader) for branch in writer.branches]
            elif reader is None:
                self._skip(step, writer)
            else:
                self._resolve(step, writer, reader)

    def _skip(self, step: ReadStep, writer: AvroType) -> None:
        match writer:
            case Primitive():
                step.code = Code.BYTES if writer.kind in _TEXTS else _CODES[writer.kind]
            case Fixed():
                step.code, step.size = Code.FIXED, writer.size
            case Enum():
                step.code, step.symbols = Code.ENUM, list(writer.symbols)
            case Array():
                step.code, step.inner = Code.ARRAY, self.step(writer.items, None)
            case Map():
                step.code, step.inner = Code.MAP, self.step(writer.values, None)
            case Record():
                step.code = Code.RECORD
                self._fields(step, writer, {})
            case Union():
                raise AssertionError("A union is resolved by branches")

    def _resolve(self, step: ReadStep, writer: AvroType, reader: AvroType) -> None:
        if isinstance(reader, Union):
            branch = self._comparison.branch(reader, writer)
            if branch is None:
                step.code = Code.FAIL
                step.text = "The reader's union has no branch for the writer's type"
                return
            reader = branch
        reasons = [
            reason
            for reason in self._comparison.reasons(reader, writer)
            if reason.rule != "MISSING_ENUM_SYMBOLS"
        ]
        if reasons:
            step.code, step.text = Code.FAIL, reasons[0].message
            return
        self._resolve_same(step, writer, reader)

    def _resolve_same(self, step: ReadStep, writer: AvroType, reader: AvroType) -> None:
        match writer, reader:
            case (Primitive(), Primitive()):
                _resolve_primitive(step, writer, reader)
            case (Fixed(), Fixed()):
                step.code, step.size = Code.FIXED, writer.size
                step.convert = reading_conversion(writer, reader)
            case (Enum(), Enum()):
                known = set(reader.symbols)
                default = None if reader.default is NO_DEFAULT else reader.default
                step.code = Code.ENUM
                step.symbols = [each if each in known else default for each in writer.symbols]
            case (Array(), Array()):
                step.code, step.inner = Code.ARRAY, self.step(writer.items, reader.items)
            case (Map(), Map()):
                step.code, step.inner = Code.MAP, self.step(writer.values, reader.values)
            case (Record(), Record()):
                self._resolve_record(step, writer, reader)
            case _:
                raise AssertionError("Types of different kinds were compared")

    def _resolve_record(self, step: ReadStep, writer: Record, reader: Record) -> None:
        matches = match_fields(reader, writer)
        step.code = Code.RECORD
        step.template = dict.fromkeys(each.name for each in reader.fields)
        for field in reader.fields:
            if field.name not in matches:
                reason = check_default(field.type, field.default, self._sizes)
                if reason is not None:
                    step.code = Code.FAIL
                    step.text = f"The default of the reader's field {field.name}: {reason}"
                    return
                step.cost += max(self._sizes.get((id(field.type), id(field.default)), 1), 1)
                default = decoded_default(field.type, field.default)
                if isinstance(default, list | dict):
                    step.defaults.append((field.name, default))
                else:
                    step.template[field.name] = default
        by_name = {each.name: each for each in reader.fields}
        targets = {id(match): by_name[name] for name, match in matches.items()}
        self._fields(step, writer, targets)

    def _fields(self, step: ReadStep, writer: Record, targets: Mapping[int, Field]) -> None:
        for field in writer.fields:
            target = targets.get(id(field))
            step.labels.append(field.name)
            step.names.append(None if target is None else target.name)
            step.steps.append(self.step(field.type, None if target is None else target.type))


def _resolve_primitive(step: ReadStep, writer: Primitive, reader: Primitive) -> None:
    if reader.kind in _FLOATS and writer.kind in _INTEGERS:
        step.code, step.convert = _CODES[writer.kind], float
        return
    kind = reader.kind if reader.kind in _TEXTS else writer.kind
    step.code, step.convert = _CODES[kind], reading_conversion(writer, reader)
    if kind is Kind.LONG and writer.logical == reader.logical:
        step.epoch, step.unit = timestamp_epoch(reader)


def decoded_default(of_type: AvroType, default: Any) -> Any:
    """Return the Python value of a valid default in JSON."""
    match of_type:
        case Union():
            branch = next(branch for branch in of_type.branches if fits(branch, default))
            return decoded_default(branch, default)
        case Record():
            return {
                field.name: decoded_default(field.type, default.get(field.name, field.default))
                for field in of_type.fields
            }
        case Array():
            return [decoded_default(of_type.items, item) for item in default]
        case Map():
            return {key: decoded_default(of_type.values, item) for key, item in default.items()}
        case Enum():
            return default
        case Primitive() | Fixed():
            return _decoded_scalar(of_type, default)


def _decoded_scalar(of_type: Primitive | Fixed, default: Any) -> Any:
    raw = default
    if isinstance(of_type, Fixed) or of_type.kind is Kind.BYTES:
        # Each character is a byte, as in Avro for Java.
        raw = default.encode("latin-1", "replace")
    elif of_type.kind in _FLOATS:
        raw = float(default)
    convert = own_conversion(of_type)
    if convert is None:
        return raw
    try:
        return convert(raw)
    except CAUGHT:
        # An empty text is a common default of a UUID: it stays a text.
        return raw


def plan_writing(root: AvroType) -> WriteStep:
    """Return the steps that write values of a type."""
    planner = _WritePlanner()
    step = planner.step(root)
    planner.run()
    return step


class _WritePlanner:
    def __init__(self) -> None:
        self._steps: dict[int, WriteStep] = {}
        self._waiting: deque[tuple[WriteStep, AvroType]] = deque()
        self._sizes: dict[tuple[int, int], int] = {}

    def step(self, of_type: AvroType) -> WriteStep:
        step = self._steps.get(id(of_type))
        if step is None:
            step = self._steps[id(of_type)] = WriteStep()
            self._waiting.append((step, of_type))
        return step

    def run(self) -> None:
        while self._waiting:
            self._fill(*self._waiting.popleft())

    def _fill(self, step: WriteStep, of_type: AvroType) -> None:
        match of_type:
            case Primitive():
                step.code, step.convert = _CODES[of_type.kind], writing_conversion(of_type)
                step.epoch, step.unit = timestamp_epoch(of_type)
            case Fixed():
                step.code, step.size = Code.FIXED, of_type.size
                step.convert = writing_conversion(of_type)
            case Enum():
                step.code = Code.ENUM
                step.symbols = {symbol: index for index, symbol in enumerate(of_type.symbols)}
            case Array():
                step.code, step.inner = Code.ARRAY, self.step(of_type.items)
            case Map():
                step.code, step.inner = Code.MAP, self.step(of_type.values)
            case Record():
                step.code = Code.RECORD
                step.names = [field.name for field in of_type.fields]
                step.steps = [self.step(field.type) for field in of_type.fields]
                step.defaults = [self._default(field) for field in of_type.fields]
            case Union():
                step.code = Code.UNION
                step.steps = [self.step(branch) for branch in of_type.branches]
                step.by_type, step.pick = branch_by_type(of_type), picking(of_type)
                step.null_index = step.by_type.pop(type(None), -1)

    def _default(self, field: Field) -> tuple[Any] | None:
        if field.default is NO_DEFAULT:
            return None
        if check_default(field.type, field.default, self._sizes) is not None:
            return None
        return (decoded_default(field.type, field.default),)
