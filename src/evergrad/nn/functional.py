"""wip"""
from evergrad.ops.contract import linear
