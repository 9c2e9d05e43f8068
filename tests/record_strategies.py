"""Records as applications write them, for hypothesis."""

from hypothesis import strategies as st

from ottla.wire.records.record import Record, RecordHeader

payloads = st.none() | st.binary(max_size=200)
headers = st.lists(st.builds(RecordHeader, st.text(max_size=20), payloads), max_size=4).map(tuple)
timestamps = st.integers(-1, 2**45)


@st.composite
def record_lists(draw: st.DrawFn, *, with_gaps: bool = True) -> list[Record]:
    """Records of one batch, with consecutive offsets, or with gaps where allowed."""
    records: list[Record] = []
    offset = draw(st.integers(0, 2**40))
    for _ in range(draw(st.integers(1, 8))):
        records.append(
            Record(offset, draw(timestamps), draw(payloads), draw(payloads), draw(headers))
        )
        offset += draw(st.integers(1, 2**20)) if with_gaps else 1
    return records
