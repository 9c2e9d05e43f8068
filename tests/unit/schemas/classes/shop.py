"""One class in four kinds, with every type that a schema can have."""

import dataclasses
import datetime
import enum
import uuid
from decimal import Decimal
from typing import Annotated, NotRequired, TypedDict

import msgspec
import pydantic

from ottla.schemas.classes.class_types import Bits, Precision

Price = Annotated[Decimal, Precision(10, 2)]


class Color(enum.Enum):
    RED = "red"
    DARK_BLUE = "dark_blue"


class Size(enum.Enum):
    SMALL = 1
    LARGE = 2


class Card(msgspec.Struct, tag=True):
    number: str


class Cash(msgspec.Struct, tag=True):
    coins: int


class Address(msgspec.Struct):
    city: str
    zip: str | None = None


class Order(msgspec.Struct, kw_only=True):
    id: int
    small: Annotated[int, Bits(32)]
    ratio: float
    narrow: Annotated[float, Bits(32)]
    is_paid: bool
    customer: str
    raw: bytes
    at: datetime.datetime
    day: datetime.date
    hour: datetime.time
    token: uuid.UUID
    price: Price
    color: Color
    size: Size
    home: Address
    tags: list[str]
    counts: dict[str, int]
    stops: list[Address]
    unique: set[int]
    paid_by: Card | Cash | None
    note: str | None = None
    rest: tuple[int, ...] = ()


ORDER = Order(
    id=-(2**63),
    small=-(2**31),
    ratio=1.5,
    narrow=0.25,
    is_paid=True,
    customer="Jesenská",
    raw=b"\0\xff",
    at=datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=datetime.UTC),
    day=datetime.date(1, 1, 1),
    hour=datetime.time(23, 59, 59, 999_999),
    token=uuid.UUID(int=7),
    price=Decimal("-12345678.90"),
    color=Color.DARK_BLUE,
    size=Size.LARGE,
    home=Address("Prag"),
    tags=["a", ""],
    counts={"x": 1},
    stops=[Address("Wien", "1010")],
    unique={1, 2},
    paid_by=Cash(5),
    rest=(1, 2),
)


@dataclasses.dataclass
class Letter:
    id: int
    at: datetime.datetime
    price: Price
    home: Address | None = None
    tags: list[str] = dataclasses.field(default_factory=list)
    color: Color = Color.RED


class Model(pydantic.BaseModel):
    id: int
    at: datetime.datetime
    price: Decimal = pydantic.Field(max_digits=10, decimal_places=2)
    note: str | None = None
    tags: list[str] = []


class Keys(TypedDict):
    id: int
    note: NotRequired[str]


AT = datetime.datetime(2026, 5, 1, 12, tzinfo=datetime.UTC)
LETTER = Letter(1, AT, Decimal("1.50"), Address("Wien"), ["a"], Color.DARK_BLUE)
MODEL = Model(id=1, at=AT, price=Decimal("1.50"), tags=["a"])
KEYS: Keys = {"id": 1}
VALUES = [(Order, ORDER), (Letter, LETTER), (Model, MODEL), (Keys, KEYS)]
