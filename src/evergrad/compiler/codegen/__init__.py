"""Loop nests and elementwise formulas as LLVM IR."""
