"""The nodes of integrations/comfyui in a stand-in for ComfyUI (standin.py): loading, sampling with
previews, interrupts, LoRA files, images to start from, videos, a server on loopback, the example
workflows. XDIT_TEST_COMFYUI names a folder with ComfyUI itself: the last test runs real.py there,
with XDIT_TEST_COMFYUI_PYTHON or the Python of the tests."""
import json
import os
import pathlib
import subprocess
import sys
import threading
import time
import urllib.request

import numpy as np
import pytest
from PIL import Image

import xdit

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import standin                      # noqa: E402

ROOT = pathlib.Path(__file__).parents[2]
NODES = ROOT / "integrations" / "comfyui"
MODEL = ROOT / "models" / "demo-pixart"
PROMPT = "a large red circle on a blue background"
OWN = "(the model's)"
OPEN = {"model": "(none)", "path": str(MODEL), "dtype": OWN, "weights_dtype": OWN,
        "text_weights_dtype": OWN, "device": "cpu", "offload": OWN, "memory": "", "attention": OWN,
        "cache": "", "settings": "threads = 1"}
HOW = {"prompt": PROMPT, "negative_prompt": "", "width": 0, "height": 0, "steps": 4,
       "guidance": -1.0, "seed": 3, "sampler": OWN}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    top = tmp_path_factory.mktemp("comfyui")
    for name in ("diffusers", "loras", "hub"):
        (top / name).mkdir()
    for i in (1, 2):
        write_lora(top / "loras" / f"style{i}.safetensors", i)
    return top


@pytest.fixture(scope="module")
def host(folders):
    """ComfyUI's modules, until the last of these tests."""
    with pytest.MonkeyPatch.context() as m:
        h = standin.Comfy({"diffusers": [folders / "diffusers"], "loras": [folders / "loras"]})
        for name, module in h.modules().items():
            m.setitem(sys.modules, name, module)
        m.setenv("HF_HUB_CACHE", str(folders / "hub"))
        m.setenv("no_proxy", "*")
        m.setattr(sys, "dont_write_bytecode", True)
        yield h


@pytest.fixture
def comfy(host):
    host.interrupt, host.seen = False, []
    return host


@pytest.fixture(scope="module")
def package(host):
    return standin.load(NODES)


@pytest.fixture
def call(package, comfy):
    """Calls a node by its name; gives its outputs."""
    def run(name, **inputs):
        kind = package.NODE_CLASS_MAPPINGS[name]
        return getattr(kind(), kind.FUNCTION)(**inputs)
    return run


@pytest.fixture
def loaded(call):
    return call("XditLoadModel", **OPEN)[0]


@pytest.fixture(scope="module")
def pipe():
    with xdit.Pipeline.from_pretrained(MODEL, threads=1) as p:
        p.set_progress_bar_config(disable=True)
        yield p


@pytest.fixture(scope="module")
def image(pipe):
    return pipe(PROMPT, num_inference_steps=4, seed=3, output_type="np").images


@pytest.fixture
def tiny():
    if "XDIT_TINY_MODELS" not in os.environ:
        pytest.skip("XDIT_TINY_MODELS names no tiny models")
    return pathlib.Path(os.environ["XDIT_TINY_MODELS"])


def write_lora(path, seed):
    """Differences of one matrix of the demo's transformer, of rank 4."""
    width, rank, name = 192, 4, "transformer.transformer_blocks.0.attn1.to_q.lora_{}.weight"
    data = np.random.default_rng(seed).normal(0, 0.2, (2, rank * width)).astype(np.float32)
    size, head = 4 * rank * width, {}
    for i, (end, shape) in enumerate((("A", [rank, width]), ("B", [width, rank]))):
        head[name.format(end)] = {"dtype": "F32", "shape": shape,
                                  "data_offsets": [i * size, (i + 1) * size]}
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + data.tobytes())


def same(a, b):
    return a.shape == b.shape and np.array_equal(np.rint(a * 255), np.rint(b * 255))


def tensor(array):
    import torch        # the real one, or the stand-in's
    return torch.from_numpy(np.ascontiguousarray(array, np.float32))


# ---- the package ------------------------------------------------------------------------------

def test_the_loader_finds_nodes(package):
    names = ["XditLoadModel", "XditConnect", "XditLora", "XditSample", "XditDecode",
             "XditImageToImage", "XditControl", "XditCondition", "XditVideo"]
    assert list(package.NODE_CLASS_MAPPINGS) == names
    assert list(package.NODE_DISPLAY_NAME_MAPPINGS) == names
    for kind in package.NODE_CLASS_MAPPINGS.values():
        told = kind.INPUT_TYPES()
        assert set(told) <= {"required", "optional"} and kind.CATEGORY == "xdit"
        assert callable(getattr(kind, kind.FUNCTION)) and isinstance(kind.RETURN_TYPES, tuple)
        assert len(getattr(kind, "RETURN_NAMES", kind.RETURN_TYPES)) == len(kind.RETURN_TYPES)
        for row in [*told["required"].values(), *told.get("optional", {}).values()]:
            # The default of a widget is one of its values.
            if isinstance(row[0], str) and row[0] in standin.WIDGETS:
                assert standin._wrong(row[0], row[1], row[1]["default"]) is None
        taken = kind.__dict__[kind.FUNCTION].__code__
        taken = taken.co_varnames[1:taken.co_argcount]
        assert set(taken) == {*told["required"], *told.get("optional", {})}


def test_loading_needs_neither_library_nor_torch():
    """Without them the folder loads, and the node names the cure."""
    script = f"""
import sys
sys.path.insert(0, {str(pathlib.Path(__file__).parent)!r})
import pathlib, standin
sys.modules.update(standin.Comfy({{}}).modules())
sys.modules.update(torch=None, xdit=None)
nodes = standin.load(pathlib.Path({str(NODES)!r})).NODE_CLASS_MAPPINGS
assert not [m for m in ("PIL", "cffi", "av") if m in sys.modules]
try:
    nodes["XditLoadModel"]().load(**{OPEN!r})
except RuntimeError as e:
    print(e)
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert "pip install ." in run.stdout and "Connect to Server" in run.stdout, run.stderr


def test_samplers_are_those_of_the_library(package):
    program = os.environ.get("XDIT_PROGRAM")
    if not program:
        pytest.skip("XDIT_PROGRAM names no program")
    said = subprocess.run([program, "generate", "--help", "all"], capture_output=True,
                          text=True).stdout
    said = " ".join(said[said.index("--scheduler NAME"):].split())
    listed = said[said.index("): ") + 3:said.index("or the name of a diffusers class")].split(",")
    own = package.NODE_CLASS_MAPPINGS["XditSample"].INPUT_TYPES()["required"]["sampler"][0]
    assert sorted(own[1:]) == sorted(name.strip() for name in listed if name.strip())


def test_models_are_found(package, comfy, folders, call):
    (folders / "diffusers" / "demo").symlink_to(MODEL)
    snapshot = folders / "hub" / "models--org--name" / "snapshots" / "1"
    snapshot.mkdir(parents=True)
    (snapshot / "model_index.json").write_text("{}")
    kind = package.NODE_CLASS_MAPPINGS["XditLoadModel"]
    assert kind.INPUT_TYPES()["required"]["model"][0] == ["(none)", "demo", "org/name"]
    one = call("XditLoadModel", **{**OPEN, "path": "", "model": "demo"})[0]
    assert call("XditSample", pipe=one, batch_size=1, **{**HOW, "steps": 1})


# ---- workflows --------------------------------------------------------------------------------

@pytest.fixture
def classes(package, comfy):
    return {**package.NODE_CLASS_MAPPINGS, **standin.comfy_nodes()}


WORKFLOWS = sorted(p.name for p in (NODES / "api_workflows").glob("*.json"))


@pytest.mark.parametrize("name", WORKFLOWS)
def test_example_workflows(classes, name):
    api = json.loads((NODES / "api_workflows" / name).read_text())
    assert standin.complaints(api, classes) == []
    for node in api.values():           # a node that gets another input is not in the example
        told = classes[node["class_type"]].INPUT_TYPES()
        widgets = {k for k, v in {**told["required"], **told.get("optional", {})}.items()
                   if isinstance(v[0], list) or v[0] in standin.WIDGETS}
        assert widgets <= set(node["inputs"]), node["class_type"]
    drawn = json.loads((NODES / "example_workflows" / name).read_text())
    assert as_api(drawn, classes) == {i: {"class_type": n["class_type"], "inputs": n["inputs"]}
                                      for i, n in api.items()}


def test_both_formats_have_the_same_examples():
    assert WORKFLOWS == sorted(p.name for p in (NODES / "example_workflows").glob("*.json"))
    assert len(WORKFLOWS) == 4


def as_api(drawn, classes):
    """A workflow as ComfyUI's page keeps it, in the format of the API."""
    links = {link[0]: link for link in drawn["links"]}
    api = {}
    for node in drawn["nodes"]:
        told = classes[node["type"]].INPUT_TYPES()
        values, inputs = list(node["widgets_values"]), {}
        for name, row in {**told["required"], **told.get("optional", {})}.items():
            if isinstance(row[0], list) or row[0] in standin.WIDGETS:
                inputs[name] = values.pop(0)
                if len(row) > 1 and row[1].get("control_after_generate"):
                    assert values.pop(0) == "fixed"
        if node["type"] == "LoadImage":         # the page's button
            assert values.pop(0) == "image"
        assert not values
        for i, slot in enumerate(node["inputs"]):
            if slot["link"] is not None:
                _, at, out, to, to_slot, kind = links[slot["link"]]
                assert (to, to_slot, kind) == (node["id"], i, slot["type"])
                source = next(n for n in drawn["nodes"] if n["id"] == at)
                assert slot["link"] in source["outputs"][out]["links"]
                inputs[slot["name"]] = [str(at), out]
        api[str(node["id"])] = {"class_type": node["type"], "inputs": inputs}
    return api


def test_wrong_workflows_are_seen(classes):
    """The stand-in's checks can fail."""
    api = json.loads((NODES / "api_workflows" / "text_to_image.json").read_text())
    for node, name, value, words in (("2", "steps", 5000, "not from 0 to 1000"),
                                     ("2", "sampler", "none", "is none of"),
                                     ("2", "options", "cache", "name = value"),
                                     ("3", "latent", ["1", 0], "XDIT_PIPE is no XDIT_LATENT"),
                                     ("2", "colour", 1, "has no input colour")):
        wrong = json.loads(json.dumps(api))
        wrong[node]["inputs"][name] = value
        assert any(words in c for c in standin.complaints(wrong, classes)), words


def test_a_workflow_runs(classes, comfy, image):
    api = json.loads((NODES / "api_workflows" / "text_to_image.json").read_text())
    api["1"]["inputs"].update(path=str(MODEL), settings="threads = 1", device="cpu")
    api["2"]["inputs"].update(prompt=PROMPT, steps=4, seed=3)
    made = standin.run(api, classes)
    assert same(standin.array(made["4"]["images"]), image)


# ---- a model in the process -------------------------------------------------------------------

def test_sampling_decoding_previews(call, comfy, loaded, image):
    latent = call("XditSample", pipe=loaded, batch_size=1, **HOW)[0]
    assert tuple(latent["samples"].shape) == (1, 4, 16, 16)
    assert [(v, n) for v, n, _ in comfy.seen] == [(i, 4) for i in (1, 2, 3, 4)]
    for _, _, (kind, shown, side) in comfy.seen:
        assert kind == "JPEG" and isinstance(shown, Image.Image) and shown.size == (128, 128)
        assert side == 512
    assert same(standin.array(call("XditDecode", latent=latent)[0]), image)
    tiled = call("XditDecode", latent=latent, tiled=True)[0]
    assert tuple(tiled.shape) == (1, 128, 128, 3)


def test_several_images_without_previews(call, comfy, loaded, pipe):
    latent = call("XditSample", pipe=loaded, batch_size=2, preview=False,
                  options="guidance_scale = 3\n# a remark\nrng = torch", **HOW)[0]
    assert [s for s in comfy.seen if s[2] is not None] == []
    assert [s[:2] for s in comfy.seen] == [(i + 1, 8) for i in range(8)]
    want = pipe(PROMPT, num_inference_steps=4, seed=3, num_images_per_prompt=2, guidance_scale=3,
                rng="torch", output_type="np").images
    assert same(standin.array(call("XditDecode", latent=latent)[0]), want)


def test_pipelines_are_shared(call, loaded):
    again = call("XditLoadModel", **OPEN)[0]
    other = call("XditLoadModel", **{**OPEN, "dtype": "f32"})[0]
    assert again._pipe is loaded._pipe and other._pipe is not loaded._pipe


def test_settings_of_a_model(call):
    one = call("XditLoadModel", **{**OPEN, "dtype": "f32", "weights_dtype": "int8",
                                   "cache": "fbcache:0.5"})[0]
    out = one._run({"prompt": PROMPT, "num_inference_steps": 2}, False, "np").parameters[0]
    assert (out["dtype"], out["weights_dtype"], out["cache"]) == ("f32", "int8", "fbcache:0.5")


def test_an_interrupt_ends_a_step(call, comfy, loaded, package):
    """A thread sees the interrupt and ends the step: nothing more is reported of it."""
    big = {**HOW, "width": 1024, "height": 1024, "steps": 500, "options":
           "no_resolution_binning = true"}
    begun = []

    def interrupt():
        begun.extend([time.monotonic(), len(comfy.seen)])
        comfy.interrupt = True
    threading.Timer(1.0, interrupt).start()
    with pytest.raises(standin.Interrupted):
        call("XditSample", pipe=loaded, batch_size=1, **big)
    assert time.monotonic() - begun[0] < 10 and len(comfy.seen) <= begun[1] + 1
    assert not comfy.interrupt
    assert call("XditSample", pipe=loaded, batch_size=1, **{**HOW, "steps": 1})


def test_an_interrupt_before_the_first_step(call, comfy, loaded):
    comfy.interrupt = True
    with pytest.raises(standin.Interrupted):
        call("XditSample", pipe=loaded, batch_size=1, **{**HOW, "steps": 500})
    assert not comfy.interrupt and not comfy.seen


def test_lora_files(call, loaded, folders, image, pipe):
    kind = {"width": 0, "height": 0}
    one = call("XditLora", pipe=loaded, lora="style1.safetensors", strength=0.5)[0]
    two = call("XditLora", pipe=one, lora="style2.safetensors", strength=-1.0)[0]
    for node, files in ((one, [("style1", 0.5)]), (two, [("style1", 0.5), ("style2", -1.0)]),
                        (loaded, [])):
        latent = call("XditSample", pipe=node, batch_size=1, **{**HOW, **kind})[0]
        for name, scale in files:
            pipe.load_lora_weights(folders / "loras" / f"{name}.safetensors", scale=scale)
        want = pipe(PROMPT, num_inference_steps=4, seed=3, output_type="np").images
        pipe.unload_lora_weights()
        assert same(want, image) == (not files)
        assert same(standin.array(call("XditDecode", latent=latent)[0]), want)
    assert call("XditLora", pipe=loaded, lora="(none)", strength=1.0)[0] is loaded
    with pytest.raises(RuntimeError, match="no LoRA file none"):
        call("XditLora", pipe=loaded, lora="none.safetensors", strength=1.0)


def test_image_to_image(call, loaded, image, pipe):
    want = pipe("a green star", image=image[0], strength=0.5, num_inference_steps=4, seed=3,
                output_type="np").images
    how = {**HOW, "prompt": "a green star"}
    made = call("XditImageToImage", pipe=loaded, image=tensor(image), strength=0.5, **how)[0]
    assert same(standin.array(made), want) and not same(want, image)
    latent = call("XditSample", pipe=loaded, batch_size=1, image=tensor(image), strength=0.5,
                  **how)[0]
    assert same(standin.array(call("XditDecode", latent=latent)[0]), want)


def test_masks(call, tiny):
    pixels = np.random.default_rng(1).random((1, 48, 64, 3), np.float32)
    mask = np.zeros((1, 48, 64), np.float32)
    mask[:, :, 32:] = 1
    one = call("XditLoadModel", **{**OPEN, "path": str(tiny / "flux"), "dtype": "f32"})[0]
    how = {**HOW, "width": 64, "height": 48}
    made = [standin.array(call("XditImageToImage", pipe=one, image=tensor(pixels), strength=1.0,
                               mask=tensor(mask), **{**how, "seed": s})[0])[0] for s in (1, 2)]
    apart = np.abs(made[0] - made[1])
    assert apart[:, 40:].max() > 2 * apart[:, :8].max()


def test_control_images(call, tiny):
    edges = np.random.default_rng(1).random((1, 48, 64, 3), np.float32)
    how = {**HOW, "width": 0, "height": 0, "steps": 2, "guidance": 3.5}
    one = call("XditLoadModel", **{**OPEN, "path": str(tiny / "flux-control"), "dtype": "f32"})[0]
    latent = call("XditSample", pipe=one, batch_size=1, control_image=tensor(edges), **how)[0]
    made = call("XditImageToImage", pipe=one, image=tensor(edges), strength=0.5,
                control_image=tensor(edges), **how)[0]
    with xdit.Pipeline.from_pretrained(tiny / "flux-control", dtype="f32", threads=1) as p:
        p.set_progress_bar_config(disable=True)
        want = p(PROMPT, control_image=edges[0], num_inference_steps=2, guidance_scale=3.5, seed=3,
                 output_type="np").images
    assert want.shape == (1, 48, 64, 3)
    assert same(standin.array(call("XditDecode", latent=latent)[0]), want)
    assert standin.array(made).shape == want.shape and not same(standin.array(made), want)
    from_photo = call("XditSample", pipe=one, batch_size=1, control_image=tensor(edges),
                      control_preprocess="canny", **how)[0]
    assert not same(standin.array(call("XditDecode", latent=from_photo)[0]), want)
    with pytest.raises(ValueError, match="there is no control image"):
        call("XditSample", pipe=one, batch_size=1, control_preprocess="canny", **how)


CONTROLS = ({"strength": 0.7, "start": 0.2, "end": 0.8, "mode": 0},
            {"strength": 1.3, "start": 0.0, "end": 0.6, "mode": 1})


def chain(call, seen):
    """Control images with the numbers of CONTROLS, as the last node of two returns them."""
    images = call("XditControl", image=tensor(seen[:1]), **CONTROLS[0])[0]
    return call("XditControl", image=tensor(seen[1:]), **CONTROLS[1], controls=images)[0]


def test_images_of_control_networks(call, comfy, tiny, monkeypatch):
    """Each network reads its own image with its own numbers, here and on a server."""
    seen = np.random.default_rng(1).integers(0, 256, (2, 48, 64, 3)) / 255
    how = {**HOW, "width": 64, "height": 48, "steps": 5, "guidance": 3.5, "batch_size": 1}
    net = str(tiny / "flux-controlnet" / "controlnet_2")
    model = {**OPEN, "path": str(tiny / "flux"), "dtype": "f32"}
    pipe = call("XditLoadModel", **model, controlnets=f"{net}\n{net}\n")[0]
    sample = {"controls": chain(call, seen), **how}
    made = standin.array(call("XditDecode", latent=call("XditSample", pipe=pipe, **sample)[0])[0])
    with xdit.Pipeline.from_pretrained(tiny / "flux", controlnet=[net, net], dtype="f32",
                                       threads=1) as p:
        numbers = {"controlnet_conditioning_scale": [0.7, 1.3], "control_mode": [0, 1],
                   "control_guidance_start": [0.2, 0.0], "control_guidance_end": [0.8, 0.6]}
        want = p(PROMPT, control_image=list(seen), num_inference_steps=5, guidance_scale=3.5,
                 seed=3, width=64, height=48, output_type="np", **numbers).images
    assert same(made, want)
    named = [dict(c, preprocess=p) for c, p in zip(CONTROLS, ("gray", ""))]
    first = call("XditControl", image=tensor(seen[:1]), **named[0])[0]
    both = call("XditControl", image=tensor(seen[1:]), **named[1], controls=first)[0]
    gray = call("XditSample", pipe=pipe, **how, controls=both)[0]
    assert not same(standin.array(call("XditDecode", latent=gray)[0]), want)
    with pytest.raises(ValueError, match="add the image by xdit Control"):
        call("XditSample", pipe=pipe, control_image=tensor(seen[:1]), **sample)
    one = call("XditControl", image=tensor(seen[:1]), strength=1.0, start=0.0, end=1.0, mode=0)[0]
    with pytest.raises(ValueError, match="1 control image is given for 2 control networks"):
        call("XditSample", pipe=pipe, **{**sample, "controls": one})
    needs_server()
    monkeypatch.setenv("XDIT_API_KEY", "abc")
    with Serving("--model", tiny / "flux", "--controlnet", net, "--controlnet", net,
                 "--dtype", "f32") as s:
        there = call("XditConnect", address=s.address, model="")[0]
        latent = call("XditSample", pipe=there, **sample)[0]
        assert same(standin.array(call("XditDecode", latent=latent)[0]), want)


def test_videos(call, comfy, tiny):
    how = {**HOW, "width": 64, "height": 48, "steps": 2, "num_frames": 9, "fps": 0.0}
    one = call("XditLoadModel", **{**OPEN, "path": str(tiny / "wan-flf"), "dtype": "f32"})[0]
    ends = [np.full((1, 48, 64, 3), v, np.float32) for v in (0.25, 0.75)]
    frames, fps = call("XditVideo", pipe=one, image=tensor(ends[0]), last_image=tensor(ends[1]),
                       **how)
    assert tuple(frames.shape) == (9, 48, 64, 3) and fps > 0
    with xdit.Pipeline.from_pretrained(tiny / "wan-flf", dtype="f32", threads=1) as p:
        p.set_progress_bar_config(disable=True)
        want = p(PROMPT, image=ends[0][0], last_image=ends[1][0], width=64, height=48, seed=3,
                 num_frames=9, num_inference_steps=2, output_type="np").frames[0]
    assert same(standin.array(frames), want)
    assert [s[:2] for s in comfy.seen] == [(1, 2), (2, 2)] and comfy.seen[0][2]
    one = call("XditLoadModel", **{**OPEN, "path": str(tiny / "wan"), "dtype": "f32"})[0]
    frames, fps = call("XditVideo", pipe=one, **{**how, "fps": 8.0})
    assert tuple(frames.shape) == (9, 48, 64, 3) and fps == 8
    latent = call("XditSample", pipe=one, batch_size=1, options="num_frames = 9",
                  **{k: v for k, v in how.items() if k not in ("num_frames", "fps")})[0]
    assert same(standin.array(call("XditDecode", latent=latent)[0]), standin.array(frames))
    with pytest.raises(RuntimeError, match="generates videos: use xdit Video"):
        call("XditImageToImage", pipe=one, image=tensor(ends[0]), strength=0.0, **HOW)


@pytest.mark.parametrize("name,more,kind,words", [
    ("XditLoadModel", {"path": ""}, ValueError, "choose a model"),
    ("XditLoadModel", {"path": "/none/at/all"}, OSError, "no directory"),
    ("XditLoadModel", {"memory": "many"}, ValueError, "12GB"),
    ("XditLoadModel", {"settings": "colour = 3"}, TypeError, "colour"),
    ("XditSample", {"options": "colour = 3"}, TypeError, "colour"),
    ("XditSample", {"width": 24}, ValueError, "nearest"),
    ("XditSample", {"mask": np.zeros((1, 8, 8))}, ValueError, "without an image"),
    ("XditVideo", {"num_frames": 5, "fps": 0.0}, RuntimeError, "generates images: use xdit Sample"),
])
def test_refusals(call, loaded, name, more, kind, words):
    how = OPEN if name == "XditLoadModel" else {"pipe": loaded, **HOW, "options":
                                                "no_resolution_binning = true"}
    how = {**how, "batch_size": 1} if name == "XditSample" else how
    with pytest.raises(kind, match=words) as e:
        call(name, **{**how, **more})
    assert "\n" not in str(e.value)


# ---- a server ---------------------------------------------------------------------------------

class Serving:
    """`xdit serve` on a free port of loopback, until the end of a with statement."""

    def __init__(self, *args):
        self.process = subprocess.Popen(
            [os.environ["XDIT_PROGRAM"], "serve", "--port", "0", "--threads", "1", "--api_key",
             "abc", *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.address = self.process.stdout.readline().strip()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(60)
        self.process.stdout.close()

    def told(self, path):
        asked = urllib.request.Request(self.address + path, headers={"X-API-Key": "abc"})
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(asked) as r:
            return r.read().decode()

    def wait_idle(self, seconds):
        """Whether no request runs or waits after so many seconds at most."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            told = self.told("/metrics")
            busy = [line for line in told.splitlines()
                    if line.startswith(("xdit_queue_length", "xdit_running"))]
            assert busy, told
            if all(float(line.split()[-1]) == 0 for line in busy):
                return True
            time.sleep(0.1)
        return False


def needs_server():
    program = os.environ.get("XDIT_PROGRAM")
    if not program:
        pytest.skip("XDIT_PROGRAM names no program")
    if not pathlib.Path(program).with_name("xdit-server").exists():
        pytest.skip("this build has no server")


@pytest.fixture(scope="module")
def serving(host, folders):
    needs_server()
    with Serving("--model", MODEL, "--loras", folders / "loras") as s:
        yield s


@pytest.fixture
def connected(call, serving, monkeypatch):
    monkeypatch.setenv("XDIT_API_KEY", "abc")
    return call("XditConnect", address=serving.address, model="")[0]


def test_a_server_samples(call, comfy, connected, image):
    latent = call("XditSample", pipe=connected, batch_size=1, **HOW)[0]
    assert same(standin.array(call("XditDecode", latent=latent)[0]), image)
    assert [s[:2] for s in comfy.seen][-1][1] == 4 and max(s[0] for s in comfy.seen) >= 3
    shown = [p[1] for _, _, p in comfy.seen if p]
    assert 0 < len(shown) <= 3 and all(im.size == (128, 128) for im in shown)
    comfy.seen = []
    two = call("XditSample", pipe=connected, batch_size=2, preview=False, **HOW)[0]
    assert same(standin.array(call("XditDecode", latent=two)[0])[:1], image)
    assert len(two["images"]) == 2 and all(p is None for _, _, p in comfy.seen)


def test_a_server_starts_from_an_image(call, connected, image, pipe):
    want = pipe("a green star", image=image[0], strength=0.5, num_inference_steps=4, seed=3,
                output_type="np").images
    made = call("XditImageToImage", pipe=connected, image=tensor(image), strength=0.5,
                **{**HOW, "prompt": "a green star"})[0]
    assert same(standin.array(made), want)


def test_lora_files_of_a_server(call, connected, loaded):
    for name, given in (("style1.safetensors", ""), ("(none)", "style1")):
        there = call("XditLora", pipe=connected, lora=name, server_name=given, strength=0.5)[0]
        here = call("XditLora", pipe=loaded, lora="style1.safetensors", strength=0.5)[0]
        made = [standin.array(call("XditDecode", latent=call(
            "XditSample", pipe=p, batch_size=1, **HOW)[0])[0]) for p in (there, here)]
        assert same(*made)


def test_an_interrupt_reaches_the_server(call, comfy, connected, serving):
    big = {**HOW, "width": 1024, "height": 1024, "steps": 500, "options":
           "no_resolution_binning = true"}
    threading.Timer(1.0, lambda: setattr(comfy, "interrupt", True)).start()
    start = time.monotonic()
    with pytest.raises(standin.Interrupted):
        call("XditSample", pipe=connected, batch_size=1, **big)
    assert time.monotonic() - start < 15 and not comfy.interrupt
    assert serving.wait_idle(30)


def test_refusals_of_a_server(call, connected, serving, monkeypatch):
    with pytest.raises(RuntimeError, match="has no model none; it has demo-pixart"):
        call("XditConnect", address=serving.address, model="none")
    with pytest.raises(RuntimeError, match="colour"):
        call("XditSample", pipe=connected, batch_size=1, options="colour = 3", **HOW)
    with pytest.raises(RuntimeError, match="images: use xdit Sample"):
        call("XditVideo", pipe=connected, num_frames=5, fps=0.0, **HOW)
    with pytest.raises(RuntimeError, match="no server answers at .*xdit serve"):
        call("XditConnect", address="http://127.0.0.1:1", model="")
    with pytest.raises(ValueError, match="such as http://"):
        call("XditConnect", address="localhost", model="")
    monkeypatch.setenv("XDIT_API_KEY", "wrong")
    with pytest.raises(RuntimeError, match="key"):
        call("XditConnect", address=serving.address, model="")


def test_videos_of_a_server(call, comfy, tiny, monkeypatch):
    needs_server()
    monkeypatch.setenv("XDIT_API_KEY", "abc")
    how = {**HOW, "width": 64, "height": 48, "steps": 2, "num_frames": 9, "fps": 0.0}
    here = call("XditLoadModel", **{**OPEN, "path": str(tiny / "wan-i2v"), "dtype": "f32"})[0]
    first = tensor(np.full((1, 48, 64, 3), 0.25))
    want, rate = call("XditVideo", pipe=here, image=first, **how)
    with Serving("--model", tiny / "wan-i2v", "--dtype", "f32") as s:
        there = call("XditConnect", address=s.address, model="",
                     options="output_format = gif")[0]
        comfy.seen = []
        frames, fps = call("XditVideo", pipe=there, image=first, **how)
        apart = np.abs(standin.array(frames) - standin.array(want))
        # A GIF has 256 colours, dithered, and delays of hundredths of a second.
        assert tuple(frames.shape) == (9, 48, 64, 3) and fps == rate and apart.mean() < 0.06
        assert comfy.seen[-1][:2] == (100, 100)
        threading.Timer(0.5, lambda: setattr(comfy, "interrupt", True)).start()
        with pytest.raises(standin.Interrupted):
            call("XditVideo", pipe=there, image=first, **{**how, "steps": 1000})
        assert s.wait_idle(30)


def test_conditions(call, comfy, tiny):
    """Each image and video has its place and its strength."""
    how = {**HOW, "width": 64, "height": 64, "steps": 2, "num_frames": 17, "fps": 0.0}
    seen = np.random.default_rng(5).integers(0, 256, (9, 64, 64, 3)) / 255
    pipe = call("XditLoadModel", **{**OPEN, "path": str(tiny / "ltx-cond"), "dtype": "f32"})[0]
    one = call("XditCondition", image=tensor(seen[:1]), frame_index=0, strength=1.0)[0]
    two = call("XditCondition", image=tensor(seen), frame_index=8, strength=0.5,
               conditions=one)[0]
    made = standin.array(call("XditVideo", pipe=pipe, conditions=two, **how)[0])
    with xdit.Pipeline.from_pretrained(tiny / "ltx-cond", dtype="f32", threads=1) as p:
        want = p(PROMPT, image=[seen[0], seen], frame_index=[0, 8], condition_strength=[1, 0.5],
                 width=64, height=64, num_frames=17, num_inference_steps=2, seed=3,
                 output_type="np").frames[0]
    assert same(made, want)
    with pytest.raises(ValueError, match="add the image by xdit Condition"):
        call("XditVideo", pipe=pipe, image=tensor(seen[:1]), conditions=one, **how)


def test_control_videos_of_a_server(call, comfy, tiny, monkeypatch):
    """The server reads the levels of the frames and of the masks, as the model here does."""
    needs_server()
    pytest.importorskip("av", reason="no PyAV to encode control videos")
    monkeypatch.setenv("XDIT_API_KEY", "abc")
    how = {**HOW, "width": 64, "height": 48, "steps": 2, "num_frames": 5, "fps": 0.0}
    seen = np.random.default_rng(5).integers(0, 256, (5, 48, 64, 3)) / 255
    masks = np.zeros((5, 48, 64))
    masks[2:, 8:40] = 1
    one = call("XditLoadModel", **{**OPEN, "path": str(tiny / "vace"), "dtype": "f32"})[0]
    with Serving("--model", tiny / "vace", "--dtype", "f32") as s:
        there = call("XditConnect", address=s.address, model="",
                     options="output_format = mkv")[0]
        ways = [{"control_video": tensor(seen), "control_mask": mask}
                for mask in (None, tensor(masks), tensor(masks[3:4]))]
        wants = [standin.array(call("XditVideo", pipe=one, **how, **w)[0]) for w in ways]
        for i, way in enumerate(ways):
            made = standin.array(call("XditVideo", pipe=there, **how, **way)[0])
            apart = [np.abs(made - want).mean() for want in wants]
            # H.264 changes each level a little, and the other masks' frames are farther away.
            assert made.shape == wants[i].shape and apart[i] == min(apart) < 0.04, apart


# ---- ComfyUI itself ---------------------------------------------------------------------------

def test_in_comfyui(tmp_path):
    where = os.environ.get("XDIT_TEST_COMFYUI")
    if not where:
        pytest.skip("XDIT_TEST_COMFYUI names no folder with ComfyUI")
    python = os.environ.get("XDIT_TEST_COMFYUI_PYTHON", sys.executable)
    run = subprocess.run([python, pathlib.Path(__file__).with_name("real.py"), where, ROOT,
                          tmp_path], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert run.returncode == 0, run.stdout[-4000:]
