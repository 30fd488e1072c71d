"""Declared structs: where their fields lie, and that nothing but a whole struct of words can be written."""

from __future__ import annotations

import ctypes
from itertools import permutations

import pytest

from ingot.runtime.native.assembler.routines import Library
from ingot.runtime.native.assembler.structs import Field, Inline, Row, Rows, Struct, row, rows, side_by_side


class Point(Struct):
    x: Field
    y: Field
    z: Field


class Named(Point):
    name: Field


class Short(Struct, like=Point):
    x: Field


class Segment(Struct):
    color: Field
    first: Inline[Point]
    marks: Row = row(3)
    second: Inline[Point]
    more: Rows[Point] = rows(2)
    end: Field


def native(library, name, *arguments):
    library.compile()
    signature = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * len(arguments))
    return signature(library.address(name))(*arguments)


def test_fields_lie_in_the_order_of_their_declaration():
    assert [Point.x, Point.y, Point.z, Point.words()] == [0, 1, 2, 3]
    assert [Named.x, Named.z, Named.name, Named.words()] == [0, 2, 3, 4]
    assert [Segment.color, Segment.first, Segment.marks, Segment.second, Segment.more] == [0, 1, 4, 7, 10]
    assert [Segment.end, Segment.words(), Short.words()] == [16, 17, 3]


@pytest.mark.parametrize("order", [*permutations(("x", "y", "z"))])
def test_the_order_of_arguments_means_nothing(order):
    values = {"x": 1, "y": -2, "z": 3}
    assert list(Point(**{name: values[name] for name in order}).memory) == [1, -2, 3]


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        ({"x": 1, "y": 2}, TypeError, "Point needs z"),
        ({}, TypeError, "Point needs x, y, z"),
        ({"x": 1, "y": 2, "z": 3, "w": 4}, TypeError, "Point has no w"),
        ({"x": 1, "y": 2, "z": 3.0}, TypeError, "Point.z is a word, not 3.0"),
        ({"x": 1, "y": None, "z": 3}, TypeError, "Point.y is a word, not None"),
        ({"x": 1 << 64, "y": 2, "z": 3}, OverflowError, "Point.x has 64 bits"),
        ({"x": -(1 << 63) - 1, "y": 2, "z": 3}, OverflowError, "Point.x has 64 bits"),
    ],
)
def test_a_struct_is_written_whole_with_words_by_the_names_of_its_fields(values, error, message):
    with pytest.raises(error, match=message):
        Point(**values)


def test_fields_that_there_are_not_can_be_neither_read_nor_written():
    point = Point(x=1, y=2, z=3)
    with pytest.raises(AttributeError):
        point.w = 1  # type: ignore[attr-defined]
    with pytest.raises(AttributeError):
        _ = Point.w  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match="is a word"):
        point.x = "1"  # type: ignore[assignment]
    assert list(point.memory) == [1, 2, 3]


def test_what_is_no_field_cannot_be_declared():
    with pytest.raises(TypeError, match="is no field"):
        type("Wrong", (Struct,), {"__annotations__": {"x": int}})
    with pytest.raises(TypeError, match="has another meaning"):
        type("Wrong", (Point,), {"__annotations__": {"x": Field}})
    with pytest.raises(TypeError, match="has another meaning"):
        type("Wrong", (Struct,), {"__annotations__": {"memory": Field}})
    with pytest.raises(TypeError, match="is longer than"):
        type("Wrong", (Point,), {"__annotations__": {"w": Field}}, like=Point)


def test_parts_are_read_and_written_where_they_lie():
    first, second = Point(x=1, y=2, z=3), Point(x=4, y=5, z=6)
    segment = Segment(second=second, end=9, color=7, first=first)
    assert list(segment.memory) == [7, 1, 2, 3, 0, 0, 0, 4, 5, 6, 0, 0, 0, 0, 0, 0, 9]
    segment.first.y, segment.more[1].z, segment.marks = 20, 30, [1, 2, 3]
    assert list(segment.memory) == [7, 1, 20, 3, 1, 2, 3, 4, 5, 6, 0, 0, 0, 0, 0, 30, 9]
    assert first.y == 2, "a part is a copy"
    with pytest.raises(TypeError, match="has 3 words, not 2"):
        segment.marks = [1, 2]
    with pytest.raises(TypeError, match="is a Point"):
        segment.first = Short(x=1)  # type: ignore[assignment]


def test_words_may_be_meant_with_a_sign_or_without():
    assert Point(x=(1 << 64) - 1, y=-1, z=-(1 << 63)).x == -1


def test_structs_that_are_alike_lie_in_one_array():
    words = side_by_side([Point(x=1, y=2, z=3), Short(x=4), Point(x=5, y=6, z=7)])
    assert list(words) == [1, 2, 3, 4, 0, 0, 5, 6, 7]


def test_memory_at_an_address_is_shared():
    point = Point.zeroed()
    same = Point.at(point.address)
    same.become(Point(x=1, y=2, z=3))
    assert (point.x, point.y, point.z) == (1, 2, 3)


def test_native_code_reads_and_writes_by_fields():
    library = Library("test")
    routine = library.routine("move", 2)
    points, segment = routine.parameters
    chosen = routine.item(points, 1, Point)
    routine.copy(chosen, routine.part(segment, Segment.second), Point)
    routine.fill(routine.part(segment, Segment.first), Point, z=30, x=10, y=20)
    routine.give_back(routine.load(chosen, Point.z))
    memory = (ctypes.c_int64 * 6)(1, 2, 3, 4, 5, 6)
    segment = Segment.zeroed()
    assert native(library, "move", ctypes.addressof(memory), segment.address) == 6
    assert list(segment.second.memory) == [4, 5, 6] and list(segment.first.memory) == [10, 20, 30]


def test_native_code_fills_structs_whole():
    routine = Library("test").routine("fill", 1)
    with pytest.raises(TypeError, match="Point needs z"):
        routine.fill(routine.parameters[0], Point, x=1, y=2)
    with pytest.raises(TypeError, match="Point has no w"):
        routine.fill(routine.parameters[0], Point, x=1, y=2, z=3, w=4)
