"""Files are whole or absent, locks are exclusive, hashes are of the content."""

import hashlib
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from maar.core.errors import RunError
from maar.core.files import atomic_path, json_text, locked, sha256_file, write_bytes, write_text


def test_sha256_of_more_than_one_piece(tmp_path):
    content = os.urandom((1 << 20) + 7)
    path = tmp_path / "big"
    path.write_bytes(content)
    assert sha256_file(path) == hashlib.sha256(content).hexdigest()


def test_writes_whole_files_into_new_folders(tmp_path):
    write_text(tmp_path / "a" / "b.txt", "µ ≤ ε\n")
    assert (tmp_path / "a" / "b.txt").read_bytes() == "µ ≤ ε\n".encode()
    write_bytes(tmp_path / "a" / "b.txt", b"new")
    assert (tmp_path / "a" / "b.txt").read_bytes() == b"new"
    assert [p.name for p in (tmp_path / "a").iterdir()] == ["b.txt"]


def test_json_has_lists_of_numbers_on_one_line():
    content = {"a": [1, -2.5e-07, None], "b": [[], [3]], "c": ["[\n1,\n2]", "x"], "d": [{"e": 1}]}
    text = json_text(content)
    assert json.loads(text) == content
    lines = text.splitlines()
    assert ' "a": [1, -2.5e-07, null],' in lines
    assert "  [3]" in lines
    assert '  "x"' in lines  # (texts are one below the other)


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "state"
    path.write_text("old")

    def broken_write():
        with atomic_path(path) as temporary:
            temporary.write_text("half of the n")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        broken_write()
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["state"]


def test_a_killed_writer_leaves_the_old_file(tmp_path):
    path = tmp_path / "state"
    path.write_text("old")
    program = (
        "import os, sys; from pathlib import Path; from maar.core.files import atomic_path\n"
        "with atomic_path(Path(sys.argv[1])) as t: t.write_text('half'); os._exit(9)"
    )
    assert subprocess.run([sys.executable, "-c", program, str(path)]).returncode == 9
    assert path.read_text() == "old"


def test_mode_follows_the_umask(tmp_path):
    before = os.umask(0o027)
    try:
        write_text(tmp_path / "f", "x")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "f").stat().st_mode) == 0o640


def test_a_held_lock_refuses_or_waits_and_a_dead_holder_frees_it(tmp_path):
    path = tmp_path / "run" / ".lock"
    program = (
        "import sys; from pathlib import Path; from maar.core.files import locked\n"
        "with locked(Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(RunError, match="in use by another maar"), locked(path, wait=False):
            pass
        holder.kill()
    with locked(path, wait=False):
        pass
    with locked(path):
        pass


def test_where_no_folder_can_be_made(tmp_path, monkeypatch):
    """A file system may say that the folder is not there that it was asked to make."""

    def refuse(path, **_):
        raise FileNotFoundError(2, "No such file or directory", str(path))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(NotADirectoryError, match="No folder can be made here"):
        write_text(tmp_path / "new" / "file", "x")
