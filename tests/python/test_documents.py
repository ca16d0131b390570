"""The examples of doc/python.md, and the notebook, run from the root of the source tree."""
import doctest
import json
import pathlib

import pytest

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def at_the_root(monkeypatch, tmp_path):
    """Models are found below models/, files are written elsewhere."""
    (tmp_path / "models").symlink_to(ROOT / "models")
    monkeypatch.chdir(tmp_path)


def test_examples():
    done = doctest.testfile(str(ROOT / "doc" / "python.md"), module_relative=False,
                            optionflags=doctest.ELLIPSIS)
    assert done.attempted > 15 and done.failed == 0


def test_notebook(capsys):
    cells = json.loads((ROOT / "examples" / "notebook.ipynb").read_text())["cells"]
    names = {"display": print}
    for cell in cells:
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), "notebook.ipynb", "exec"), names)
    assert names["image"].size == (128, 128)
    assert "PIL" in capsys.readouterr().out
