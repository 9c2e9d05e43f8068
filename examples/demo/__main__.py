"""Starts everything, shows what comes out, and leaves nothing behind."""

import signal
import sys
import threading
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Final

from examples.demo.results import Results
from examples.demo.revenue import ORDERS, PAYMENTS, REVENUE, define
from examples.demo.screen import NEXT, Screen
from examples.demo.shop import Shop
from ottla import Admin, Consumer
from ottla.pipelines.sessions import end_session, spark_session
from ottla.streams import Pipeline, PipelineError, run
from ottla.testing import Broker

WINDOWS_MIN: Final = 5
"""How many windows are waited for when nobody looks."""
SECONDS_MAX: Final = 300
PARTITIONS: Final = 2


def main() -> int:
    """Run the demo; tell the shell whether what came out is right."""
    begin = monotonic()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="ottla-demo-")))
        broker = stack.enter_context(Broker(data_dir=str(folder / "data")))
        screen = stack.enter_context(Screen())
        screen.say(f"A broker listens on {broker.bootstrap_servers}, {monotonic() - begin:.1f} s.")
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.topics.create([ORDERS, PAYMENTS, REVENUE], partitions=PARTITIONS)
        shop = Shop(broker.bootstrap_servers)
        stack.callback(shop.close)
        shop.open()
        screen.say("A shop sends orders and payments. Spark is starting; it takes some seconds.")
        work = Work(broker.bootstrap_servers, folder / "state")
        stack.callback(work.end)
        work.start()
        results = watch(broker.bootstrap_servers, shop, work, screen, begin)
    if work.failure is not None:
        print(f"The pipeline failed: {work.failure}", file=sys.stderr)
        return 1
    print(
        f"\n{shop.orders:,} orders and {shop.payments:,} payments went in; a Spark pipeline joined"
        f" them, {results.records} sums came out.\n{results.check(shop)}\n\n{NEXT}"
    )
    return 0 if results.records else 1


class Work:
    """Runs the pipeline in a thread, from its first micro-batch to the end of its JVM."""

    def __init__(self, servers: str, state: Path) -> None:
        self.failure: PipelineError | None = None
        self._pipeline = Pipeline("demo", servers)
        self._state = state
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pipeline")

    @property
    def goes_on(self) -> bool:
        """Whether it has not failed."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def end(self) -> None:
        """Stop the query, and end the JVM."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        spark = spark_session("demo", is_quick=True)
        try:
            run(define, self._pipeline, state_dir=self._state, stopping=self._stopping)
        except PipelineError as error:
            self.failure = error
        finally:
            end_session(spark)


def watch(servers: str, shop: Shop, work: Work, screen: Screen, begin: float) -> Results:
    """Show results until Ctrl-C or, if nobody looks, until there are enough."""
    results = Results()
    stopping = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())
    deadline = monotonic() + SECONDS_MAX
    with Consumer(
        bootstrap_servers=servers,
        group_id="screen",
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    ) as consumer:
        consumer.subscribe([REVENUE])
        while work.goes_on and not stopping.is_set() and monotonic() < deadline:
            had = results.records
            results.read(consumer, 0.2)
            if results.records and not had:
                screen.say(f"The first result came after {monotonic() - begin:.1f} s.")
            screen.show(shop, results)
            if not screen.is_live and len(results.windows()) >= WINDOWS_MIN:
                break
    return results


if __name__ == "__main__":
    sys.exit(main())
