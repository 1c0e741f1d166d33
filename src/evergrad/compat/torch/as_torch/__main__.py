"""``python -m evergrad.as_torch script.py arguments...``"""

from evergrad.as_torch.runner import run_command_line

run_command_line()
