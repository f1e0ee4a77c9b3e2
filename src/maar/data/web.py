"""Files from web sites: ask all hosts at once, take the first that answers, resume after a cut.

Plain http is fine here: every file is checked against its hash before it counts as data.
"""

from __future__ import annotations

import errno
import http.client
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from maar import __version__
from maar.data.published import Unavailable

if TYPE_CHECKING:
    from rich.progress import Progress

ANSWER_SECONDS = 4.0  # for all hosts together: a closed network costs no more than this
STALL_SECONDS = 20.0  # without a single byte, once a download runs
_PIECE = 1 << 18
_HEADERS = {"User-Agent": f"maar/{__version__}"}


@dataclass(frozen=True)
class Web:
    """Sites that hold the same files: the official one first, then its well-known mirrors."""

    sites: tuple[str, ...]
    file: str = "{name}.gz"  # what to ask for; an archive has no {name}

    @property
    def label(self) -> str:
        """How the origin is named in messages."""
        return ", ".join(_host(site) for site in self.sites)

    def by_hand(self, names: list[str]) -> str:
        """What the user can get elsewhere."""
        return f"{', '.join(self._files(names))} ({self.sites[0]})"

    def offer(self, names: list[str], scratch: Path, progress: Progress) -> Iterator[Path]:
        """Download from each site that answers, until the caller has what it needs."""
        files = self._files(names)
        trouble = "no answer"
        for site in _answering(self.sites, files[0]):
            # A folder a host: half a file of one host is never continued with bytes of another.
            folder = scratch / "web" / _host(site).replace(":", "_")
            folder.mkdir(parents=True, exist_ok=True)
            try:
                for file in files:
                    _download(site + file, folder / file, progress)
            except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
                if _is_local(error):
                    raise
                trouble = f"{_host(site)}: {error}"
                continue
            yield folder
            trouble = f"{_host(site)}: wrong content"
        raise Unavailable(trouble)

    def _files(self, names: list[str]) -> list[str]:
        return list(dict.fromkeys(self.file.format(name=name) for name in names))


def _host(url: str) -> str:
    return urlsplit(url).netloc


def _is_local(error: Exception) -> bool:
    """A full disk is our trouble, not the site's: another site would not help."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


def _answering(sites: tuple[str, ...], file: str) -> Iterator[str]:
    """The sites that have the file, in order; each is asked once, all at the same time.

    In threads, because looking up a host name has no time-out of its own.
    """
    answered = [threading.Event() for _ in sites]

    def ask(site: str, done: threading.Event) -> None:
        request = urllib.request.Request(site + file, method="HEAD", headers=_HEADERS)
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_SECONDS):
                done.set()
        except (OSError, http.client.HTTPException):
            pass

    threads = [
        threading.Thread(target=ask, args=pair, daemon=True)
        for pair in zip(sites, answered, strict=True)
    ]
    for thread in threads:
        thread.start()
    end = time.monotonic() + ANSWER_SECONDS
    for site, thread, done in zip(sites, threads, answered, strict=True):
        thread.join(max(0.0, end - time.monotonic()))
        if done.is_set():
            yield site


def _download(url: str, path: Path, progress: Progress) -> None:
    """Download to `path`, by way of `path.part`, which a later call continues."""
    part = path.with_name(path.name + ".part")
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers=_HEADERS)
    if have:
        request.add_header("Range", f"bytes={have}-")
    try:
        response = urllib.request.urlopen(request, timeout=STALL_SECONDS)
    except urllib.error.HTTPError as error:
        if error.code != http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            raise
        part.unlink()
        return _download(url, path, progress)
    with response:
        if response.status != http.HTTPStatus.PARTIAL_CONTENT:
            have = 0
        length = response.headers.get("Content-Length")
        total = have + int(length) if length else None
        task = progress.add_task(path.name, total=total, completed=have)
        with open(part, "ab" if have else "wb") as out:
            while piece := response.read(_PIECE):
                out.write(piece)
                progress.advance(task, len(piece))
            have = out.tell()
    if total is not None and have != total:
        raise http.client.IncompleteRead(b"", total - have)
    part.replace(path)
    return None
