#!/usr/bin/env python3
"""lora_names.py XDIT FULL - LoRA files of Wan, Qwen-Image and U-Nets in the forms that trainers
write: the same numbers under all names give the same bits, LoHa and LoKr give the difference that
they stand for, and a file of which a part fits nothing is refused. Speaks TAP."""

import json
import os
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

XDIT, FULL = os.path.abspath(sys.argv[1]), pathlib.Path(sys.argv[2])
T = pathlib.Path(tempfile.mkdtemp())
RANK = 4
count = bad = 0

UNET = ("attn1.to_q", "attn1.to_out.0", "attn2.to_k", "attn2.to_v", "ff.net.0.proj", "ff.net.2")


def unet(*places):
    """Modules of the first block of transformers at places of either naming."""
    return {f"{a}.transformer_blocks.0.{m}": f"{b}.transformer_blocks.0.{m}"
            for a, b in places for m in UNET}


# A module by diffusers' name, and by the one of the original code.
MODULES = {
    "sd": unet(("down_blocks.0.attentions.1", "input_blocks.2.1"),
               ("up_blocks.3.attentions.2", "output_blocks.11.1"))
          | {"up_blocks.1.resnets.2.time_emb_proj": "output_blocks.5.0.emb_layers.1"},
    "sdxl": unet(("down_blocks.1.attentions.0", "input_blocks.4.1"),
                 ("mid_block.attentions.0", "middle_block.1"))
            | {"add_embedding.linear_1": "label_emb.0.0",
               "down_blocks.0.resnets.1.time_emb_proj": "input_blocks.2.0.emb_layers.1"},
    "wan": {f"blocks.0.{a}.{n}": f"blocks.0.{b}.{o}"
            for a, b in (("attn1", "self_attn"), ("attn2", "cross_attn"))
            for n, o in (("to_q", "q"), ("to_k", "k"), ("to_v", "v"), ("to_out.0", "o"))}
           | {"blocks.0.ffn.net.0.proj": "blocks.0.ffn.0", "blocks.0.ffn.net.2": "blocks.0.ffn.2"},
    "qwen": {m: m for m in ("transformer_blocks.0." + n for n in (
        "attn.to_q", "attn.add_k_proj", "attn.to_out.0", "img_mlp.net.0.proj", "txt_mlp.net.2",
        "img_mod.1"))},
}
# Where a file comes from: which name, what stands before it, is it joined by "_", the two matrices.
# `transformer` stands for the folder of the network.
AB, UD = (".lora_A.weight", ".lora_B.weight"), (".lora_down.weight", ".lora_up.weight")
FORMS = {
    "diffusers": (0, "transformer.", 0, AB),
    "PEFT, with the name of its adapter": (0, "", 0, (".lora_A.default.weight",
                                                    ".lora_B.default.weight")),
    "PEFT, saved whole": (0, "base_model.model.", 0, AB),
    "ComfyUI": (1, "diffusion_model.", 0, AB),
    "lightx2v": (1, "diffusion_model.", 0, UD),
    "Kohya": (1, "lora_unet_", 1, UD),
    "OneTrainer": (0, "lora_transformer_", 1, UD),
    "LyCORIS": (0, "lycoris_", 1, UD),
}


def report(ok, what, *more):
    global count, bad
    count += 1
    bad += not ok
    print(f"{'' if ok else 'not '}ok {count} - {what}", flush=True)
    for m in more if not ok else ():
        print("#", repr(m)[:2000])


def network(model):
    return "unet" if model.startswith("sd") else "transformer"


def shapes(model):
    path = FULL / model / network(model) / "diffusion_pytorch_model.safetensors"
    with open(path, "rb") as f:
        (n,) = struct.unpack("<Q", f.read(8))
        return {k: v["shape"] for k, v in json.loads(f.read(n)).items() if k != "__metadata__"}


def write(tensors):
    header, data = {}, b""
    for name, (shape, values) in tensors.items():
        raw = struct.pack(f"<{len(values)}f", *values)
        header[name] = {"dtype": "F32", "shape": shape,
                        "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    path = T / "lora.safetensors"
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def latents(model, file=None):
    """Latents of two steps, f32, and what was said."""
    to = T / "out.safetensors"
    to.unlink(missing_ok=True)
    p = subprocess.run(
        [XDIT, "generate", "--model", FULL / model, "-p", "a star", "--width", "64", "--height",
         "64", "--dtype", "f32", "--num_inference_steps", "2", "-o", to]
        + (["--num_frames", "5"] if model == "wan" else []) + (["--lora", file] if file else []),
        capture_output=True, text=True, timeout=120, check=False)
    if p.returncode:
        return None, p.stderr
    data = to.read_bytes()
    return data[8 + struct.unpack("<Q", data[:8])[0]:], p.stderr


def near(a, b):
    """At most 1e-4 of the largest number apart: products are added in another order."""
    if a is None or b is None or len(a) != len(b):
        return False
    a, b = (struct.unpack(f"<{len(x) // 4}f", x) for x in (a, b))
    return max(abs(x - y) for x, y in zip(a, b)) <= 1e-4 * max(map(abs, a))


def numbers(rng, rows, cols, scale=0.2):
    return [rng.gauss(0, scale) for _ in range(rows * cols)]


def product(a, b, rows, inner, cols):
    return [sum(a[i * inner + k] * b[k * cols + j] for k in range(inner))
            for i in range(rows) for j in range(cols)]


def name_of(model, form, names):
    which, before, joined, _ = form
    name = names[which].replace(".", "_") if joined else names[which]
    return before.replace("transformer", network(model)) + name


def same_bits(model, plain):
    have, rng = shapes(model), random.Random(7)
    parts = {m: (numbers(rng, RANK, have[m + ".weight"][1]), numbers(rng, have[m + ".weight"][0],
                                                                     RANK))
             for m in MODULES[model]}
    first = None
    for what, form in FORMS.items():
        tensors = {}
        for names in MODULES[model].items():
            rows, cols = have[names[0] + ".weight"]
            down, up = parts[names[0]]
            name = name_of(model, form, names)
            tensors[name + form[3][0]] = [RANK, cols], down
            tensors[name + form[3][1]] = [rows, RANK], up
            tensors[name + ".alpha"] = [], [2.0]
        got, said = latents(model, write(tensors))
        first = first or got
        report(got and got == first != plain, f"{model}: {what}", said)


def products(model, plain):
    """One module as LoHa and as LoKr, beside the whole difference."""
    names = next(iter(MODULES[model].items()))
    rows, cols = shapes(model)[names[0] + ".weight"]
    rng = random.Random(9)
    r = [numbers(rng, *d) for d in ((rows, RANK), (RANK, cols), (rows, RANK), (RANK, cols))]
    both = zip(product(r[0], r[1], rows, RANK, cols), product(r[2], r[3], rows, RANK, cols))
    hada = [x * y * 2.0 / RANK * 20 for x, y in both]
    w1, w2 = numbers(rng, 2, 2), numbers(rng, rows // 2, cols // 2)
    kron = [w1[i // (rows // 2) * 2 + j // (cols // 2)]
            * w2[i % (rows // 2) * (cols // 2) + j % (cols // 2)]
            for i in range(rows) for j in range(cols)]
    r[0] = [20 * x for x in r[0]]
    for what, form in FORMS.items():
        if what not in ("Kohya", "LyCORIS", "ComfyUI"):
            continue
        name = name_of(model, form, names)
        loha = {name + f".hada_w{i // 2 + 1}_{'ab'[i % 2]}":
                ([rows, RANK] if i % 2 == 0 else [RANK, cols], r[i]) for i in range(4)}
        lokr = {name + ".lokr_w1": ([2, 2], w1), name + ".lokr_w2": ([rows // 2, cols // 2], w2)}
        for kind, tensors, whole in (("LoHa", loha, hada), ("LoKr", lokr, kron)):
            want, _ = latents(model, write({name + ".diff": ([rows, cols], whole)}))
            got, said = latents(model, write({**tensors, name + ".alpha": ([], [2.0])}))
            report(near(got, want) and not near(got, plain), f"{model}: {kind} by {what}'s names",
                   said)


def refused(model):
    names = next(iter(MODULES[model].items()))
    rows, cols = shapes(model)[names[0] + ".weight"]
    for what, form in FORMS.items():
        name = name_of(model, form, names)
        odd = name.replace("0", "77", 1)
        tensors = {n + end: (shape, [0.1] * (shape[0] * shape[1]))
                   for n in (name, odd) for end, shape in zip(form[3], ([RANK, cols],
                                                                        [rows, RANK]))}
        got, said = latents(model, write(tensors))
        report(got is None and odd in said, f"{model}: a part of {what}'s names that fits nothing",
               said)


def xlabs(model="flux"):
    """The attention of a double and of a single block by XLabs' names, in which the projections of
    queries, keys and values have one pair of matrices, and by diffusers'."""
    have, rng, theirs, ours = shapes(model), random.Random(11), {}, {}
    for block, to, places in (
            ("double_blocks.1", "transformer_blocks.1.attn.",
             {"qkv_lora1": ("to_q", "to_k", "to_v"), "proj_lora1": ("to_out.0",),
              "qkv_lora2": ("add_q_proj", "add_k_proj", "add_v_proj"),
              "proj_lora2": ("to_add_out",)}),
            ("single_blocks.0", "single_transformer_blocks.0.",
             {"qkv_lora": ("attn.to_q", "attn.to_k", "attn.to_v"), "proj_lora": ("proj_out",)})):
        for name, parts in places.items():
            rows, cols = have[f"{to}{parts[0]}.weight"]
            down, up = numbers(rng, RANK, cols), numbers(rng, len(parts) * rows, RANK)
            theirs[f"{block}.processor.{name}.down.weight"] = [RANK, cols], down
            theirs[f"{block}.processor.{name}.up.weight"] = [len(parts) * rows, RANK], up
            for i, part in enumerate(parts):
                ours[f"transformer.{to}{part}.lora_A.weight"] = [RANK, cols], down
                ours[f"transformer.{to}{part}.lora_B.weight"] = (
                    [rows, RANK], up[i * rows * RANK:(i + 1) * rows * RANK])
    plain, _ = latents(model)
    want, _ = latents(model, write(ours))
    got, said = latents(model, write(theirs))
    report(got and near(got, want) and not near(got, plain), f"{model}: XLabs' names", said)


xlabs()
for tiny in MODULES:
    base, _ = latents(tiny)
    same_bits(tiny, base)
    products(tiny, base)
    refused(tiny)
print(f"1..{count}")
subprocess.run(["rm", "-rf", T], check=False)
sys.exit(bad > 0)
