"""TAEHV (madebyollin/taehv) alone, with this program's random weights.

No library has the network, so this module computes it in PyTorch: frames of a video in parallel,
where the program computes them one by one. Weights and inputs are those that the program makes of
a name (fill.py), so that only configs and results are kept. "decode.T" is what T latent frames
become [T',H,W,3], of the numbers named "decode.T" [T,h,w,C]; "encode.T" the moments of T frames of
pixels, of half the numbers named "encode.T".
"""
import json

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import save_file

from ..fill import weights

WIDE = dict(latent_channels=5, decoder_block_out_channels=[16, 8, 12, 8], encoder_channels=8,
            layers_per_block=3, decoder_time_upscale=[1, 2, 2], encoder_time_downscale=[2, 2, 1])
SMALL = dict(latent_channels=4, decoder_block_out_channels=[12, 8, 8], encoder_channels=12,
             layers_per_block=2, decoder_time_upscale=[1, 2], encoder_time_downscale=[2, 1])
# config; latent rows and columns; latent frames to decode; frames to encode
CASES = {
    "four": (WIDE, (2, 3), (1, 3), (1, 9)),
    "even": (dict(WIDE, first_frame_alone=False), (1, 2), (2, 3), (8,)),
    "eight": (dict(SMALL, patch_size=4, decoder_time_upscale=[2, 4],
                   encoder_time_downscale=[4, 2]), (1, 2), (2,), (9,)),
    "six": (dict(SMALL, decoder_time_upscale=[2, 3], encoder_time_downscale=[3, 2]), (3, 1), (3,),
            (7,)),
    "chunks": (dict(SMALL, patch_size=2, decoder_time_upscale=[2, 2], encoder=False,
                    chunk=[5, 17], last_chunk=[2, 5]), (1, 2), (7, 12), ()),
    "images": (dict(SMALL, images=True), (3, 2), (1, 2), (2,)),
    "super": (dict(SMALL, super=True, patch_size=2), (3, 2), (1, 3), (5,)),
}


def tensor(name, *shape):
    if len(shape) > 1:
        return weights(name, shape, 0.9 / np.sqrt(np.float32(np.prod(shape[1:]))), 0.0)
    return weights(name, shape, 0.1, 0.0)


def conv(x, name, out, side=3, stride=1, bias=True, groups=1):
    w = tensor(name + ".weight", out, x.shape[1] // groups, side, side)
    b = tensor(name + ".bias", out) if bias else None
    return F.conv2d(x, w, b, stride=stride, padding=side // 2, groups=groups)


def block(x, name, wide):
    """x: the frames [T,C,h,w] of a video."""
    C = x.shape[1]
    before = torch.cat([torch.zeros_like(x[:1]), x[:-1]])
    both = torch.cat([x, before], dim=1)
    if wide:
        h = conv(both, name + ".conv.0", 2 * C, 7, bias=False, groups=2 * C)
        h = conv(h, name + ".conv.1", 4 * C, 1).relu()
        return x + conv(h, name + ".conv.3", C, 1, bias=False)
    h = conv(both, name + ".conv.0", C).relu()
    h = conv(h, name + ".conv.2", C).relu()
    return (x + conv(h, name + ".conv.4", C)).relu()


def grow(x, name, n):
    """Makes n frames of each frame."""
    y = conv(x, name + ".conv", n * x.shape[1], 1, bias=False)
    return y.reshape(-1, *x.shape[1:])


def pool(x, name, n):
    """Makes a frame of n frames."""
    T, C, h, w = x.shape
    return conv(x.reshape(T // n, n * C, h, w), name + ".conv", C, 1, bias=False)


def decode_all(c, z):
    """Latents [T,C,h,w] to all frames, including those that are dropped."""
    wide, widths, at = c.get("super", False), c["decoder_block_out_channels"], 3
    if wide:
        h, at = conv(z, "decoder.0", widths[0], 1, bias=False), 1
    else:
        h = conv(torch.tanh(z / 3) * 3, "decoder.1", widths[0]).relu()
    for n, out in zip(c["decoder_time_upscale"], widths[1:]):
        for _ in range(c["layers_per_block"]):
            h, at = block(h, f"decoder.{at}", wide), at + 1
        if wide:
            h = F.pixel_shuffle(conv(h, f"decoder.{at}", 4 * out).relu(), 2)
            h, at = grow(h, f"decoder.{at + 3}", n), at + 4
        else:
            h = F.interpolate(h, scale_factor=2)
            h = grow(h, f"decoder.{at + 1}", n)
            h, at = conv(h, f"decoder.{at + 2}", out, bias=False), at + 3
    p = c.get("patch_size", 1)
    y = conv(h if wide else h.relu(), f"decoder.{at + (not wide)}", 3 * p * p)
    return 2 * (F.pixel_shuffle(y, p) if p > 1 else y) - 1


def decode(c, z):
    up = int(np.prod(c["decoder_time_upscale"]))
    if c.get("images"):
        return torch.cat([decode_all(c, one)[-1:] for one in z.split(1)])
    y = decode_all(c, z)
    if "chunk" in c:
        n, kept = c["chunk"]
        return torch.cat([part[n * up - kept:] for part in y.split(n * up)])
    whole = not c.get("first_frame_alone", True) and len(z) % 2 == 0
    return y if whole else y[up - 1:]


def encode_all(c, x):
    down = int(np.prod(c["encoder_time_downscale"]))
    x = torch.cat([x] + [x[-1:]] * (-len(x) % down)) / 2 + 0.5
    p, C = c.get("patch_size", 1), c["encoder_channels"]
    h = conv(F.pixel_unshuffle(x, p) if p > 1 else x, "encoder.0", C).relu()
    at = 2
    for n in c["encoder_time_downscale"]:
        h = pool(h, f"encoder.{at}", n)
        h = conv(h, f"encoder.{at + 1}", C, stride=2, bias=False)
        at += 2
        for _ in range(c["layers_per_block"]):
            h, at = block(h, f"encoder.{at}", False), at + 1
    return conv(h, f"encoder.{at}", c["latent_channels"])


def encode(c, x):
    z = torch.cat([encode_all(c, one) for one in (x.split(1) if c.get("images") else [x])])
    return torch.cat([z, torch.full_like(z, -30)], dim=1)       # moments of no distribution


def first(t):
    return t.permute(0, 3, 1, 2)


def last(t):
    return t.permute(0, 2, 3, 1).contiguous()


def run(name, out):
    c, (h, w), decodes, encodes = CASES[name]
    f, keep = c.get("patch_size", 1) * 2 ** len(c["decoder_time_upscale"]), {}
    for t in decodes:
        z = weights(f"decode.{t}", (t, h, w, c["latent_channels"]), 1.0, 0.0)
        keep[f"decode.{t}"] = last(decode(c, first(z)))
    for t in encodes:
        x = weights(f"encode.{t}", (t, h * f, w * f, 3), 0.5, 0.0)
        keep[f"encode.{t}"] = last(encode(c, first(x)))
    d = out / name
    d.mkdir(parents=True, exist_ok=True)
    save_file(keep, d / "golden.safetensors")
    (d / "golden.safetensors").chmod(0o644)
    (d / "config.json").write_text(json.dumps({"_class_name": "TAEHV"} | c, indent=2) + "\n")
    print(name, {k: (tuple(v.shape), f"{v.std():.2f}") for k, v in keep.items()})


def make(names, options):
    with torch.no_grad():
        for name in names:
            run(name, options.out / "taehv")
