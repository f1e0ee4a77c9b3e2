"""The idx parser refuses whatever does not add up."""

import numpy as np
import pytest

from maar.core.errors import RunError
from maar.data.idx import read

HEADER = bytes([0, 0, 8, 3]) + np.array([2, 2, 3], ">u4").tobytes()
BODY = bytes(range(12))


def test_a_good_file(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(HEADER + BODY)
    found = read(path, 3)
    assert found.dtype == np.uint8
    assert np.array_equal(found, np.arange(12).reshape(2, 2, 3))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "not an idx file"),
        (HEADER[:10], "not an idx file"),
        (HEADER + BODY[:-1], "holds 11 bytes, its header says 12"),
        (HEADER + BODY + b"x", "holds 13 bytes, its header says 12"),
        (b"\x1f\x8b" + HEADER[2:] + BODY, "not an idx file"),
        (HEADER[:2] + b"\x0d" + HEADER[3:] + BODY, "not an idx file"),  # floats
        (HEADER[:3] + b"\x01" + HEADER[4:] + BODY, "not an idx file"),
        # 2**32 - 1 in each of three places wraps around in 64 bits
        (HEADER[:4] + b"\xff" * 12 + BODY, "its header says 79228162458924105385300197375"),
    ],
)
def test_bad_files(tmp_path, content, said):
    path = tmp_path / "train-images"
    path.write_bytes(content)
    with pytest.raises(RunError, match=said) as error:
        read(path, 3)
    assert "train-images" in str(error.value)
