"""Hashes that show edits by hand in a folder of results. They are no signature.

A manifest and a summary carry the hash of their own content. Each line of verdicts carries the
hash of itself and of the line before it, the first line that of the folder's key. A summary names
the last line.
A changed, missing, added or moved line breaks the chain. Nothing here is secret: a forger who runs
this code can write a chain that holds, so a seal proves no verdict (`maar audit` checks those).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from maar.core import limits

SEAL = "seal"
DIGITS = 16
_SEALED = re.compile(rb', "seal": "([0-9a-f]{%d})"\}' % DIGITS)


class BrokenSeal(ValueError):
    """Content that is not what was sealed."""


def strict_json(text: str | bytes) -> Any:
    """Return parsed JSON; NaN, Infinity, repeated names, size and depth are a `ValueError`."""
    if len(text) > limits.JSON_BYTES:
        raise ValueError(f"JSON of {len(text)} bytes (accepted: up to {limits.JSON_BYTES})")
    try:
        return json.loads(text, parse_constant=_refuse, object_pairs_hook=_distinct)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def sealed(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content with its seal."""
    return {**content, SEAL: seal_of(content)}


def seal_of(content: Mapping[str, Any]) -> str:
    """Return the hash of everything but the seal."""
    rest = {name: value for name, value in content.items() if name != SEAL}
    return _hash(json.dumps(rest, sort_keys=True, allow_nan=False).encode())


def holds(content: Mapping[str, Any]) -> bool:
    """Return whether a manifest or a summary is still what was sealed."""
    try:
        return content.get(SEAL) == seal_of(content)
    except ValueError:  # NaN, which was never written
        return False


def seal_line(previous: str, record: Mapping[str, Any]) -> tuple[bytes, str]:
    """Return a record's line, without its line break, and the seal in it."""
    body = json.dumps(record, allow_nan=False).encode()
    seal = _hash(previous.encode() + b"\n" + body)
    return body[:-1] + f', "{SEAL}": "{seal}"}}'.encode(), seal


def open_line(previous: str, line: bytes) -> tuple[bytes, str]:
    """Return a line without its seal, and the seal; `BrokenSeal` if it is not that of the line."""
    place = line.rfind(b', "seal": ')
    match = _SEALED.fullmatch(line, place) if place > 0 else None
    if match is None:
        raise BrokenSeal("it has no seal")
    body, seal = line[:place] + b"}", match[1].decode()
    if seal != _hash(previous.encode() + b"\n" + body):
        raise BrokenSeal("its seal does not fit: it, or a line before it, was changed")
    return body, seal


def file_seal(content: bytes) -> str:
    """Return the hash by which a line names its counterexample."""
    return _hash(content)


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:DIGITS]


def _refuse(text: str) -> Any:
    raise ValueError(f"{text} is no number of JSON")


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        raise ValueError("a name stands twice in one object")
    return content
