#!/usr/bin/env bash
# compute-sanitizer over the kernel tests: no access outside a tensor, no race in shared memory, no misused barrier.
#
#     tests/cuda/sanitize.sh                      memcheck, then racecheck
#     tests/cuda/sanitize.sh synccheck            any tools of compute-sanitizer's
#     PYTHON=python3 tests/cuda/sanitize.sh       with another Python
#
# Only kernels of ingot's are watched: PyTorch's would take most of the time. Every tensor has memory of its own from the
# driver, because torch's allocator would hide what lies beside it. Large sizes are left out.
set -euo pipefail
cd "$(dirname "$0")/../.."
python=${PYTHON:-.venv/bin/python}
export PYTORCH_NO_CUDA_MEMORY_CACHING=1 INGOT_TEST_EXAMPLES=${INGOT_TEST_EXAMPLES:-40}
chosen='generated_code_gives or every_bit or every_layout or begins_anywhere or several_axes or every_subset'
chosen+=' or transposes or infinities or any_and_all or positions or overlapping or either_sign'
chosen+=' or (every_length and float32)'
[ $# -gt 0 ] || set -- memcheck racecheck
for tool in "$@"; do
    compute-sanitizer --tool "$tool" --error-exitcode 9 --kernel-name kns=entry \
        "$python" -m pytest -p no:cacheprovider -m cuda -k "$chosen" \
        tests/cuda tests/runtime/test_reductions.py tests/runtime/test_kernels.py
done
