"""instances.csv, with and without the columns' names."""

import pytest

from maar.core.errors import UsageError
from maar.exchange.instances import read_instances


def written(tmp_path, text):
    path = tmp_path / "instances.csv"
    path.write_text(text)
    return path


def test_columns_by_name(tmp_path):
    text = "timeout,network,property,more,expected\n9,onnx/a.onnx,p.vnnlib,x,sat\n8,b/c.onnx,q,,\n"
    one, other = read_instances(written(tmp_path, text))
    assert (one.network, one.property, one.timeout, one.expected) == (
        "onnx/a.onnx",
        "p.vnnlib",
        9.0,
        "sat",
    )
    assert (one.category(), other.category()) == ("", "b")
    assert other.expected == ""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("network,property,timeout,expected\na,b,9,maybe\n", "2: expected 'maybe'"),
        ("network,property,timeout,expected\na,b,9\n", "2 is not of the form"),
        ("a,b,9,sat\n", "1 is not of the form"),
    ],
)
def test_refused(tmp_path, text, words):
    with pytest.raises(UsageError, match=words):
        read_instances(written(tmp_path, text))
