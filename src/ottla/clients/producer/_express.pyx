# cython: boundscheck=False, wraparound=False, binding=False
"""Sends a batch from the thread that wants it sent, compiled: express.py says when, and why.

There is no twin: without this module the sender's thread sends all batches.

Neither another thread nor an exception out of a signal handler comes between the steps of `depart`
and `take_answer`: between taking a batch and having sent it, and between taking an answer and
having settled the batch, they run no Python code, and keep the GIL.
"""

from cpython.bytearray cimport PyByteArray_AS_STRING
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy
from time import monotonic

from ottla.wire.records._crc32c import crc32c
from ottla.wire.records.batch import HEADER, LOG_OVERHEAD_BYTES, MAGIC

cdef extern from "sys/socket.h":
    enum: MSG_DONTWAIT
    enum: MSG_NOSIGNAL
    enum: MSG_PEEK
    enum: SHUT_RDWR
    ssize_t c_recv "recv"(int descriptor, void *data, size_t size, int flags)
    ssize_t c_send "send"(int descriptor, const void *data, size_t size, int flags)
    int c_shutdown "shutdown"(int descriptor, int how)

cdef extern from "endian.h":
    uint32_t htobe32(uint32_t number)
    uint64_t be64toh(uint64_t number)

cdef extern from "sys/epoll.h":
    enum: EPOLLIN
    enum: EPOLLOUT
    enum: EPOLL_CTL_MOD
    ctypedef union epoll_data_t:
        int fd
    struct epoll_event:
        uint32_t events
        epoll_data_t data
    int epoll_ctl(int epoll, int operation, int descriptor, epoll_event *event)

cdef extern from "poll.h":
    enum: POLLIN
    struct pollfd:
        int fd
        short events
        short revents
    int poll(pollfd *descriptors, unsigned long count, int timeout_ms) nogil

cdef extern from "unistd.h":
    int getpid()

cdef extern from "Python.h":
    int PyGC_Disable()
    int PyGC_Enable()

cdef enum:
    BATCH_BYTES_MAX = 1 << 14  # what any socket takes at once that owes nothing
    SEQUENCE_MASK = 0x7FFFFFFF
    SIZE_BYTES = 4
    CORRELATION_ID_AT = 8
    ANSWER_CORRELATION_ID_AT = 4
    CRC_AT = 17
    CHECKED_FROM = 21
    ANSWER_BYTES_MAX = 1024
    ANSWER_NUMBERS_BYTES = 24  # the first offset, the time, and where the log begins
    ANSWER_TAIL_BYTES = 9  # no errors, no wish to be left alone, no tagged fields


cdef void put_uint32(bytearray into, Py_ssize_t at, uint32_t number) noexcept:
    number = htobe32(number)
    memcpy(PyByteArray_AS_STRING(into) + at, &number, sizeof(number))


cdef int64_t get_int64(const char *at) noexcept:
    cdef uint64_t number
    memcpy(&number, at, sizeof(number))
    return <int64_t>be64toh(number)


cdef bytes varint(Py_ssize_t number):
    cdef bytearray encoded = bytearray()
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


cdef class Express:
    """The way of one lane to its leader."""

    cdef object _sender
    cdef object _accumulator
    cdef object _lane
    cdef object _outbox
    cdef readonly object connection
    cdef object _stream
    cdef object _make_flight
    cdef dict _flights
    cdef bytes _head
    cdef bytes _tail
    cdef bytearray _answer
    cdef int _descriptor
    cdef int _epoll
    cdef int _process_id
    cdef double _until
    cdef object _flight
    cdef object _pending
    cdef uint32_t _correlation_id
    cdef readonly Py_ssize_t departures
    cdef readonly Py_ssize_t answers

    def __init__(self, sender, accumulator, lane, route, int epoll):
        """`epoll` is what the sender's thread waits with, or -1."""
        self._sender = sender
        self._accumulator = accumulator
        self._lane = lane
        self._outbox = lane.outbox
        self.connection = route.connection
        self._stream = route.connection.stream
        self._make_flight = route.make_flight
        self._flights = sender.flights.to(route.broker_id)
        self._head = route.head
        self._tail = route.tail
        self._answer = bytearray(route.answer)
        self._until = route.until
        self._descriptor = self._stream.socket.fileno()
        self._epoll = epoll
        self._process_id = getpid()

    # -- sending -----------------------------------------------------------------------------------

    def depart(self, batch):
        """Send a batch that is still open; False, and nothing was done, if this is not the time."""
        if not self._is_time():
            return False
        flight, correlation_id, pending = self._make_flight(batch)
        cdef bint is_collecting = PyGC_Disable()  # it may run Python code
        try:
            if not self._is_time() or self._accumulator.next_look_ms > flight.late_at_ms:
                return False
            if not self._accumulator.take_open(self._lane, batch, BATCH_BYTES_MAX):
                return False
            self._flight, self._correlation_id, self._pending = flight, correlation_id, pending
            put_uint32(self._answer, ANSWER_CORRELATION_ID_AT, correlation_id)
            self._number(flight.shipments[0], batch)
            self.connection.pending[correlation_id] = pending
            self._flights[flight] = None
            self._write(self._frame(flight.shipments[0].payload))
            self.departures += 1
            return True
        finally:
            if is_collecting:
                PyGC_Enable()

    cdef bint _is_time(self) except -1:
        outbox = self._outbox
        identity = self._sender.settling.identity
        cdef double now = monotonic()
        return (
            self._lane.express is self
            and not self._sender.is_busy
            and not self._flights
            and not outbox.flying
            and not outbox.waiting
            and not outbox.must_renumber
            and outbox.producer == (identity.producer_id, identity.producer_epoch)
            and not self._stream.is_closed
            and not self._stream.unsent
            and self.connection.muted_until <= now < self._until
            and getpid() == self._process_id  # a child's parent goes on with the connection
        )

    cdef _number(self, shipment, batch):
        """Make a batch the last one in the line, as `Packing.take` does."""
        outbox = self._outbox
        records = batch.records
        shipment.record_count = batch.record_count
        shipment.charged_bytes = batch.charged_bytes
        shipment.payload = records.take()
        shipment.producer = outbox.producer
        outbox.number += 1
        shipment.number = outbox.number
        if outbox.producer[0] >= 0:
            shipment.base_sequence = outbox.next_sequence
            outbox.next_sequence = (outbox.next_sequence + shipment.record_count) & SEQUENCE_MASK
        HEADER.pack_into(
            shipment.payload, 0, 0, len(shipment.payload) - LOG_OVERHEAD_BYTES, -1, MAGIC, 0, 0,
            records.next_offset_delta - 1, records.base_timestamp_ms, records.max_timestamp_ms,
            outbox.producer[0], outbox.producer[1], shipment.base_sequence, shipment.record_count,
        )
        crc = crc32c(memoryview(shipment.payload)[CHECKED_FROM:])
        put_uint32(shipment.payload, CRC_AT, crc)
        outbox.flying.append(shipment)

    cdef bytearray _frame(self, bytearray payload):
        cdef bytearray frame = bytearray(self._head)
        frame += varint(len(payload) + 1)
        frame += payload
        frame += self._tail
        put_uint32(frame, 0, len(frame) - SIZE_BYTES)
        put_uint32(frame, CORRELATION_ID_AT, self._correlation_id)
        return frame

    cdef _write(self, bytearray frame):
        cdef Py_ssize_t size = len(frame)
        cdef const char *data = PyByteArray_AS_STRING(frame)
        self.connection.counts.requests += 1
        self.connection.counts.bytes_out += size
        if c_send(self._descriptor, data, size, MSG_DONTWAIT | MSG_NOSIGNAL) < size:
            # A part of a frame is of no use. The sender sees the end, and sends the batch again.
            c_shutdown(self._descriptor, SHUT_RDWR)

    # -- taking the answer -------------------------------------------------------------------------

    def take_answer(self, batch, int timeout_ms):
        """Wait for the answer to a batch, and take it if it is the usual one.

        Everything else, and what comes later, is left to the sender. Its thread does not wake up
        for what comes meanwhile.
        """
        stream = self._stream
        if stream.is_lent or stream.is_reading or stream.is_blocked:
            return
        if self._epoll < 0 or not self._is_awaited(batch):
            return
        cdef pollfd awaited
        awaited.fd = self._descriptor
        awaited.events = POLLIN
        stream.is_lent = True
        self._listen(0)
        with nogil:
            poll(&awaited, 1, timeout_ms)
        cdef bint is_collecting = PyGC_Disable()  # it may run Python code
        cdef bint is_taken = False
        try:
            is_taken = self._is_awaited(batch) and self._is_only_ours(batch) and self._take(batch)
        finally:
            stream.is_lent = False
            if not stream.is_closed:
                self._listen(EPOLLIN | EPOLLOUT if stream.is_blocked else EPOLLIN)
            if is_collecting:
                PyGC_Enable()
        if is_taken:
            self._count()

    cdef bint _is_awaited(self, batch) except -1:
        return (
            self._flight is not None
            and getpid() == self._process_id
            and self._flight in self._flights
            and self._flight.shipments[0].batch is batch
            and not self._stream.is_closed
        )

    cdef bint _is_only_ours(self, batch) except -1:
        """Whether nobody else has anything to do when the batch is done."""
        accumulator = self._accumulator
        return not (
            self._sender.is_busy
            or self._sender.is_short_of_memory
            or batch.is_done
            or batch.is_listened_to
            or self._lane.open is not None
            or self._lane.closed
            or len(accumulator.active) > 1
        )

    cdef bint _take(self, batch) except -1:
        """Do what `Sender.land` does when a batch was taken, if all of the answer is here."""
        cdef char received[ANSWER_BYTES_MAX]
        cdef Py_ssize_t size = len(self._answer)
        cdef const char *numbers = received + (size - ANSWER_TAIL_BYTES - ANSWER_NUMBERS_BYTES)
        if not self._is_usual(received):
            return False
        c_recv(self._descriptor, received, size, MSG_DONTWAIT)
        shipment = self._flight.shipments[0]
        outbox = self._outbox
        self.connection.pending.pop(self._correlation_id, None)
        self._flights.pop(self._flight, None)
        self._flight = None
        outbox.flying.remove(shipment)
        outbox.acknowledged = shipment.number
        outbox.backoff_ms = 0
        self._sender.request_count += 1
        self._sender.settling.counts.records += shipment.record_count
        self._accumulator.release(shipment.charged_bytes)
        self._accumulator.retire(self._lane)
        batch.complete(get_int64(numbers), get_int64(numbers + 8))
        return True

    cdef bint _is_usual(self, char *received) noexcept:
        """Look at what has come without taking it, and compare all but the numbers in it."""
        cdef const char *usual = PyByteArray_AS_STRING(self._answer)
        cdef Py_ssize_t size = len(self._answer)
        cdef Py_ssize_t tail = size - ANSWER_TAIL_BYTES
        return (
            size <= ANSWER_BYTES_MAX
            and c_recv(self._descriptor, received, size, MSG_PEEK | MSG_DONTWAIT) == size
            and memcmp(received, usual, tail - ANSWER_NUMBERS_BYTES) == 0
            and memcmp(received + tail, usual + tail, ANSWER_TAIL_BYTES) == 0
        )

    cdef _listen(self, uint32_t events):
        """Say what the sender's thread wakes up for."""
        cdef epoll_event event
        event.events = events
        event.data.fd = self._descriptor
        epoll_ctl(self._epoll, EPOLL_CTL_MOD, self._descriptor, &event)

    cdef _count(self):
        """Count what came; whatever is raised here harms nothing."""
        connection = self.connection
        self.answers += 1
        connection.used_at = connection.heard_at = monotonic()
        connection.counts.answers += 1
        connection.counts.bytes_in += len(self._answer)
        took_ms = (connection.heard_at - self._pending.sent_at) * 1000
        connection.counts.answered(self._pending.api_key, took_ms)
