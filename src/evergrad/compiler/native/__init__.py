"""LLVM IR to machine code: targets, compile processes, object files, the cache on disk."""
