"""The arguments of a call: their leaves, signature, matching and slots."""
