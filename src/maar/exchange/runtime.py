"""onnxruntime as a second opinion on a file: what the original graph gives, computed by others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from maar.exchange.packed import read_packed


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
    try:
        session = onnxruntime.InferenceSession(
            read_packed(Path(path), "ONNX file"), options, providers=["CPUExecutionProvider"]
        )
    except Exception:  # of classes that only onnxruntime's C++ code knows
        return None
    name = session.get_inputs()[0].name

    def run(x: np.ndarray) -> np.ndarray:
        if mean is not None and std is not None:
            per_channel = (1, -1, *[1] * (x.ndim - 2))
            x = x - np.array(mean, np.float32).reshape(per_channel)
            x = x / np.array(std, np.float32).reshape(per_channel)
        return np.asarray(session.run(None, {name: x})[0])

    return run
