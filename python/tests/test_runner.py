"""Runner: configurations of xDiT's runner on the demo model."""
import json
import os
import pathlib

import numpy as np
import pytest
from PIL import Image

import xdit

MODEL = pathlib.Path(__file__).parents[2] / "models" / "demo-pixart"
SMALL = {"prompt": "a red circle", "num_inference_steps": 2, "height": 128, "width": 128}
pytestmark = pytest.mark.skipif(not os.environ.get("XDIT_PROGRAM"),
                                reason="XDIT_PROGRAM names no program")


@pytest.fixture(scope="module")
def image():
    with xdit.Pipeline.from_pretrained(MODEL) as pipe:
        pipe.set_progress_bar_config(disable=True)
        return pipe(**SMALL, seed=42, output_type="uint8").images[0]


def test_the_steps_of_xdit(image, tmp_path):
    """As xDiT's runner.py calls the class, with all options of its parser, set or not."""
    args = {**SMALL, "model": MODEL, "seed": 42, "use_cfg_parallel": False, "ulysses_degree": 1,
            "attention_backend": None, "output_directory": str(tmp_path), "num_iterations": 2,
            "warmup_calls": 1, "use_torch_compile": True}
    runner = xdit.Runner(args)
    assert any("use_torch_compile" in note for note in runner.notes)
    input_args = runner.preprocess_args(args)
    with pytest.raises(xdit.InvalidRequest, match="initialize"):
        runner.run(input_args)
    runner.initialize(input_args)
    assert runner.is_initialized
    output, timings = runner.run(input_args)
    assert np.array_equal(np.asarray(output.images[0]), image) and output.videos is None
    assert len(timings) == 2 and min(timings) > 0
    files = runner.save(output=output, timings=timings)
    assert files == [tmp_path / "output.png", tmp_path / "timings.json"]
    assert np.array_equal(np.asarray(Image.open(files[0])), image)
    assert json.loads(files[1].read_text()) == timings
    output, timings, trace = runner.profile(input_args)
    assert np.array_equal(np.asarray(output.images[0]), image)
    assert json.loads(trace.read_text()) and runner.save(profile=trace) == [trace]
    runner.cleanup()
    assert not runner.is_initialized


def test_a_request_replaces_the_configuration(image, tmp_path):
    runner = xdit.Runner({"model": MODEL, "output_directory": tmp_path, "seed": 1})
    runner.initialize()
    output, _ = runner.run({**SMALL, "seed": 42, "prompt": ["a red circle", "--blue"]})
    assert np.array_equal(np.asarray(output.images[0]), image)
    assert output.seeds == [42, 43] and len(runner.save(output)) == 2
    (tmp_path / "a.csv").write_text("number,prompt\n1,a red circle\n")
    output, _ = runner.run({**SMALL, "seed": 42, "prompt": None, "batch_size": 1,
                            "dataset_path": tmp_path / "a.csv"})
    assert np.array_equal(np.asarray(output.images[0]), image)
    runner.cleanup()


def test_defaults_of_a_model():
    runner = xdit.Runner({"model": "Wan2.1-T2V"})
    args = runner.preprocess_args({"prompt": "a"})
    assert args["num_inference_steps"] == 40 and args["guidance_scale"] == 3.5
    assert args["seed"] == 42 and args["prompt"] == "a"
    with pytest.raises(xdit.Error, match="Wan-AI/Wan2.1-T2V-14B-Diffusers"):
        runner.initialize()


@pytest.mark.parametrize("config, words", [
    ({"model": MODEL, "colour": "red"}, "--colour"), ({"prompt": "a"}, "--model"),
    ({"model": "Cosmos3-Nano"}, "not built"), ({"model": MODEL, "ulysses_degree": 0}, "degree")])
def test_refusals(config, words):
    with pytest.raises(xdit.InvalidRequest, match=words):
        xdit.Runner(config)
