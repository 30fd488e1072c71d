"""A driver in place of the real one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ingot.base.once import once
from ingot.runtime.cuda import driver as driver_module
from tests.runtime.cuda.fake_driver import FakeDriver


@pytest.fixture
def install(monkeypatch) -> Callable[[FakeDriver], FakeDriver]:
    """Makes a fake driver the one of the process until the test ends."""

    def install(fake: FakeDriver) -> FakeDriver:
        monkeypatch.setattr(driver_module, "_loaded", once(fake.start))
        return fake

    return install
