"""Recurrent layers: the loop over time as one kernel."""
