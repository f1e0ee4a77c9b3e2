"""Tables: rows of features in an .npz or a CSV."""

import numpy as np
import pytest

from maar import data
from maar.core.errors import MaarError

CSV = """age,size,kind,part
30,1.5,b,train
40,-2e3,a,train
50, 3,b,test
"""


@pytest.fixture
def table(tmp_path):
    (tmp_path / "t.csv").write_text(CSV)
    return f"csv:{tmp_path / 't.csv'}"


def test_csv(table):
    found = data.load(f"{table}?label=kind&split=part")
    assert found.shape == (2,)
    assert found.classes == ("a", "b")
    assert found.x_train.tolist() == [[30, 1.5], [40, -2000]]
    assert found.y_train.tolist() == [1, 0]
    assert found.images("test").tolist() == [[50, 3]]
    assert found.info.span is None
    assert found.info.note == "features: age, size"
    assert found.mean == (35, -999.25)
    every = data.load(f"{table}?label=kind&drop=part,size&range=data&classes=b,a")
    assert (every.size("train"), every.size("test")) == (0, 3)
    assert every.info.span == ([30], [50])
    assert every.y_test.tolist() == [0, 1, 0]


@pytest.mark.parametrize(
    ("tail", "said"),
    [
        ("", "does not say which column has the labels: add"),
        ("?label=knd", "unknown column of .*did you mean 'kind'"),
        ("?label=kind", "row 2, column 'part' is 'train', not a number"),
        ("?label=kind&drop=part&classes=a,c", "unknown class 'b'"),
        ("?label=kind&drop=part&range=all", "range is 'all'"),
        ("?label=kind&drop=part&split=size", "in the column of the split"),
    ],
)
def test_bad_requests(table, tail, said):
    with pytest.raises(MaarError, match=said):
        data.load(table + tail)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a,b\n1,2\n1\n", "row 3 has 1 values, the head 2"),
        ("a,a\n1,2\n", "names a column twice"),
        ("a,b\n", "has no row"),
        ("", "no table in UTF-8"),
        ("a,b\nnan,0\n1,1\n", "row 0, column 0 is nan"),
        ("a,b\n1e60,0\n1,1\n", r"row 0, column 0 is 1e\+60"),
        ("a,b\n1,0\n1,0\n", "has 1 classes"),
    ],
)
def test_bad_files(tmp_path, text, said):
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(MaarError, match=said):
        data.load(f"csv:{tmp_path / 't.csv'}?label=b")


def test_npz(tmp_path):
    path = tmp_path / "t.npz"
    rows, labels = np.array([[1.0, -20.0], [3.0, 4.0]]), np.array([0, 1])
    np.savez(path, x_test=rows, y_test=labels)
    found = data.load(f"npz:{path}")
    assert found.shape == (2,)
    assert found.info.span is None
    assert found.images("test").tolist() == rows.tolist()
    np.savez(path, x_test=rows, y_test=labels, low=np.array([0.0, -20]), high=5.0)
    assert data.load(f"npz:{path}").info.span == ([0, -20], [5, 5])
    np.savez(path, x_test=rows, y_test=labels, high=3.5)
    with pytest.raises(MaarError, match="4 in column 1 is not in its range"):
        data.load(f"npz:{path}").info.span  # noqa: B018
    np.savez(path, x_test=rows * np.inf, y_test=labels)
    with pytest.raises(MaarError, match="row 0, column 0 is inf"):
        data.load(f"npz:{path}")
