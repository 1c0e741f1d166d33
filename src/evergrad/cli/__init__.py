"""The ``evergrad`` command: one module for each of its commands, imported when it is used."""
