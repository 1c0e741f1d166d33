"""Graph to graph: the passes between capture and scheduling."""
