"""Machine code through LLVM, in process."""
