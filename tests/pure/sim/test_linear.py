"""The checker of histories finds what cannot have been, and only that."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elanus.sim.linear import Operation, Value, unexplained

pytestmark = pytest.mark.sim


def write(value: Value, began: int, ended: int | None, key: int = 1) -> Operation:
    return Operation(key, False, value, began, ended)


def read(value: Value, began: int, ended: int, key: int = 1) -> Operation:
    return Operation(key, True, value, began, ended)


A, B = 10, 20

POSSIBLE = {
    "nothing happened": [],
    "a write is read": [write(A, 0, 1), read(A, 2, 3)],
    "a read during a write sees it or not": [write(A, 0, 9), read(None, 1, 2), read(A, 3, 4)],
    "writes side by side take either order": [write(A, 0, 9), write(B, 0, 9), read(B, 10, 11)],
    "a delete is a write of nothing": [write(A, 0, 1), write(None, 2, 3), read(None, 4, 5)],
    "an unanswered write may take effect late": [write(A, 0, None), read(None, 5, 6), read(A, 7, 8)],
    "an unanswered write may never take effect": [write(A, 0, None), read(None, 50, 60)],
    "an unanswered delete may take effect late": [
        *(write(A, 0, 1), write(None, 2, None), read(A, 3, 4), read(None, 5, 6)),
    ],
    "keys know nothing of each other": [write(A, 0, 1, key=1), read(None, 2, 3, key=2)],
    "a read that touches the write's end": [write(A, 0, 5), read(None, 5, 6)],
}

IMPOSSIBLE = {
    "a stale read": ([write(A, 0, 1), write(B, 2, 3), read(A, 4, 5)], 2),
    "a lost write": ([write(A, 0, 1), read(None, 2, 3)], 1),
    "a value from nowhere": ([write(A, 0, 1), read(B, 2, 3)], 1),
    "a read of the future": ([read(A, 0, 1), write(A, 2, 3)], 0),
    "time that goes back between two reads": ([write(A, 0, 99), read(A, 1, 2), read(None, 3, 4)], 2),
    "a delete undone": ([write(A, 0, 1), write(None, 2, 3), read(None, 4, 5), read(A, 6, 7)], 3),
    "an unanswered write that comes and goes": (
        [write(A, 0, 1), write(B, 2, None), read(B, 3, 4), read(A, 5, 6)],
        3,
    ),
    "an unanswered write that takes effect twice": (
        [write(A, 0, None), read(A, 1, 2), write(B, 3, 4), read(B, 5, 6), read(A, 7, 8)],
        4,
    ),
}


@pytest.mark.parametrize("history", POSSIBLE.values(), ids=POSSIBLE)
def test_what_some_order_explains_is_fine(history: list[Operation]) -> None:
    assert unexplained(history) is None
    assert unexplained(reversed(history)) is None


@pytest.mark.parametrize(("history", "culprit"), IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_what_no_order_explains_is_found(history: list[Operation], culprit: int) -> None:
    assert unexplained(history) == history[culprit]
    elsewhere = [write(7, 0, 1, key=0), read(7, 2, 3, key=0)]
    assert unexplained([*elsewhere, *history]) == history[culprit]


def test_a_value_written_twice_cannot_be_judged() -> None:
    with pytest.raises(ValueError, match="written twice"):
        unexplained([write(A, 0, 1), write(A, 2, 3)])


def test_many_deletes_without_an_answer_do_not_multiply() -> None:
    """Clients of a server that is away go on asking it."""
    deletes = [write(None, n, None) for n in range(60)]
    alive = [write(A + n, 2 * n, 2 * n + 1) for n in range(1, 40)]
    gone = [read(None, 400 + n, 401 + n) for n in range(20)]
    assert unexplained([*deletes, *alive, *gone]) is None
    back = read(A + 7, 600, 601)
    assert unexplained([*deletes, *alive, *gone, back]) == back


@st.composite
def histories(draw: st.DrawFn) -> list[Operation]:
    made = []
    for number in range(draw(st.integers(1, 5))):
        began = draw(st.integers(0, 12))
        ended = began + draw(st.integers(0, 6))
        if draw(st.booleans()):
            made.append(read(draw(st.sampled_from([None, 1, 2, 3])), began, ended))
        else:
            value = draw(st.sampled_from([None, number + 1]))
            made.append(write(value, began, draw(st.sampled_from([None, ended, ended]))))
    return made


def explained_by_some_order(history: list[Operation]) -> bool:
    """The definition itself: every subset of the unanswered writes, every order."""
    answered = [o for o in history if o.ended is not None]
    unanswered = [o for o in history if o.ended is None]
    for chosen in range(1 << len(unanswered)):
        taken = [*answered, *(o for n, o in enumerate(unanswered) if chosen >> n & 1)]
        if any(_is_an_explanation(order) for order in permutations(taken)):
            return True
    return False


def _is_an_explanation(order: tuple[Operation, ...]) -> bool:
    value: Value = None
    for n, operation in enumerate(order):
        if any(later.ended is not None and later.ended < operation.began for later in order[n + 1 :]):
            return False
        if operation.reads and operation.value != value:
            return False
        value = operation.value
    return True


@given(histories())
def test_it_says_what_the_definition_says(history: list[Operation]) -> None:
    assert (unexplained(history) is None) == explained_by_some_order(history)
