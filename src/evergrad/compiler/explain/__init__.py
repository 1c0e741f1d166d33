"""Reports on a compiled program: text, HTML, timing."""
