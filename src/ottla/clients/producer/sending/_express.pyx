# cython: boundscheck=False, wraparound=False, binding=False
"""The direct path of the producer, compiled: the caller's thread sends; see direct_send.py.

There is no fallback: without this module the sender's thread sends everything.

The steps of `depart`, `take_answer` and `ask` are atomic: neither another thread nor an exception
of a signal handler can come between taking a batch and sending it, or between reading a response
and completing its batch. These steps run no Python code, and keep the GIL. Only while a large batch
waits for the socket, and while waiting for a response, do other threads run. The stream's flags
`is_sending` and `is_lent` keep them from the connection meanwhile.
"""

from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.bytes cimport PyBytes_AS_STRING
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport INT32_MAX, int16_t, int64_t, uint16_t, uint32_t, uint64_t
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
    uint16_t htobe16(uint16_t number)
    uint32_t htobe32(uint32_t number)
    uint64_t htobe64(uint64_t number)
    uint16_t be16toh(uint16_t number)
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
    enum: POLLOUT
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
    BATCH_BYTES_MAX = 1 << 14  # fits into the send buffer of any idle socket
    SEQUENCE_MASK = 0x7FFFFFFF
    SIZE_BYTES = 4
    CORRELATION_ID_AT = 8
    ANSWER_CORRELATION_ID_AT = 4
    CRC_AT = 17
    CHECKED_FROM = 21
    ANSWER_BYTES_MAX = 1024
    ANSWER_NUMBERS_BYTES = 24  # base offset, append time, log start offset
    ANSWER_TAIL_BYTES = 9  # no errors, throttle time 0, no tagged fields
    BROKEN = -1  # the connection, in place of a size
    PIECES = 3  # of a frame: the bytes before the records, the records, the bytes after them
    END_NUMBERS_BYTES = 10  # of EndTxn and its response: producer id and epoch
    END_TAIL_BYTES = 2  # of EndTxn: that it is a commit, no tagged fields
    END_ANSWER_TAIL_BYTES = 1  # no tagged fields


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


cdef class Wire:
    """A connection of the sender's thread that another thread may use briefly."""

    cdef readonly object connection
    cdef object _stream
    cdef int _descriptor
    cdef int _epoll
    cdef int _process_id

    def __init__(self, connection, int epoll):
        """`epoll` is the file descriptor of the sender's event loop, or -1."""
        self.connection = connection
        self._stream = connection.stream
        self._descriptor = self._stream.socket.fileno()
        self._epoll = epoll
        self._process_id = getpid()

    cdef bint _is_quiet(self, double now) except -1:
        """Whether a frame may be sent now without overtaking another."""
        stream = self._stream
        return (
            not stream.is_closed
            and not stream.is_sending
            and not stream.unsent
            and self.connection.muted_until <= now
            and getpid() == self._process_id  # not a forked child: the parent owns the connection
        )

    cdef _write(self, bytearray head, bytearray records, bytes tail, int timeout_ms):
        """Send a frame; after the timeout the sender's thread sends the rest.

        With a timeout of 0 a partly sent frame closes the connection: the sender then sends the
        whole batch again.
        """
        cdef iovec pieces[PIECES]
        cdef Py_ssize_t unsent = len(head) + len(records) + len(tail)
        pieces[0] = iovec(PyByteArray_AS_STRING(head), len(head))
        pieces[1] = iovec(PyByteArray_AS_STRING(records), len(records))
        pieces[2] = iovec(PyBytes_AS_STRING(tail), len(tail))
        self.connection.counts.requests += 1
        self.connection.counts.bytes_out += unsent
        unsent = self._send(pieces, unsent)
        if unsent > 0 and timeout_ms:
            self._write_on(pieces, (head, records, tail), unsent, timeout_ms)
        elif unsent:
            c_shutdown(self._descriptor, SHUT_RDWR)

    cdef _write_on(self, iovec *pieces, tuple frame, Py_ssize_t unsent, int timeout_ms):
        """Send the rest of a frame as the socket accepts it, while no other thread sends."""
        stream = self._stream
        cdef double until = monotonic() + timeout_ms / 1000
        cdef bint is_late = False
        stream.is_sending = True
        while unsent > 0 and not is_late and not stream.is_closed:
            is_late = self._wait(POLLOUT, timeout_ms) == 0 or monotonic() > until
            if not stream.is_closed:
                unsent = self._send(pieces, unsent)
        if unsent == BROKEN:
            c_shutdown(self._descriptor, SHUT_RDWR)
        if unsent <= 0 and not stream.unsent:
            stream.is_sending = False
        elif not stream.is_closed:
            self._leave_rest(pieces, frame)

    cdef _leave_rest(self, iovec *pieces, tuple frame):
        """Leave the rest of a frame, and the frames queued behind it, to the sender's thread."""
        cdef list rest = []
        cdef int at
        try:
            for at in range(PIECES):
                rest.append(memoryview(frame[at])[len(frame[at]) - pieces[at].iov_len:])
            self._stream.have_sent(rest)
        except BaseException:  # for example Ctrl-C; the rest would stay unsent
            c_shutdown(self._descriptor, SHUT_RDWR)
            raise

    cdef Py_ssize_t _send(self, iovec *pieces, Py_ssize_t unsent) noexcept:
        """Send without blocking; return the number of unsent bytes, or BROKEN."""
        cdef msghdr message
        cdef Py_ssize_t sent, size, left
        cdef int at
        memset(&message, 0, sizeof(message))
        message.msg_iov = pieces
        message.msg_iovlen = PIECES
        sent = c_sendmsg(self._descriptor, &message, MSG_DONTWAIT | MSG_NOSIGNAL)
        if sent < 0:
            return unsent if errno == EAGAIN or errno == EINTR else BROKEN
        left = sent
        for at in range(PIECES):
            size = min(left, <Py_ssize_t>pieces[at].iov_len)
            pieces[at].iov_base = <char *>pieces[at].iov_base + size
            pieces[at].iov_len -= size
            left -= size
        return unsent - sent

    cdef int _wait(self, short events, int timeout_ms) except -1:
        """Release the GIL until the socket is ready; return 0 after the timeout."""
        cdef pollfd awaited
        cdef int found
        awaited.fd = self._descriptor
        awaited.events = events
        with nogil:
            found = poll(&awaited, 1, timeout_ms)
        return max(found, 0)

    cdef bint _is_lendable(self) except -1:
        """Whether this thread may wait for a response in place of the sender's thread."""
        stream = self._stream
        return self._epoll >= 0 and not (
            stream.is_closed
            or stream.is_lent
            or stream.is_reading
            or stream.is_sending
            or stream.unsent
        )

    cdef _borrow(self, int timeout_ms):
        """Wait for the next bytes, with the socket removed from the sender's epoll events."""
        self._stream.is_lent = True
        self._listen(0)
        self._wait(POLLIN, timeout_ms)

    cdef _give_back(self):
        stream = self._stream
        stream.is_lent = False
        if not stream.is_closed:
            self._listen(EPOLLIN | EPOLLOUT if stream.is_blocked else EPOLLIN)

    cdef _listen(self, uint32_t events):
        """Set the epoll events of the socket in the sender's thread."""
        cdef epoll_event event
        event.events = events
        event.data.fd = self._descriptor
        epoll_ctl(self._epoll, EPOLL_CTL_MOD, self._descriptor, &event)

    cdef bint _is_usual(
        self, char *received, bytearray usual, Py_ssize_t numbers_bytes, Py_ssize_t tail_bytes
    ) noexcept:
        """Peek at the received bytes, and compare them with the response except for its numbers."""
        cdef const char *wanted = PyByteArray_AS_STRING(usual)
        cdef Py_ssize_t size = len(usual)
        cdef Py_ssize_t tail = size - tail_bytes
        return (
            size <= ANSWER_BYTES_MAX
            and c_recv(self._descriptor, received, size, MSG_PEEK | MSG_DONTWAIT) == size
            and memcmp(received, wanted, tail - numbers_bytes) == 0
            and memcmp(received + tail, wanted + tail, tail_bytes) == 0
        )

    cdef _count_answer(self, pending, Py_ssize_t size):
        """Update the counts of the response; an exception here does no harm."""
        connection = self.connection
        connection.used_at = connection.heard_at = monotonic()
        connection.counts.answers += 1
        connection.counts.bytes_in += size
        took_ms = (connection.heard_at - pending.sent_at) * 1000
        connection.counts.answered(pending.api_key, took_ms)


cdef class Express(Wire):
    """The direct path of one partition to its leader."""

    cdef object _sender
    cdef object _accumulator
    cdef object _lane
    cdef object _outbox
    cdef object _make_flight
    cdef dict _flights
    cdef bytes _head
    cdef bytes _tail
    cdef bytearray _answer
    cdef int _attributes
    cdef double _until
    cdef object _flight
    cdef object _pending
    cdef uint32_t _correlation_id
    cdef readonly Py_ssize_t departures
    cdef readonly Py_ssize_t answers

    def __init__(self, sender, accumulator, lane, route, int epoll):
        """See Wire."""
        super().__init__(route.connection, epoll)
        self._sender = sender
        self._accumulator = accumulator
        self._lane = lane
        self._outbox = lane.outbox
        self._make_flight = route.make_flight
        self._flights = sender.flights.to(route.broker_id)
        self._head = route.head
        self._tail = route.tail
        self._answer = bytearray(route.answer)
        self._attributes = TRANSACTIONAL_BIT if sender.identity.is_transactional else 0
        self._until = route.until

    # -- sending -----------------------------------------------------------------------------------

    def depart(self, batch):
        """Send an open batch; False, without any effect, if that is not possible now.

        A large batch is left to the sender, because the socket might block.
        """
        return self._depart(batch, BATCH_BYTES_MAX, 0)

    def deliver(self, batch, int timeout_ms):
        """Send an open batch of any size, and wait for its response; return whether it was written.

        After the timeout the sender handles the response.
        """
        if self._is_lendable() and self._depart(batch, INT32_MAX, timeout_ms):
            self.take_answer(batch, timeout_ms)
        return batch.is_done

    cdef bint _depart(self, batch, Py_ssize_t bytes_max, int timeout_ms) except -1:
        if not self._is_time() or not self._sender.settling.identity.sends_at_once():
            return False
        flight, correlation_id, pending = self._make_flight(batch)
        cdef bint is_collecting = PyGC_Disable()  # a collection may run Python code
        try:
            if not self._is_time() or self._accumulator.next_look_ms > flight.late_at_ms:
                return False
            if not self._accumulator.take_open(self._lane, batch, bytes_max):
                return False
            self._flight, self._correlation_id, self._pending = flight, correlation_id, pending
            put_uint32(self._answer, ANSWER_CORRELATION_ID_AT, correlation_id)
            self._number(flight.shipments[0], batch)
            self.connection.pending[correlation_id] = pending
            self._flights[flight] = None
            self.departures += 1
            records = flight.shipments[0].payload
            self._write(self._frame_head(len(records)), records, self._tail, timeout_ms)
            return True
        finally:
            if is_collecting:
                PyGC_Enable()

    cdef bint _is_time(self) except -1:
        outbox = self._outbox
        cdef double now = monotonic()
        return (
            self._lane.express is self
            and not self._sender.is_busy
            and not self._flights
            and not outbox.flying
            and not outbox.waiting
            and not outbox.must_renumber
            and now < self._until
            and self._is_quiet(now)
        )

    cdef _number(self, shipment, batch):
        """Number and seal a batch, as `BatchSealer.take` does."""
        outbox = self._outbox
        identity = self._sender.settling.identity
        records = batch.records
        producer = (identity.producer_id, identity.producer_epoch)
        if outbox.producer != producer:
            outbox.producer = producer
            outbox.next_sequence = outbox.acknowledged = 0
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
            shipment.payload, 0, 0, len(shipment.payload) - LOG_OVERHEAD_BYTES, -1, MAGIC, 0,
            self._attributes, records.next_offset_delta - 1, records.base_timestamp_ms,
            records.max_timestamp_ms, outbox.producer[0], outbox.producer[1],
            shipment.base_sequence, shipment.record_count,
        )
        cdef bytearray payload = shipment.payload
        cdef uint32_t crc = sum_of(
            PyByteArray_AS_STRING(payload) + CHECKED_FROM, len(payload) - CHECKED_FROM
        )
        put_uint32(payload, CRC_AT, crc)
        outbox.flying.append(shipment)

    cdef bytearray _frame_head(self, Py_ssize_t records_bytes):
        cdef bytearray head = bytearray(self._head)
        head += varint(records_bytes + 1)
        put_uint32(head, 0, len(head) + records_bytes + len(self._tail) - SIZE_BYTES)
        put_uint32(head, CORRELATION_ID_AT, self._correlation_id)
        return head

    # -- taking the answer -------------------------------------------------------------------------

    def take_answer(self, batch, int timeout_ms):
        """Wait for the response to a batch, and handle it if it is regular.

        Any other or later response is left to the sender, whose thread is not woken meanwhile.
        """
        if not self._is_lendable() or not self._is_awaited(batch):
            return
        self._borrow(timeout_ms)
        cdef bint is_collecting = PyGC_Disable()  # a collection may run Python code
        cdef bint is_taken = False
        try:
            is_taken = self._is_awaited(batch) and self._is_only_ours(batch) and self._take(batch)
        finally:
            self._give_back()
            if is_collecting:
                PyGC_Enable()
        if is_taken:
            self.answers += 1
            self._count_answer(self._pending, len(self._answer))

    cdef bint _is_awaited(self, batch) except -1:
        return (
            self._flight is not None
            and getpid() == self._process_id
            and self._flight in self._flights
            and self._flight.shipments[0].batch is batch
            and not self._stream.is_closed
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
            or self._outbox.waiting
            or len(self._outbox.flying) > 1
            or len(accumulator.active) > 1
        )

    cdef bint _take(self, batch) except -1:
        """Complete the batch as `Sender.land` does, if the whole regular response has arrived."""
        cdef char received[ANSWER_BYTES_MAX]
        cdef Py_ssize_t size = len(self._answer)
        cdef const char *numbers = received + (size - ANSWER_TAIL_BYTES - ANSWER_NUMBERS_BYTES)
        if not self._is_usual(received, self._answer, ANSWER_NUMBERS_BYTES, ANSWER_TAIL_BYTES):
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


cdef class EndExpress(Wire):
    """The direct path of commits to the transaction coordinator."""

    cdef object _expect
    cdef bytearray _request
    cdef bytearray _answer
    cdef readonly Py_ssize_t answers

    def __init__(self, route, int epoll):
        """See Wire."""
        super().__init__(route.connection, epoll)
        self._expect = route.expect
        self._request = bytearray(route.request)
        self._answer = bytearray(route.answer)

    def ask(self, int64_t producer_id, int16_t producer_epoch, int timeout_ms):
        """Commit; return the producer's next id and epoch, or None if the result is unknown.

        It may have been committed: the sender's thread must send the request again.
        """
        if not self._may_ask():
            return None
        correlation_id, pending = self._expect()
        if not self._send_request(correlation_id, pending, producer_id, producer_epoch):
            return None
        self._borrow(timeout_ms)
        cdef bint is_collecting = PyGC_Disable()  # a collection may run Python code
        try:
            told = self._take(correlation_id)
        finally:
            self._give_back()
            if is_collecting:
                PyGC_Enable()
        if told is not None:
            self.answers += 1
            self._count_answer(pending, len(self._answer))
        return told

    cdef bint _may_ask(self) except -1:
        return self._is_quiet(monotonic()) and self._is_lendable()

    cdef bint _send_request(
        self, correlation_id, pending, int64_t producer_id, int16_t epoch
    ) except -1:
        cdef bint is_collecting = PyGC_Disable()  # a collection may run Python code
        try:
            if not self._may_ask():
                return False
            self._fill_in(correlation_id, producer_id, epoch)
            self.connection.pending[correlation_id] = pending
            self._write(self._request, bytearray(), b"", 0)
            return True
        finally:
            if is_collecting:
                PyGC_Enable()

    cdef _fill_in(self, uint32_t correlation_id, int64_t producer_id, int16_t epoch):
        cdef Py_ssize_t numbers_at = len(self._request) - END_TAIL_BYTES - END_NUMBERS_BYTES
        cdef char *numbers = PyByteArray_AS_STRING(self._request) + numbers_at
        cdef uint64_t sent_id = htobe64(<uint64_t>producer_id)
        cdef uint16_t sent_epoch = htobe16(<uint16_t>epoch)
        memcpy(numbers, &sent_id, sizeof(sent_id))
        memcpy(numbers + sizeof(sent_id), &sent_epoch, sizeof(sent_epoch))
        put_uint32(self._request, CORRELATION_ID_AT, correlation_id)
        put_uint32(self._answer, ANSWER_CORRELATION_ID_AT, correlation_id)

    cdef tuple _take(self, correlation_id):
        """Read the response if it is regular; otherwise leave it to the sender and return None."""
        cdef char received[ANSWER_BYTES_MAX]
        cdef uint16_t epoch
        cdef Py_ssize_t size = len(self._answer)
        cdef const char *numbers = received + size - END_ANSWER_TAIL_BYTES - END_NUMBERS_BYTES
        if self._stream.is_closed or not self._is_usual(
            received, self._answer, END_NUMBERS_BYTES, END_ANSWER_TAIL_BYTES
        ):
            return None
        c_recv(self._descriptor, received, size, MSG_DONTWAIT)
        self.connection.pending.pop(correlation_id, None)
        memcpy(&epoch, numbers + sizeof(int64_t), sizeof(epoch))
        return get_int64(numbers), <int16_t>be16toh(epoch)
