"""Hand-written PTX on a real device: torch's memory, torch's streams, torch's context."""

import ctypes
import subprocess
import sys
import threading

import pytest
import torch

from ingot.base.errors import CudaError
from ingot.runtime.cuda.driver import device, driver, why_unavailable
from ingot.runtime.cuda.modules import launch, load

pytestmark = pytest.mark.cuda

DOUBLE = """
.version 7.0
.target sm_70
.address_size 64
.visible .entry double_it(.param .align 8 .b8 words[24])
{
    .reg .pred %past;
    .reg .b32 %block, %threads, %thread, %index;
    .reg .b64 %from, %to, %count, %wide, %offset;
    .reg .f32 %value;
    ld.param.u64 %to, [words];
    ld.param.u64 %from, [words+8];
    ld.param.u64 %count, [words+16];
    mov.u32 %block, %ctaid.x;
    mov.u32 %threads, %ntid.x;
    mov.u32 %thread, %tid.x;
    mad.lo.u32 %index, %block, %threads, %thread;
    cvt.u64.u32 %wide, %index;
    setp.ge.u64 %past, %wide, %count;
    @%past bra done;
    shl.b64 %offset, %wide, 2;
    add.u64 %from, %from, %offset;
    add.u64 %to, %to, %offset;
    ld.global.f32 %value, [%from];
    add.f32 %value, %value, %value;
    st.global.f32 [%to], %value;
done:
    ret;
}
"""


def words(*values: int) -> ctypes.Array[ctypes.c_int64]:
    return (ctypes.c_int64 * 3)(*values)


def double(x: torch.Tensor, result: torch.Tensor, ptx: str = DOUBLE) -> None:
    """Puts it on torch's current stream."""
    (function,) = load(ptx, ["double_it"], x.device.index, "double")
    grid = (-(-x.numel() // 128), 1, 1)
    stream = torch.cuda.current_stream(x.device).cuda_stream
    launch(function.handle, grid, (128, 1, 1), words(result.data_ptr(), x.data_ptr(), x.numel()), stream)


def test_device_is_what_torch_says():
    assert why_unavailable() is None
    said, found = torch.cuda.get_device_properties(0), device(0)
    assert found.capability == (said.major, said.minor)


def test_kernel_runs_on_the_current_stream():
    x = torch.randn(1001, device="cuda")
    result = torch.full((1100,), 7.0, device="cuda")
    double(x, result)
    assert torch.equal(result[:1001], x * 2)
    assert bool((result[1001:] == 7).all())


def test_kernel_waits_for_what_is_before_it_on_a_side_stream():
    source = torch.randn(4096, device="cuda")
    x, result = torch.zeros(4096, device="cuda"), torch.zeros(4096, device="cuda")
    double(x, result)  # loaded now, so that what follows is on its way while the side stream sleeps
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        torch.cuda._sleep(50_000_000)
        x.copy_(source)
        double(x, result)
    side.synchronize()
    assert torch.equal(result, source * 2)


def test_thread_that_never_used_cuda_can_launch():
    x, result = torch.randn(100, device="cuda"), torch.zeros(100, device="cuda")
    (function,) = load(DOUBLE, ["double_it"], 0, "double")
    given = words(result.data_ptr(), x.data_ptr(), 100)
    faults: list[Exception] = []

    def run() -> None:
        try:
            launch(function.handle, (1, 1, 1), (128, 1, 1), given, 0)
        except CudaError as error:
            faults.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert not faults
    assert torch.equal(result, x * 2)


def test_loading_leaves_the_current_context_alone():
    def current() -> int | None:
        found = ctypes.c_void_p()
        driver().call("cuCtxGetCurrent", ctypes.byref(found))
        return found.value

    torch.zeros(1, device="cuda")
    before = current()
    (function,) = load(DOUBLE + "// current context", ["double_it"], 0, "double")
    assert current() == before == function.context, "torch's context is the primary one"


def test_kernel_can_be_loaded_and_launched_while_a_graph_is_captured():
    x, result = torch.randn(500, device="cuda"), torch.zeros(500, device="cuda")
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        double(x, result, DOUBLE + "// captured")
    assert not result.any(), "captured, not run"
    for _ in range(2):
        x.add_(1)
        graph.replay()
        assert torch.equal(result, x * 2)


def test_resources_of_a_function_are_known():
    (function,) = load(DOUBLE, ["double_it"], 0, "double")
    assert 4 <= function.registers <= 64
    assert (function.local_bytes, function.shared_bytes, function.threads) == (0, 0, 1024)


def test_wrong_ptx_is_an_error_with_the_assemblers_words():
    wrong = DOUBLE.replace("add.f32 %value", "addition.f32 %value")
    with pytest.raises(CudaError, match=r"CUDA_ERROR_INVALID_PTX \(218\)(.|\n)*addition(.|\n)*PTX is kept in .*\.ptx"):
        load(wrong, ["double_it"], 0, "double")
    with pytest.raises(CudaError, match="CUDA_ERROR_NOT_FOUND"):
        load(DOUBLE, ["another"], 0, "double")


def test_launch_that_no_device_can_do_is_an_error_and_later_ones_run():
    x, result = torch.randn(100, device="cuda"), torch.zeros(100, device="cuda")
    (function,) = load(DOUBLE, ["double_it"], 0, "double")
    with pytest.raises(CudaError, match=r"CUDA_ERROR_INVALID_VALUE(.|\n)*kernel double on cuda:0"):
        launch(function.handle, (1, 1, 1), (4096, 1, 1), words(0, 0, 0), 0)
    double(x, result)
    assert torch.equal(result, x * 2)


def test_forked_child_is_told_why_it_cannot_go_on():
    script = (
        "import os\n"
        "from ingot.runtime.cuda.driver import device, why_unavailable\n"
        "assert why_unavailable() is None\n"
        "if os.fork() == 0:\n"
        "    try:\n"
        "        device(0)\n"
        "    except Exception as error:\n"
        "        print(type(error).__name__, error, why_unavailable() is None, flush=True)\n"
        "    os._exit(0)\n"
        "os.wait()\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout.startswith("CudaError CUDA was used before this process was forked"), done.stderr
    assert done.stdout.endswith("False\n")
