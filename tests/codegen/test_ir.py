"""The text that builders write: what it computes once compiled, and what is written only once."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from ingot.codegen.llvm import ir
from ingot.codegen.llvm.host import Compiled, HostModule, new_module
from ingot.codegen.ptx.target import gpu, ptx_of

WORD = ir.IntType(64)


def new_function(module: HostModule, arguments: int = 1) -> tuple[ir.Function, Any]:
    function = ir.Function(module, ir.FunctionType(WORD, [WORD] * arguments), "function")
    return function, ir.IRBuilder(function)


def called(module: HostModule, *arguments: int) -> int:
    code = Compiled(lambda: module)
    kind = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * len(arguments))
    return kind(code.address("function"))(*arguments)


def test_equal_types_are_one():
    assert ir.VectorType(ir.FloatType(), 8) is ir.VectorType(ir.FloatType(), 8)
    assert ir.IntType(32) is not ir.IntType(64)


def test_an_expression_is_written_once_in_a_block():
    module = new_module()
    function, builder = new_function(module)
    (x,) = function.arguments
    product, same = builder.mul(x, x), builder.mul(x, x)
    assert same is product
    builder.ret(builder.add(product, builder.mul(x, WORD(3))))
    assert str(module).count("mul i64") == 2
    assert called(module, 5) == 40


def test_an_expression_of_another_block_is_written_again():
    """Control may come to a block without having been in the other."""
    module = new_module()
    function, builder = new_function(module)
    (x,) = function.arguments
    with builder.if_then(builder.icmp_signed("<", x, WORD(0)), odds=(1, 99)):
        builder.mul(x, x)
    builder.ret(builder.mul(x, x))
    assert str(module).count("mul i64") == 2
    assert [called(module, number) for number in (-3, 4)] == [9, 16]


def test_what_is_read_twice_may_have_changed():
    module = new_module()
    function, builder = new_function(module)
    place = builder.alloca(WORD)
    builder.store(WORD(1), place)
    before = builder.load(place)
    builder.store(function.arguments[0], place)
    builder.ret(builder.sub(builder.load(place), before))
    assert called(module, 8) == 7


def test_the_entry_can_be_added_to_after_it_has_ended():
    module = new_module()
    function, builder = new_function(module, 2)
    following = builder.append_block("following")
    builder.branch(following)
    builder.position_at_end(following)
    with builder.at_entry():
        total = builder.add(*function.arguments)
    builder.ret(builder.neg(total))
    assert called(module, 3, 4) == -7


def test_a_loop_carries_values_from_one_turn_to_the_next():
    module = new_module()
    function, builder = new_function(module)
    before, body, after = builder.block, builder.append_block("body"), builder.append_block("after")
    builder.branch(body)
    builder.position_at_end(body)
    index, total = builder.phi(WORD), builder.phi(WORD)
    following, sum_ = builder.add(index, WORD(1)), builder.add(total, index)
    for value, first, next_ in ((index, WORD(0), following), (total, WORD(0), sum_)):
        value.add_incoming(first, before)
        value.add_incoming(next_, body)
    builder.cbranch(builder.icmp_unsigned("<", following, function.arguments[0]), body, after)
    builder.position_at_end(after)
    builder.ret(sum_)
    assert called(module, 10) == 45


@pytest.mark.parametrize(("number", "expected"), [(0b101, -0b101 - 1), (-1, 0)])
def test_pointers_to_other_types_are_the_same_place(number: int, expected: int):
    module = new_module()
    function, builder = new_function(module)
    place = builder.alloca(WORD)
    builder.store(function.arguments[0], place)
    halves = builder.load(builder.bitcast(place, ir.PointerType(ir.VectorType(ir.IntType(32), 2))), align=4)
    builder.ret(builder.bitcast(builder.not_(halves), WORD))
    assert called(module, number) == expected


def test_bytes_of_vectors_are_chosen_one_by_one_on_a_gpu():
    """LLVM takes four of them for one register there, and ends the process where it has to choose between 1 and 0."""
    module = HostModule(gpu((9, 0)))
    four = ir.VectorType(ir.IntType(8), 4)
    function = ir.Function(module, ir.FunctionType(four, [four]), "function")
    builder: Any = ir.IRBuilder(function)
    (x,) = function.arguments
    ones, zeros = ir.Constant(four, [1] * 4), ir.Constant(four, None)
    builder.ret(builder.select(builder.icmp_signed("==", x, zeros), ones, zeros))
    assert str(module).count("select i1") == 4
    assert "function" in ptx_of(str(module), module.host)


def test_loops_that_stay_as_they_are_compute_the_same_and_have_metadata_of_their_own():
    module = new_module()
    function, builder = new_function(module)
    (x,) = function.arguments
    total: Any = x
    for _ in range(2):
        before, body, after = builder.block, builder.append_block("again"), builder.append_block("done")
        builder.branch(body)
        builder.position_at_end(body)
        number, so_far = builder.phi(WORD), builder.phi(WORD)
        following, total_so_far = builder.add(number, WORD(1)), builder.add(so_far, number)
        for phi, first, later in ((number, WORD(0), following), (so_far, total, total_so_far)):
            phi.add_incoming(first, before)
            phi.add_incoming(later, body)
        builder.repeat(builder.icmp_signed("<", following, WORD(5)), body, after)
        builder.position_at_end(after)
        total = total_so_far
    builder.ret(total)
    text = str(module)
    assert text.count("!llvm.loop") == text.count("= distinct") == 2 and text.count("unroll.disable") == 1
    assert called(module, 7) == 27
