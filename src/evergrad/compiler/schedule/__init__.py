"""Graph to instructions: fusion, index maps, lowering, waves and the memory plan."""
