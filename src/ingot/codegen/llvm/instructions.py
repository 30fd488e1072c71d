"""Instructions for one element, or for several at once: the words of `ops.emission` in LLVM.

Every value is a vector of `lanes` elements, or a scalar where lanes is 1; both are computed by the same instructions,
so an element's bits do not depend on which of the two computed it. Half types are computed in float32 by the graph
itself and only converted here. Nothing here has undefined behaviour: shifts, conversions and divisions are made total
first.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy

from ingot.base.dtypes import HALVES, DataType, complex_type, part_type
from ingot.base.numbers import Number
from ingot.codegen.llvm import ir
from ingot.codegen.llvm.constants import constant
from ingot.codegen.llvm.conversions import rounded_bfloat16, single_from_small, whole_number, widened_bfloat16
from ingot.codegen.llvm.host import Host
from ingot.codegen.llvm.math import EXACT_FUNCTIONS, FUNCTIONS, INTEGER_FUNCTIONS, SUMS_WITH_ONE, TO_8_BITS
from ingot.codegen.llvm.math.dsl.vocabulary import Number as NumberLanes
from ingot.codegen.llvm.math.dsl.vocabulary import intrinsic, rounded, rounded_towards
from ingot.codegen.llvm.math.gpu import exact
from ingot.codegen.llvm.math.gpu import ptx_instructions as approximations
from ingot.codegen.llvm.math.gpu.quotients import Divisor, scale_for_division
from ingot.ops.emission import commuting_extremum

_FLOATS = {DataType.Half: ir.HalfType(), DataType.Float: ir.FloatType(), DataType.Double: ir.DoubleType()}
_SIGNED = {8: DataType.Int8, 16: DataType.Int16, 32: DataType.Int32, 64: DataType.Int}
_FLOAT_FUNCTIONS = {
    **FUNCTIONS,
    **EXACT_FUNCTIONS,
    **{f"one_and_{name}": emit for name, emit in SUMS_WITH_ONE.items()},
    **{f"{name}_to_8_bits": emit for name, emit in TO_8_BITS.items()},
}
_ORDERED = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


def register_type(dtype: DataType) -> ir.Type:
    """How an element is held in a register. bfloat16 never is: it is widened when loaded. A complex number is one word
    of both parts, which its operators take apart; where it is only moved, it is moved as a whole."""
    if dtype is DataType.Bool:
        return ir.IntType(1)
    if dtype is DataType.BFloat16:
        return ir.IntType(16)
    return _FLOATS.get(dtype) or ir.IntType(dtype.bits)


def memory_type(dtype: DataType) -> ir.Type:
    """How an element lies in memory: a bool takes a byte."""
    return ir.IntType(8) if dtype is DataType.Bool else register_type(dtype)


@dataclass(frozen=True, slots=True)
class TypedValue:
    """One SSA value of LLVM's and the data type it stands for."""

    code: Any
    dtype: DataType
    narrow: TypedValue | None = None
    """The bfloat16 that a float32 was widened from."""


class Instructions:
    """An emitter that appends to the block its IRBuilder is at."""

    def __init__(self, builder: ir.IRBuilder, lanes: int, splits_pairs: bool = False, accumulates: bool = False):
        """`splits_pairs` says in which order lanes are: bfloat16 as in memory, everything else the even elements of
        them first and then the odd ones. A word of two bfloat16 becomes two float32 by one instruction each, and
        back, where the order of memory takes twice as many. `accumulates` says that sums are those of a reduction:
        where float32 may be rough, products join them unrounded."""
        self.builder: Any = builder  # llvmlite's own annotations claim that instructions are None
        self.lanes = lanes
        self.splits_pairs = splits_pairs
        self.accumulates = accumulates

    @property
    def host(self) -> Host:
        """What the code is for."""
        return self.builder.module.host

    def _contracts(self, x: TypedValue) -> bool:
        return x.dtype is DataType.Double and self.host.contracts_doubles

    def _corrects(self, x: TypedValue) -> bool:
        """Whether quotients and roots are approximated and then corrected."""
        return x.dtype is DataType.Float and self.host.has_approximations

    def _may_approximate(self, x: TypedValue) -> bool:
        return x.dtype is DataType.Float and self.host.approximates

    # --- types and constants ------------------------------------------------------------------------------------------

    def wide(self, element: ir.Type) -> ir.Type:
        return ir.VectorType(element, self.lanes) if self.lanes > 1 else element

    def splat(self, scalar: Any) -> ir.Value:
        """The same scalar in every lane."""
        if self.lanes == 1:
            return scalar
        undefined = ir.Constant(self.wide(scalar.type), ir.Undefined)
        single = self.builder.insert_element(undefined, scalar, 0)
        vector = self.builder.shuffle_vector(single, undefined, [0] * self.lanes)
        return ir.Spread(vector.type, vector.reference, scalar)

    def literal(self, value: Number, dtype: DataType) -> TypedValue:
        """A known number of a data type, in every lane."""
        if dtype is DataType.BFloat16:
            bits = int(numpy.float32(value).view(numpy.uint32)) >> 16  # exact: the graph holds rounded constants
            return TypedValue(self._constant(ir.IntType(16), bits), dtype)
        return TypedValue(self._constant(register_type(dtype), value), dtype)

    def _constant(self, element: ir.Type, value: Number) -> ir.Value:
        return constant(self.wide(element), value)

    def dtype_of(self, x: TypedValue) -> DataType:
        return x.dtype

    def constant(self, value: Number, like: TypedValue) -> TypedValue:
        return self.literal(value, like.dtype)

    def infinity(self, like: TypedValue) -> TypedValue:
        if like.dtype.is_float:
            return self.literal(math.inf, like.dtype)
        # Whole numbers are finite: `abs` of the lowest is negative, so everything compares below the highest or equal.
        return TypedValue(self._constant(ir.IntType(64), (1 << 63) - 1), DataType.Null)

    # --- arithmetic ---------------------------------------------------------------------------------------------------

    def neg(self, x: TypedValue) -> TypedValue:
        if x.dtype is DataType.BFloat16:
            return self.bit_xor(x, TypedValue(self._constant(ir.IntType(16), -(1 << 15)), x.dtype))
        code = self.builder.fneg(x.code) if x.dtype.is_float else self.builder.neg(x.code)
        return TypedValue(code, x.dtype)

    def abs(self, x: TypedValue) -> TypedValue:
        if x.dtype.is_float:
            return self._intrinsic("fabs", x)
        if not x.dtype.is_signed:
            return x
        return self.select(self.compare("lt", x, self.constant(0, x)), self.neg(x), x)

    def add(self, x: TypedValue, y: TypedValue) -> TypedValue:
        contracts = self._contracts(x) or (self.accumulates and self._may_approximate(x))
        real = self.builder.contracted_fadd if contracts else self.builder.fadd
        return self._arithmetic(x, y, real, self.builder.add, self.builder.or_)

    def sub(self, x: TypedValue, y: TypedValue) -> TypedValue:
        return self._arithmetic(x, y, self.builder.fsub, self.builder.sub, self.builder.xor)

    def mul(self, x: TypedValue, y: TypedValue) -> TypedValue:
        contracts = self._contracts(x) or self._may_approximate(x)
        real = self.builder.contracted_fmul if contracts else self.builder.fmul
        return self._arithmetic(x, y, real, self.builder.mul, self.builder.and_)

    def _of_halves(self, x: TypedValue, y: TypedValue, apply: Any) -> TypedValue:
        """Rounded once, which float32 on the way would not change."""
        if not self.host.computes_halves:
            x_wide, y_wide = self.convert(x, DataType.Float), self.convert(y, DataType.Float)
            return self.convert(TypedValue(apply(x_wide.code, y_wide.code), DataType.Float), x.dtype)
        if x.dtype is DataType.Half:
            return TypedValue(apply(x.code, y.code), x.dtype)
        kind = self.wide(ir.BFloatType())
        result = apply(self.builder.bitcast(x.code, kind), self.builder.bitcast(y.code, kind))
        return TypedValue(self.builder.bitcast(result, self.wide(ir.IntType(16))), x.dtype)

    def div(self, x: TypedValue, y: TypedValue) -> TypedValue:
        """Integers only by a divisor other than 0, which `supports` sees to. Division by -1 is negation: for the lowest
        integer the instruction for division would end the process."""
        if x.dtype is DataType.Float and self.host.has_approximations and isinstance(y.code, ir.Spread):
            return self._shared_quotient(x, y.code.single, is_rough=self.host.approximates)
        if self._may_approximate(x) and x.narrow and y.narrow and self.host.computes_halves and self.lanes % 2 == 0:
            return self.quotient_of_bfloat16(x.narrow, y.narrow)
        if self._may_approximate(x):
            dividend, divisor = NumberLanes(self.builder, x.code), NumberLanes(self.builder, y.code)
            return TypedValue(approximations.quotient(dividend, divisor).value, x.dtype)
        if self._contracts(x) or self._corrects(x):
            dividend, divisor = NumberLanes(self.builder, x.code), NumberLanes(self.builder, y.code)
            return TypedValue(exact.quotient(dividend, divisor).value, x.dtype)
        if x.dtype.is_float:
            return TypedValue(self.builder.fdiv(x.code, y.code), x.dtype)
        if not x.dtype.is_signed:
            return TypedValue(self.builder.udiv(x.code, y.code), x.dtype)
        negates = self.compare("eq", y, self.constant(-1, y))
        divisor = self.select(negates, self.constant(1, y), y)
        return self.select(negates, self.neg(x), TypedValue(self.builder.sdiv(x.code, divisor.code), x.dtype))

    def rough_div(self, x: TypedValue, y: TypedValue) -> TypedValue:
        """float32, right to 2 ulp, on a GPU."""
        if isinstance(y.code, ir.Spread):
            return self._shared_quotient(x, y.code.single, is_rough=True)
        return self.div(x, y)

    def _shared_quotient(self, x: TypedValue, divisor: ir.Value, is_rough: bool) -> TypedValue:
        """A GPU divides in a dozen instructions; what of them depends on the divisor alone is done once."""
        spread = lambda part: NumberLanes(self.builder, self.splat(part.value))
        shared = Divisor.of(NumberLanes(self.builder, divisor)).spread(spread)
        divided = shared.rough_quotient if is_rough else shared.quotient
        return TypedValue(divided(NumberLanes(self.builder, x.code)).value, x.dtype)

    def quotient_of_bfloat16(self, x: TypedValue, y: TypedValue) -> TypedValue:
        """float32, right to 2 ulp: both are scaled first, two at a time, so that no reciprocal is lost."""
        scale = TypedValue(scale_for_division(self.builder, y.code), DataType.BFloat16)
        wide = (self.convert(self.mul(number, scale), DataType.Float) for number in (x, y))
        dividend, divisor = (NumberLanes(self.builder, number.code) for number in wide)
        return TypedValue((dividend * approximations.reciprocal(divisor)).value, DataType.Float)

    def _arithmetic(self, x: TypedValue, y: TypedValue, real: Any, whole: Any, logical: Any) -> TypedValue:
        if x.dtype in HALVES:
            return self._of_halves(x, y, real)
        apply = real if x.dtype.is_float else logical if x.dtype is DataType.Bool else whole
        return TypedValue(apply(x.code, y.code), x.dtype)

    def sqrt(self, x: TypedValue) -> TypedValue:
        if self._may_approximate(x):
            return TypedValue(approximations.square_root(NumberLanes(self.builder, x.code)).value, x.dtype)
        if self._corrects(x) and not self.host.leaves_roots:
            return TypedValue(exact.square_root(NumberLanes(self.builder, x.code)).value, x.dtype)
        return self._intrinsic("sqrt", x)

    def rounded(self, how: str, x: TypedValue) -> TypedValue:
        if not x.dtype.is_float:
            return x
        number = NumberLanes(self.builder, x.code)
        return TypedValue((rounded(number) if how == "round" else rounded_towards(how, number)).value, x.dtype)

    def function(self, name: str, *operands: TypedValue) -> TypedValue:
        dtype = operands[0].dtype
        functions = _FLOAT_FUNCTIONS if dtype.is_float else INTEGER_FUNCTIONS
        return TypedValue(functions[name](self.builder, *(operand.code for operand in operands)), dtype)

    def _intrinsic(self, name: str, x: TypedValue) -> TypedValue:
        return TypedValue(intrinsic(name, NumberLanes(self.builder, x.code)).value, x.dtype)

    # --- bits ---------------------------------------------------------------------------------------------------------

    def bit_and(self, x: TypedValue, y: TypedValue) -> TypedValue:
        return TypedValue(self.builder.and_(x.code, y.code), x.dtype)

    def bit_or(self, x: TypedValue, y: TypedValue) -> TypedValue:
        return TypedValue(self.builder.or_(x.code, y.code), x.dtype)

    def bit_xor(self, x: TypedValue, y: TypedValue) -> TypedValue:
        return TypedValue(self.builder.xor(x.code, y.code), x.dtype)

    def bit_not(self, x: TypedValue) -> TypedValue:
        return TypedValue(self.builder.not_(x.code), x.dtype)

    def shift_left(self, x: TypedValue, y: TypedValue) -> TypedValue:
        """0 where the distance is negative or not below the width, as in PyTorch."""
        within = self.builder.icmp_unsigned("<", y.code, self.constant(x.dtype.bits, x).code)
        distance = self.builder.select(within, y.code, self.constant(0, x).code)
        shifted = self.builder.shl(x.code, distance)
        return TypedValue(self.builder.select(within, shifted, self.constant(0, x).code), x.dtype)

    def shift_right(self, x: TypedValue, y: TypedValue) -> TypedValue:
        """The sign (0 for unsigned types) where the distance is negative or not below the width, as in PyTorch."""
        within = self.builder.icmp_unsigned("<", y.code, self.constant(x.dtype.bits, x).code)
        if x.dtype.is_signed:
            distance = self.builder.select(within, y.code, self.constant(x.dtype.bits - 1, x).code)
            return TypedValue(self.builder.ashr(x.code, distance), x.dtype)
        distance = self.builder.select(within, y.code, self.constant(0, x).code)
        shifted = self.builder.lshr(x.code, distance)
        return TypedValue(self.builder.select(within, shifted, self.constant(0, x).code), x.dtype)

    def sign_bit(self, x: TypedValue) -> TypedValue:
        bits = self.bits(x) if x.dtype.is_float else x
        return self.compare("lt", bits, self.constant(0, bits))

    def bits(self, x: TypedValue) -> TypedValue:
        whole = _SIGNED[x.dtype.bits]
        return TypedValue(self.builder.bitcast(x.code, self.wide(register_type(whole))), whole)

    def with_bits(self, bits: TypedValue, dtype: DataType) -> TypedValue:
        return TypedValue(self.builder.bitcast(bits.code, self.wide(register_type(dtype))), dtype)

    # --- complex numbers ----------------------------------------------------------------------------------------------

    def real(self, x: TypedValue) -> TypedValue:
        return self._part(x, 0)

    def imaginary(self, x: TypedValue) -> TypedValue:
        return self._part(x, 1)

    def _part(self, x: TypedValue, place: int) -> TypedValue:
        """Every second lane of the parts as they follow each other in memory."""
        dtype = part_type(x.dtype)
        parts = self.builder.bitcast(x.code, ir.VectorType(register_type(dtype), 2 * self.lanes))
        if self.lanes == 1:
            return TypedValue(self.builder.extract_element(parts, place), dtype)
        lanes = list(range(place, 2 * self.lanes, 2))
        return TypedValue(self.builder.shuffle_vector(parts, parts, lanes), dtype)

    def complex(self, x: TypedValue, y: TypedValue) -> TypedValue:
        dtype = complex_type(x.dtype)
        if self.lanes == 1:
            parts: Any = ir.Constant(ir.VectorType(register_type(x.dtype), 2), ir.Undefined)
            for place, part in enumerate((x, y)):
                parts = self.builder.insert_element(parts, part.code, place)
        else:
            in_turn = [index // 2 + index % 2 * self.lanes for index in range(2 * self.lanes)]
            parts = self.builder.shuffle_vector(x.code, y.code, in_turn)
        return TypedValue(self.builder.bitcast(parts, self.wide(register_type(dtype))), dtype)

    # --- choices ------------------------------------------------------------------------------------------------------

    def compare(self, how: str, x: TypedValue, y: TypedValue) -> TypedValue:
        if y.dtype is DataType.Null:  # finite against infinity, for whole numbers
            return self._truth(self._constant(ir.IntType(1), how == "lt"))
        sign = _ORDERED[how]
        if x.dtype.is_float:
            unordered = self.builder.fcmp_unordered if how == "ne" else self.builder.fcmp_ordered
            return self._truth(unordered(sign, x.code, y.code))
        signed = self.builder.icmp_signed if x.dtype.is_signed and x.dtype.is_integer else self.builder.icmp_unsigned
        return self._truth(signed(sign, x.code, y.code))

    def select(self, condition: TypedValue, x: TypedValue, y: TypedValue) -> TypedValue:
        return TypedValue(self.builder.select(condition.code, x.code, y.code), x.dtype)

    def extremum(self, how: str, x: TypedValue, y: TypedValue) -> TypedValue:
        """y where it wins or is NaN, x otherwise; on a GPU the same whichever comes first, by an instruction or not."""
        if x.dtype is DataType.Float and self.host.has_extrema:
            name = "maximum" if how == "gt" else "minimum"
            first, second = NumberLanes(self.builder, x.code), NumberLanes(self.builder, y.code)
            return TypedValue(intrinsic(name, first, second).value, x.dtype)
        if x.dtype.is_float and self.host.extrema_commute:
            return commuting_extremum(self, how, x, y)
        takes_y = self.bit_or(self.compare(how, y, x), self.compare("ne", y, y))
        return self.select(takes_y, y, x)

    def _truth(self, code: ir.Value) -> TypedValue:
        return TypedValue(code, DataType.Bool)

    # --- conversions --------------------------------------------------------------------------------------------------

    def convert(self, x: TypedValue, dtype: DataType) -> TypedValue:
        if x.dtype is dtype:
            return x
        if isinstance(x.code, ir.Spread) and self.host.has_approximations:  # once for all lanes
            single = Instructions(self.builder, 1).convert(TypedValue(x.code.single, x.dtype), dtype)
            return TypedValue(self.splat(single.code), dtype)
        if x.dtype is DataType.BFloat16:
            code = widened_bfloat16(self.builder, x.code, self.splits_pairs)
            return self.convert(TypedValue(code, DataType.Float, narrow=x), dtype)
        if dtype is DataType.BFloat16:
            single = self.convert(x, DataType.Float)
            return TypedValue(rounded_bfloat16(self.builder, single.code, self.splits_pairs), dtype)
        if dtype is DataType.Bool:
            return self.compare("ne", x, self.constant(0, x))
        if x.dtype.is_float:
            return self._from_float(x, dtype)
        target = self.wide(register_type(dtype))
        if dtype.is_float:
            if dtype is DataType.Half:  # by way of float32, as PyTorch does it
                return self.convert(self.convert(x, DataType.Float), dtype)
            is_signed = x.dtype.is_signed and x.dtype.is_integer
            if dtype is DataType.Float and x.dtype.bits <= 16 and x.dtype.is_integer and self.host.has_approximations:
                return TypedValue(single_from_small(self.builder, x.code, is_signed), dtype)
            cast = self.builder.sitofp if is_signed else self.builder.uitofp
            return TypedValue(cast(x.code, target), dtype)
        if dtype.bits > register_type(x.dtype).width:  # pyright: ignore[reportAttributeAccessIssue]
            extend = self.builder.sext if x.dtype.is_signed and x.dtype.is_integer else self.builder.zext
            return TypedValue(extend(x.code, target), dtype)
        code = self.builder.trunc(x.code, target) if dtype.bits < x.dtype.bits else x.code
        return TypedValue(code, dtype)

    def _from_float(self, x: TypedValue, dtype: DataType) -> TypedValue:
        if not dtype.is_float:
            return self._float_to_integer(x, dtype)
        if dtype is DataType.Half and x.dtype is DataType.Double:
            # PyTorch rounds twice on this way, and so must this.
            return self.convert(self.convert(x, DataType.Float), dtype)
        target = self.wide(register_type(dtype))
        cast = self.builder.fpext if dtype.bits > x.dtype.bits else self.builder.fptrunc
        return TypedValue(cast(x.code, target), dtype)

    def _float_to_integer(self, x: TypedValue, dtype: DataType) -> TypedValue:
        """Cut off; what does not fit becomes the lowest number of the 32 or 64 bits the conversion is done in.

        That is what x86 does and PyTorch inherits there; smaller types take the low bits of 32. GPUs have an answer of
        their own, which PyTorch inherits, too; bytes without a sign take the low bits of 64 there.
        """
        if x.dtype is DataType.Half:
            x = self.convert(x, DataType.Float)
        bits = 64 if dtype is DataType.Int else 32
        if self.host.has_approximations:
            bits = bits if dtype.is_signed else 64
            whole = whole_number(self.builder, x.code, bits)
            target = self.wide(ir.IntType(dtype.bits))
            return TypedValue(self.builder.trunc(whole, target) if dtype.bits < bits else whole, dtype)
        whole = ir.IntType(bits)
        limit = float(1 << bits - 1)
        above = self.compare("ge", x, self.constant(-limit, x))
        below = self.compare("lt", x, self.constant(limit, x))
        fits = self.bit_and(above, below)
        safe = self.select(fits, x, self.constant(0.0, x))
        converted = self.builder.fptosi(safe.code, self.wide(whole))
        chosen = self.builder.select(fits.code, converted, self._constant(whole, -(1 << bits - 1)))
        if dtype.bits < bits:
            chosen = self.builder.trunc(chosen, self.wide(ir.IntType(dtype.bits)))
        return TypedValue(chosen, dtype)
