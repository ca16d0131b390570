#!/usr/bin/env python3
"""svdquant.py XDIT ROOT FULL FILL - tiny models in SVDQuant's files for nunchaku.

They generate the pixels of files with the numbers that they stand for: in every type, streamed, cut
by tensor parallelism, and converted. Scales, factors and thin matrices are powers of two, so that
sums are exact in any order. The order of the numbers is written down here once more. Speaks TAP.
"""

import array
import json
import os
import pathlib
import random
import shutil
import struct
import subprocess
import sys
import tempfile

XDIT, ROOT, FULL, FILL = (pathlib.Path(p).resolve() for p in sys.argv[1:5])
T = pathlib.Path(tempfile.mkdtemp())
RANK = 32
SHIFT = 11 / 64
SIZES = {"F32": 4, "BF16": 2, "I8": 1, "I32": 4}
count = bad = 0

QKV, ADDED = ("attn.to_q", "attn.to_k", "attn.to_v"), ("attn.add_q_proj", "attn.add_k_proj",
                                                     "attn.add_v_proj")
# Family: changes of its config; blocks; layers with what they are in a file of SVDQuant; what has
# another name there; a layer of which the file has plain numbers.
FAMILIES = {
    "flux": ({"attention_head_dim": 64, "num_attention_heads": 2, "axes_dims_rope": [16, 24, 24],
              "num_layers": 1, "num_single_layers": 1},
             {"transformer_blocks.0.": [
                 (QKV, "qkv_proj"), (ADDED, "qkv_proj_context"), (("attn.to_out.0",), "out_proj"),
                 (("attn.to_add_out",), "out_proj_context"), (("ff.net.0.proj",), "mlp_fc1"),
                 (("ff.net.2",), "mlp_fc2"), (("ff_context.net.0.proj",), "mlp_context_fc1"),
                 (("ff_context.net.2",), "mlp_context_fc2"), (("norm1.linear",), "norm1.linear"),
                 (("norm1_context.linear",), "norm1_context.linear")],
              "single_transformer_blocks.0.": [
                 (QKV, "qkv_proj"), (("proj_mlp",), "mlp_fc1"), (("norm.linear",), "norm.linear"),
                 (("proj_out",), "out_proj", "mlp_fc2")]},
             {".attn.norm_": ".norm_"}),
    "qwen": ({"attention_head_dim": 64, "num_attention_heads": 2, "axes_dims_rope": [16, 24, 24],
              "num_layers": 1},
             {"transformer_blocks.0.": [
                 (QKV, "attn.to_qkv"), (ADDED, "attn.add_qkv_proj"),
                 (("attn.to_out.0",), "attn.to_out.0"), (("attn.to_add_out",), "attn.to_add_out"),
                 (("img_mlp.net.0.proj",), "img_mlp.net.0.proj"),
                 (("img_mlp.net.2",), "img_mlp.net.2"),
                 (("txt_mlp.net.0.proj",), "txt_mlp.net.0.proj"),
                 (("txt_mlp.net.2",), "txt_mlp.net.2"), (("img_mod.1",), "img_mod.1"),
                 (("txt_mod.1",), "txt_mod.1")]}, {}),
    # Feed-forwards of 8/3 of the width: 384 is the least that tiles divide. Refiners are plain.
    "zimage": ({"dim": 384, "n_heads": 3, "n_kv_heads": 3, "axes_dims": [32, 48, 48],
                "n_layers": 1, "n_refiner_layers": 1},
               {"layers.0.": [
                   (("attention.to_q", "attention.to_k", "attention.to_v"), "attention.to_qkv"),
                   (("attention.to_out.0",), "attention.to_out.0"),
                   (("feed_forward.w3", "feed_forward.w1"), "feed_forward.net.0.proj"),
                   (("feed_forward.w2",), "feed_forward.net.2")]}, {}),
}


def check(fine, what, why=""):
    global count, bad
    count += 1
    bad += not fine
    print("ok" if fine else "not ok", count, "-", what)
    if not fine:
        print("".join(f"# {line}\n" for line in str(why).splitlines()), end="")


# ---- files of tensors: name -> (type, shape, bytes) ---------------------------------------------

def read(path):
    data = path.read_bytes()
    size, = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    return {n: (t["dtype"], t["shape"], data[8 + size:][slice(*t["data_offsets"])])
            for n, t in header.items()}


def write(path, tensors):
    header, at = {}, 0
    for name, (kind, shape, data) in tensors.items():
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    head = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(head)) + head +
                     b"".join(t[2] for t in tensors.values()))


def f32(values, *shape):
    return "F32", list(shape), array.array("f", values).tobytes()


def bf16(values, *shape):
    bits = array.array("f", values).tobytes()
    assert not any(bits[0::4]) and not any(bits[1::4]), "no numbers of bf16"
    return "BF16", list(shape), b"".join(bits[i:i + 2] for i in range(2, len(bits), 4))


# ---- the order of the numbers ------------------------------------------------------------------

ROWS = [a * 16 + b * 8 + c * 2 + d for a in range(8) for c in range(4) for b in range(2)
        for d in range(2)]
LANES = [(n * 8 + j, h * 8 + k * 2 + d) for j in range(8) for k in range(4) for n in range(2)
         for h in range(2) for d in range(2)]


def vector(values):
    return [values[t + o] for t in range(0, len(values), 128) for o in ROWS]


def words(rows, columns):
    """rows: each a text of bytes, two columns in a byte, the first in its lower half."""
    return b"".join(rows[t + a * 16 + n * 8 + j][(k + h * 32 + i * 8) // 2:][:4]
                    for t in range(0, len(rows), 128) for k in range(0, columns, 64)
                    for a in range(8) for j in range(8) for i in range(4) for n in range(2)
                    for h in range(2))


def thin(m, outer, inner):
    """m(i, j) of 16 x 16 each, i of `outer`; blocks of it follow each other in this order."""
    return [m(o + i, p + j) for o, p in ((o, p) for o in range(0, outer, 16)
                                         for p in range(0, inner, 16)) for i, j in LANES]


def four_rows(q, columns):
    """q[row][column], 0 to 15."""
    return b"".join(struct.pack("<H", sum(q[r + i][k + h * 32 + j + 8 * b] << 4 * b
                                          for b in range(4)))
                    for r in range(0, len(q), 4) for k in range(0, columns, 64) for i in range(4)
                    for h in range(2) for j in range(8))


# ---- layers ------------------------------------------------------------------------------------

def svd_layer(g, out, columns, bias, shifted, long):
    """Tensors of a layer by the ends of their names, its rows, its biases."""
    rows = [g.randbytes(columns // 2) for _ in range(out)]
    scale = [[2.0 ** -g.randint(5, 7) for _ in range(columns // 64)] for _ in range(out)]
    smooth = [2.0 ** g.randint(-1, 1) for _ in range(columns)]
    up = [(r * 7 + r // 16) % RANK for r in range(out)]       # a row has one number: +-2^-5
    down = [[g.choice((-0.5, 0, 0.25, 1)) for _ in range(columns)] for _ in range(RANK)]
    nibbles = [(v, (v & 15 ^ 8) - 8, (v >> 4 ^ 8) - 8) for v in range(256)]
    full, sums = [], []
    for r in range(out):
        q = [x for v in rows[r] for x in nibbles[v][1:]]
        s, sign = scale[r], 2.0 ** -5 * (1 - 2 * (r % 2))
        q = [v * s[i // 64] / m for i, (v, m) in enumerate(zip(q, smooth))]
        sums.append(sum(q))
        full.append([v + sign * d for v, d in zip(q, down[up[r]])])
    b = [g.randint(-16, 16) / 64 for _ in range(out)]
    names = ("smooth", "lora_down", "lora_up")
    names = ("smooth_factor", "proj_down", "proj_up") if long else names
    t = {"qweight": ("I8", [out, columns // 2], words(rows, columns)),
         "wscales": bf16([scale[x + o][k] for x in range(0, out, 128)
                          for k in range(columns // 64) for o in ROWS], columns // 64, out),
         names[0]: bf16(vector(smooth), columns),
         names[1]: bf16([down[r][c] for c0 in range(0, columns, 16) for r0 in range(0, RANK, 16)
                         for r, c in ((r0 + i, c0 + j) for i, j in LANES)], columns, RANK),
         names[2]: bf16(thin(lambda r, k: (k == up[r]) * 2.0 ** -5 * (1 - 2 * (r % 2)), out, RANK),
                        out, RANK)}
    if bias:
        t["bias"] = bf16(vector(b), out)
    return t, full, [v + (SHIFT * s if shifted else 0) for v, s in zip(b, sums)] if bias else None


def modulation(g, out, columns):
    parts = out // columns
    scale = [[2.0 ** -g.randint(6, 7) for _ in range(columns // 64)] for _ in range(out)]
    stored = [[g.randint(0, 15) for _ in range(columns)] for _ in range(out)]
    b = [g.randint(-16, 16) / 64 for _ in range(out)]
    rows = [p + f * parts for p in range(parts) for f in range(columns)]   # stored ones, in order
    full = [[(v - 7) * scale[r][k // 64] for k, v in enumerate(stored[r])] for r in rows]
    kept = list(b)
    for i, r in enumerate(rows):
        kept[r] = b[i] + (i // columns in (1, parts - 2))
    flat = [scale[r][k] for k in range(columns // 64) for r in range(out)]
    return {"qweight": ("I32", [out // 4, columns // 2], four_rows(stored, columns)),
            "wscales": bf16(flat, columns // 64, out),
            "wzeros": bf16([-7 * v for v in flat], columns // 64, out),
            "bias": bf16(kept, out)}, full, b


def put_plain(plain, names, full, biases):
    each = len(full) // len(names)
    for i, name in enumerate(names):
        rows = full[i * each:(i + 1) * each]
        plain[name + ".weight"] = f32([v for r in rows for v in r], each, len(rows[0]))
        if biases:
            plain[name + ".bias"] = f32(biases[i * each:(i + 1) * each], each)


def make(family):
    """A model directory with plain numbers, and a file of SVDQuant beside it."""
    config, blocks, renamed = FAMILIES[family]
    g = random.Random(family)
    bare, plain, svd = T / (family + "-bare"), {}, {}
    shutil.copytree(FULL / family, bare, ignore=shutil.ignore_patterns("*.safetensors"))
    path = bare / "transformer" / "config.json"
    path.chmod(0o644)
    path.write_text(json.dumps(json.loads(path.read_text()) | config))
    subprocess.run([FILL, bare, T / family], check=True)
    file = T / family / "transformer" / "diffusion_pytorch_model.safetensors"
    had = read(file)
    for block, layers in blocks.items():
        for names, *modules in layers:
            names = [block + n for n in names]
            out, columns = had[names[0] + ".weight"][1]
            bias = names[0] + ".bias" in had
            pieces = []
            for m in modules:
                width = columns if len(modules) == 1 else columns // 5 * (4 if pieces else 1)
                if "norm" in m or "_mod." in m:
                    pieces.append(modulation(g, out, columns))
                else:
                    pieces.append(svd_layer(g, out * len(names), width, bias,
                                            m.endswith("fc2") or m.endswith("_mlp.net.2"),
                                            family != "flux"))
                svd |= {f"{block}{m}.{end}": t for end, t in pieces[-1][0].items()}
            full = [sum((p[1][r] for p in pieces), []) for r in range(len(pieces[0][1]))]
            put_plain(plain, names, full, bias and [sum(b) for b in zip(*(p[2] for p in pieces))])
    for name, tensor in had.items():
        if name not in plain:
            plain[name] = tensor
            for a, b in renamed.items():
                name = name.replace(a, b)
            svd[name] = tensor
    if family == "zimage":              # refiners have their feed-forwards fused
        fuse_refiners(svd)
    file.chmod(0o644)
    write(file, plain)
    write(T / (family + ".safetensors"), svd)
    return T / family, T / (family + ".safetensors")


def fuse_refiners(svd):
    for block in ("noise_refiner.0.", "context_refiner.0."):
        w3, w1 = (svd.pop(f"{block}feed_forward.{n}.weight") for n in ("w3", "w1"))
        svd[block + "feed_forward.net.0.proj.weight"] = (w3[0], [2 * w3[1][0], w3[1][1]],
                                                         w3[2] + w1[2])
        svd[block + "feed_forward.net.2.weight"] = svd.pop(block + "feed_forward.w2.weight")


# ---- the program -------------------------------------------------------------------------------

def xdit(*args):
    return subprocess.run([str(a) for a in (XDIT, *args)], capture_output=True, text=True)


def pixels(model, *flags):
    out = T / "x.ppm"
    out.unlink(missing_ok=True)
    run = xdit("generate", "--model", model, "-p", "a red circle", "--width", 64, "--height", 64,
               "--num_inference_steps", 2, "--seed", 3, "--threads", 1, "-o", out, *flags)
    if run.returncode:
        return b"", run.stderr
    return out.read_bytes().split(b"\n255\n", 1)[1], run.stderr


def same(what, plain, svd, *flags):
    (want, why), (got, said) = pixels(plain, *flags), pixels(*svd, *flags)
    check(len(set(want)) > 20 and got == want and "not used" not in said, what, why + said)


def test(family):
    plain, file = make(family)
    svd = (plain, "--transformer", file)
    for flags in (["--dtype", "f32"], ["--dtype", "bf16"], ["--weights_dtype", "int8"],
                  ["--dtype", "f32", "--stream_weights"]):
        same(f"{family} {' '.join(flags)}", plain, svd, *flags)
    if family == "zimage":
        return
    same(f"{family} --weights_dtype int4", plain, svd, "--weights_dtype", "int4")
    folder = T / (family + "-folder")
    shutil.copytree(plain, folder)
    shutil.copy(file, folder / "transformer" / "diffusion_pytorch_model.safetensors")
    same(f"{family}: a folder with such a file", plain, (folder,), "--dtype", "f32")
    run = xdit("convert", "--model", plain, "--transformer", file, "--weights_dtype", "f32",
               "--output", T / "converted")
    check(run.returncode == 0 and not run.stderr, f"{family}: convert", run.stderr)
    same(f"{family}: the converted model", plain, (T / "converted",), "--dtype", "f32")
    shutil.rmtree(T / "converted", ignore_errors=True)
    if pixels(plain, "--plan", "tp2")[0] or "MPI" not in pixels(plain, "--plan", "tp2")[1]:
        same(f"{family} --plan tp2", plain, svd, "--dtype", "f32", "--plan", "tp2")
    else:
        print("# skipped: there is no MPI to start several ranks with")


def refusals():
    plain, file = T / "flux", T / "flux.safetensors"
    svd = read(file)
    name = "transformer_blocks.0.mlp_fc1"
    rows, columns = svd[name + ".wscales"][1]
    svd[name + ".wscales"] = "F8_E4M3", [4 * rows, columns], bytes(4 * rows * columns)
    write(T / "fp4.safetensors", svd)
    why = pixels(plain, "--transformer", T / "fp4.safetensors")[1]
    check(f"{name}.qweight holds SVDQuant's 4-bit floats (nvfp4)" in why and
          len(why.splitlines()) == 1, "floats of four bits are refused", why)
    svd = read(file)
    del svd[name + ".wscales"]
    write(T / "half.safetensors", svd)
    why = pixels(plain, "--transformer", T / "half.safetensors")[1]
    check(f"{name}.qweight holds codes of" in why and len(why.splitlines()) == 1,
          "codes without scales are refused", why)
    names = {n.replace("qweight", "weight._data") for n in svd if n.endswith("qweight")}
    write(T / "quanto.safetensors", {n: ("U8", [4], bytes(4)) for n in names})
    why = pixels(plain, "--transformer", T / "quanto.safetensors")[1]
    check("holds codes of optimum-quanto, which is not supported" in why and
          len(why.splitlines()) == 1, "other quantizers are refused by name", why)
    data = file.read_bytes()
    (T / "cut.safetensors").write_bytes(data[:len(data) // 2])
    why = pixels(plain, "--transformer", T / "cut.safetensors")[1]
    check("cut.safetensors" in why and len(why.splitlines()) == 1, "a cut file is refused", why)
    why = pixels(T / "qwen", "--transformer", file)[1]
    check("holds a FLUX.1 transformer of SVDQuant" in why, "another family's file is refused", why)


def main():
    os.environ["OMP_WAIT_POLICY"] = "passive"
    for family in FAMILIES:
        test(family)
    refusals()
    shutil.rmtree(T, ignore_errors=True)
    print(f"1..{count}")
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())
