"""The generator: people order things, most of them pay, and the shop keeps its own books.

`python -m examples.demo.shop` makes the topics of the demo in a running broker, and sells there
until Ctrl-C. It finds the broker by OTTLA_BROKERS, and the broker's schema registry by
OTTLA_SCHEMA_REGISTRY_URL; the defaults are 127.0.0.1:9092 and http://127.0.0.1:8081.
"""

import json
import os
import random
import signal
import threading
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from time import time
from typing import Final

from examples.demo.revenue import ORDERS, PAYMENTS, REVENUE
from ottla import Admin, Producer

PRODUCTS: Final = ("ink", "paper", "pens", "stamps")
ORDERS_PER_SECOND: Final = 200
PAID_OF_TEN: Final = 9
WINDOW_SECONDS: Final = 2
PARTITIONS: Final = 2
DEFAULT_REGISTRY: Final = "http://127.0.0.1:8081"
_TICK_SECONDS: Final = 0.05


@dataclass(frozen=True, slots=True)
class Order:
    """A value of the topic of orders: the class is the schema that the producer registers."""

    order: int
    product: str
    amount: int
    at: datetime


@dataclass(slots=True)
class Shop:
    """Sends orders and payments from a thread of its own until it is closed."""

    servers: str
    registry: str = DEFAULT_REGISTRY
    seed: int = 1883
    orders: int = 0
    payments: int = 0
    books: dict[tuple[str, int], Counter[str]] = field(default_factory=dict)
    """The paid orders, by product and the second in which the window begins."""
    _closing: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def open(self) -> None:
        """Start selling."""
        self._thread = threading.Thread(target=self._sell, name="shop")
        self._thread.start()

    def close(self) -> None:
        """Send the sold orders, and stop."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join()

    def _sell(self) -> None:
        dice = random.Random(self.seed)  # noqa: S311 - not used for secrets
        typed = {"bootstrap.servers": self.servers, "schema.registry.url": self.registry}
        with (
            Producer(typed, value=Order) as orders,
            Producer(bootstrap_servers=self.servers) as payments,
        ):
            while not self._closing.wait(_TICK_SECONDS):
                for _ in range(int(ORDERS_PER_SECOND * _TICK_SECONDS)):
                    self._sell_one(orders, payments, dice)

    def _sell_one(self, orders: Producer, payments: Producer, dice: random.Random) -> None:
        self.orders += 1
        order, now = self.orders, time()
        product, cents = dice.choice(PRODUCTS), dice.randrange(100, 2_000)
        orders.send(ORDERS, Order(order, product, cents, _time(now)), key=str(order))
        if dice.randrange(10) >= PAID_OF_TEN:
            return
        self.payments += 1
        at = _time(now + dice.random() / 2).isoformat(timespec="microseconds")
        payments.send(PAYMENTS, json.dumps({"order": order, "at": at}), key=str(order))
        window = int(now) // WINDOW_SECONDS * WINDOW_SECONDS
        page = self.books.setdefault((product, window), Counter())
        page.update(orders=1, cents=cents)


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def main() -> None:
    """Sell until Ctrl-C, and print how much."""
    stopping = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())
    servers = os.environ.get("OTTLA_BROKERS", "127.0.0.1:9092")
    with Admin(bootstrap_servers=servers) as admin:
        missing = {ORDERS, PAYMENTS, REVENUE} - {topic.name for topic in admin.topics.list()}
        if missing:
            admin.topics.create(sorted(missing), partitions=PARTITIONS)
    shop = Shop(servers, os.environ.get("OTTLA_SCHEMA_REGISTRY_URL", DEFAULT_REGISTRY))
    shop.open()
    print(f"Selling to {servers}; Ctrl-C closes the shop.", flush=True)
    stopping.wait()
    shop.close()
    print(f"{shop.orders:,} orders and {shop.payments:,} payments were sent.")


if __name__ == "__main__":
    main()
