"""What holds instructions: blocks, functions, modules."""

from __future__ import annotations

from itertools import count

from ingot.codegen.llvm.ir.values import FunctionType, PointerType, Type, Value


class Phi(Value):
    """A value that depends on the block control came from."""

    __slots__ = ("_incoming",)

    def __init__(self, type: Type, reference: str):
        super().__init__(type, reference)
        self._incoming: list[str] = []

    def add_incoming(self, value: Value, block: BasicBlock) -> None:
        self._incoming.append(f"[ {value.reference}, %{block.name} ]")

    def __str__(self) -> str:
        return f"  {self.reference} = phi {self.type.text} {', '.join(self._incoming)}"


class BasicBlock:
    """Instructions one after another. What is appended to a block that has ended comes before its end."""

    __slots__ = ("end", "known", "lines", "name")

    def __init__(self, name: str):
        self.name = name
        self.lines: list[str | Phi] = []
        self.end = ""
        """Where control goes from here."""
        self.known: dict[str, Value] = {}
        """Values by the expression that they were computed by."""

    def __str__(self) -> str:
        return "\n".join((f"{self.name}:", *map(str, self.lines), self.end))


class Function(Value):
    """A function of a module; only declared as long as it has no blocks."""

    __slots__ = (
        "_convention",
        "_passing",
        "arguments",
        "attributes",
        "blocks",
        "is_internal",
        "kind",
        "module",
        "name",
        "names",
    )

    def __init__(self, module: Module, kind: FunctionType, name: str):
        super().__init__(PointerType(kind), f"@{name}")
        self.module, self.kind, self.name = module, kind, name
        self.arguments = [Value(type, f"%a{index}") for index, type in enumerate(kind.arguments)]
        self.attributes = "nounwind"
        self.is_internal = False
        self.blocks: list[BasicBlock] = []
        self.names = map("%v{}".format, count(1))
        """One after another, names that nothing else in this function has."""
        self._convention = self._passing = ""
        module.functions[name] = self

    def make_kernel(self, argument: str, threads: int, fills_processor: bool = False) -> None:
        """Something to launch on a GPU, in blocks of so many threads; its one argument is passed by value. Where one
        block fills a multiprocessor, the assembler need not save registers to make room for another."""
        self._convention = "ptx_kernel "
        self._passing = f" byval({argument}) align 8"
        self.attributes += f' "nvvm.maxntid"="{threads}"' + ' "nvvm.minctasm"="1"' * fills_processor

    def append_block(self, name: str = "block") -> BasicBlock:
        block = BasicBlock(f"{name}{len(self.blocks)}")
        self.blocks.append(block)
        return block

    @property
    def is_declaration(self) -> bool:
        return not self.blocks

    def __str__(self) -> str:
        result = self.kind.result.text
        if self.is_declaration:
            return f"declare {result} {self.reference}({', '.join(type.text for type in self.kind.arguments)})"
        linkage = "internal " if self.is_internal else ""
        given = (f"{argument.type.text}{self._passing} {argument.reference}" for argument in self.arguments)
        arguments = ", ".join(given)
        blocks = "\n".join(map(str, self.blocks))
        head = f"define {linkage}{self._convention}{result} {self.reference}({arguments}) {self.attributes}"
        return f"{head} {{\n{blocks}\n}}"


class Module:
    chooses_bytes_singly = False
    """Whether bytes of vectors are chosen one by one, because LLVM cannot choose four at once for the processor."""

    def __init__(self, triple: str, data_layout: str):
        self.triple, self.data_layout = triple, data_layout
        self.functions: dict[str, Function] = {}
        self._metadata: dict[str, str] = {}
        self._arrays: dict[str, str] = {}

    def metadata(self, text: str) -> str:
        """The name of a piece of metadata."""
        return self._metadata.setdefault(f"!{{{text}}}", f"!{len(self._metadata)}")

    def rolled_up_loop(self) -> str:
        """Metadata of one more loop, which says that it is not to be written out several times."""
        disabled = self.metadata('!"llvm.loop.unroll.disable"')
        name = f"!{len(self._metadata)}"
        return self._metadata.setdefault(f"distinct !{{{name}, {disabled}}}", name)

    def shared_array(self, name: str, element: Type, count: int) -> Value:
        """Memory of a block of a GPU's threads."""
        kind = f"[{count} x {element.text}]"
        self._arrays[name] = f"@{name} = internal addrspace(3) global {kind} undef, align 16"
        return Value(PointerType(element, 3), f"@{name}")

    def __str__(self) -> str:
        head = f'target triple = "{self.triple}"', f'target datalayout = "{self.data_layout}"'
        metadata = (f"{name} = {text}" for text, name in self._metadata.items())
        return "\n".join((*head, *self._arrays.values(), *map(str, self.functions.values()), *metadata, ""))
