# cython: boundscheck=False, wraparound=False, binding=False
"""Records gathered into batches, compiled: _accumulator_python.py has the contracts.

What the threads share is changed in steps that run no Python code halfway and allocate nothing
that the garbage collector looks at, so that the GIL protects them.
"""

cimport cython
from collections import deque
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.time cimport time as wall_clock
from cpython.unicode cimport PyUnicode_AsUTF8String
from libc.stdint cimport INT32_MAX, INT64_MAX, int32_t, int64_t, uint8_t, uint32_t

from ottla.clients.records._murmur2 cimport hash_of
from ottla.clients.producer.batching._accumulator_python import checked_timestamp, too_large
from ottla.clients.producer.state.record_metadata import RecordMetadata
from ottla.clients.producer.batching.delivery_wait import call_safely, wait_in_loop, wait_in_thread
from ottla.wire.records._writing cimport RecordAccumulator, encoded_headers
from ottla.wire.records.batch import HEADER_BYTES
from ottla.wire.records.builder import record_bytes_max

NEVER_MS = INT64_MAX

cdef Py_ssize_t HEADER_ROOM_BYTES = HEADER_BYTES
cdef Py_ssize_t RECORD_OVERHEAD_BYTES_MAX = record_bytes_max(None, None)
cdef bytes NO_HEADERS = b"\0"

cdef enum:
    NO_PARTITION = -1
    UNKNOWN_OFFSET = -1


cdef inline bytes as_bytes(data):
    if data is None or type(data) is bytes:
        return <bytes>data
    if isinstance(data, str):
        return PyUnicode_AsUTF8String(data)
    return bytes(memoryview(data))


cdef inline int32_t partition_for_key(bytes key, int32_t partition_count) noexcept:
    cdef uint32_t hashed = hash_of(<const uint8_t *>PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key))
    return <int32_t>(hashed & 0x7FFFFFFF) % partition_count


@cython.final
@cython.no_gc
@cython.freelist(1024)
cdef class Delivery:
    """See the fallback. Cycles end when the batch is done, so that no collector is needed."""

    cdef Batch _batch
    cdef int64_t _timestamp_ms
    cdef int32_t _index

    @property
    def topic(self):
        """Where the record goes."""
        return self._batch.topic

    @property
    def partition(self):
        """Where the record goes."""
        return self._batch.partition

    def done(self):
        """Whether the record was taken or given up."""
        return self._batch.is_done

    def result(self, timeout=None):
        """See the fallback."""
        if not self._batch.is_done:
            wait_in_thread(self._batch, timeout)
        return self._outcome()

    def exception(self, timeout=None):
        """See the fallback."""
        wait_in_thread(self._batch, timeout)
        return self._batch.error_of(self._index)

    def add_done_callback(self, call):
        """See the fallback."""
        self._batch.when_done(lambda: call_safely(call, self))

    def __await__(self):
        if not self._batch.is_done:
            yield from wait_in_loop(self._batch)
        return self._outcome()

    cdef _outcome(self):
        error = self._batch.error_of(self._index)
        if error is not None:
            raise error
        return self._batch.metadata_of(self._index, self._timestamp_ms)


cdef class Batch:
    """See the fallback."""

    cdef Accumulator _accumulator
    cdef int64_t _base_offset
    cdef int64_t _log_append_time_ms
    cdef object _error
    cdef object _error_by_index
    cdef list _parts
    cdef list _callbacks
    cdef list _waiters
    cdef readonly str topic
    cdef readonly int32_t partition
    cdef readonly RecordAccumulator records
    cdef readonly int64_t created_ms
    cdef public Py_ssize_t charged_bytes
    cdef public bint is_due
    cdef readonly bint is_done

    def __init__(self, Accumulator accumulator not None, str topic, int32_t partition,
                 RecordAccumulator records not None, int64_t created_ms):
        self._accumulator = accumulator
        self.topic = topic
        self.partition = partition
        self.records = records
        self.created_ms = created_ms
        self._base_offset = UNKNOWN_OFFSET
        self._log_append_time_ms = -1
        self._callbacks = []
        self._waiters = []

    @property
    def loop(self):
        """The event loop that will say what became of the batch."""
        return self._accumulator.loop

    @property
    def record_count(self):
        """How many records there are so far."""
        return self.records.record_count

    def delivery(self, int32_t index, int64_t timestamp_ms=-1):
        """Return the delivery of one record."""
        return self._delivery(index, timestamp_ms)

    cdef inline Delivery _delivery(self, int32_t index, int64_t timestamp_ms):
        cdef Delivery delivery = Delivery.__new__(Delivery)
        delivery._batch = self
        delivery._index = index
        delivery._timestamp_ms = timestamp_ms
        return delivery

    def hurry(self):
        """Send the batch without lingering, because a caller waits."""
        if not self.is_due:
            self.is_due = True
            self._accumulator.hurry(self)

    @property
    def is_listened_to(self):
        """Whether the batch has callbacks or waiters."""
        return bool(self._callbacks) or bool(self._waiters)

    def take_answer(self, double seconds_max):
        """See the fallback."""
        cdef OpenBatches lane = self._accumulator._lane(self.topic, self.partition, None)
        if lane is not None and lane.direct_send is not None:
            lane.direct_send.receive(self, <int>(seconds_max * 1000))
        return self.is_done

    def when_done(self, call):
        """See the fallback."""
        cdef bint is_done = False
        with cython.critical_section(self):
            is_done = self.is_done
            if not is_done:
                self._waiters.append(call)
        if is_done:
            call()

    def call_back(self, int32_t index, int64_t timestamp_ms, on_delivery):
        """See the fallback."""
        self._callbacks.append(self._delivery(index, timestamp_ms))
        self._callbacks.append(on_delivery)

    def complete(self, int64_t base_offset, int64_t log_append_time_ms=-1):
        """See the fallback."""
        if self.is_done:
            return
        self._base_offset = base_offset
        self._log_append_time_ms = log_append_time_ms
        self._finish()

    def fail(self, error, error_by_index=None):
        """See the fallback."""
        if not self.is_done:
            self._error = error
            self._error_by_index = error_by_index
            self._finish()

    def split(self, counts, records):
        """See the fallback."""
        cdef list parts = []
        first = 0
        for count, part in zip(counts, records, strict=True):
            batch = Batch(self._accumulator, self.topic, self.partition, part, self.created_ms)
            parts.append((first, batch))
            first += count
        self._parts = parts
        for _, batch in parts:
            batch.when_done(self._finish_if_parts_are)
        return [batch for _, batch in parts]

    cpdef error_of(self, int32_t index):
        """See the fallback."""
        if self._parts is not None:
            part, first = self._part_of(index)
            return part.error_of(index - first)
        if self._error is None or self._error_by_index is None:
            return self._error
        return self._error_by_index.get(index, self._error)

    def first_error(self):
        """See the fallback."""
        if self._parts is None:
            return next(iter((self._error_by_index or {}).values()), self._error)
        for _, part in self._parts:
            error = part.first_error()
            if error is not None:
                return error
        return None

    cpdef metadata_of(self, int32_t index, int64_t timestamp_ms):
        """See the fallback."""
        if self._parts is not None:
            part, first = self._part_of(index)
            return part.metadata_of(index - first, timestamp_ms)
        cdef int64_t offset = UNKNOWN_OFFSET
        if self._base_offset >= 0:
            offset = self._base_offset + index
        if self._log_append_time_ms >= 0:
            timestamp_ms = self._log_append_time_ms
        return RecordMetadata(self.topic, self.partition, offset, timestamp_ms)

    def _part_of(self, int32_t index):
        for first, part in reversed(self._parts):
            if first <= index:
                return part, first
        raise AssertionError(index)

    def _finish_if_parts_are(self):
        for _, part in self._parts:
            if not part.is_done:
                return
        self._finish()

    cdef _finish(self):
        cdef list waiters = None
        cdef list callbacks = None
        cdef Py_ssize_t at
        cdef Delivery delivery
        cdef list no_more = []
        with cython.critical_section(self):
            self.is_done = True
            waiters, callbacks = self._waiters, self._callbacks
            self._waiters = self._callbacks = no_more
        try:
            for at in range(0, len(callbacks), 2):
                delivery = callbacks[at]
                error = self.error_of(delivery._index)
                metadata = None
                if error is None:
                    metadata = self.metadata_of(delivery._index, delivery._timestamp_ms)
                call_safely(callbacks[at + 1], error, metadata)
        finally:
            for call in waiters:
                call()


cdef class OpenBatches:
    """See the fallback."""

    cdef readonly str topic
    cdef readonly int32_t partition
    cdef readonly Topic sticky_of
    cdef readonly Batch open
    cdef readonly object closed
    cdef public object queue
    cdef public object direct_send

    def __init__(self, str topic, int32_t partition, Topic sticky_of):
        self.topic = topic
        self.partition = partition
        self.sticky_of = sticky_of
        self.closed = deque()

    def take(self):
        """Take the first full batch away."""
        return self.closed.popleft() if self.closed else None


cdef class Topic:
    """See the fallback."""

    cdef readonly str name
    cdef readonly list lanes
    cdef public int32_t count
    cdef public int32_t sticky

    def __init__(self, str name):
        self.name = name
        self.lanes = []
        self.sticky = NO_PARTITION


cdef class Accumulator:
    """See the fallback."""

    cdef readonly Py_ssize_t batch_bytes_max
    cdef readonly Py_ssize_t request_bytes_max
    cdef readonly Py_ssize_t memory_bytes_max
    cdef readonly double linger_ms
    cdef readonly dict active
    cdef readonly Py_ssize_t used_bytes
    cdef public object loop
    cdef public object failure
    cdef public int64_t next_look_ms
    cdef public bint is_rung
    cdef Py_ssize_t _record_bytes_max
    cdef dict _topics
    cdef object _now_ms
    cdef object _monotonic_ms
    cdef object _pick
    cdef object _partitioner
    cdef object _wake

    def __init__(self, *, Py_ssize_t batch_bytes_max, Py_ssize_t request_bytes_max,
                 Py_ssize_t memory_bytes_max, double linger_ms, now_ms, monotonic_ms, pick,
                 partitioner, wake):
        self.batch_bytes_max = batch_bytes_max
        self.request_bytes_max = request_bytes_max
        self.memory_bytes_max = memory_bytes_max
        self._record_bytes_max = min(request_bytes_max, memory_bytes_max) - HEADER_ROOM_BYTES
        self.linger_ms = linger_ms
        self.active = {}
        self.next_look_ms = INT64_MAX
        self._topics = {}
        self._now_ms = now_ms
        self._monotonic_ms = monotonic_ms
        self._pick = pick
        self._partitioner = partitioner
        self._wake = wake

    def append(self, str topic not None, value, key=None, partition=None, timestamp_ms=None,
               headers=(), on_delivery=None):
        """See the fallback."""
        if self.failure is not None:
            raise self.failure
        cdef bytes key_bytes = as_bytes(key)
        cdef bytes value_bytes = as_bytes(value)
        cdef bytes header_bytes = NO_HEADERS
        cdef Py_ssize_t needed = RECORD_OVERHEAD_BYTES_MAX
        if key_bytes is not None:
            needed += PyBytes_GET_SIZE(key_bytes)
        if value_bytes is not None:
            needed += PyBytes_GET_SIZE(value_bytes)
        if headers is not None and len(headers) != 0:
            header_bytes = encoded_headers(headers)
            needed = record_bytes_max(key_bytes, value_bytes, headers)
        if needed > self._record_bytes_max:
            raise too_large(
                topic, needed + HEADER_ROOM_BYTES, self.request_bytes_max, self.memory_bytes_max
            )
        cdef OpenBatches lane = self._lane(topic, partition, key_bytes)
        if lane is None or self.used_bytes + HEADER_ROOM_BYTES + needed > self.memory_bytes_max:
            return None
        cdef int64_t at_ms
        if timestamp_ms is not None:
            at_ms = checked_timestamp(timestamp_ms)
        elif self._now_ms is None:
            at_ms = <int64_t>(wall_clock() * 1000)
        else:
            at_ms = self._now_ms()
        return self._put(lane, needed, at_ms, key_bytes, value_bytes, header_bytes, on_delivery)

    cdef Delivery _put(self, OpenBatches lane, Py_ssize_t needed, int64_t at_ms, bytes key, bytes value,
                       bytes headers, on_delivery):
        cdef bint rings = False
        cdef Batch batch
        cdef Delivery delivery = None
        while delivery is None:
            self._check_again()
            rings |= self._make_room(lane, needed)
            with cython.critical_section(self):
                batch = lane.open
                if batch is not None and self._has_room(batch, needed):
                    batch.records._put(at_ms, key, value, headers, INT32_MAX)
                    self.used_bytes += batch.records._size - batch.charged_bytes
                    batch.charged_bytes = batch.records._size
                    delivery = batch._delivery(batch.records.record_count - 1, at_ms)
                    if on_delivery is not None:
                        batch._callbacks.append(delivery)
                        batch._callbacks.append(on_delivery)
        if rings and not (self.linger_ms == 0 and self._depart(lane, batch)):
            self.ring()
        return delivery

    cdef inline int _check_again(self) except -1:
        """Raise if nothing is taken any more: a partitioner may have let other threads go on."""
        if self.failure is not None:
            raise self.failure
        return 0

    cdef inline bint _has_room(self, Batch batch, Py_ssize_t needed):
        return (
            batch.records.record_count == 0
            or batch.records._size + needed <= self.batch_bytes_max
        )

    cdef inline bint _make_room(self, OpenBatches lane, Py_ssize_t needed) except -1:
        """Open a batch if there is none with room; return whether the sender should look."""
        cdef Batch batch = lane.open
        if batch is not None and self._has_room(batch, needed):
            return False
        return self._open(lane, batch)

    cdef bint _open(self, OpenBatches lane, Batch full) except -1:
        # Making a batch may run other threads, which may have been quicker: look again.
        cdef int64_t created_ms = self._monotonic_ms()
        cdef Batch fresh = Batch(self, lane.topic, lane.partition, RecordAccumulator(), created_ms)
        self._check_again()
        with cython.critical_section(self):
            if lane.open is full:
                self._close(lane)
                lane.open = fresh
                self.active[lane] = None
        return full is not None or created_ms + self.linger_ms < self.next_look_ms

    def add_batch(self, str topic not None, int32_t partition, RecordAccumulator records not None):
        """See the fallback."""
        if self.failure is not None:
            raise self.failure
        cdef Py_ssize_t size = records._size
        if size > min(self.request_bytes_max, self.memory_bytes_max):
            raise too_large(topic, size, self.request_bytes_max, self.memory_bytes_max)
        cdef OpenBatches lane = self._lane(topic, partition, None)
        if lane is None or self.used_bytes + size > self.memory_bytes_max:
            return None
        cdef Batch batch = Batch(self, topic, partition, records, self._monotonic_ms())
        batch.charged_bytes = size
        self._check_again()
        with cython.critical_section(self):
            self.used_bytes += size
            self._close(lane)
            lane.closed.append(batch)
            self.active[lane] = None
        self.ring()
        return batch

    def choose_partition(self, str topic not None, key=None):
        """See the fallback."""
        cdef OpenBatches lane = self._lane(topic, None, as_bytes(key))
        return None if lane is None else lane.partition

    def set_partition_count(self, str topic not None, int32_t count):
        """See the fallback."""
        known = self._topics.setdefault(topic, Topic(topic))
        cdef list lanes = (<Topic>known).lanes
        while len(lanes) < count:
            lanes.append(OpenBatches(topic, len(lanes), known))
        (<Topic>known).count = count
        if (<Topic>known).sticky >= count:
            (<Topic>known).sticky = NO_PARTITION

    def partition_count(self, str topic):
        """See the fallback."""
        known = self._topics.get(topic)
        return 0 if known is None else (<Topic>known).count

    def lanes(self):
        """See the fallback."""
        for topic in list(self._topics.values()):
            yield from list((<Topic>topic).lanes)

    def close_open(self, OpenBatches lane not None):
        """See the fallback."""
        with cython.critical_section(self):
            self._close(lane)

    def hurry(self, Batch batch not None):
        """See the fallback."""
        cdef OpenBatches lane = (<Topic>self._topics[batch.topic]).lanes[batch.partition]
        if lane.open is batch and not self._depart(lane, batch):
            self.ring()

    cdef bint _depart(self, OpenBatches lane, Batch batch) except -1:
        try:
            return lane.direct_send is not None and lane.direct_send.send(batch)
        except BaseException:  # Ctrl-C, it may be, and nobody has sent the batch
            self.ring()
            raise

    def take_open(self, OpenBatches lane not None, Batch batch not None, Py_ssize_t bytes_max):
        """Take the open batch of a lane away; False if there is another, or one before, or more."""
        cdef bint is_alone = lane.open is batch and not lane.closed
        if is_alone and batch.charged_bytes <= bytes_max:
            self._close(lane)
            lane.closed.pop()
            return True
        return False

    def retire(self, OpenBatches lane not None):
        """See the fallback."""
        with cython.critical_section(self):
            if lane.open is None and not lane.closed:
                self.active.pop(lane, None)

    def release(self, Py_ssize_t size_bytes):
        """See the fallback."""
        self.used_bytes -= size_bytes

    cpdef ring(self):
        """See the fallback."""
        if not self.is_rung:
            self.is_rung = True
            try:
                self._wake()
            except BaseException:  # Ctrl-C, it may be, and nobody is awake
                self._wake()
                raise

    cdef inline OpenBatches _lane(self, str topic, partition, bytes key):
        known = self._topics.get(topic)
        if known is None:
            return None
        cdef list lanes = (<Topic>known).lanes
        cdef int32_t count = (<Topic>known).count
        cdef int32_t chosen
        if partition is None:
            chosen = self._partition_for(<Topic>known, key, count)
        else:
            chosen = partition
        if 0 <= chosen < count:
            return <OpenBatches>lanes[chosen]
        return None

    cdef inline int32_t _partition_for(self, Topic topic, bytes key, int32_t count) except? -9:
        if self._partitioner is not None:
            chosen = self._partitioner(topic.name, key, count)
            if chosen is not None:
                return chosen
        elif key is not None:
            return partition_for_key(key, count) if count > 0 else NO_PARTITION
        cdef int32_t sticky = topic.sticky
        if sticky == NO_PARTITION:
            sticky = self._pick(topic.name, count)
            topic.sticky = sticky
        return sticky

    cdef inline int _close(self, OpenBatches lane) except -1:
        cdef Batch batch = lane.open
        if batch is not None:
            lane.closed.append(batch)
            lane.open = None
            if lane.sticky_of.sticky == lane.partition:
                lane.sticky_of.sticky = NO_PARTITION
        return 0
