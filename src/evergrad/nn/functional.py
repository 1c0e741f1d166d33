"""wip"""
from evergrad.ops.contract import linear
from evergrad.ops.conv import conv1d,conv2d,conv3d,conv_transpose1d,conv_transpose2d,conv_transpose3d
from evergrad.ops.pool import *
