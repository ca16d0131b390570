"""Weights in codes of quantizers, and the numbers that they stand for.

Each file has matrices as a quantizer stores them, and under "want.NAME" the numbers in f32. `comfy`
is written by the layout that ComfyUI documents (QUANTIZATION.md) and, of rotated weights, that
stable-diffusion.cpp documents (docs/int8_convrot.md): R is the Kronecker power of H4 / 2, and the
stored rows are those of W R. `nf4` is written and decoded by the package bitsandbytes.
"""
import json

import torch
from safetensors.torch import save_file

H4 = torch.tensor([[1, 1, 1, -1], [1, 1, -1, 1], [1, -1, 1, 1], [-1, 1, 1, 1]],
                  dtype=torch.float64)
CASES = {"comfy": "comfy.safetensors", "nf4": "nf4.safetensors"}


def rotation(n):
    r = torch.ones(1, 1, dtype=torch.float64)
    while r.shape[0] < n:
        r = torch.kron(r, H4 / 2)
    return r


def rotated(w, group):
    """The rows of w, each group of columns times R, which is its own inverse."""
    parts = w.double().reshape(w.shape[0], -1, group)
    return (parts @ rotation(group)).reshape(w.shape).float()


def note(**config):
    return torch.tensor(list(json.dumps(config).encode()), dtype=torch.uint8)


def integers(w, most, rows=True):
    """Integers within +-most, and the scales of their rows (or of all)."""
    s = (w.abs().amax(1, keepdim=True) if rows else w.abs().max()) / most
    return torch.clamp(torch.round(w / s), -most, most).to(torch.int8), s.float()


def comfy(g):
    t = {}

    def put(name, q, s, config, want, store=None):
        t[f"{name}.weight"] = q if store is None else store
        t[f"{name}.weight_scale"] = s
        if config:
            t[f"{name}.comfy_quant"] = note(**config)
        t[f"want.{name}"] = want

    def decoded(q, s):
        return q.float() * s.float()

    w = torch.randn(48, 96, generator=g)
    q, s = integers(w, 127)
    put("row", q, s, dict(format="int8_tensorwise", per_row=True), decoded(q, s))
    q, s = integers(w * 0.3, 127, False)
    put("one", q, s, None, decoded(q, s))
    for name, group, shape in ("turned", 256, (40, 512)), ("small", 16, (24, 48)):
        w = torch.randn(shape, generator=g)
        w[:, 5] *= 20                   # an outlier, which the rotation spreads
        q, s = integers(rotated(w, group), 127)
        put(name, q, s, dict(format="int8_tensorwise", convrot=True, convrot_groupsize=group),
            rotated(decoded(q, s), group))
    w = torch.randn(20, 256, generator=g)
    q, s = integers(rotated(w, 256), 7)
    packed = ((q[:, 0::2].int() & 15) | (q[:, 1::2].int() & 15) << 4).to(torch.uint8)
    put("four", q, s.reshape(-1), dict(format="convrot_w4a4", convrot_groupsize=256),
        rotated(decoded(q, s), 256), packed.view(torch.int8))
    w = torch.randn(16, 32, generator=g)
    s = w.abs().max() / 448
    f = (w / s).to(torch.float8_e4m3fn)
    put("float", f, s, dict(format="float8_e4m3fn"), decoded(f, s))
    t["float.input_scale"] = torch.tensor(1.5)
    put("bytes", f, s, None, decoded(f, s), f.view(torch.uint8))    # in a container of bytes
    layers = {"one": {"format": "int8_tensorwise"}, "bytes": {"format": "float8_e4m3fn"}}
    return t, {"_quantization_metadata": json.dumps({"format_version": "1.0", "layers": layers})}


def nf4(g):
    from bitsandbytes.functional import dequantize_4bit, quantize_4bit
    t = {}
    for name, shape, kind, nested in (("nested", (320, 64), "nf4", True),
                                      ("plain", (12, 128), "nf4", False),
                                      ("fp4", (8, 64), "fp4", False)):
        w = torch.randn(shape, generator=g)
        packed, state = quantize_4bit(w, quant_type=kind, compress_statistics=nested)
        t[f"{name}.weight"] = packed
        for key, value in state.as_dict(packed=True).items():
            t[f"{name}.weight.{key}"] = value
        t[f"want.{name}"] = dequantize_4bit(packed, state)
    return t, None


def make(names, options):
    out = options.out / "quantized"
    out.mkdir(parents=True, exist_ok=True)
    for name in names:
        g = torch.Generator().manual_seed(7)
        tensors, meta = (comfy if name == "comfy" else nf4)(g)
        save_file({k: v.clone().contiguous() for k, v in tensors.items()}, out / CASES[name], meta)
        (out / CASES[name]).chmod(0o644)
        print(name, {k: tuple(v.shape) for k, v in tensors.items() if k.startswith("want.")})
