"""Small kernels of the launcher's own interface, `void entry(int64_t *words)`, and records that run them.

words[0] is the number of threads, words[1] the fault; here words[2] is the number of elements and addresses follow.
"""

from functools import lru_cache

import torch

from ingot.codegen.llvm import ir
from ingot.codegen.llvm.host import Compiled, new_module
from ingot.runtime.native.abi.prototypes import prototype
from ingot.runtime.native.assembler.routines import Library
from ingot.runtime.native.launch.callables import CallTable, native_function
from ingot.runtime.native.launch.launcher import launcher
from ingot.runtime.native.launch.record_structs import Convention
from ingot.runtime.native.launch.records import CallSlots, Patch, Record, RunStatistics, Step, TensorGuard

COUNT_WORD = 2
FIRST_ADDRESS = 3
_LANES = 8


class Fallback:
    """Remembers what it was called with, and returns or raises what it is told to."""

    def __init__(self, result=None, error=None):
        self.result, self.error = result, error
        self.calls = []

    def __call__(self, *arguments, **keywords):
        self.calls.append((arguments, keywords))
        if self.error is not None:
            raise self.error
        return self.result


class FusedCall:
    """A native function with its table, its fallback and its statistics."""

    def __init__(self, inputs, outputs, convention=Convention.LIST, fallback=None):
        found = launcher()
        assert found is not None, "there must be a launcher on the machines that run the tests"
        self.fallback = Fallback() if fallback is None else fallback
        self.statistics = RunStatistics()
        self.table = CallTable(found, inputs, outputs, convention)
        self.function = native_function(found, self.table, self.fallback, "execute", "(inputs)", "Runs a kernel.")

    def __call__(self, *arguments, **keywords):
        return self.function(*arguments, **keywords)


@lru_cache(maxsize=1)
def multiply_add_kernel():
    """out = a * b + c over floats, a multiple of eight of them."""
    word, floats = ir.IntType(64), ir.VectorType(ir.FloatType(), _LANES)
    module = new_module()
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [ir.PointerType(word)]), "multiply_add")
    builder = ir.IRBuilder(function)
    read = lambda place: builder.load(builder.gep(function.arguments[0], word(place)))
    vectors = builder.udiv(read(COUNT_WORD), ir.Constant(word, _LANES))
    buffers = [builder.inttoptr(read(FIRST_ADDRESS + number), ir.PointerType(floats)) for number in range(4)]
    start, body, end = builder.block, function.append_block(), function.append_block()
    builder.branch(body)
    builder.position_at_end(body)
    index = builder.phi(word)
    places = [builder.gep(buffer, index) for buffer in buffers]
    a, b, c = (builder.load(place, align=4) for place in places[:3])
    builder.store(builder.fadd(builder.fmul(a, b), c), places[3], align=4)
    following = builder.add(index, ir.Constant(word, 1))
    index.add_incoming(ir.Constant(word, 0), start)
    index.add_incoming(following, body)
    builder.cbranch(builder.icmp_signed("<", following, vectors), body, end)
    builder.position_at_end(end)
    builder.ret_void()
    return Compiled(lambda: module)


def multiply_add_record(statistics, tensors, is_long=False):
    """A record for three tensors like these, of one shape and row-major."""
    compiled = multiply_add_kernel()
    count = tensors[0].numel()
    patches = tuple(Patch(FIRST_ADDRESS + number, number) for number in range(4))
    step = Step(compiled.address("multiply_add"), (0, 0, count, 0, 0, 0, 0), patches)
    result = prototype(tuple(tensors[0].shape), torch.float32)
    guards = [TensorGuard.like(tensor) for tensor in tensors]
    return Record(guards, [result], [step], statistics, is_long=is_long, bytes_moved=4 * 4 * count, keeps=compiled)


def multiply_add(tensors, convention=Convention.LIST, fallback=None, is_long=False):
    """A native function with one record, for tensors like these."""
    call = FusedCall(3, 1, convention, fallback)
    call.table.add(multiply_add_record(call.statistics, tensors, is_long))
    return call


@lru_cache(maxsize=1)
def integer_kernels():
    """Kernels that are not about floats.

    copy: out[i] = in[i], in words. show: out[0] is the number of threads, out[1] a number the call was given. refuse:
    reports a fault if the first word of its input is negative. wait: until another thread changes the first word of its
    input, or a long time has passed; out[0] tells whether they did.
    """
    library = Library("test")
    copy = library.routine("copy", 1)
    (words,) = copy.parameters
    source, target = copy.load(words, FIRST_ADDRESS), copy.load(words, FIRST_ADDRESS + 1)
    with copy.loop(copy.load(words, COUNT_WORD)) as index:
        copy.store(copy.load(source, index), target, index)
    copy.give_back()

    show = library.routine("show", 1)
    (words,) = show.parameters
    show.store(show.load(words, 0), show.load(words, FIRST_ADDRESS), 0)
    show.store(show.load(words, COUNT_WORD), show.load(words, FIRST_ADDRESS), 1)
    show.give_back()

    refuse = library.routine("refuse", 1)
    (words,) = refuse.parameters
    first = refuse.load(refuse.load(words, FIRST_ADDRESS))
    refuse.store(refuse.choose(refuse.compare(first, "<", 0), 1, 0), words, 1)
    refuse.store(first, refuse.load(words, FIRST_ADDRESS + 1))
    refuse.give_back()

    wait = library.routine("wait", 1)
    (words,) = wait.parameters
    watched, target = wait.load(words, FIRST_ADDRESS), wait.load(words, FIRST_ADDRESS + 1)
    wait.store(0, target)
    with wait.loop(5_000_000_000) as _, wait.when(wait.exchange(watched, 2, 3)):
        wait.store(1, target)
        wait.give_back()
    wait.give_back()
    library.compile()
    return library


def one_step(name, guards, shape, inputs=(), scalars=(), count=0, **settings):
    """A native function of one integer kernel: the inputs' addresses, the result's, and numbers for the count."""
    call = FusedCall(len(guards), 1)
    slots = [*inputs, len(guards)]
    if settings.get("doubles"):
        scalars = [CallSlots(len(guards), 1).double(position) for position in scalars]
    patches = [Patch(FIRST_ADDRESS + number, slot) for number, slot in enumerate(slots)]
    patches += [Patch(COUNT_WORD, slot) for slot in scalars]
    words = (0, 0, count) + (0,) * len(slots)
    step = Step(integer_kernels().address(name), words, tuple(patches), settings.pop("is_parallel", False))
    call.table.add(Record(guards, [prototype(shape, torch.int64)], [step], call.statistics, **settings))
    return call
