"""Count what an ONNX file holds before protobuf takes memory for it.

An empty message has two bytes in the file and two hundred in memory, so a small packed file could
otherwise take all of it. Only lengths are looked at; whether the rest makes sense, protobuf says.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from maar.core import limits

VARINT, EIGHT_BYTES, WITH_LENGTH, FOUR_BYTES = 0, 1, 2, 5
GROUPS = (3, 4)

Table = dict[int, "str | None"]
"""Field number to the name of its message type, or None for integers, which may stand packed."""


def require_few(content: bytes, path: Path) -> None:
    """Raise a `UsageError` for too many fields, or too many bytes of packed integers."""
    tables, root = _tables()
    at = fields = packed = 0
    stack = [(len(content), tables[root])]
    try:
        while stack:
            end, table = stack[-1]
            if at >= end:
                stack.pop()
                continue
            fields += 1
            if fields > limits.FIELDS:
                raise limits.excess("more", limits.FIELDS, path, "fields of the protobuf file")
            tag, at = _varint(content, at)
            kind, number = tag & 7, tag >> 3
            if kind == VARINT:
                _, at = _varint(content, at)
            elif kind == EIGHT_BYTES:
                at += 8
            elif kind == FOUR_BYTES:
                at += 4
            elif kind == WITH_LENGTH:
                length, at = _varint(content, at)
                name = table.get(number, "")
                if name:
                    stack.append((at + length, tables[name]))
                    continue
                if name is None:
                    packed += length
                    limits.require(packed, limits.PACKED_BYTES, path, "bytes of packed integers")
                at += length
            elif kind not in GROUPS:
                return
    except IndexError:  # cut off: protobuf refuses it at the same place
        return


def _varint(content: bytes, at: int) -> tuple[int, int]:
    byte = content[at]
    if byte < 128:
        return byte, at + 1
    value = shift = 0
    while True:
        value |= (byte & 127) << shift
        at += 1
        if byte < 128:
            return value, at
        shift += 7
        if shift > 63:
            raise IndexError
        byte = content[at]


def _tables() -> tuple[dict[str, Table], str]:
    """The fields of each message type, from the format's own description."""
    import onnx

    root = onnx.ModelProto.DESCRIPTOR
    tables: dict[str, Table] = {}
    left: list[Any] = [root]
    while left:
        kind = left.pop()
        if kind.full_name in tables:
            continue
        tables[kind.full_name] = {
            field.number: field.message_type.full_name if field.message_type else None
            for field in kind.fields
            if field.message_type or field.cpp_type in _integers(field)
        }
        left += [field.message_type for field in kind.fields if field.message_type]
    return tables, root.full_name


def _integers(field: Any) -> set[int]:
    return {
        *(field.CPPTYPE_INT32, field.CPPTYPE_INT64, field.CPPTYPE_UINT32),
        *(field.CPPTYPE_UINT64, field.CPPTYPE_BOOL, field.CPPTYPE_ENUM),
    }
