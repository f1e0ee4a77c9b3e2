"""Weights of a user's own module: what fits, what does not, and files that run no code."""

import os
import pickle
import zipfile
from collections import OrderedDict

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from maar.core import limits
from maar.core.errors import MaarError, RunError, UsageError
from maar.networks.state import load_state, read_state, way_out


def net() -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))


def same(one: nn.Module, other: nn.Module) -> bool:
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


@pytest.mark.parametrize("wrap", [lambda s: s, lambda s: {"epoch": 3, "state_dict": s}])
@pytest.mark.parametrize("prefix", ["", "module.", "_orig_mod."])
def test_a_state_dict_is_loaded(tmp_path, wrap, prefix):
    one, other = net(), net()
    state = OrderedDict((prefix + key, value) for key, value in one.state_dict().items())
    torch.save(wrap(state), tmp_path / "it.pt")
    load_state(other, tmp_path / "it.pt")
    assert same(one, other)


def test_safetensors(tmp_path):
    one, other = net(), net()
    save_file(one.state_dict(), tmp_path / "it.safetensors")
    load_state(other, tmp_path / "it.safetensors")
    assert same(one, other)
    (tmp_path / "it.safetensors").write_bytes(b"no")
    with pytest.raises(RunError, match="damaged"):
        load_state(other, tmp_path / "it.safetensors")


def saved(path, state):
    torch.save(state, path)
    return path


def test_names_and_shapes_must_fit(tmp_path):
    state = net().state_dict()
    path = tmp_path / "it.pt"
    less = {key: value for key, value in state.items() if key != "3.bias"}
    with pytest.raises(UsageError, match=r"it lacks 3\.bias .*network has 1\.weight"):
        load_state(net(), saved(path, less))
    with pytest.raises(UsageError, match=r"it has the unknown odd"):
        load_state(net(), saved(path, {**state, "odd": torch.zeros(1)}))
    with pytest.raises(UsageError, match=r"3\.bias has shape \(3,\), the network's \(2,\)"):
        load_state(net(), saved(path, {**state, "3.bias": torch.zeros(3)}))
    with pytest.raises(UsageError, match=r"holds no state_dict .*it has lr"):
        load_state(net(), saved(path, {"lr": 0.1}))
    with pytest.raises(UsageError, match="holds a list"):
        load_state(net(), saved(path, [1]))


def test_no_number_is_rounded(tmp_path):
    state = {key: value.double() for key, value in net().state_dict().items()}
    other = net()
    load_state(other, saved(tmp_path / "it.pt", state))  # they are float32 numbers
    state["3.bias"][0] = 0.1
    with pytest.raises(UsageError, match=r"3\.bias is of type torch\.float64, which would be roun"):
        load_state(other, saved(tmp_path / "it.pt", state))
    half = {key: value.half() for key, value in net().state_dict().items()}
    load_state(other, saved(tmp_path / "it.pt", half))
    assert torch.equal(other[3].bias, half["3.bias"].float())


class Evil:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch {self.path}",)


def test_no_pickle_is_run(tmp_path):
    mark = tmp_path / "ran"
    path = saved(tmp_path / "it.pt", Evil(mark))
    for ask in (lambda: read_state(path), lambda: (_ for _ in ()).throw(way_out(path))):
        with pytest.raises(UsageError, match=r"whole pickled module.*torch\.save\(net\.state_dict"):
            ask()
    (tmp_path / "plain.pt").write_bytes(pickle.dumps(Evil(mark)))
    with pytest.raises(UsageError, match=r"not an archive as torch.save has written it"):
        read_state(tmp_path / "plain.pt")
    assert not mark.exists()


def test_whole_modules_and_torchscript_have_a_way_out(tmp_path):
    path = saved(tmp_path / "whole.pt", net())
    with pytest.raises(UsageError, match=r"whole pickled module.* --weights weights\.pt"):
        read_state(path)
    script = tmp_path / "script.pt"
    torch.jit.script(net()).save(str(script))
    with pytest.raises(UsageError) as caught:
        read_state(script)
    for error in (way_out(script), caught.value):
        assert "is TorchScript: export it" in str(error)
        assert "torch.onnx.export(net, torch.zeros(1, 3, 32, 32), " in str(error)
    weights = saved(tmp_path / "weights.pt", net().state_dict())
    assert "such as FILE.py:Net --weights" in str(way_out(weights))


def test_an_archive_that_unpacks_to_too_much(tmp_path, monkeypatch):
    path = tmp_path / "it.pt"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("it/data.pkl", bytes(1 << 20))
    monkeypatch.setattr(limits, "WEIGHTS_BYTES", 1 << 19)
    with pytest.raises(MaarError, match="bytes after decompression: 1048576"):
        read_state(path)


@pytest.mark.parametrize("cut", [10, 100, 900])
def test_damaged_files(tmp_path, cut):
    path = saved(tmp_path / "it.pt", net().state_dict())
    content = path.read_bytes()
    path.write_bytes(content[:cut])
    with pytest.raises(MaarError):
        load_state(net(), path)
    with pytest.raises(UsageError, match="does not exist"):
        load_state(net(), tmp_path / "nowhere.pt")
