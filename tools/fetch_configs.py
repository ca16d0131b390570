#!/usr/bin/env python3
"""Fetch configs and tensor lists of published models from the hub; weights stay where they are.

usage: fetch_configs.py FOLDER [ORGANISATION/MODEL...]

FOLDER gets ORGANISATION/MODEL/COMPONENT/ with what a component has besides weights: configs,
tokenizers, indexes of shards. From the headers of the safetensors files, which are read by
themselves, tensors.txt is written: a line "NAME SHAPE" for each tensor (4096x64; "scalar"), in the
order of the names. Without models those that the tests read are fetched; what is in FOLDER already
is kept. Tests look into ../shared/hf or the folder that XDIT_TEST_HF names.

HF_ENDPOINT is the address of the hub (default https://huggingface.co). HF_TOKEN, if there is one,
is sent to it; models with a licence to be accepted need it. Exit code 1: some models are not there
as a whole, and lines on standard error say why. Python's standard library is enough.
"""
import json
import os
import pathlib
import re
import struct
import sys
import urllib.error
import urllib.parse
import urllib.request

MODELS = (
    "PixArt-alpha/PixArt-XL-2-512x512",
    "PixArt-alpha/PixArt-XL-2-1024-MS",
    "PixArt-alpha/PixArt-Sigma-XL-2-1024-MS",
    "black-forest-labs/FLUX.1-dev",
    "black-forest-labs/FLUX.1-schnell",
    "stabilityai/stable-diffusion-3-medium-diffusers",
    "stabilityai/stable-diffusion-3.5-medium",
    "stabilityai/stable-diffusion-3.5-large",
    "Tencent-Hunyuan/HunyuanDiT-Diffusers",
    "Tencent-Hunyuan/HunyuanDiT-v1.2-Diffusers",
    "THUDM/CogVideoX-2b",
    "THUDM/CogVideoX-5b",
    "THUDM/CogVideoX-5b-I2V",
    "THUDM/CogVideoX1.5-5B",
    "THUDM/CogVideoX1.5-5B-I2V",
)
# Files of a component that are fetched as they are.
SMALL = (".json", ".txt", ".model")
# Names of a component's weights: one file, or the index of its shards. Variants have a word more.
WEIGHTS = re.compile(r"(model|diffusion_pytorch_model)\.safetensors(\.index\.json)?$")
VARIANT = re.compile(r"\.index\.\w+\.json$")
MOST = 64 << 20                 # bytes of a file or header: beyond that it is no config


class Failed(Exception):
    """One sentence about what could not be fetched."""


class Hub:
    def __init__(self, endpoint, token):
        self.endpoint, self.token = endpoint.rstrip("/"), token

    def get(self, path, span=None):
        """The bytes of a file, or its bytes first <= n < end of span."""
        request = urllib.request.Request(self.endpoint + urllib.parse.quote(path))
        if self.token:          # for the hub, not for the servers that it sends us on to
            request.add_unredirected_header("Authorization", "Bearer " + self.token)
        first, end = span or (0, MOST)
        if span:
            request.add_header("Range", "bytes=%d-%d" % (first, end - 1))
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                if span and answer.status != 206:       # all of it: what is before is passed over
                    answer.read(first)
                data = answer.read(end - first)
        except urllib.error.HTTPError as e:
            why = {401: "a token is needed (HF_TOKEN)", 404: "there is no such file",
                   403: "its licence is to be accepted on the hub"}.get(e.code, e.reason)
            raise Failed("%s: %d: %s" % (path, e.code, why)) from e
        except (urllib.error.URLError, TimeoutError, ConnectionError) as e:
            raise Failed("%s: %s" % (path, getattr(e, "reason", e))) from e
        if span and len(data) != end - first:
            raise Failed("%s: %d bytes of %d came" % (path, len(data), end - first))
        return data

    def files(self, model):
        """The names of all files of a model."""
        answer = json.loads(self.get("/api/models/%s/revision/main" % model))
        return sorted(f["rfilename"] for f in answer["siblings"])

    def file(self, model, name, span=None):
        return self.get("/%s/resolve/main/%s" % (model, name), span)

    def header(self, model, name):
        """name -> shape of every tensor of a safetensors file, of which only the header is read."""
        size, = struct.unpack("<Q", self.file(model, name, (0, 8)))
        if size > MOST:
            raise Failed("%s/%s: no header of %d bytes can be true" % (model, name, size))
        header = json.loads(self.file(model, name, (8, 8 + size)))
        return {k: v["shape"] for k, v in header.items() if k != "__metadata__"}


def put(path, data):
    """A file appears whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    part.write_bytes(data)
    part.replace(path)


def is_copy(name, shapes, config):
    """Tensors that some files hold twice, or that are no parameters."""
    return (name == "encoder.embed_tokens.weight" and "shared.weight" in shapes
            or name == "lm_head.weight" and config.get("tie_word_embeddings")
            or name.endswith("position_ids"))


def listing(shapes, config):
    lines = ["%s %s\n" % (name, "x".join(map(str, shape)) or "scalar")
             for name, shape in shapes.items() if not is_copy(name, shapes, config)]
    return "".join(sorted(lines)).encode()


def tensors(hub, model, weights, here):
    """name -> shape of all tensors of a component; `weights` is its file or its index."""
    if not weights.endswith(".index.json"):
        return hub.header(model, weights)
    folder = weights.rpartition("/")[0]
    index = json.loads((here / pathlib.PurePosixPath(weights).name).read_text())
    shapes = {}
    for shard in sorted(set(index["weight_map"].values())):
        shapes.update(hub.header(model, folder + "/" + shard))
    return shapes


def fetch_component(hub, model, names, here):
    """`names` are the files of the component, `here` is its folder. Gives how many were fetched."""
    n = 0
    for name in names:
        to = here / pathlib.PurePosixPath(name).name
        if name.endswith(SMALL) and not VARIANT.search(name) and not to.exists():
            put(to, hub.file(model, name))
            n += 1
    weights = [f for f in names if WEIGHTS.fullmatch(f.rpartition("/")[2])]
    if weights and not (here / "tensors.txt").exists():
        weights.sort(key=lambda f: not f.endswith(".index.json"))
        config = json.loads((here / "config.json").read_text())
        put(here / "tensors.txt", listing(tensors(hub, model, weights[0], here), config))
        n += 1
    elif not weights and (here / "config.json").exists() and not (here / "tensors.txt").exists():
        raise Failed("%s has no weights in safetensors" % names[0].rpartition("/")[0])
    return n


def fetch_model(hub, model, folder):
    """Gives how many files were fetched."""
    files, home, n = hub.files(model), folder / model, 0
    if "model_index.json" not in files:
        raise Failed("it has no model_index.json")
    index = hub.file(model, "model_index.json")
    components = [k for k, v in json.loads(index).items() if isinstance(v, list) and v[0]]
    for part in components:
        if not re.fullmatch(r"\w+", part):
            raise Failed("%s is no name of a component" % part)
        names = [f for f in files if f.startswith(part + "/") and f.count("/") == 1]
        if names:
            n += fetch_component(hub, model, names, home / part)
    if not (home / "model_index.json").exists():        # last: with it the model is whole
        put(home / "model_index.json", index)
        n += 1
    return n


def main():
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__.strip())
    hub = Hub(os.environ.get("HF_ENDPOINT") or "https://huggingface.co", os.environ.get("HF_TOKEN"))
    bad = 0
    for model in sys.argv[2:] or MODELS:
        try:
            if not re.fullmatch(r"[\w-][\w.-]*/[\w-][\w.-]*", model):
                raise Failed("not of the form ORGANISATION/MODEL")
            n = fetch_model(hub, model, pathlib.Path(sys.argv[1]))
            print("%s: %s" % (model, "%d files" % n if n else "all there"))
        except (Failed, OSError, ValueError, KeyError, struct.error) as e:
            bad += 1
            print("%s: %s" % (model, e), file=sys.stderr)
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())
