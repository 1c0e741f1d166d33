"""``python -m evergrad.as_torch script.py arguments...``"""

from .runner import run_command_line

run_command_line()
