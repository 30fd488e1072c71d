"""Code that must not be proven because of what it does: it changes what others see, or may be caught in the middle."""

from __future__ import annotations

import contextlib
import contextvars
import gc
import io
import logging
import tempfile
import threading
import warnings
from typing import Any

import pytest
import torch
from torch import nn

from ingot.frontend.jit.proof import Refusal, prove
from tests.frontend.jit.proof.cases import Case, Cases, Holder, check_refused, tensor

refused = Cases()
SEEN: list[Any] = []
COUNTS = {"calls": 0}
MEMBERS: set[int] = set()
COUNTER = 0
VARIABLE: contextvars.ContextVar[float] = contextvars.ContextVar("scale", default=2.0)
LOGGER = logging.getLogger(__name__)
STREAM = io.StringIO()
LOCK = threading.Lock()
HOLDER = Holder()


@refused(reason="variable 'COUNTER'")
def counts_in_a_global(x):
    global COUNTER
    COUNTER += 1
    return x * 2


@refused(reason="changes a container")
def appends_to_a_global(x):
    SEEN.append(x)
    return x * 2


@refused(reason="sets an item")
def counts_in_a_dictionary(x):
    COUNTS["calls"] += 1
    return x * 2


@refused(reason="changes a container")
def adds_to_a_set(x):
    MEMBERS.add(x.dim())
    return x * 2


@refused(reason="sets the attribute 'calls'")
def counts_in_an_object(x):
    HOLDER.calls += 1
    return x * 2


@refused(reason="sets the attribute")
def hangs_on_a_function(x):
    hangs_on_a_function.last = x
    return x * 2


@refused(reason="changes a container")
def appends_to_a_default(x, seen=[]):  # noqa: B006
    seen.append(1)
    return x * len(seen)


@refused([tensor(2)], reason="changes a container")
def appends_to_an_argument(xs):
    xs.append(xs[0])
    return xs[0]


@refused({"a": tensor(2)}, reason="sets an item")
def sets_an_entry_of_an_argument(tree):
    tree["b"] = tree["a"]
    return tree["a"]


@refused(reason="print")
def prints(x):
    print(x.shape)
    return x * 2


@refused(reason="write")
def writes_to_a_stream(x):
    STREAM.write("called")
    return x * 2


@refused()
def warns(x):
    warnings.warn("called", UserWarning, stacklevel=2)
    return x * 2


@refused()
def logs(x):
    LOGGER.info("called with %s", x.shape)
    return x * 2


@refused()
def seeds(x):
    torch.manual_seed(0)
    return x * 2


@refused()
def makes_a_file(x):
    with tempfile.TemporaryFile():
        return x * 2


@refused(reason="context variable")
def sets_a_context_variable(x):
    VARIABLE.set(3.0)
    return x * VARIABLE.get()


@refused()
def holds_a_lock(x):
    with LOCK:
        return x * 2


@refused(reason="'try'")
def catches_what_operations_raise(x):
    try:
        return torch.linalg.cholesky(x @ x.T)
    except RuntimeError:
        return x


@refused()
def suppresses(x):
    with contextlib.suppress(RuntimeError):
        return torch.linalg.inv(x @ x.T)
    return x


@refused()
def changes_a_switch(x):
    torch.set_default_dtype(torch.float32)
    return x * 2


@refused()
def sets_gradients_off_for_good(x):
    torch.set_grad_enabled(False)
    torch.set_grad_enabled(True)
    return x * 2


@refused()
def collects_garbage(x):
    gc.collect()
    return x * 2


@refused()
def starts_a_thread(x):
    threading.Thread(target=lambda: None).start()
    return x * 2


@refused(reason="of an object that it did not make")
def sets_an_attribute_of_a_module(x):
    PLAIN.calls = 1  # type: ignore[assignment]
    return PLAIN(x)


PLAIN = nn.Linear(4, 4)


@refused(HOLDER, reason="sets the attribute")
def changes_an_object_among_the_arguments(holder):
    holder.scale = 3.0
    return tensor(2) * holder.scale


class Answering:
    def __getattr__(self, name: str) -> float:
        SEEN.append(name)
        return 2.0


ANSWERING = Answering()


@refused(reason="changes a container")
def reads_by_getattr_with_effects(x):
    return x * ANSWERING.scale


class Counting:
    @property
    def scale(self) -> float:
        COUNTS["reads"] = COUNTS.get("reads", 0) + 1
        return 2.0


COUNTING_PROPERTY = Counting()


@refused(reason="sets an item")
def reads_a_property_with_effects(x):
    return x * COUNTING_PROPERTY.scale


@pytest.mark.parametrize("case", refused, ids=str)
def test_is_refused(case: Case):
    check_refused(case)


def test_a_refusal_names_the_line_of_the_user():
    found = prove(prints, (tensor(2),), {})
    assert isinstance(found, Refusal)
    first = prints.__code__.co_firstlineno
    assert found.place == f"{__file__}:{first + 2}"
    assert COUNTER == 0 and COUNTS == {"calls": 0}
