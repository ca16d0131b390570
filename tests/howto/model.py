#!/usr/bin/env python3
"""The model of doc/howto/add-a-model.md runs: a program with it inspects, plans and generates with
random weights.

usage: model.py XDIT_TOY DEMO RANKS

DEMO is a model directory, whose text encoder, tokenizer, VAE and scheduler the toy model shares;
RANKS is 1 where there is no MPI.
"""
import array
import json
import os
import pathlib
import random
import re
import struct
import subprocess
import sys
import tempfile

CONFIG = {"_class_name": "ToyTransformer2DModel", "num_attention_heads": 3,
          "attention_head_dim": 12, "num_layers": 3,
          "caption_channels": 128, "sample_size": 16, "in_channels": 4}
# Leaks are the business of cli_leaks, which knows those of the libraries.
ENV = os.environ | {"ASAN_OPTIONS": "detect_leaks=0", "OMP_WAIT_POLICY": "passive",
                    "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
checks = []


def check(ok, what, note=""):
    checks.append(ok)
    print(f"{'ok' if ok else 'not ok'} {len(checks)} - {what}")
    for line in ("" if ok else note).splitlines():
        print("# " + line)


def run(*args):
    return subprocess.run([EXE, *map(str, args)], capture_output=True, text=True, env=ENV,
                          check=False, timeout=120)


def make_model(demo, to):
    (to / "transformer").mkdir(parents=True)
    for name in ("text_encoder", "tokenizer", "vae", "scheduler"):
        (to / name).symlink_to(demo / name)
    index = json.loads((demo / "model_index.json").read_text())
    index["_class_name"], index["transformer"][1] = "ToyPipeline", CONFIG["_class_name"]
    (to / "model_index.json").write_text(json.dumps(index))
    (to / "transformer/config.json").write_text(json.dumps(CONFIG))


def shapes(model):
    """{name: shape} of the tensors that the network declares."""
    rows = re.findall(r"^([\w.]+) (\d+(?:x\d+)*)$", run("inspect", model, "--tensors",
                                                        "transformer").stdout, re.M)
    return {name: [int(n) for n in shape.split("x")] for name, shape in rows}


def write_weights(path, tensors, prefix=""):
    """Random weights of which the sums of a row have a spread of about 1."""
    rng, header, data = random.Random(1), {}, bytearray()
    for name, shape in sorted(tensors.items()):
        gain = 0.1 if len(shape) == 1 else shape[-1] ** -0.5
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        values = array.array("f", (rng.gauss(0, gain) for _ in range(count))).tobytes()
        header[prefix + name] = {"dtype": "F32", "shape": shape,
                                 "data_offsets": [len(data), len(data) + len(values)]}
        data += values
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def latents(model, out, *args, prompt="a red circle"):
    """The elements of the latents, without the header, or None."""
    p = run("generate", "--model", model, "--prompt", prompt, "--seed", 1, "--steps", 3, "--dtype",
            "f32", "--threads", 1, "--quiet", "--output", out, *args)
    if p.returncode:
        print("# " + p.stderr.replace("\n", "\n# "))
        return None
    data = out.read_bytes()
    return data[8 + struct.unpack("<Q", data[:8])[0]:]


def runs(model, tmp, ranks):
    one = latents(model, tmp / "one.safetensors")
    values = array.array("f", one or b"")
    check(len(values) >= 4 * 16 * 16 and all(abs(v) < 1e4 for v in values) and
          max(values) > min(values), "it generates latents")
    other = latents(model, tmp / "other.safetensors", prompt="a blue square")
    check(bool(one) and other is not None and other != one, "another prompt gives another image")
    p = run("generate", "--model", model, "--prompt", "a", "--steps", 2, "--quiet", "--output",
            tmp / "a.png")
    check(p.returncode == 0 and (tmp / "a.png").read_bytes()[1:4] == b"PNG",
          "it generates an image", p.stderr)
    write_weights(tmp / "single.safetensors", shapes(model), "model.diffusion_model.")
    single = latents(model, tmp / "s.safetensors", "--transformer", tmp / "single.safetensors")
    check(bool(one) and single == one, "a single file gives the same bits")
    for plan in ("u2", "r2", "cfg2", "pp2") if ranks > 1 else ():
        args = ["--plan", plan] + (["--num_pipeline_patch", 1] if plan == "pp2" else [])
        same = latents(model, tmp / f"{plan}.safetensors", "--nproc", 2, *args)
        check(bool(one) and same == one, f"{plan} gives the bits of one rank")
    if ranks < 2:
        check(True, "two ranks give the bits of one # SKIP there is no MPI")


def main():
    demo, ranks = pathlib.Path(sys.argv[2]).resolve(), int(sys.argv[3])
    with tempfile.TemporaryDirectory() as name:
        tmp = pathlib.Path(name)
        model = tmp / "model"
        make_model(demo, model)
        p = run("inspect", model)
        check(p.returncode == 1 and "ToyPipeline (toy)" in p.stdout and "no weights" in p.stderr,
              "its class is known", p.stdout + p.stderr)
        tensors = shapes(model)
        check(len(tensors) == 12 + 14 * CONFIG["num_layers"],
              f"{len(tensors)} tensors are declared")
        write_weights(model / "transformer/diffusion_pytorch_model.safetensors", tensors)
        p = run("inspect", model)
        check(p.returncode == 0, "it is complete", p.stdout + p.stderr)
        p = run("plan", "--model", model, "--world", 2)
        check(p.returncode == 0 and "u2" in p.stdout, "its plans are predicted",
              p.stdout + p.stderr)
        runs(model, tmp, ranks)
    print(f"1..{len(checks)}")
    return 0 if all(checks) else 1


EXE = sys.argv[1]
sys.exit(main())
