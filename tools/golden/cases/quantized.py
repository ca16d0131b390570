"""Weights in codes of quantizers, and the numbers that they stand for.

Each file has matrices as a quantizer stores them, and under "want.NAME" the numbers in f32. `comfy`
is written by the layout that ComfyUI documents (QUANTIZATION.md) and, of rotated weights, that
stable-diffusion.cpp documents (docs/int8_convrot.md): R is the Kronecker power of H4 / 2, and the
stored rows are those of W R. `nf4` is written and decoded by the package bitsandbytes. `svdquant`
is written by deepcompressor (the files of its folder `deepcompressor/backend` are enough, on
PYTHONPATH); it has every fifth row of the numbers, and under "bias.NAME" the biases.
"""
import json

import torch
from safetensors.torch import save_file

H4 = torch.tensor([[1, 1, 1, -1], [1, 1, -1, 1], [1, -1, 1, 1], [-1, 1, 1, 1]],
                  dtype=torch.float64)
CASES = {"comfy": "comfy.safetensors", "nf4": "nf4.safetensors",
         "svdquant": "svdquant.safetensors"}


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


def svd_layer(g, out, columns, rank, shift=None, fused=False):
    """A layer as nunchaku has it, its matrix, and its biases where inputs are not shifted."""
    from deepcompressor.backend.nunchaku import convert
    groups = columns // 64
    w = torch.randn(out, columns, generator=g).bfloat16()
    scale = (w.float().view(out, groups, 64).abs().amax(-1) / 7).bfloat16()
    bias = torch.randn(out, generator=g).bfloat16()
    smooth = (0.5 + torch.rand(columns, generator=g)).bfloat16()
    down = torch.randn(rank, columns, generator=g).bfloat16()
    up = torch.randn(out, rank, generator=g).bfloat16() / 8
    stored = convert.convert_to_nunchaku_w4x4y16_linear_state_dict(
        w.clone(), scale.view(out, 1, groups, 1), bias.clone(), smooth.clone(),
        (down.clone(), up.clone()), shift, smooth_fused=fused)
    q = (w.float().view(out, groups, 64) / scale.float().unsqueeze(-1)).round().clamp(-8, 7)
    q = (q * scale.float().unsqueeze(-1)).view(out, columns).double()
    m = torch.ones(columns) if fused else smooth
    thin = up.double() @ (down.double() / m.double()).bfloat16().double()
    full = q / m.double() + thin
    if shift is not None:       # by the layer's definition: W (x + shift) + b
        bias = bias.double() + full @ torch.full((columns,), shift.item(), dtype=torch.float64)
    return stored, full, bias


def svd_modulation(g, parts, columns, single):
    from deepcompressor.backend.nunchaku import convert
    out, groups = parts * columns, columns // 64
    scale = (0.1 + 0.2 * torch.rand(out, groups, generator=g)).bfloat16()
    q = torch.randint(-7, 9, (out, columns), generator=g).float()
    w = (q.view(out, groups, 64) * scale.float().unsqueeze(-1)).view(out, columns)
    low = (7 * scale.float()).bfloat16().float().unsqueeze(-1)  # the offset as it is stored
    want = ((q.view(out, groups, 64) + 7) * scale.float().unsqueeze(-1) - low).view(out, columns)
    bias = torch.randn(out, generator=g).bfloat16()
    write = (convert.convert_to_nunchaku_w4x16_adanorm_single_state_dict if single
             else convert.convert_to_nunchaku_w4x16_adanorm_zero_state_dict)
    stored = write(w.bfloat16(), scale.view(out, 1, groups, 1), bias.clone())
    shown = bias.clone()
    for part in {1, parts - 2}:
        rows = slice(part * columns, (part + 1) * columns)
        shown[rows] = (bias[rows] + 1).bfloat16() - 1
    return stored, want, shown


def svdquant(g):
    shift = torch.tensor([0.171875])
    layers = {"qkv_proj": svd_layer(g, 256, 128, 32), "out_proj": svd_layer(g, 128, 128, 16, None,
                                                                           True),
              "mlp_fc2": svd_layer(g, 128, 256, 32, shift),
              "norm.linear": svd_modulation(g, 3, 64, True),
              "norm1.linear": svd_modulation(g, 6, 64, False)}
    t = {}
    for name, (stored, w, bias) in layers.items():
        t |= {f"a.{name}.{key}": value for key, value in stored.items()}
        t[f"want.{name}"] = w[::5].float()
        t[f"bias.{name}"] = bias.float()
    return t, None


def make(names, options):
    out = options.out / "quantized"
    out.mkdir(parents=True, exist_ok=True)
    for name in names:
        g = torch.Generator().manual_seed(7)
        tensors, meta = {"comfy": comfy, "nf4": nf4, "svdquant": svdquant}[name](g)
        save_file({k: v.clone().contiguous() for k, v in tensors.items()}, out / CASES[name], meta)
        (out / CASES[name]).chmod(0o644)
        print(name, {k: tuple(v.shape) for k, v in tensors.items() if k.startswith("want.")})
