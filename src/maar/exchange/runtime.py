"""onnxruntime as a second opinion on a file: what the original graph gives, computed by others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from maar.core import limits
from maar.core.errors import MaarError
from maar.exchange.onnx_in import load, needed
from maar.exchange.packed import read_packed

KINDS = {"tensor(double)": np.float64, "tensor(float16)": np.float16}
"""Other types of an input than float32."""


def _source(path: Path) -> str | bytes:
    """The file without nodes that its output does not depend on, which maar has not looked at.

    onnxruntime would compute them, however long that takes.
    """
    model = load(path)
    nodes = needed(model.graph)
    if len(nodes) < len(model.graph.node):
        kept = [type(node).FromString(node.SerializeToString()) for node in nodes]
        del model.graph.node[:]
        model.graph.node.extend(kept)
        return model.SerializeToString()
    # By its path where that can be, so that weights in a file beside it are found.
    if path.is_file() and path.suffix != ".gz":
        return str(path)
    return read_packed(path, "ONNX file", limits.ONNX_BYTES)


def onnx_runner(
    path: str | Path, *, mean: Sequence[float] | None = None, std: Sequence[float] | None = None
) -> Callable[[np.ndarray], np.ndarray] | None:
    """A function from one image [1, *shape] to the outputs; None where onnxruntime is absent.

    It is also None for a file that onnxruntime cannot run, such as one with its weights elsewhere.
    """
    try:
        import onnxruntime
    except ImportError:
        return None
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    path = Path(path)
    try:
        session = onnxruntime.InferenceSession(
            _source(path), options, providers=["CPUExecutionProvider"]
        )
        given = session.get_inputs()[0]
        # A file may fix how many images it takes at once.
        sizes = [size if isinstance(size, int) else 1 for size in given.shape]

        def run(x: np.ndarray) -> np.ndarray:
            if mean is not None and std is not None:
                per_channel = (1, -1, *[1] * (x.ndim - 2))
                x = x - np.array(mean, np.float32).reshape(per_channel)
                x = x / np.array(std, np.float32).reshape(per_channel)
            x = x.astype(KINDS.get(given.type, np.float32))
            if x.ndim == len(sizes) + 1:  # the file knows of no batch axis
                return np.asarray(session.run(None, {given.name: x[0]})[0]).reshape(1, -1)
            out = session.run(None, {given.name: np.repeat(x, sizes[0], 0)})[0]
            return np.asarray(out).reshape(sizes[0], -1)[:1]

        run(np.zeros((1, *(sizes[1:] or sizes)), np.float32))
    except MaarError:
        raise
    except Exception:  # of classes that only onnxruntime's C++ code knows
        return None
    return run
