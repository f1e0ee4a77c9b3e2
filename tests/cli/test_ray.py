"""`--ray`: who does the work of `maar certify`."""

import contextlib

import pytest

from maar.certification import fork_server, ray_workers
from maar.certification.workers import LOCAL
from maar.cli.main import main


def test_the_cluster_does_the_work(here, monkeypatch):
    seen = []

    @contextlib.contextmanager
    def cluster(address):
        seen.append(f"connected to {address}")
        yield LOCAL
        seen.append("left")

    monkeypatch.setattr(ray_workers, "cluster", cluster)
    monkeypatch.setattr(fork_server, "context", lambda: pytest.fail("no processes here"))
    assert main(["certify", "runs/my", "--limit", "3", "--ray", "node:6379", "--workers", "1"]) == 0
    assert seen == ["connected to node:6379", "left"]


def test_what_cannot_be_is_one_line(here, capsys):
    pytest.importorskip("ray", reason="ray has no wheel for every Python")
    assert main(["certify", "runs/my", "--limit", "3", "--ray", "nonsense"]) == 2
    said = capsys.readouterr().err
    assert said == (
        "maar: error: --ray 'nonsense' (accepted: auto, HOST:PORT or ray://HOST:PORT)\n"
    )
