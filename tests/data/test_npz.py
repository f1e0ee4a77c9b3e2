"""A user's .npz file: what is accepted, and one clear line for each thing that is not."""

import numpy as np
import pytest

from maar import data
from maar.core.errors import RunError, UsageError

RNG = np.random.default_rng(0)
X, Y = RNG.integers(0, 256, (6, 3, 8, 9), np.uint8), np.array([0, 1, 2, 0, 1, 2])


@pytest.fixture
def save(tmp_path):
    def write(**parts):
        path = tmp_path / "mine.npz"
        np.savez(path, **parts)
        return f"npz:{path}"

    return write


@pytest.mark.parametrize(
    ("x", "shape"),
    [
        (X, (3, 8, 9)),
        (X.transpose(0, 2, 3, 1), (3, 8, 9)),
        (X[:, 0], (1, 8, 9)),
        (X[:, :1], (1, 8, 9)),
        (X[:, :1].transpose(0, 2, 3, 1), (1, 8, 9)),
    ],
)
@pytest.mark.parametrize("kind", ["u1", "f2", "f4", "f8"])
def test_layouts_and_types(save, x, shape, kind):
    saved = x if kind == "u1" else (x / 255).astype(kind)
    name = save(x_train=saved, y_train=Y.astype("u1"), x_test=saved[:2], y_test=Y[:2])
    found = data.load(name, valid=1)
    assert found.shape == data.info(name).shape == shape
    assert found.classes == ("0", "1", "2")
    assert (found.size("train"), found.size("valid"), found.size("test")) == (5, 1, 2)
    tolerance = 1e-3 if kind == "f2" else 1e-6
    expected = X[:2, : shape[0]] / 255
    assert np.allclose(found.images("test").numpy(), expected, atol=tolerance)


def test_statistics_are_of_the_train_images(save):
    info = data.info(save(x_train=X, y_train=Y, x_test=X * 0, y_test=Y))
    assert np.allclose(info.mean, (X / 255).mean((0, 2, 3)), atol=1e-4)
    assert np.allclose(info.std, (X / 255).std((0, 2, 3)), atol=1e-4)


def test_a_constant_channel_has_no_zero_deviation(save):
    assert data.info(save(x_train=X * 0 + 5, y_train=Y)).std == (1.0, 1.0, 1.0)


def test_test_images_alone_suffice(save):
    found = data.load(save(x_test=X, y_test=Y, classes=["a", "b", "c", "d"]))
    assert found.classes == ("a", "b", "c", "d")
    assert (found.mean, found.std) == ((0.0,) * 3, (1.0,) * 3)
    with pytest.raises(UsageError, match="has no train images"):
        found.images("train")
    with pytest.raises(UsageError, match="valid = 1 leaves nothing to train on"):
        data.load(found.name, valid=1)


def test_an_ambiguous_layout_is_asked_for(save):
    x = RNG.integers(0, 256, (6, 4, 5, 4), np.uint8)
    with pytest.raises(RunError, match=r"\(6, 4, 5, 4\).*add layout='NHWC' or layout='NCHW'"):
        data.load(save(x_test=x, y_test=Y))
    assert data.load(save(x_test=x, y_test=Y, layout="NCHW")).shape == (4, 5, 4)
    assert data.load(save(x_test=x, y_test=Y, layout="NHWC")).shape == (4, 4, 5)
    assert np.array_equal(
        data.load(save(x_test=x, y_test=Y, layout="NHWC")).x_test, x.transpose(0, 3, 1, 2)
    )


F = (X / 255).astype(np.float32)
NAN = np.where(np.arange(9) == 4, np.nan, F)


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({}, "neither x_train nor x_test"),
        ({"x_test": X}, "has x_test but no y_test"),
        ({"x_tets": X, "y_test": Y}, "unknown key 'x_tets'; did you mean 'x_test'"),
        ({"x_test": NAN, "y_test": Y}, "x_test holds NaN"),
        ({"x_test": F * 255, "y_test": Y}, r"values from 0 to 255 \(accepted: floats in \[0, 1\]"),
        ({"x_test": F - 0.5, "y_test": Y}, r"values from -0.5 to 0.5"),
        ({"x_test": F + np.inf, "y_test": Y}, "values from inf to inf"),
        ({"x_test": X.astype(int), "y_test": Y}, "is of type int64"),
        ({"x_test": X > 5, "y_test": Y}, "is of type bool"),
        ({"x_test": X[0, 0], "y_test": Y}, "8 images need 8 labels"),  # a table of 8 rows
        ({"x_test": X[:0], "y_test": Y[:0]}, r"has shape \(0, 3, 8, 9\)"),
        ({"x_test": X, "y_test": Y[:5]}, r"y_test has shape \(5,\): 6 images need 6 labels"),
        ({"x_test": X, "y_test": np.eye(6)}, r"y_test has shape \(6, 6\)"),
        ({"x_test": X, "y_test": Y / 1}, "y_test is of type float64: labels must be integers"),
        ({"x_test": X, "y_test": Y - 1}, "holds the label -1"),
        ({"x_test": X, "y_test": Y, "classes": ["a", "b"]}, r"the label 2 \(accepted: 0 to 1\)"),
        ({"x_test": X, "y_test": Y * 10**9}, "holds the label 2000000000"),
        ({"x_test": X, "y_test": Y, "classes": ["a", "a", "b"]}, "different names"),
        ({"x_test": X, "y_test": Y, "classes": 3}, "different names"),
        ({"x_test": X, "y_test": Y, "layout": "HWCN"}, "layout is 'HWCN'"),
        (
            {"x_test": X, "y_test": Y, "x_train": X[..., :8], "y_train": Y},
            r"x_train is uint8 of shape \(3, 8, 8\), x_test is uint8 of shape \(3, 8, 9\)",
        ),
        ({"x_test": X, "y_test": Y, "x_train": F, "y_train": Y}, "x_train is float32"),
        ({"x_test": np.array([X, None], object), "y_test": Y}, "never unpickled"),
    ],
)
def test_bad_content(save, parts, said):
    with pytest.raises(RunError, match=said) as error:
        data.load(save(**parts))
    assert "mine.npz" in str(error.value)
    assert "\n" not in str(error.value)


def test_bad_files(save, tmp_path):
    path = tmp_path / "mine.npz"
    with pytest.raises(UsageError, match="is not a file"):
        data.load(f"npz:{path}")
    save(x_test=X, y_test=Y)
    whole = path.read_bytes()
    for content in (b"", b"hello", whole[:-40], whole[:50], b"\x80\x04K\x01."):
        path.write_bytes(content)
        with pytest.raises(RunError, match=r"mine\.npz"):
            data.load(f"npz:{path}")
    flipped = bytearray(whole)
    flipped[300] ^= 255
    path.write_bytes(flipped)
    with pytest.raises(RunError, match="damaged"):
        data.load(f"npz:{path}")
    np.save(path.with_suffix(".npy"), X)
    with pytest.raises(RunError, match="holds a single array"):
        data.load(f"npz:{path.with_suffix('.npy')}")
