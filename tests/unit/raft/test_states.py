from pathlib import Path

import ottla.raft.states
from ottla.raft.elections import successor_delay_ms
from ottla.raft.states import MOVES, Role


def test_the_table_of_states_has_every_role() -> None:
    text = ottla.raft.states.__doc__ or Path(ottla.raft.states.__file__).read_text()
    assert set(MOVES) == set(Role)
    for role, moves in MOVES.items():
        row = text[text.index(f"\n{role.name} ") :]
        row = row[
            : next(
                (
                    row.index(f"\n{one.name} ")
                    for one in Role
                    if f"\n{one.name} " in row[1:] and one is not role
                ),
                len(row),
            )
        ]
        assert all(move.name in row for move in moves), role


def test_the_preferred_successors_wait_longer_and_longer() -> None:
    assert [successor_delay_ms(place, 4, 1000) for place in (0, 1, 2, 3, None)] == [
        0,
        125,
        250,
        500,
        1000,
    ]
