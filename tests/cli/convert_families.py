#!/usr/bin/env python3
"""convert_families.py XDIT ROOT FULL FILL [CLASS...] - a tiny model of every class of transformers,
converted to int8, fp8 and int4, generates the latents of the type without a conversion, and its
matrices have the type. Speaks TAP."""

import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile

sys.path.append(str(pathlib.Path(__file__).parents[1] / "tools"))
from tap import check, done

XDIT, ROOT, FULL, FILL = (pathlib.Path(p).resolve() for p in sys.argv[1:5])
GOLDEN = ROOT / "tests" / "golden"
T = pathlib.Path(tempfile.mkdtemp())
FORMATS = {"int8": "int8_tensorwise", "fp8": "float8_e4m3fn", "int4": "q4_0"}
# Blocks of int4 are of 32 inputs, and widths of tests are mostly odd: changes of configs.
WIDE = {"num_attention_heads": 4}
SANA = {"attention_head_dim": 32, "num_attention_heads": 3, "cross_attention_dim": 96,
        "num_cross_attention_heads": 3, "cross_attention_head_dim": 32}
CHANGES = {
    "HunyuanDiT2DModel": {"attention_head_dim": 32, "hidden_size": 96},
    "Lumina2Transformer2DModel": {"num_attention_heads": 4, "num_kv_heads": 2, "hidden_size": 32},
    "QwenImageTransformer2DModel": {"attention_head_dim": 32, "axes_dims_rope": [8, 12, 12]},
    "SanaTransformer2DModel": SANA,
    "SanaVideoTransformer3DModel": SANA,
    "SkyReelsV2Transformer3DModel": WIDE,
    "Transformer2DModel": {"num_attention_heads": 4, "attention_head_dim": 24,
                           "cross_attention_dim": 96},
    "WanTransformer3DModel": WIDE,
    "WanVACETransformer3DModel": WIDE,
}


def config_of(folder):
    return json.loads((folder / "transformer" / "config.json").read_text())


def models():
    """The first model of each class: class -> name."""
    found = {}
    for m in sorted(GOLDEN.iterdir()):
        if all((m / f).exists() for f in ("model_index.json", "golden.json", "transformer")):
            found.setdefault(config_of(m)["_class_name"], m.name)
    return found


def make(kind, name):
    source = FULL / name if (FULL / name).exists() else GOLDEN / name
    bare = T / "bare"
    shutil.copytree(source, bare, ignore=shutil.ignore_patterns("*.safetensors*", "golden.json"))
    path = bare / "transformer" / "config.json"
    path.chmod(0o644)
    path.write_text(json.dumps(config_of(bare) | CHANGES.get(kind, {})))
    subprocess.run([FILL, bare, T / "model"], check=True)
    return T / "model"


def latents(name, model, weights):
    """Latents after two steps, or what was said."""
    case, to = GOLDEN / name, T / "out.safetensors"
    request = json.loads((case / "golden.json").read_text())
    args = ["generate", "--model", model, "-p", "a red circle", "--width", request["width"],
            "--height", request["height"], "--num_inference_steps", 2, "--seed", 3, "--dtype",
            "f32", "--weights_dtype", weights, "--threads", 1, "--no_resolution_binning",
            "-o", to]
    if request.get("num_frames"):
        args += ["--num_frames", request["num_frames"]]
    for flag, file in (("--image", "image.png"), ("--control_video", "video")):
        args += [flag, case / file] if (case / file).exists() else []
    run = subprocess.run([str(a) for a in (XDIT, *args)], capture_output=True, text=True)
    if run.returncode:
        return run.stderr
    data = to.read_bytes()
    return data[8 + struct.unpack("<Q", data[:8])[0]:]


def formats_of(folder):
    """How many matrices the files have in each format."""
    count = {}
    for file in folder.glob("transformer/*.safetensors"):
        data = file.read_bytes()
        header = json.loads(data[8:8 + struct.unpack("<Q", data[:8])[0]])
        layers = json.loads(header["__metadata__"]["_quantization_metadata"])["layers"]
        for layer in layers.values():
            count[layer["format"]] = count.get(layer["format"], 0) + 1
    return count


def test(kind, name):
    model, seen = make(kind, name), set()
    for weights, format_ in FORMATS.items():
        to = T / weights
        run = subprocess.run([XDIT, "convert", "--model", model, "--output", to, "--weights_dtype",
                              weights], capture_output=True, text=True)
        check(f"{kind} {weights}: converted", run.returncode == 0 and not run.stderr, run.stderr)
        have = formats_of(to)
        check(f"{kind} {weights}: matrices are {format_}", have.get(format_, 0) > 1, have)
        want, got = latents(name, model, weights), latents(name, to, weights)
        check(f"{kind} {weights}: the same latents", isinstance(want, bytes) and want == got,
              [x for x in (want, got) if isinstance(x, str)])
        seen.add(want)
    check(f"{kind}: types differ", len(seen) == len(FORMATS))
    for folder in ("bare", "model", *FORMATS):
        shutil.rmtree(T / folder, ignore_errors=True)


os.environ["OMP_WAIT_POLICY"] = "passive"
for one_kind, one_name in models().items():
    if len(sys.argv) < 6 or one_kind in sys.argv[5:]:
        test(one_kind, one_name)
shutil.rmtree(T, ignore_errors=True)
sys.exit(done())
