"""Elementary functions as IR that LLVM vectorizes."""
