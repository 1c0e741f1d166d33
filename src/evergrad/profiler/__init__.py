"""Where the time goes: a profiler with PyTorch's interface."""

from evergrad.profiler.collect import record_function
from evergrad.profiler.events import EventList, FunctionEventAvg
from evergrad.profiler.profiler import (
    ProfilerAction,
    ProfilerActivity,
    profile,
    schedule,
    supported_activities,
    tensorboard_trace_handler,
)

__all__ = [
    "EventList", "FunctionEventAvg", "ProfilerAction", "ProfilerActivity", "profile",
    "record_function", "schedule", "supported_activities", "tensorboard_trace_handler",
]  # fmt: skip
