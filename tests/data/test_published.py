"""What load and verify make of damaged files."""

import pytest

from maar import data
from maar.core.errors import RunError


@pytest.fixture
def fetched(tiny):
    tiny.folder.mkdir(parents=True)
    for name, raw in tiny.raw.items():
        (tiny.folder / name).write_bytes(raw)
    return tiny


def test_whole(fetched):
    assert fetched.published.faults() == []
    assert data.load("tiny").sha256 == fetched.arrays.sha256


def test_absent(fetched):
    (fetched.folder / "t10k-labels-idx1-ubyte").unlink()
    (fault,) = fetched.published.faults()
    assert (fault.absent, fault.path.name) == (True, "t10k-labels-idx1-ubyte")
    with pytest.raises(RunError, match=r"is not in .*run `maar data fetch tiny`"):
        data.load("tiny")


def test_truncated(fetched):
    path = fetched.folder / "train-images-idx3-ubyte"
    path.write_bytes(path.read_bytes()[:-1])
    (fault,) = fetched.published.faults(hashes=False)
    assert (fault.absent, fault.reason) == (False, "135 bytes, not 136")
    with pytest.raises(
        RunError, match=r"train-images-idx3-ubyte is damaged .*maar data fetch tiny"
    ):
        data.load("tiny")


@pytest.mark.parametrize("place", [-1, 20, 5, 0])
def test_one_changed_byte_is_seen_at_every_load(fetched, place):
    path = fetched.folder / "train-images-idx3-ubyte"
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)
    assert fetched.published.faults(hashes=False) == []
    (fault,) = fetched.published.faults()
    assert fault.reason.startswith("SHA-256 ")
    with pytest.raises(RunError):
        data.load("tiny")
