"""Code that must not be proven because of what it reads: it changes from call to call, and no guard sees that."""

from __future__ import annotations

import collections
import datetime
import functools
import itertools
import logging
import os
import pathlib
import queue
import random
import sys
import threading
import time
import types
import uuid
import weakref

import numpy
import pytest
import torch

from tests.frontend.jit.proof.cases import Case, Cases, Holder, check_refused

refused = Cases()
LOCAL = threading.local()
LOCAL.scale = 2.0
GENERATOR = random.Random(0)
DRAWS = torch.Generator()
QUEUE: queue.Queue[int] = queue.Queue()
COUNTING = itertools.count()
LOGGER = logging.getLogger(__name__)
DEFAULTS: collections.defaultdict[str, float] = collections.defaultdict(float)
DEQUE: collections.deque[int] = collections.deque([1, 2])
HOLDER = Holder()
WEAK = weakref.ref(HOLDER)
PROXY = weakref.proxy(HOLDER)
NAMESPACE = types.MappingProxyType({"scale": 2.0})


@refused()
def asks_for_the_log_level(x):
    return x * 2 if LOGGER.isEnabledFor(logging.DEBUG) else x


@refused(reason="time")
def reads_a_clock(x):
    return x * time.time()


@refused()
def reads_the_date(x):
    return x * datetime.datetime.now().hour


@refused()
def reads_the_local_time(x):
    return x * time.localtime().tm_hour


@refused(reason="random")
def draws_from_python(x):
    return x * random.random()


@refused()
def draws_from_a_generator(x):
    return x * GENERATOR.uniform(0, 1)


@refused()
def draws_from_numpy(x):
    return x * float(numpy.random.default_rng().random())


@refused()
def draws_bytes(x):
    return x * os.urandom(1)[0]


@refused()
def draws_identifiers(x):
    return x * uuid.uuid4().int


@refused(reason="a generator")
def draws_from_a_generator_of_pytorch(x):
    return x * torch.rand(4, generator=DRAWS)


@refused()
def reads_the_seed(x):
    return x * torch.initial_seed()


@refused()
def reads_a_file(x):
    with open(__file__) as file:
        return x * len(file.readline())


@refused()
def asks_for_a_file(x):
    return x * pathlib.Path(__file__).exists()


@refused(reason="_local")
def reads_a_thread_local(x):
    return x * LOCAL.scale


@refused()
def asks_for_the_thread(x):
    return x * len(threading.current_thread().name)


@refused()
def reads_a_queue(x):
    return x * QUEUE.qsize()


@refused()
def takes_from_a_counter(x):
    return x * next(COUNTING)


@refused()
def follows_a_weak_reference(x):
    return x * WEAK().scale  # type: ignore[union-attr]


@refused()
def reads_by_a_proxy(x):
    return x * PROXY.scale


@refused()
def reads_a_mapping_proxy(x):
    return x * NAMESPACE["scale"]


@refused()
def reads_a_deque(x):
    return x * DEQUE[0]


@refused(reason="missing")
def reads_a_default_dictionary(x):
    return x * DEFAULTS["missing"]


@functools.lru_cache
def _cached() -> object:
    return object()


@refused(reason="lru_cache")
def reads_a_cache(x):
    return x * 2 if _cached() else x


@refused()
def looks_at_the_stack(x):
    return x * sys._getframe().f_lineno


@refused()
def counts_references(x):
    return x * sys.getrefcount(HOLDER)


@refused(reason="id")
def asks_for_an_identity(x):
    return x * (id(HOLDER) % 7)


@refused(reason="hash")
def hashes(x):
    return x * (hash(HOLDER) % 7)


@pytest.mark.parametrize("case", refused, ids=str)
def test_is_refused(case: Case):
    check_refused(case)
