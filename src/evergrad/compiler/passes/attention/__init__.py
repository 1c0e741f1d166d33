"""Recognition of hand-written attention."""
