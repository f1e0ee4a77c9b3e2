"""Weights of a user's own module: a state_dict in a .pt or .safetensors file, never a pickle."""

from __future__ import annotations

import shlex
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from maar.core import limits
from maar.core.errors import RunError, UsageError

# Where training programs keep the state_dict among other things.
_INSIDE = ("state_dict", "model_state_dict", "model", "net", "weights")
# What wrappers put before every name: DataParallel and torch.compile.
_WRAPPERS = ("module.", "_orig_mod.")
_SHOWN = 4


def load_state(module: nn.Module, path: Path) -> None:
    """Copy the weights of a file into a module; every name must fit, and no number is rounded."""
    state = _unwrapped(read_state(path), module)
    expected = module.state_dict()
    missing = [key for key in expected if key not in state]
    unknown = [key for key in state if key not in expected]
    if missing or unknown:
        parts = [("lacks", missing), ("has the unknown", unknown)]
        what = " and ".join(f"{verb} {_some(keys)}" for verb, keys in parts if keys)
        raise UsageError(
            f"{path} does not fit the network: it {what} (the network has {_some(expected)})"
        )
    for key, tensor in state.items():
        here = expected[key]
        if tensor.shape != here.shape:
            raise UsageError(
                f"{path} does not fit the network: {key} has shape {tuple(tensor.shape)}, the "
                f"network's {tuple(here.shape)}"
            )
        kept = tensor.to(here.dtype)
        if not torch.equal(kept.to(tensor.dtype), tensor) and bool(tensor.isfinite().all()):
            raise UsageError(
                f"{path}: {key} is of type {tensor.dtype}, which would be rounded to {here.dtype} "
                "(accepted: the network's own type)"
            )
    module.load_state_dict(state)


def read_state(path: Path) -> dict[str, Tensor]:
    """Return the state_dict in a file, by torch's restricted reader; nothing in it is run."""
    if not path.is_file():
        raise UsageError(f"weights file {str(path)!r} does not exist")
    limits.require(path.stat().st_size, limits.WEIGHTS_BYTES, path, "bytes")
    if path.suffix.lower() == ".safetensors":
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        try:
            return load_file(path)
        except (SafetensorError, OSError, ValueError, KeyError) as error:
            raise RunError(f"{path} is damaged: {error}") from None
    if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 6):
        raise UsageError(
            f"{path}: torch {torch.__version__} does not read .pt files safely (CVE-2025-32434): "
            "update torch to 2.6 or later, or save the weights as .safetensors"
        )
    _check_archive(path)
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        if "weights_only" in str(error) or "Unsupported" in str(error):
            raise UsageError(whole_module(path)) from None
        raise RunError(f"{path} is damaged: not a whole file of torch.save") from None
    return _state_in(path, content)


def way_out(path: Path) -> UsageError:
    """Return the error for a .pt file where a network is asked for: what to type instead."""
    if not path.is_file():
        return UsageError(f"{str(path)!r} does not exist")
    if path.suffix.lower() != ".safetensors":
        try:
            _check_archive(path)
            torch.load(path, map_location="cpu", weights_only=True)
        except UsageError as error:
            return error
        except Exception:
            return UsageError(whole_module(path))
    return UsageError(
        f"{path} holds weights, not what to compute with them: give the class that they are of, "
        f"such as FILE.py:Net --weights {shlex.quote(str(path))}"
    )


def whole_module(path: Path) -> str:
    """Return what to do with a pickled module, which only its own program may read."""
    code = (
        f"import torch; net = torch.load({str(path)!r}, weights_only=False); "
        f"torch.save(net.state_dict(), 'weights.pt')"
    )
    return (
        f"{path} is a whole pickled module, which can run any code when it is read. If you trust "
        f"it, type where its class can be imported: {_typed(code)}; then give "
        "FILE.py:Net --weights weights.pt"
    )


def _typed(code: str) -> str:
    """Return a line of Python as a shell takes it, with as few quotes as can be."""
    is_plain = not set(code) & set('"$`\\!')
    return f'python -c "{code}"' if is_plain else f"python -c {shlex.quote(code)}"


def _check_archive(path: Path) -> None:
    """Refuse what is not torch's archive, TorchScript, and an archive that unpacks to too much."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
    except (zipfile.BadZipFile, OSError, ValueError):
        raise UsageError(
            f"{path} is not an archive as torch.save has written it since torch 1.6: save the "
            "state_dict again, or as .safetensors"
        ) from None
    total = sum(member.file_size for member in members)
    limits.require(total, limits.WEIGHTS_BYTES, path, "bytes after decompression")
    inside = {member.filename.partition("/")[2] for member in members}
    if "constants.pkl" in inside or any(name.startswith("code/") for name in inside):
        onnx = path.with_suffix(".onnx").name
        code = (
            f"import torch; net = torch.jit.load({str(path)!r}).eval(); "
            f"torch.onnx.export(net, torch.zeros(1, 3, 32, 32), {onnx!r}, dynamo=False)"
        )
        raise UsageError(
            f"{path} is TorchScript: export it, with the shape of your images: "
            f"{_typed(code)}; then give {onnx}"
        )


def _state_in(path: Path, content: Any) -> dict[str, Tensor]:
    if _is_state(content):
        return dict(content)
    if isinstance(content, dict):
        for key in _INSIDE:
            if _is_state(content.get(key)):
                return dict(content[key])
        raise UsageError(
            f"{path} holds no state_dict (accepted: tensors by name, or such a table under "
            f"{', '.join(_INSIDE)}; it has {_some(map(str, content))})"
        )
    raise UsageError(f"{path} holds a {type(content).__name__}, not a state_dict")


def _is_state(content: Any) -> bool:
    return (
        isinstance(content, dict)
        and bool(content)
        and all(isinstance(k, str) and isinstance(v, Tensor) for k, v in content.items())
    )


def _unwrapped(state: dict[str, Tensor], module: nn.Module) -> dict[str, Tensor]:
    expected = module.state_dict()
    for prefix in _WRAPPERS:
        if all(k.startswith(prefix) for k in state) and not any(k in expected for k in state):
            state = {key.removeprefix(prefix): tensor for key, tensor in state.items()}
    return state


def _some(names: Iterable[str]) -> str:
    names = list(names)
    rest = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + rest
