"""Code that must not be proven because of its containers: they change under iteration, or hold NaN."""

from __future__ import annotations

import functools
import types
from typing import Any

import pytest
import torch

from tests.frontend.jit.proof.cases import Case, Cases, check_refused, tensor

refused = Cases()
SCALE = 2.0


class Shown: ...


@refused(reason="has changed since")
def shown_attributes(x):
    holder: Any = Shown()
    shown = holder.__dict__
    holder.added = 5
    return x * SCALE if "added" in shown else x


@refused(reason="has changed since")
def shown_entries(x):
    entries = {"scale": 1.0}
    shown = types.MappingProxyType(entries)
    entries["scale"] = 5.0
    return x * SCALE if shown["scale"] > 3 else x


@refused(iter([1, 2]))
def takes_from_an_iterator(numbers):
    return tensor(2) * next(numbers)


UNKNOWN = float("nan")
NAN = float("nan")
"""Containers take the object for equal to itself, and to no other NaN."""
NANS, NAN_TABLE = [NAN, 1.0], {NAN: 2.0}


@refused(reason="NaN")
def finds_nan_in_a_list(x):
    return x * 2 if NAN in NANS else x


@refused(reason="NaN")
def finds_nan_in_a_tuple(x):
    return x * 2 if NAN in (1.0, NAN) else x


@refused(reason="NaN")
def compares_tuples_of_nan(x):
    return x * 2 if (NAN, 1.0) == (NAN, 1.0) else x


@refused(reason="NaN")
def compares_lists_of_nan(x):
    return x * 2 if [NAN, 1.0] == NANS else x


@refused(reason="NaN")
def counts_nan(x):
    return x * (NAN, 2.0).count(NAN)


@refused(reason="NaN")
def finds_where_nan_is(x):
    return x * [2.0, NAN].index(NAN)


@refused(reason="NaN")
def looks_nan_up(x):
    return x * NAN_TABLE.get(NAN, 3.0)


@refused(reason="while it iterates")
def rewrites_a_dictionary_that_it_shows(x):
    table = {"a": 1, "b": 2}
    for _, value in table.items():
        table["b"] = 10
        x = x * (SCALE if value == 10 else 2)
    return x


@refused(reason="while it iterates")
def enters_a_key_again_that_it_iterates_over(x):
    table = {"a": 1}
    for key in table:
        if len(table) > 1:
            break
        del table[key]
        table[key] = 2
        x = x + table.setdefault("b", 3)
    return x


@refused(reason="something has changed")
def rewrites_what_is_enumerated(x):
    values, table = [1, 2], {"a": 1, "b": 2}
    for _, (one, (_, other)) in enumerate(zip(values, table.items(), strict=True)):
        table["b"] = 10
        x = x * one * other
    return x


@refused(reason="something has changed")
def goes_on_with_a_list_that_has_grown(x):
    values = [1]
    items = iter(values)
    x = x * next(items)
    values.append(2)
    return x * next(items, 7)


@refused(reason="depend on something")
def takes_items_from_under_a_comprehension(x):
    items = iter([1, 2, 3])
    return x * len([(item, next(items, 5)) for item in items])


@refused(reason="while it iterates")
def shortens_a_list_in_a_comprehension(x):
    values = [1, 2, 3]
    return x * len([values.pop() for _ in values])


@refused(reason="while it iterates")
def shortens_a_list_that_is_reduced(x):
    values = [1, 2, 3]
    return x * functools.reduce(lambda total, value: total + value + values.pop(), values, 0)


@refused()
def changes_a_list_in_one_branch_alone(x):
    parts = [x]
    if x.requires_grad:
        parts.append(x)
    return torch.stack(parts)


@refused(reason="NaN")
def looks_for_nan(x):
    return x * 2 if UNKNOWN in [UNKNOWN] else x


@refused(reason="NaN")
def compares_containers_with_nan(x):
    return x * 2 if [UNKNOWN, x] == [UNKNOWN, x] else x


@refused(reason="NaN")
def uses_nan_as_a_key(x):
    table = {UNKNOWN: 1}
    del table[UNKNOWN]
    return x * len(table)


@refused(reason="part of a list")
def looks_in_a_part_of_a_list(x):
    return x * [5, 7, 5].index(5, 1)


@pytest.mark.parametrize("case", refused, ids=str)
def test_is_refused(case: Case):
    check_refused(case)
