"""Plans, inspection, comparison, and what the package says of itself."""
import inspect
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

import xdit

MODEL = pathlib.Path(__file__).parents[2] / "models" / "demo-pixart"


def test_version():
    about = xdit.about()
    assert xdit.__version__.count(".") == 2
    assert isinstance(about["library"], list) and about["type"] in ("bf16", "f32")


def test_plans():
    plans = xdit.plan(MODEL, ranks=4, num_inference_steps=20)
    possible = [p for p in plans if not p.refused]
    assert plans.ranks == 4 and pathlib.Path(plans.model) == MODEL
    assert len(possible) > 3 and all(p.ranks <= 4 and p.peak > 0 for p in possible)
    assert [p.total for p in possible] == sorted(p.total for p in possible)
    assert any(not p.same_image for p in possible)
    fixed = xdit.plan(MODEL, ranks=4, ulysses_degree=2, use_cfg_parallel=True, exact=True)
    assert all(p.same_image for p in fixed)
    assert all("u2" in p.name and "cfg2" in p.name for p in fixed if not p.refused)
    with pytest.raises(TypeError, match="colour"):
        xdit.plan(MODEL, colour="red")
    with pytest.raises(xdit.Error):
        xdit.plan(MODEL, cluster="8xNothing")


def test_inspect(tmp_path):
    told = xdit.inspect(MODEL)
    assert told["pipeline"] == "PixArtAlphaPipeline" and told["missing"] == []
    with pytest.raises(xdit.Error):
        xdit.inspect(tmp_path)


def test_compare(tmp_path):
    a = np.full((20, 30, 3), 100, np.uint8)
    b = a + np.uint8(3)
    c = xdit.compare(a, b)
    assert c.largest == 3 and c.mean == 3 and abs(c.psnr - 38.588378) < 1e-5 and not c.equal
    assert xdit.compare(a, a).equal and xdit.compare([a, a], [a, b]).worst_frame == 1
    for name, v in (("a", a), ("b", b)):
        (tmp_path / f"{name}.ppm").write_bytes(b"P6 30 20 255\n" + v.tobytes())
    assert xdit.compare(tmp_path / "a.ppm", str(tmp_path / "b.ppm")) == c
    with pytest.raises(xdit.InvalidRequest, match="equal"):
        xdit.compare(a, b[:10])


def test_types(tmp_path):
    assert pathlib.Path(xdit.__file__).with_name("py.typed").exists()
    functions = [getattr(xdit, n) for n in xdit.__all__ if inspect.isroutine(getattr(xdit, n))]
    functions += [f for n, f in vars(xdit.Pipeline).items()
                  if inspect.isfunction(f) and n[0] != "_" or n == "__call__"]
    assert len(functions) > 10
    for f in functions:
        for name, p in inspect.signature(f).parameters.items():
            assert p.annotation is not p.empty or name == "self", (f, name)


def test_types_by_mypy(tmp_path):
    pytest.importorskip("mypy", reason="there is no mypy")
    (tmp_path / "caller.py").write_text("""
import xdit

def generate(pipe: xdit.Pipeline, prompt: str) -> list[int]:
    out: xdit.Output = pipe(prompt, num_inference_steps=2, generator=1)
    out.save("x.png")
    total: float | None = xdit.plan("model", ranks=2)[0].total
    same: bool = xdit.compare(out.images[0], out.images[0]).equal
    xdit.restore(xdit.accelerate(None, "int8"))
    return out.seeds if same or total else []

wrong: int = xdit.plan("model")[0].name
""")
    run = subprocess.run([sys.executable, "-m", "mypy", "--strict", "--cache-dir", tmp_path / "c",
                          "caller.py"], cwd=tmp_path, capture_output=True, text=True,
                         env={**os.environ,
                              "MYPYPATH": str(pathlib.Path(xdit.__file__).parents[1])})
    errors = [line for line in run.stdout.splitlines() if line.startswith("caller.py:")]
    assert len(errors) == 1 and "caller.py:12: error: Incompatible types" in errors[0], run.stdout
