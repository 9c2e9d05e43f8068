# cython: boundscheck=False, wraparound=False, binding=False
"""The direct path of the producer, compiled: the caller's thread sends; see direct_send.py.

There is no fallback: without this module the sender's thread sends everything.

Two steps must not be cut short: from taking a batch to sending it, and from receiving a response to
completing its batch. A signal handler may raise between any two steps of Python code, for example
KeyboardInterrupt. So these steps are compiled, and call no Python code. They hold the sender's
lock, because an allocation may collect garbage, and a finalizer may let the sender's thread run.
They never block while they hold it. The connection has no lock: whether it is open is checked right
before the system call, with no allocation in between.
"""

from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, memset
from time import monotonic

from ottla.wire.records._crc32c cimport sum_of
from ottla.wire.records.batch import HEADER, LOG_OVERHEAD_BYTES, MAGIC, TRANSACTIONAL_BIT

cdef extern from "sys/socket.h":
    enum: MSG_DONTWAIT
    enum: MSG_NOSIGNAL
    enum: MSG_PEEK
    enum: SHUT_RDWR
    struct iovec:
        void *iov_base
        size_t iov_len
    struct msghdr:
        iovec *msg_iov
        size_t msg_iovlen
    ssize_t c_recv "recv"(int descriptor, void *data, size_t size, int flags)
    ssize_t c_sendmsg "sendmsg"(int descriptor, const msghdr *message, int flags)
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

cdef enum:
    BATCH_BYTES_MAX = 1 << 14  # fits into the send buffer of any idle socket
    SEQUENCE_MASK = 0x7FFFFFFF
    SIZE_BYTES = 4
    CORRELATION_ID_AT = 8
    RESPONSE_CORRELATION_ID_AT = 4
    CRC_AT = 17
    CHECKED_FROM = 21
    RESPONSE_BYTES_MAX = 1024
    RESPONSE_NUMBERS_BYTES = 24  # base offset, append time, log start offset
    RESPONSE_TAIL_BYTES = 9  # no errors, throttle time 0, no tagged fields
    PIECES = 3  # of a frame: the bytes before the records, the records, the bytes after them


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


cdef class DirectSend:
    """The direct path of one partition to its leader."""

    cdef readonly object connection
    cdef object _stream
    cdef int _descriptor
    cdef int _epoll
    cdef int _process_id
    cdef object _sender
    cdef object _lock
    cdef object _accumulator
    cdef object _lane
    cdef object _queue
    cdef object _make_flight
    cdef dict _flights
    cdef bytes _head
    cdef bytes _tail
    cdef bytearray _response
    cdef int _attributes
    cdef double _until
    cdef object _flight
    cdef object _pending
    cdef uint32_t _correlation_id
    cdef readonly Py_ssize_t sends
    cdef readonly Py_ssize_t responses

    def __init__(self, sender, accumulator, lane, route, int epoll):
        """`epoll` is the file descriptor of the sender's event loop, or -1."""
        self.connection = route.connection
        self._stream = route.connection.stream
        self._descriptor = self._stream.socket.fileno()
        self._epoll = epoll
        self._process_id = getpid()
        self._sender = sender
        self._lock = sender.lock
        self._accumulator = accumulator
        self._lane = lane
        self._queue = lane.queue
        self._make_flight = route.make_flight
        self._flights = sender.flights.to(route.broker_id)
        self._head = route.head
        self._tail = route.tail
        self._response = bytearray(route.response)
        self._attributes = TRANSACTIONAL_BIT if sender.identity.is_transactional else 0
        self._until = route.until

    # -- sending -----------------------------------------------------------------------------------

    def send(self, batch):
        """Send an open batch; False, without any effect, if that is not possible now.

        A large batch is left to the sender, because the socket might block.
        """
        if not self._is_time() or not self._sender.completion.identity.sends_at_once():
            return False
        flight, correlation_id, pending = self._make_flight(batch)
        if not self._lock.acquire(False):
            return False
        try:
            return self._send_open(batch, flight, correlation_id, pending)
        finally:
            self._lock.release()

    cdef bint _send_open(self, batch, flight, correlation_id, pending) except -1:
        # First, so that a connection that ends from here on fails the request.
        self.connection.pending[correlation_id] = pending
        if (
            not self._is_time()
            or self._accumulator.next_look_ms > flight.late_at_ms
            or not self._accumulator.take_open(self._lane, batch, BATCH_BYTES_MAX)
        ):
            self.connection.pending.pop(correlation_id, None)
            return False
        self._flight, self._correlation_id, self._pending = flight, correlation_id, pending
        self._flights[flight] = None
        put_uint32(self._response, RESPONSE_CORRELATION_ID_AT, correlation_id)
        self._number(flight.ready_batches[0], batch)
        self.sends += 1
        self._send(flight.ready_batches[0].payload)
        return True

    cdef bint _is_time(self) except -1:
        queue = self._queue
        stream = self._stream
        cdef double now = monotonic()
        return (
            self._lane.direct_send is self
            and not self._sender.is_busy
            and not self._flights
            and not queue.flying
            and not queue.waiting
            and not queue.must_renumber
            and now < self._until
            and not stream.is_closed
            and not stream.unsent
            and self.connection.muted_until <= now
            and getpid() == self._process_id  # not a forked child: the parent owns the connection
        )

    cdef _number(self, ready_batch, batch):
        """Number and seal a batch, as `BatchSealer.take` does."""
        queue = self._queue
        identity = self._sender.completion.identity
        records = batch.records
        producer = (identity.producer_id, identity.producer_epoch)
        if queue.producer != producer:
            queue.producer = producer
            queue.next_sequence = queue.acknowledged = 0
        ready_batch.record_count = batch.record_count
        ready_batch.charged_bytes = batch.charged_bytes
        ready_batch.payload = records.take()
        ready_batch.producer = queue.producer
        queue.number += 1
        ready_batch.number = queue.number
        if queue.producer[0] >= 0:
            ready_batch.base_sequence = queue.next_sequence
            queue.next_sequence = (queue.next_sequence + ready_batch.record_count) & SEQUENCE_MASK
        HEADER.pack_into(
            ready_batch.payload, 0, 0, len(ready_batch.payload) - LOG_OVERHEAD_BYTES, -1, MAGIC, 0,
            self._attributes, records.next_offset_delta - 1, records.base_timestamp_ms,
            records.max_timestamp_ms, queue.producer[0], queue.producer[1],
            ready_batch.base_sequence, ready_batch.record_count,
        )
        cdef bytearray payload = ready_batch.payload
        cdef uint32_t crc = sum_of(
            PyByteArray_AS_STRING(payload) + CHECKED_FROM, len(payload) - CHECKED_FROM
        )
        put_uint32(payload, CRC_AT, crc)
        queue.flying.append(ready_batch)

    cdef _send(self, bytearray records):
        """Send the frame; if not all of it can be sent, end the connection.

        The sender then sends the whole batch again, on another one.
        """
        cdef bytearray head = self._frame_head(len(records))
        cdef Py_ssize_t unsent = len(head) + len(records) + len(self._tail)
        cdef iovec pieces[PIECES]
        cdef msghdr message
        pieces[0] = iovec(PyByteArray_AS_STRING(head), len(head))
        pieces[1] = iovec(PyByteArray_AS_STRING(records), len(records))
        pieces[2] = iovec(PyBytes_AS_STRING(self._tail), len(self._tail))
        memset(&message, 0, sizeof(message))
        message.msg_iov = pieces
        message.msg_iovlen = PIECES
        self.connection.counts.requests += 1
        self.connection.counts.bytes_out += unsent
        stream = self._stream
        if stream.is_closed:
            return
        if not stream.unsent:  # else this frame would be in the middle of another
            unsent -= c_sendmsg(self._descriptor, &message, MSG_DONTWAIT | MSG_NOSIGNAL)
        if unsent:
            c_shutdown(self._descriptor, SHUT_RDWR)

    cdef bytearray _frame_head(self, Py_ssize_t records_bytes):
        cdef bytearray head = bytearray(self._head)
        head += varint(records_bytes + 1)
        put_uint32(head, 0, len(head) + records_bytes + len(self._tail) - SIZE_BYTES)
        put_uint32(head, CORRELATION_ID_AT, self._correlation_id)
        return head

    # -- receiving the response ------------------------------------------------------------------

    def receive(self, batch, int timeout_ms):
        """Wait for the response to a batch, and handle it if it is regular.

        Any other or later response is left to the sender, whose thread is not woken meanwhile.
        """
        if not self._is_lendable() or not self._is_awaited(batch):
            return
        cdef bint is_taken = False
        self._stream.is_lent = True
        self._listen(0)
        try:
            self._wait(timeout_ms)
            if self._lock.acquire(False):
                try:
                    is_taken = self._take(batch)
                finally:
                    self._lock.release()
        finally:
            self._give_back()
        if is_taken:
            self.responses += 1
            self._count_response()

    cdef bint _is_lendable(self) except -1:
        """Whether this thread may wait for a response in place of the sender's thread."""
        stream = self._stream
        return self._epoll >= 0 and not (
            stream.is_closed or stream.is_lent or stream.is_reading or stream.unsent
        )

    cdef bint _is_awaited(self, batch) except -1:
        return (
            self._flight is not None
            and getpid() == self._process_id
            and self._flight in self._flights
            and self._flight.ready_batches[0].batch is batch
        )

    cdef bint _is_only_ours(self, batch) except -1:
        """Whether this is the only pending work: no callbacks, and no other batches."""
        accumulator = self._accumulator
        return not (
            self._sender.is_busy
            or self._sender.is_short_of_memory
            or batch.is_done
            or batch.is_listened_to
            or self._lane.open is not None
            or self._lane.closed
            or self._queue.waiting
            or len(self._queue.flying) > 1
            or len(accumulator.active) > 1
        )

    cdef _listen(self, uint32_t events):
        """Set the epoll events of the socket in the sender's thread."""
        cdef epoll_event event
        event.events = events
        event.data.fd = self._descriptor
        epoll_ctl(self._epoll, EPOLL_CTL_MOD, self._descriptor, &event)

    cdef _wait(self, int timeout_ms):
        """Release the GIL until the socket is readable, or until the timeout or a signal."""
        cdef pollfd awaited
        awaited.fd = self._descriptor
        awaited.events = POLLIN
        with nogil:
            poll(&awaited, 1, timeout_ms)

    cdef _give_back(self):
        stream = self._stream
        stream.is_lent = False
        if not stream.is_closed:
            self._listen(EPOLLIN | EPOLLOUT if stream.is_blocked else EPOLLIN)

    cdef bint _take(self, batch) except -1:
        """Complete the batch as `Sender.land` does, if the whole regular response has arrived."""
        cdef char received[RESPONSE_BYTES_MAX]
        cdef const char *numbers
        if not self._is_awaited(batch) or not self._is_only_ours(batch):
            return False
        if not self._received(received):
            return False
        numbers = received + (len(self._response) - RESPONSE_TAIL_BYTES - RESPONSE_NUMBERS_BYTES)
        ready_batch = self._flight.ready_batches[0]
        queue = self._queue
        self.connection.pending.pop(self._correlation_id, None)
        self._flights.pop(self._flight, None)
        self._flight = None
        queue.flying.remove(ready_batch)
        queue.acknowledged = ready_batch.number
        queue.backoff_ms = 0
        self._sender.request_count += 1
        self._sender.completion.counts.records += ready_batch.record_count
        self._accumulator.release(ready_batch.charged_bytes)
        self._accumulator.retire(self._lane)
        batch.complete(get_int64(numbers), get_int64(numbers + 8))
        return True

    cdef bint _received(self, char *received) except -1:
        """Receive the response, if it is like the expected one except for its numbers."""
        cdef const char *expected = PyByteArray_AS_STRING(self._response)
        cdef Py_ssize_t size = len(self._response)
        cdef Py_ssize_t tail = size - RESPONSE_TAIL_BYTES
        if self._stream.is_closed or size > RESPONSE_BYTES_MAX:
            return False
        return (
            c_recv(self._descriptor, received, size, MSG_PEEK | MSG_DONTWAIT) == size
            and memcmp(received, expected, tail - RESPONSE_NUMBERS_BYTES) == 0
            and memcmp(received + tail, expected + tail, RESPONSE_TAIL_BYTES) == 0
            and c_recv(self._descriptor, received, size, MSG_DONTWAIT) == size
        )

    cdef _count_response(self):
        """Update the counts of the response; an exception here does no harm."""
        connection = self.connection
        pending = self._pending
        connection.used_at = connection.heard_at = monotonic()
        connection.counts.answers += 1
        connection.counts.bytes_in += len(self._response)
        took_ms = (connection.heard_at - pending.sent_at) * 1000
        connection.counts.answered(pending.api_key, took_ms)
