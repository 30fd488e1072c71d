"""The arena: values that are alive together never overlap, and those that are not share places."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from ingot.runtime.arena import Lifetime, plan_arena

lifetimes = st.builds(
    lambda first, length, nbytes: Lifetime(first, first + length, nbytes),
    st.integers(0, 8),
    st.integers(0, 4),
    st.integers(0, 1000),
)


@given(st.lists(lifetimes, max_size=12), st.sampled_from([64, 256]))
def test_values_alive_together_do_not_overlap(values, alignment):
    offsets, total = plan_arena(values, alignment)
    assert all(offset % alignment == 0 for offset in offsets)
    assert all(offset + value.nbytes <= total for offset, value in zip(offsets, values, strict=True))
    for (one, at), (other, there) in itertools.combinations(list(zip(values, offsets, strict=True)), 2):
        if one.first <= other.last and other.first <= one.last and one.nbytes and other.nbytes:
            assert at + one.nbytes <= there or there + other.nbytes <= at


def test_a_chain_needs_two_places():
    _, total = plan_arena([Lifetime(step, step + 1, 640) for step in range(10)], 64)
    assert total == 2 * 640


def test_nothing_needs_nothing():
    assert plan_arena([], 64) == ([], 0)
