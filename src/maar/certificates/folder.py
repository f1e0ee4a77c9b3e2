"""The folder of certificates: network.onnx, INDEX.npz for each image, manifest.json.

A certificate is written before its verdict's line, so that whatever is killed loses at most the
images being worked on. The manifest is written when a call ends.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

from maar.certificates.proof import Subject
from maar.core.errors import UsageError
from maar.core.files import write_bytes, write_text

NAME = "certificates"
NETWORK, MANIFEST = "network.onnx", "manifest.json"
FORMAT = 1
KINDS = ("verified", "falsified", "misclassified")
NONE = "none"


class Folder:
    """Where one certification's certificates are."""

    def __init__(self, store: Path, subject: Subject, data: str) -> None:
        self.path = store / NAME
        self.subject, self.data = subject, data

    def begin(self) -> None:
        """Write the network, exactly as it is certified; another one there is refused."""
        path = self.path / NETWORK
        if not path.exists():
            self.path.mkdir(parents=True, exist_ok=True)
            write_bytes(path, self.subject.content)
        if path.read_bytes() != self.subject.content:
            raise UsageError(f"{path} is another network: give another folder with --out")

    def has(self, index: int) -> bool:
        """Whether an image has a certificate."""
        return self._of(index).exists()

    def put(self, index: int, content: bytes | None) -> None:
        """Write the certificate of an image, or take away the one of an earlier verdict."""
        if content is None:
            self._of(index).unlink(missing_ok=True)
        else:
            write_bytes(self._of(index), content)

    def finish(self, verdicts: Iterable[tuple[int, int, str]]) -> None:
        """Write the manifest of these images: (index, label, verdict)."""
        rows = []
        for index, label, verdict in sorted(verdicts):
            exists = verdict in KINDS and self.has(index)
            content = self._of(index).read_bytes() if exists else None
            rows.append(
                {
                    "index": index,
                    "label": label,
                    "verdict": verdict if exists else NONE,
                    "certificate": content and hashlib.sha256(content).hexdigest(),
                }
            )
        counts = {kind: sum(row["verdict"] == kind for row in rows) for kind in (*KINDS, NONE)}
        about = {
            "format": FORMAT,
            "network": self.subject.network,
            "data": self.data,
            "eps": self.subject.eps,
            "low": "0",
            "high": "1",
            "counts": counts,
            "images": rows,
        }
        write_text(self.path / MANIFEST, json.dumps(about, indent=1) + "\n")

    def _of(self, index: int) -> Path:
        return self.path / f"{index}.npz"


def subject_of(content: bytes, eps: str) -> Subject:
    """The subject of certificates for this ONNX file at this eps."""
    return Subject(hashlib.sha256(content).hexdigest(), eps, content)
