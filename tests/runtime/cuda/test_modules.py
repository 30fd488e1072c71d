"""Loading PTX and launching what is in it: what the driver is asked for, in which order, and what faults say."""

import ctypes
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ingot.base.errors import CudaError
from ingot.runtime.cuda.modules import Modules
from tests.runtime.cuda.fake_driver import INVALID_VALUE, FakeDriver

PTX = ".version 7.8\n.visible .entry entry0(\n)\n.visible .entry entry1(\n)\n"
WORDS = (ctypes.c_int64 * 3)(5, -6, 2**60)


def kept_ptx(error: pytest.ExceptionInfo[CudaError]) -> str:
    found = re.search(r"whose PTX is kept in (\S+)$", str(error.value))
    assert found is not None, str(error.value)
    return Path(found[1]).read_text()


def test_load_gives_the_entries_in_order_and_leaves_the_thread_as_it_was(install):
    fake = install(FakeDriver())
    first, second = Modules().load(PTX, ["entry1", "entry0"], 0, "mul+add")
    assert (first.entry, second.entry) == ("entry1", "entry0") and first.handle != second.handle
    assert (first.registers, first.local_bytes, first.shared_bytes, first.threads) == (40, 16, 448, 1024)
    assert [call[0] for call in fake.calls] == [
        "cuInit",
        "cuDevicePrimaryCtxRetain",
        "cuCtxPushCurrent",
        "cuThreadExchangeStreamCaptureMode",
        "cuModuleLoadDataEx",
        "cuThreadExchangeStreamCaptureMode",
        "cuCtxPopCurrent",
    ]
    assert fake.contexts == []
    modes = [call[1] for call in fake.named("cuThreadExchangeStreamCaptureMode")]
    assert modes == [2, 0], "relaxed, then what it was"


def test_equal_kernels_are_loaded_once_by_many_threads(install):
    fake, modules = install(FakeDriver()), Modules()
    with ThreadPoolExecutor(8) as pool:
        loaded = list(pool.map(lambda turn: modules.load(PTX, ["entry0"], 0, f"name{turn}"), range(8)))
    assert len(fake.named("cuModuleLoadDataEx")) == 1
    assert all(functions is loaded[0] for functions in loaded)
    modules.load(PTX + "//", ["entry0"], 0, "another")
    assert len(fake.named("cuModuleLoadDataEx")) == 2


class Crowded(FakeDriver):
    """Notes how many threads are inside the assembler at once."""

    def __init__(self) -> None:
        self.inside = self.most = 0
        super().__init__()

    def cuModuleLoadDataEx(self, module, image, count, options, values):
        self.inside += 1
        self.most = max(self.most, self.inside)
        try:
            return super().cuModuleLoadDataEx(module, image, count, options, values)
        finally:
            self.inside -= 1


def test_different_kernels_are_assembled_one_after_another(install):
    fake, modules = install(Crowded()), Modules()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda turn: modules.load(f"{PTX}//{turn}", ["entry0"], 0, "mul"), range(4)))
    assert len(fake.named("cuModuleLoadDataEx")) == 4
    assert fake.most == 1


def test_each_device_has_its_own(install):
    fake, modules = install(FakeDriver(devices=2)), Modules()
    functions = [modules.load(PTX, ["entry0"], index, "mul")[0] for index in (0, 1, 0, 1)]
    assert functions[0] is functions[2] and functions[1] is functions[3] and functions[0] is not functions[1]
    assert fake.named("cuModuleLoadDataEx") == [("cuModuleLoadDataEx", 1050), ("cuModuleLoadDataEx", 1051)]
    for function in functions[:2]:
        modules.launch(function.handle, (1, 1, 1), (32, 1, 1), WORDS, 0)
    assert len(fake.launched_words) == 2
    assert fake.contexts == []


def test_launch_passes_everything_on(install):
    fake, modules = install(FakeDriver()), Modules()
    (function,) = modules.load(PTX, ["entry0"], 0, "mul")
    modules.launch(function.handle, (70000, 2, 3), (128, 4, 2), WORDS, 0x7F0012345678)
    assert fake.named("cuLaunchKernel") == [
        ("cuLaunchKernel", function.handle, (70000, 2, 3), (128, 4, 2), 0, 0x7F0012345678)
    ]
    assert fake.launched_words == [[5, -6, 2**60]]


def test_launch_where_the_context_is_current_changes_none(install):
    fake, modules = install(FakeDriver()), Modules()
    (function,) = modules.load(PTX, ["entry0"], 0, "mul")
    fake.contexts.append(function.context)
    pushed = len(fake.named("cuCtxPushCurrent"))
    modules.launch(function.handle, (1, 1, 1), (32, 1, 1), WORDS, 0)
    assert len(fake.named("cuCtxPushCurrent")) == pushed


def test_wrong_ptx_is_an_error_with_the_log_and_the_ptx(install):
    fake, modules = install(FakeDriver()), Modules()
    for _ in range(2):
        with pytest.raises(CudaError, match=r"CUDA_ERROR_INVALID_PTX \(218\): .*\nptxas input, line 3; fatal") as error:
            modules.load(PTX + "nonsense", ["entry0"], 0, "mul/exp")
        assert "in kernel mul/exp on cuda:0, whose PTX" in str(error.value)
        assert kept_ptx(error) == PTX + "nonsense"
    assert len(fake.named("cuModuleLoadDataEx")) == 2, "a failure is not remembered"
    assert fake.contexts == []


def test_missing_entry_is_an_error_and_its_module_is_given_back(install):
    fake = install(FakeDriver())
    with pytest.raises(CudaError, match=r"cuModuleGetFunction failed .*\(500\)") as error:
        Modules().load(PTX, ["entry0", "entry2"], 0, "mul")
    assert kept_ptx(error) == PTX
    assert len(fake.named("cuModuleUnload")) == 1


def test_failed_launch_names_the_kernel(install):
    fake, modules = install(FakeDriver()), Modules()
    (function,) = modules.load(PTX, ["entry0"], 0, "softmax")
    fake.codes = {"cuLaunchKernel": INVALID_VALUE}
    with pytest.raises(CudaError, match=r"cuLaunchKernel failed with CUDA_ERROR_INVALID_VALUE") as error:
        modules.launch(function.handle, (1, 1, 1), (9999, 1, 1), WORDS, 0)
    assert "kernel softmax on cuda:0" in str(error.value) and kept_ptx(error) == PTX
    assert fake.contexts == []


def test_ptx_that_cannot_be_kept_hides_no_error(install, monkeypatch):
    install(FakeDriver())
    monkeypatch.setattr("ingot.runtime.cuda.modules._directory", lambda: Path("/does/not/exist"))
    with pytest.raises(CudaError, match=r"CUDA_ERROR_INVALID_PTX(.|\n)*PTX could not be kept: .*No such file"):
        Modules().load("nonsense", ["entry0"], 0, "mul")
