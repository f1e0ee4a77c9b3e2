"""Limits of every reader: how much a file may ask for before it is refused.

Each limit lies far above real files and keeps reading within a few GB of memory. A file can ask for
much more than its own size: by compression, by nesting, or by a graph that doubles its values.
"""

from __future__ import annotations

from maar.core.errors import UsageError

MIB, GIB = 1 << 20, 1 << 30

# Bytes of one file, after decompression.
ONNX_BYTES = 2 * GIB - 1  # protobuf itself reads no more
VNNLIB_BYTES = 512 * MIB  # 4,780 boxes of 308 inputs (nn4sys) have 45 MB
VNNLIB2_BYTES = 32 * MIB  # the vnnlib package cannot be interrupted while it reads
INSTANCES_BYTES = 64 * MIB
DATA_BYTES = 8 * GIB  # a data set is held in memory
DATA_TEXT_BYTES = 16 * MIB  # names of classes
RAW_BYTES = GIB  # a published file of MNIST or CIFAR-10, or an archive of them
IMAGE_BYTES = 256 * MIB  # of one image, packed or not
WEIGHTS_BYTES = 16 * GIB  # a checkpoint with its optimiser
COUNTEREXAMPLE_BYTES = GIB
JSON_BYTES = 64 * MIB  # "[]," takes 25 times its size as a Python list
LINES_BYTES = 256 * MIB  # verdicts of a million images
OWN_BYTES = 16 * MIB  # of a Python file of the user
TOML_BYTES = 256 << 10
TOML_LINE = 4096  # characters; tomllib takes quadratic time for the dots of a key

# ONNX
FIELDS = 2_000_000  # of the file's protobuf messages; an empty message of 2 bytes takes 200
NODES = 20_000  # onnxruntime prepares them all in one call, in more than linear time
PACKED_BYTES = 256 * MIB  # of integers, which protobuf unpacks to eight times as many
ELEMENTS = 1 << 25  # of one value that flows through the network, for one image
BATCH_ELEMENTS = 1 << 29  # the same for all images of a file with a fixed batch size
CONSTANT_ELEMENTS = 1 << 25  # of all constants that the graph computes, together
RESIDUAL_DEPTH = 20  # residual blocks inside each other; torch and copy recurse over them

# VNNLIB
DIGITS = 2000  # characters of one number; the exact decimal of a float64 has up to 1,100
EXPONENT = 400  # of ten; float64 ends at 308
BITS = 1 << 15  # of a number that is computed from others, such as a product
PARENTHESES = 100  # inside each other; Python's own stack ends at a thousand calls
VARIABLES = 1 << 22  # inputs, or outputs
DISJUNCTS = 100_000
COMPARISONS = 1 << 24  # of all disjuncts together, after `and` was distributed over `or`
BOX_NUMBERS = 1 << 25  # inputs of all boxes together
CONDITION_NUMBERS = 1 << 26  # coefficients of all conditions together


def require(count: int, most: int, where: object, what: str) -> None:
    """Raise a `UsageError` that names the count and the limit if `count` is above `most`."""
    if count > most:
        raise excess(count, most, where, what)


def excess(count: int | str, most: int, where: object, what: str) -> UsageError:
    """The error for more than `most`."""
    return UsageError(f"{where}: {what}: {count} (accepted: up to {most})")
