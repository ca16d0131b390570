"""real.py COMFYUI ROOT FOLDER - the nodes in ComfyUI itself: its loader, its checks of workflows,
its executor with previews and interrupts, and its nodes that save images and videos. FOLDER gets
what is written. Run by test_comfyui.py; needs a Python with the packages of ComfyUI and of xdit."""
import asyncio
import json
import os
import pathlib
import sys
import threading
import time

COMFYUI, ROOT, FOLDER = (pathlib.Path(a).resolve() for a in sys.argv[1:4])
NODES = ROOT / "integrations" / "comfyui"
sys.argv = ["main.py", "--cpu", "--base-directory", str(FOLDER)]
sys.path.insert(0, str(COMFYUI))
for folder in ("custom_nodes", "input", "models/loras"):
    (FOLDER / folder).mkdir(parents=True)
(FOLDER / "custom_nodes" / "xdit").symlink_to(NODES)

import comfy.options                    # noqa: E402
comfy.options.enable_args_parsing()
import comfy.model_management           # noqa: E402
import comfy.utils                      # noqa: E402
import execution                        # noqa: E402
import nodes                            # noqa: E402
import numpy as np                      # noqa: E402
from PIL import Image                   # noqa: E402


class Page:
    """What the executor asks of ComfyUI's server."""
    client_id, last_node_id, last_prompt_id = None, None, None
    sockets_metadata = {}

    def __init__(self):
        self.said = []

    def send_sync(self, event, data, client=None):
        self.said.append((event, data))


def run(workflow, page):
    """Checks and runs a workflow; the executor."""
    good, error, outputs, errors = asyncio.run(execution.validate_prompt("1", workflow, None))
    assert good, (error, errors)
    executor = execution.PromptExecutor(page)
    executor.execute(workflow, "1", {}, outputs)
    return executor


def read(name):
    return json.loads((NODES / "api_workflows" / f"{name}.json").read_text())


def main():
    custom = str(FOLDER / "custom_nodes" / "xdit")
    assert asyncio.run(nodes.load_custom_node(custom))
    own = {k: v for k, v in nodes.NODE_CLASS_MAPPINGS.items() if k.startswith("Xdit")}
    assert len(own) == 7, own
    for kind in own.values():
        assert kind.RELATIVE_PYTHON_MODULE == "custom_nodes.xdit"
    extra = COMFYUI / "comfy_extras" / "nodes_video.py"
    assert asyncio.run(nodes.load_custom_node(str(extra), module_parent="comfy_extras"))
    Image.new("RGB", (64, 64), (200, 100, 50)).save(FOLDER / "input" / "example.png")
    for path in sorted((NODES / "api_workflows").glob("*.json")):
        good, error, _, errors = asyncio.run(execution.validate_prompt("1", read(path.stem), None))
        assert good, (path.name, error, errors)
    wrong = read("text_to_image")
    wrong["2"]["inputs"]["options"] = "cache"
    good, _, _, errors = asyncio.run(execution.validate_prompt("1", wrong, None))
    assert not good and "name = value" in json.dumps(errors), errors
    images()
    videos()
    interrupts()
    print("ok")


def images():
    progress, page = [], Page()
    comfy.utils.set_progress_bar_global_hook(
        lambda value, total, preview, **more: progress.append((value, total, preview)))
    api = read("text_to_image")
    api["1"]["inputs"].update(path=str(ROOT / "models" / "demo-pixart"), device="cpu")
    api["2"]["inputs"].update(prompt="a large red circle on a blue background", steps=4, seed=3)
    executor = run(api, page)
    assert executor.success, executor.status_messages
    assert [p[:2] for p in progress] == [(i, 4) for i in (1, 2, 3, 4)]
    assert all(p[2][0] == "JPEG" and p[2][1].size == (128, 128) for p in progress)
    import xdit
    with xdit.Pipeline.from_pretrained(ROOT / "models" / "demo-pixart") as pipe:
        want = pipe("a large red circle on a blue background", num_inference_steps=4, seed=3)
    made = Image.open(FOLDER / "output" / "xdit_00001_.png")
    # ComfyUI cuts 255 x value to a level, where the library rounds it.
    apart = np.abs(np.asarray(made, int) - np.asarray(want.images[0], int))
    assert apart.max() <= 1, apart.max()
    api = read("image_to_image")
    api["1"]["inputs"].update(path=str(ROOT / "models" / "demo-pixart"), device="cpu",
                              weights_dtype="(the model's)")
    api["4"]["inputs"].update(steps=2)
    executor = run(api, page)
    assert executor.success, executor.status_messages
    assert (FOLDER / "output" / "xdit_00002_.png").exists()


def videos():
    model = os.environ.get("XDIT_TINY_MODELS")
    if not model:
        print("videos are not tested: XDIT_TINY_MODELS names no tiny models")
        return
    api = read("video")
    api["1"]["inputs"].update(path=str(pathlib.Path(model, "wan")), device="cpu", dtype="f32")
    api["2"]["inputs"].update(width=64, height=48, num_frames=9, steps=2, fps=8.0)
    executor = run(api, Page())
    assert executor.success, executor.status_messages
    import av
    with av.open(next((FOLDER / "output" / "video").glob("*.mp4"))) as film:
        shown = [f.to_ndarray(format="rgb24").shape for f in film.decode(video=0)]
        assert shown == [(48, 64, 3)] * 9 and film.streams.video[0].average_rate == 8


def interrupts():
    def hook(value, total, preview, **more):
        comfy.model_management.throw_exception_if_processing_interrupted()
    comfy.utils.set_progress_bar_global_hook(hook)
    api = read("text_to_image")
    api["1"]["inputs"].update(path=str(ROOT / "models" / "demo-pixart"), device="cpu")
    api["2"]["inputs"].update(width=1024, height=1024, steps=500, seed=5,
                              options="no_resolution_binning = true")
    threading.Timer(2, nodes.interrupt_processing).start()
    start, page = time.monotonic(), Page()
    executor = run(api, page)
    assert time.monotonic() - start < 20
    assert not executor.success
    assert "execution_interrupted" in [m[0] for m in executor.status_messages]


main()
