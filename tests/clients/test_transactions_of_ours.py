"""Ottla's transactional producer: atomic under any interference."""

import asyncio
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Barrier
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.clients.errors import ClientClosedError, NoResponseError
from ottla.clients.producer.async_producer import AsyncProducer
from ottla.clients.producer.producer import Producer
from ottla.clients.producer.transactions.transaction_errors import (
    FatalTransactionError,
    ProducerFencedError,
    TransactionAbortableError,
    TransactionAbortedError,
    TransactionStateError,
)
from ottla.clients.producer.transactions.transaction_requests import OffsetToCommit
from ottla.clients.producer.transactions.transaction_state import PreparedTxnState, State
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.testing import Broker
from ottla.wire.api_key import ApiKey
from ottla.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.clients.cutting_proxy import CuttingProxy
from tests.clients.plain_socket import PlainSocket
from tests.clients.test_transactions import (
    SETTINGS,
    committed_offset,
    make_topic,
    read,
    read_until,
    wait_for_state,
    wait_until,
)
from tests.clients.transactional_producers import SECONDS_MAX

SAFE_DOWNGRADE = 2
UPGRADE = 1
TWO_PHASES = {**SETTINGS, "transaction.two.phase.commit.enable": "true"}


def set_level(broker: Broker, level: int, upgrade_type: int) -> None:
    update = FeatureUpdateKey(
        feature="transaction.version", max_version_level=level, upgrade_type=upgrade_type
    )
    with PlainSocket(broker) as client:
        request = UpdateFeaturesRequest(timeout_ms=20_000, feature_updates=[update])
        assert client.ask(ApiKey.UPDATE_FEATURES, 1, request).error_code == 0


@pytest.fixture(scope="module", params=[2, 1], ids=["version-2", "version-1"])
def level(request: pytest.FixtureRequest) -> int:
    """Each version of the protocol."""
    version: int = request.param
    return version


@pytest.fixture(scope="module")
def broker(level: int) -> Iterator[Broker]:
    """A broker of each version of the protocol."""
    with Broker(TWO_PHASES) as running:
        if level < 2:
            set_level(running, level, SAFE_DOWNGRADE)
        yield running


@pytest.fixture
def topic(request: pytest.FixtureRequest, broker: Broker) -> str:
    """A topic that no other test uses."""
    name: str = request.node.name.replace("[", "-").replace("]", "")
    make_topic(broker.bootstrap_servers, name)
    return name


def make(broker: Broker | str, transactional_id: str, **settings: Any) -> Producer:
    servers = broker if isinstance(broker, str) else broker.bootstrap_servers
    return Producer(bootstrap_servers=servers, transactional_id=transactional_id, **settings)


class RegretError(Exception):
    """Raised in a block to abort its transaction."""


def regret(producer: Producer, *calls: Callable[[], Any]) -> None:
    """Write in a transaction, and abort it."""
    with producer.transaction():
        for call in calls:
            call()
        raise RegretError


def test_a_block_commits_at_its_end_and_aborts_when_it_raises(broker: Broker, topic: str) -> None:
    with make(broker, topic) as producer:
        with producer.transaction():
            producer.send(topic, b"first")
            producer.send(topic, b"second")
        with pytest.raises(RegretError):
            regret(producer, lambda: producer.send(topic, b"regretted").result())
        with producer.transaction():
            producer.send(topic, b"third")
    read_until(broker.bootstrap_servers, topic, [b"first", b"second", b"third"])


def test_records_that_were_not_sent_yet_are_dropped_by_an_abort(broker: Broker, topic: str) -> None:
    with make(broker, topic, linger_ms=60_000) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        dropped = producer.send(topic, b"dropped")
        producer.abort_transaction()
        with pytest.raises(TransactionAbortedError):
            dropped.result()
        with producer.transaction():
            producer.send(topic, b"kept")
    everything = read(broker.bootstrap_servers, topic, "read_uncommitted")
    assert everything == [b"kept"]


def test_asyncio_has_the_same_calls(broker: Broker, topic: str) -> None:
    async def regret_there(producer: AsyncProducer) -> None:
        async with producer.transaction():
            await producer.send(topic, b"dropped")
            raise RegretError

    async def run() -> None:
        producer = AsyncProducer(bootstrap_servers=broker.bootstrap_servers, transactional_id=topic)
        async with producer:
            async with producer.transaction():
                await producer.send(topic, b"one")
                await (await producer.send_many(topic, [b"two", b"three"]))
            with pytest.raises(RegretError):
                await regret_there(producer)
            await producer.begin_transaction()
            await producer.send_offsets_to_transaction({(topic, 0): 3}, topic)
            await producer.commit_transaction()

    asyncio.run(run())
    read_until(broker.bootstrap_servers, topic, [b"one", b"two", b"three"])
    wait_until(
        lambda: committed_offset(broker.bootstrap_servers, topic, topic), lambda found: found == 3
    )


def test_offsets_are_in_the_transaction(broker: Broker, topic: str) -> None:
    servers = broker.bootstrap_servers
    with make(broker, topic) as producer:
        with producer.transaction():
            producer.send_offsets_to_transaction({(topic, 0): 17}, topic)
        wait_until(lambda: committed_offset(servers, topic, topic), lambda found: found == 17)
        with pytest.raises(RegretError):
            regret(producer, lambda: producer.send_offsets_to_transaction({(topic, 0): 99}, topic))
        wait_for_state(broker, topic, "CompleteAbort")
        assert committed_offset(servers, topic, topic) == 17


@pytest.mark.parametrize(
    ("partition", "offset", "group", "said"),
    [
        (0, -1, "g", "offset -1: offsets begin with 0"),
        (0, 2**63, "g", "offset 9223372036854775808: offsets end with"),
        (-1, 0, "g", "is no partition"),
        (2**31, 0, "g", "is no partition"),
        (0, OffsetToCommit(0, "x" * 2**15), "g", "metadata of more than 32767 bytes"),
        (0, OffsetToCommit(0, "", 2**31), "g", "leader epoch 2147483648"),
        (0, 0, "", "the group id is empty"),
    ],
)
def test_offsets_that_cannot_be_committed_are_refused_and_spoil_nothing(
    broker: Broker, partition: int, offset: Any, group: str, said: str
) -> None:
    with make(broker, "careless") as producer, producer.transaction():
        with pytest.raises(ValueError, match=said):
            producer.send_offsets_to_transaction({("t", partition): offset}, group)
        with pytest.raises(TypeError, match="offsets are a dict"):
            producer.send_offsets_to_transaction(None, "g")  # type: ignore[arg-type]


def test_a_timeout_for_a_partition_names_it(broker: Broker, topic: str) -> None:
    with make(broker, topic, max_block_ms=2_000) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        missing = rf"UNKNOWN_TOPIC_OR_PARTITION: partition {topic}-7 "
        with pytest.raises(TransactionAbortableError, match=missing):
            producer.send_offsets_to_transaction({(topic, 7): 1}, topic)


def test_offsets_of_an_interrupted_call_are_not_committed(broker: Broker, topic: str) -> None:
    async def run() -> None:
        producer = AsyncProducer(bootstrap_servers=broker.bootstrap_servers, transactional_id=topic)
        async with producer:
            await producer.init_transactions()
            await producer.begin_transaction()
            broker.stop()
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(
                    producer.send_offsets_to_transaction({(topic, 0): 3}, topic), 0.05
                )
            broker.start()
            with pytest.raises(TransactionAbortableError, match="its outcome is unknown"):
                await producer.commit_transaction()
            await producer.abort_transaction()
            async with producer.transaction():
                await producer.send(topic, b"next")

    asyncio.run(run())
    read_until(broker.bootstrap_servers, topic, [b"next"])
    assert committed_offset(broker.bootstrap_servers, topic, topic) < 0


class Gone:
    """A member that its group does not know."""

    group_id = "somebody-elses"
    generation_id = 7
    member_id = "gone"
    group_instance_id = None


def test_a_member_that_is_gone_commits_nothing_and_the_producer_goes_on(
    broker: Broker, topic: str
) -> None:
    with make(broker, topic) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"copied by a zombie")
        with pytest.raises(TransactionAbortableError) as refused:
            producer.send_offsets_to_transaction({(topic, 0): 1}, Gone())
        assert refused.value.code in {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION}
        with pytest.raises(TransactionAbortableError, match="call abort_transaction"):
            producer.commit_transaction()
        with pytest.raises(TransactionAbortableError):
            producer.send(topic, b"more")
        producer.abort_transaction()
        with producer.transaction():
            producer.send(topic, b"copied again")
    read_until(broker.bootstrap_servers, topic, [b"copied again"])


def test_the_second_producer_fences_the_first(broker: Broker, topic: str) -> None:
    servers = broker.bootstrap_servers
    with make(broker, topic) as zombie, make(broker, topic) as successor:
        zombie.init_transactions()
        zombie.begin_transaction()
        zombie.send(topic, b"of a zombie").result()
        successor.init_transactions()
        with successor.transaction():
            successor.send(topic, b"of its successor")
        with pytest.raises(ProducerFencedError, match="another producer has this transactional id"):
            zombie.commit_transaction()
        for call in (zombie.begin_transaction, zombie.abort_transaction):
            with pytest.raises(ProducerFencedError):
                call()
        with pytest.raises(ProducerFencedError):
            zombie.send(topic, b"more")
    read_until(servers, topic, [b"of its successor"])


def test_a_fenced_producer_that_only_sends_hears_of_it(broker: Broker, topic: str) -> None:
    with make(broker, topic) as zombie, make(broker, topic) as successor:
        zombie.init_transactions()
        zombie.begin_transaction()
        zombie.send(topic, b"one").result()
        successor.init_transactions()
        late = zombie.send(topic, b"two")
        assert late.exception() is not None
        with pytest.raises(
            (TransactionAbortableError, FatalTransactionError), match="another producer has this"
        ) as told:
            zombie.commit_transaction()
        assert str(told.value).count(told.value.code.name) == 1  # once is enough
        with pytest.raises(FatalTransactionError):
            zombie.abort_transaction()
    assert read(broker.bootstrap_servers, topic) == []


def test_a_record_that_is_refused_spoils_its_transaction_and_no_other(broker: Broker) -> None:
    servers, topic = broker.bootstrap_servers, f"small-{broker.port}"
    admin = AdminClient({"bootstrap.servers": servers})
    small = NewTopic(topic, 1, 1, config={"max.message.bytes": "1000"})
    admin.create_topics([small])[topic].result(60)
    with make(broker, topic) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"fine").result()
        large = producer.send(topic, bytes(2000))
        with pytest.raises(TransactionAbortableError, match="call abort_transaction") as failed:
            producer.commit_transaction()
        assert failed.value.code is ErrorCode.MESSAGE_TOO_LARGE
        assert large.exception() is not None
        producer.abort_transaction()
        for number in range(3):
            with producer.transaction():
                producer.send(topic, b"%d" % number)
        with pytest.raises(TransactionAbortableError), producer.transaction():
            producer.send(topic, bytes(2000))
        with producer.transaction():
            producer.send(topic, b"last")
    read_until(servers, topic, [b"0", b"1", b"2", b"last"])


def test_a_transaction_that_takes_too_long_is_aborted(
    broker: Broker, topic: str, level: int
) -> None:
    with make(broker, topic, transaction_timeout_ms=1_000) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"too late").result()
        wait_for_state(broker, topic, "CompleteAbort")
        if level == 2:
            begin_again(producer, topic)
        else:
            with pytest.raises(ProducerFencedError, match="time was up"):
                producer.commit_transaction()
    read_until(broker.bootstrap_servers, topic, [b"in time"] if level == 2 else [])


def begin_again(producer: Producer, topic: str) -> None:
    """Hear in the commit that it is too late, and write in time then."""
    with pytest.raises(TransactionAbortableError, match=r"transaction\.timeout\.ms"):
        producer.commit_transaction()
    producer.abort_transaction()
    with producer.transaction():
        producer.send(topic, b"in time")


def test_more_time_than_the_broker_allows_is_fatal(broker: Broker, topic: str) -> None:
    with make(broker, topic, transaction_timeout_ms=100_001) as producer:
        with pytest.raises(FatalTransactionError, match=r"=100001 is .* transaction\.max\.timeout"):
            producer.init_transactions()
        with pytest.raises(FatalTransactionError, match="create another"):
            producer.begin_transaction()


def test_calls_out_of_turn_are_refused_and_do_no_harm(broker: Broker, topic: str) -> None:
    with make(broker, topic) as producer:
        with pytest.raises(TransactionStateError, match="call init_transactions first"):
            producer.begin_transaction()
        with pytest.raises(TransactionStateError, match="call init_transactions first"):
            producer.send(topic, b"")
        producer.init_transactions()
        for call in (producer.commit_transaction, producer.abort_transaction):
            with pytest.raises(TransactionStateError, match="call begin_transaction first"):
                call()
        with pytest.raises(TransactionStateError, match="called already"):
            producer.init_transactions()
        producer.begin_transaction()
        with pytest.raises(TransactionStateError, match="a transaction is open"):
            producer.begin_transaction()
        with pytest.raises(TransactionStateError, match=r"two\.phase"):
            producer.prepare_transaction()
        producer.send(topic, b"kept")
        producer.commit_transaction()
        producer.begin_transaction()
        producer.commit_transaction()  # with nothing in it
    read_until(broker.bootstrap_servers, topic, [b"kept"])
    with (
        Producer(bootstrap_servers=broker.bootstrap_servers) as plain,
        pytest.raises(TransactionStateError, match=r"transactional\.id"),
    ):
        plain.begin_transaction()


def test_a_producer_that_is_closed_aborts_what_it_has_open(broker: Broker, topic: str) -> None:
    producer = make(broker, topic)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(topic, b"never committed").result()
    producer.close()
    wait_for_state(broker, topic, "CompleteAbort")


def test_many_transactions_follow_each_other_without_a_rest(broker: Broker, topic: str) -> None:
    with make(broker, topic) as producer:
        for number in range(50):
            with producer.transaction():
                producer.send(topic, b"%d" % number)
    read_until(broker.bootstrap_servers, topic, [b"%d" % number for number in range(50)])


def test_a_thousand_records_of_a_kilobyte_are_one_batch_and_cost_no_needless_request(
    broker: Broker, topic: str, level: int
) -> None:
    with make(broker, topic, linger_ms=10_000) as producer:
        write(producer, topic, b"first")  # before which brokers and coordinator are looked for
        before = producer.metrics()["request-total"]
        with producer.transaction():
            for _ in range(1000):
                producer.send(topic, bytes(1000))
        sent = ["Produce", "EndTxn"] if level == 2 else ["AddPartitionsToTxn", "Produce", "EndTxn"]
        assert producer.metrics()["request-total"] - before == len(sent)


def test_of_two_threads_that_begin_one_is_refused(broker: Broker, topic: str) -> None:
    def begin(_: int) -> bool:
        together.wait()
        try:
            producer.begin_transaction()
        except TransactionStateError:
            return False
        return True

    together = Barrier(2)
    with make(broker, topic) as producer, ThreadPoolExecutor(2) as threads:
        producer.init_transactions()
        for _ in range(20):
            assert sorted(threads.map(begin, range(2))) == [False, True]
            producer.send(topic, b"kept")
            producer.commit_transaction()
    read_until(broker.bootstrap_servers, topic, [b"kept"] * 20)


def test_a_closed_producer_begins_nothing(broker: Broker, topic: str) -> None:
    producer = make(broker, topic)
    producer.init_transactions()
    producer.close()
    with pytest.raises(ClientClosedError):
        producer.begin_transaction()


def write(producer: Producer, topic: str, value: bytes) -> None:
    with producer.transaction():
        producer.send(topic, value)


def test_a_cluster_that_is_upgraded_is_followed() -> None:
    with Broker(SETTINGS) as own, make(own, "t") as producer:
        set_level(own, 1, SAFE_DOWNGRADE)
        make_topic(own.bootstrap_servers, "t")
        write(producer, "t", b"old")
        set_level(own, 2, UPGRADE)
        own.restart()  # so that the producer notices it
        for value in (b"between", b"new", b"newer"):
            write(producer, "t", value)
        assert producer._core.transactional().produce_version_max is None
        read_until(own.bootstrap_servers, "t", [b"old", b"between", b"new", b"newer"])


def test_a_broker_that_restarts_within_a_transaction_loses_nothing(
    broker: Broker, topic: str
) -> None:
    with make(broker, topic) as producer:
        with producer.transaction():
            producer.send(topic, b"before").result()
            producer.send_offsets_to_transaction({(topic, 0): 5}, topic)
            broker.restart()
            producer.send(topic, b"after")
        read_until(broker.bootstrap_servers, topic, [b"before", b"after"])
        assert committed_offset(broker.bootstrap_servers, topic, topic) == 5


def test_after_a_timeout_only_the_commit_may_be_called_again(broker: Broker, topic: str) -> None:
    with make(broker, topic, max_block_ms=300, retry_backoff_max_ms=100) as producer:
        _wait_and_init(producer)
        producer.begin_transaction()
        producer.send(topic, b"once").result()
        broker.stop()
        with pytest.raises(NoResponseError, match="call it again"):
            producer.commit_transaction()
        for call in (producer.abort_transaction, producer.begin_transaction):
            with pytest.raises(TransactionStateError, match="commit_transaction is not finished"):
                call()
        broker.start()
        _repeat(producer.commit_transaction)
        producer.begin_transaction()
        _repeat(producer.commit_transaction)
    read_until(broker.bootstrap_servers, topic, [b"once"])


def _wait_and_init(producer: Producer) -> None:
    _repeat(producer.init_transactions)


def _repeat(call: Any) -> None:
    """Call until it is in time: a machine may be slow."""
    for _ in range(200):
        try:
            call()
        except NoResponseError:
            continue
        return
    pytest.fail("it is never in time")


@contextmanager
def losing_answers(api_key: ApiKey, level: int, every: int = 2) -> Iterator[tuple[Any, str]]:
    """Run a broker behind a proxy that drops some responses."""
    with CuttingProxy(every=every, api_key=api_key) as proxy:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            proxy.target_port = probe.getsockname()[1]
        settings = {
            **SETTINGS,
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{proxy.port}",
        }
        with Broker(settings, port=proxy.target_port) as own:
            if level < 2:
                set_level(own, level, SAFE_DOWNGRADE)
            yield proxy, f"127.0.0.1:{proxy.port}"


def _write_and_regret(servers: str, instance: int) -> None:
    with make(servers, "lossy") as producer:
        for number in range(4):
            with producer.transaction():
                producer.send("t", b"%d-%d" % (instance, number)).result()
                producer.send_offsets_to_transaction({("t", 0): number}, "g")
            with pytest.raises(RegretError):
                regret(producer, lambda: producer.send("t", b"dropped").result())


@pytest.mark.parametrize("level", [1, 2])
@pytest.mark.parametrize(
    "api_key",
    [
        ApiKey.END_TXN,
        ApiKey.INIT_PRODUCER_ID,
        ApiKey.TXN_OFFSET_COMMIT,
        ApiKey.PRODUCE,
        ApiKey.FIND_COORDINATOR,
    ],
)
def test_answers_that_are_lost_change_nothing(api_key: ApiKey, level: int) -> None:
    with losing_answers(api_key, level) as (proxy, servers):
        make_topic(servers, "t")
        for instance in range(2):
            _write_and_regret(servers, instance)
        wanted = [b"%d-%d" % (instance, number) for instance in range(2) for number in range(4)]
        read_until(servers, "t", wanted)
        assert committed_offset(servers, "g", "t") == 3
        assert proxy.cuts


def test_a_copier_that_is_killed_again_and_again_copies_everything_once(broker: Broker) -> None:
    count, deaths = 600, 4
    servers, source = broker.bootstrap_servers, f"source-{broker.port}"
    target = f"{source}-copy"
    for name in (source, target):
        make_topic(servers, name)
    with Producer(bootstrap_servers=servers) as producer:
        producer.send_many(source, [b"%d" % number for number in range(count)]).result()
    for life in range(deaths):
        with copying(servers, source, target, count, transactions=life + 2) as process:
            for _ in range(life + 1):  # each process dies during the last of these transactions
                assert process.stdout.readline()
    with copying(servers, source, target, count, transactions=count) as process:
        process.stdout.read()
        assert process.wait(SECONDS_MAX) == 0
    read_until(servers, target, [b"copy of %d" % number for number in range(count)])
    assert committed_offset(servers, source, source) == count


@contextmanager
def copying(servers: str, source: str, target: str, count: int, transactions: int) -> Iterator[Any]:
    """Run a copier for this many transactions, and kill it at the end if it still runs."""
    module = "tests.clients.copying_process"
    command = [sys.executable, "-m", module, servers, source, target, str(count)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdin is not None
        process.stdin.write("\n" * transactions)
        process.stdin.flush()
        try:
            yield process
        finally:
            process.kill()


# -- two-phase commit ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def two_phases() -> Iterator[Broker]:
    with Broker(TWO_PHASES) as running:
        yield running


def prepared(broker: Broker, topic: str) -> PreparedTxnState:
    """Prepare a transaction, and leave it."""
    with make(broker, topic, transaction_two_phase_commit_enable=True) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"prepared")
        state = producer.prepare_transaction()
        with pytest.raises(TransactionStateError, match="it can only be committed"):
            producer.send(topic, b"more")
        assert producer.prepared_transaction_state == state
        return state


@pytest.mark.parametrize("is_known", [True, False])
def test_a_prepared_transaction_waits_for_its_decision(two_phases: Broker, is_known: bool) -> None:
    topic = f"two-phases-{is_known}"
    make_topic(two_phases.bootstrap_servers, topic)
    state = prepared(two_phases, topic)
    with make(two_phases, topic, transaction_two_phase_commit_enable=True) as producer:
        producer.init_transactions(keep_prepared_txn=True)
        assert producer.prepared_transaction_state == state
        found = PreparedTxnState.parse(str(state))
        written_down = found if is_known else found._replace(epoch=found.epoch + 5)
        assert producer.complete_transaction(str(written_down)) is is_known
        assert producer.prepared_transaction_state is None
        with pytest.raises(TransactionStateError):
            producer.complete_transaction(state)
        with producer.transaction():
            producer.send(topic, b"next")
    wanted = [b"prepared", b"next"] if is_known else [b"next"]
    read_until(two_phases.bootstrap_servers, topic, wanted)


def test_a_prepared_transaction_is_completed_by_its_producer(two_phases: Broker) -> None:
    topic = "by-itself"
    make_topic(two_phases.bootstrap_servers, topic)
    with make(two_phases, topic, transaction_two_phase_commit_enable=True) as producer:
        producer.init_transactions()
        for number in range(3):
            producer.begin_transaction()
            producer.send(topic, b"%d" % number)
            state = producer.prepare_transaction()
            assert producer.complete_transaction(state)
    read_until(two_phases.bootstrap_servers, topic, [b"0", b"1", b"2"])


def test_a_broker_without_two_phases_says_so() -> None:
    with (
        Broker(SETTINGS) as own,
        make(own, "t", transaction_two_phase_commit_enable=True) as producer,
    ):
        with pytest.raises(ApiError, match=r"two\.phase\.commit\.enable=true on") as refused:
            producer.init_transactions()
        assert refused.value.code is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert producer._core.transactional().state is State.UNINITIALIZED
