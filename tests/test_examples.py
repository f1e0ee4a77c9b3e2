"""The notebooks in examples/ run from beginning to end."""

from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")

EXAMPLES = Path(__file__).parent.parent / "examples"
NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))


def test_there_are_notebooks():
    assert len(NOTEBOOKS) >= 3


QUICK = {"add_a_method"}


def marks(path: Path) -> list[pytest.MarkDecorator]:
    return [] if path.stem in QUICK else [pytest.mark.slow]


@pytest.mark.parametrize("path", [pytest.param(p, marks=marks(p)) for p in NOTEBOOKS])
def test_a_notebook_runs(path, tmp_path):
    notebook = nbformat.read(path, as_version=4)
    resources = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=600, resources=resources).execute()


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_keeps_outputs_without_errors(path):
    """The documentation shows the outputs as they are in the file."""
    code = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    outputs = [output for cell in code for output in cell.outputs]
    assert outputs
    assert not any(output.output_type == "error" for output in outputs)
