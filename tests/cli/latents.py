#!/usr/bin/env python3
"""latents.py XDIT GOLDEN FULL - initial noise from files (--latents).

The noise that PyTorch has drawn for a golden request is in golden.safetensors of GOLDEN; written to
a file in the shape of diffusers, it gives the last latents of diffusers, to 2e-4 of the largest
number, on one rank and, to 1e-5, on several. Other files are refused. Speaks TAP."""

import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile

XDIT, GOLDEN, FULL = os.path.abspath(sys.argv[1]), *map(pathlib.Path, sys.argv[2:4])
T = pathlib.Path(tempfile.mkdtemp())
OUT = T / "out.safetensors"
# For each model: whether the pipeline of diffusers has the channels of a video first, and plans.
MODELS = {"flux": (0, "--ulysses_degree 2", "--pipefusion_parallel_degree 2 --warmup_steps 4"),
          "sdxl": (0, "--use_cfg_parallel"),
          "wan": (1, "--use_cfg_parallel --ring_degree 2", "--tensor_parallel_degree 2"),
          "ltx": (1, "--ulysses_degree 2"),
          "hunyuanvideo15": (1,),
          "cog2b": (0, "--use_cfg_parallel")}
count = bad = 0


def report(ok, what, *more):
    global count, bad
    count += 1
    bad += not ok
    print(f"{'' if ok else 'not '}ok {count} - {what}", flush=True)
    for m in more if not ok else ():
        print("#", repr(m)[:2000])


def read(path, name=None):
    """The shape and the f32 numbers of a tensor, the last one of the steps if name ends in a dot,
    or the only one."""
    with open(path, "rb") as f:
        (n,) = struct.unpack("<Q", f.read(8))
        head = json.loads(f.read(n))
        head.pop("__metadata__", None)
        names = [k for k in head if name is None or k == name or (name[-1] == "."
                                                                  and k.startswith(name))]
        t = head[max(names, key=lambda k: (len(k), k))]
        begin, end = t["data_offsets"]
        f.seek(8 + n + begin)
        return t["shape"], struct.unpack(f"<{(end - begin) // 4}f", f.read(end - begin))


def save(shape, values, kind, dtype="F32", name="noise"):
    data = struct.pack(f"<{len(values)}{'f' if dtype == 'F32' else 'e'}", *values)
    path = T / f"{name}.{kind}"
    if kind == "npy":
        head = (f"{{'descr': '<f{4 if dtype == 'F32' else 2}', 'fortran_order': False, "
                f"'shape': ({', '.join(map(str, shape))},), }}\n").encode()
        path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + data)
    else:
        head = json.dumps({"noise": {"dtype": dtype, "shape": shape,
                                     "data_offsets": [0, len(data)]}}).encode()
        path.write_bytes(struct.pack("<Q", len(head)) + head + data)
    return path


def turn(shape, values):
    """[T,C,h,w] as [C,T,h,w]."""
    n, m, part = shape[0], shape[1], shape[2] * shape[3]
    return [m, n, *shape[2:]], [v for c in range(m) for k in range(n)
                                for v in values[(k * m + c) * part:(k * m + c + 1) * part]]


def generate(model, file, plan="", **other):
    OUT.unlink(missing_ok=True)
    js = json.loads((GOLDEN / model / "golden.json").read_text()) | other
    flags = ["--no_resolution_binning", "--dtype", "f32", "--seed", "999", "--latents", file,
             "--model", FULL / model, "-o", OUT, "--json", *plan.split()]
    for prompt in js["prompts"]:
        flags += ["-p", prompt]
    for key in ("width", "height", "num_frames", "num_inference_steps", "guidance_scale",
                "negative_prompt", "max_sequence_length", "guidance_rescale",
                "num_images_per_prompt"):
        if js.get(key):
            flags += [f"--{key}", str(js[key])]
    p = subprocess.run([XDIT, "generate", *map(str, flags)], capture_output=True, text=True,
                       timeout=120, check=False)
    if p.returncode:
        return None, p.stderr
    return read(OUT)[1], p.stdout


def apart(a, b):
    if a is None or len(a) != len(b):
        return 1e9
    return max(abs(x - y) for x, y in zip(a, b)) / max(map(abs, b))


def is_golden(model, first, *plans):
    golden = GOLDEN / model / "golden.safetensors"
    (shape, noise), (_, want) = read(golden, "noise.0"), read(golden, "latents.0.")
    given = turn(shape, noise) if first else (shape, noise)
    got, said = generate(model, save([1, *given[0]], given[1], "npy"))
    report(apart(got, want) < 2e-4, f"{model}: noise of PyTorch", apart(got, want), said)
    for plan in plans:
        more, said = generate(model, T / "noise.npy", plan)
        report(got and apart(more, got) < 1e-5, f"{model}: {plan}", more and apart(more, got), said)
    if first:
        more, said = generate(model, save([1, *shape], noise, "safetensors"))
        report(more == got, f"{model}: frames first, as in xdit's own files", said)
    more, _ = generate(model, save(*given, "safetensors"))
    report(more == got, f"{model}: without a batch")


def refused():
    (shape, noise), n = read(GOLDEN / "flux" / "golden.safetensors", "noise.0"), 4 * 14 * 10
    for what, file, text in (
            ("another size", save([1, 4, 10, 14], noise, "npy", name="turned"),
             r"has the shape [1,4,10,14], but 1 images of 40 x 56 pixels need [1,4,14,10]"),
            ("packed latents", save([1, 35, 16], noise, "safetensors", name="packed"),
             "need [1,4,14,10]"),
            ("a number that is none", save([1, *shape], (*noise[:-1], float("nan")), "safetensors"),
             f"number {n - 1} of"),
            ("a file that is cut", save([2, *shape], noise, "npy"), "not the 4480 of its shape"),
            ("another file", T / "noise.pt", "is no .safetensors or .npy file"),
            ("no file", T / "none.npy", "none.npy")):
        got, said = generate("flux", file)
        report(got is None and text in said and said.startswith("xdit: "), f"refused: {what}", said)
    path = save([1, *shape], noise, "npy")
    path.write_bytes(path.read_bytes().replace(b"'<f4'", b"'<i4'"))
    got, said = generate("flux", path)
    report(got is None and "it must be '<f4' or '<f2'" in said, "refused: another type", said)
    got, said = generate("flux", GOLDEN / "flux" / "golden.safetensors")
    report(got is None and "none is named latents" in said, "refused: many tensors", said)


def others():
    shape, noise = read(GOLDEN / "flux" / "golden.safetensors", "noise.0")
    got, said = generate("flux", save([1, *shape], noise, "npy"))
    half, _ = generate("flux", save([1, *shape], noise, "npy", "F16"))
    report(0 < apart(half, got) < 1e-2, "float16", apart(half, got))
    report(json.loads(said.splitlines()[-1])["parameters"].get("latents"), "its name is kept", said)
    own = T / "first.safetensors"
    OUT.rename(own)
    again, said = generate("flux", own)
    report(again is not None and again != got, "a file of xdit", said)


for name, (channels, *several) in MODELS.items():
    is_golden(name, channels, *several)
others()
refused()
print(f"1..{count}")
subprocess.run(["rm", "-rf", T], check=False)
sys.exit(bad > 0)
