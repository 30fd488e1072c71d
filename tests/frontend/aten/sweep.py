"""Every operator of PyTorch's own database of sample inputs, call by call: `python -m tests.frontend.aten.sweep`.

Prints which overloads are lowered and which are left to PyTorch, with the number of calls seen, and every call whose
lowering gives something else than PyTorch. Options choose operators by name and bound the samples of each.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ingot import JitCompiler
from ingot.frontend.aten import lowering_for
from tests.opinfo.database import database_of_pytorch

from . import calls

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.bool)


@dataclass
class Findings:
    lowered: Counter[str] = field(default_factory=Counter)
    """Calls per overload that became nodes and gave what PyTorch gives."""
    refused: Counter[str] = field(default_factory=Counter)
    """Calls per overload that its lowering left to PyTorch."""
    unknown: Counter[str] = field(default_factory=Counter)
    """Calls per overload that has no lowering."""
    wrong: list[str] = field(default_factory=list)

    def add(self, call: calls.Call, compiler: JitCompiler | None) -> None:
        if lowering_for(call.overload) is None:
            self.unknown[str(call.overload)] += 1
            return
        try:
            known = calls.check(call, compiler)
        except Exception as error:
            self.wrong.append(f"{type(error).__name__}: {error}\n  in {calls.describe(call)}")
        else:
            (self.lowered if known else self.refused)[call.name] += 1


def calls_of(operator: Any, dtype: torch.dtype, most: int, derivatives: bool) -> Iterator[calls.Call]:
    """What an operator calls for its samples, and, if asked for, what its derivative does."""
    torch.manual_seed(0)
    derivatives = derivatives and operator.supports_autograd and dtype in operator.supported_backward_dtypes("cpu")
    try:
        samples = list(itertools.islice(operator.sample_inputs("cpu", dtype, requires_grad=derivatives), most))
    except Exception:
        return  # some samples need libraries that are not there
    for sample in samples:

        def run(sample: Any = sample) -> None:
            result = operator(sample.input, *sample.args, **sample.kwargs)
            if derivatives:
                found = result if isinstance(result, tuple | list) else (result,)
                total = sum(value.sum() for value in found if isinstance(value, torch.Tensor) and value.requires_grad)
                if isinstance(total, torch.Tensor) and not total.is_complex():
                    total.backward()

        try:
            with torch.set_grad_enabled(derivatives):
                made = calls.recorded(run)
        except Exception:
            continue  # samples of operators that refuse some of their own
        yield from made


def sweep(
    names: Sequence[str], dtypes: tuple[torch.dtype, ...], most: int, derivatives: bool, compiled: int
) -> Findings:
    """Check the calls of operators; the first calls of each overload are compiled, too."""
    findings, seen = Findings(), Counter()
    compiler = JitCompiler()
    checked: set[tuple[str, str]] = set()
    for operator in database_of_pytorch().op_db:
        if names and operator.name not in names:
            continue
        for dtype in dtypes:
            if dtype not in operator.dtypes:
                continue
            for call in calls_of(operator, dtype, most, derivatives):
                key = (operator.name, calls.describe(call))
                if key in checked:
                    continue
                checked.add(key)
                seen[call.name] += 1
                findings.add(call, compiler if seen[call.name] <= compiled else None)
    return findings


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="operators, as PyTorch's database names them; all by default")
    parser.add_argument("--samples", type=int, default=1000, help="most samples of an operator and dtype")
    parser.add_argument("--compiled", type=int, default=1000, help="most calls of an overload to compile")
    parser.add_argument("--derivatives", action="store_true", help="run the derivatives as well")
    options = parser.parse_args()
    torch.set_num_threads(1)
    findings = sweep(options.names, DTYPES, options.samples, options.derivatives, options.compiled)
    for title, counts in (
        ("lowered", findings.lowered),
        ("left to PyTorch for their arguments", findings.refused),
        ("left to PyTorch", findings.unknown),
    ):
        print(f"{title}: {len(counts)} overloads, {counts.total()} calls")
        print("  " + ", ".join(f"{name} {count}" for name, count in counts.most_common()))
    for text in findings.wrong:
        print(f"WRONG {text}")
    print(f"{len(findings.wrong)} wrong")
    sys.exit(bool(findings.wrong))


if __name__ == "__main__":
    main()
