"""Starts all processes, shows the results, and removes everything at the end."""

import signal
import sys
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Final

from examples.demo.results import Results
from examples.demo.revenue import ORDERS, PAYMENTS, REVENUE
from examples.demo.screen import Screen, next_steps
from examples.demo.shop import PARTITIONS, Shop
from examples.demo.work import Work
from ottla import Admin, Consumer
from ottla.testing import Broker

WINDOWS_MIN: Final = 5
"""The number of windows to wait for if stdout is not a terminal."""
SECONDS_MAX: Final = 300
LOOK_SECONDS: Final = 0.2
STOPPING_LINE_SECONDS: Final = 5
"""How often a line reports that the stop continues: on a busy machine Spark takes a minute."""


class Interrupts:
    """Counts Ctrl-C and SIGTERM, so that each is handled at a defined place."""

    def __init__(self) -> None:
        self.count = 0
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._hear)

    def _hear(self, _number: int, _frame: object) -> None:
        self.count += 1


def main() -> int:
    """Run the demo; return the exit code: 0 if the results are right, or Ctrl-C came before any."""
    begin, interrupts = monotonic(), Interrupts()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="ottla-demo-")))
        broker = stack.enter_context(Broker(data_dir=str(folder / "data")))
        screen = stack.enter_context(Screen())
        screen.say(f"A broker listens on {broker.bootstrap_servers}, {monotonic() - begin:.1f} s.")
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.topics.create([ORDERS, PAYMENTS, REVENUE], partitions=PARTITIONS)
        shop = Shop(broker.bootstrap_servers, broker.registry_url)
        stack.callback(shop.close)
        shop.open()
        screen.say("A shop sends orders and payments. Spark takes 10 to 30 s to its first result.")
        work = Work(broker.bootstrap_servers, broker.registry_url, folder / "state")
        stack.callback(finish, work, screen, interrupts)
        work.start()
        results = watch(broker.bootstrap_servers, shop, work, screen, interrupts)
    if work.failure is not None:
        print(f"The pipeline failed: {work.failure}", file=sys.stderr)
        return 1
    if not results.records:
        print(f"No result came within {monotonic() - begin:.0f} s.\n\n{next_steps()}")
        return 0 if interrupts.count else 1
    is_right, sentence = results.check(shop)
    print(
        f"\n{shop.orders:,} orders and {shop.payments:,} payments went in,"
        f" {results.records:,} sums came out.\n{sentence}\n\n{next_steps()}"
    )
    return 0 if is_right else 1


def watch(servers: str, shop: Shop, work: Work, screen: Screen, interrupts: Interrupts) -> Results:
    """Show results until Ctrl-C or, without a terminal, until there are enough."""
    results = Results()
    begin, deadline = monotonic(), monotonic() + SECONDS_MAX
    with Consumer(
        bootstrap_servers=servers,
        group_id="screen",
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    ) as consumer:
        consumer.subscribe([REVENUE])
        while work.goes_on and not interrupts.count and monotonic() < deadline:
            had = results.records
            results.read(consumer, LOOK_SECONDS)
            if results.records and not had:
                screen.say(f"The first result came after {monotonic() - begin:.1f} s.")
            screen.show(shop, results, work.status())
            if not screen.is_live and len(results.windows()) >= WINDOWS_MIN:
                break
    return results


def finish(work: Work, screen: Screen, interrupts: Interrupts) -> None:
    """Stop the pipeline and report how it goes; another Ctrl-C kills Spark's JVM."""
    screen.freeze()
    screen.say("Stopping the pipeline and Spark; Ctrl-C again kills them.")
    begin, told, interrupted = monotonic(), 0, interrupts.count
    work.stop()
    while not work.has_ended(LOOK_SECONDS):
        if interrupts.count > interrupted:
            interrupted = interrupts.count
            screen.say("Killing Spark.")
            work.kill()
        if (monotonic() - begin) // STOPPING_LINE_SECONDS > told:
            told += 1
            screen.say(f"Spark still stops, {monotonic() - begin:.0f} s.")


if __name__ == "__main__":
    sys.exit(main())
