"""Tiny autoencoders of images that diffusers does not have, with this program's random weights.

"norm" is TAEF2, whose blocks next to the latents have a group norm, with packed latents; "own" a
file of the decoder alone. Weights and inputs are those that the program makes of a name (fill.py).
"decode.T" is what T latent frames become [T,H,W,3], of the numbers named "decode.T" [T,h,w,C];
"encode.T" the moments of T frames of pixels, of half the numbers named "encode.T".
"""
import json

import torch
import torch.nn.functional as F
from safetensors.torch import save_file

from ..fill import weights
from .taehv import conv, first, last, tensor

CASES = {
    "norm": (dict(latent_channels=3, use_midblock_gn=True, latent_pack=2,
                  encoder_block_out_channels=[8, 8, 8], num_encoder_blocks=[1, 1, 2],
                  decoder_block_out_channels=[12, 12, 12], num_decoder_blocks=[2, 1, 1]), (3, 2)),
    "own": (dict(latent_channels=4, tensor_names="taesd",
                 encoder_block_out_channels=[8, 8, 8], num_encoder_blocks=[1, 1, 2],
                 decoder_block_out_channels=[12, 12, 12], num_decoder_blocks=[2, 1, 1]), (5, 3)),
}


def named(c, half, at):
    """The name of a module that is counted without the clamp of the latents."""
    return str(at + 1) if "tensor_names" in c else f"{half}.layers.{at}"


def block(x, name, norm):
    C = x.shape[1]
    if norm:
        y = conv(x, name + ".pool.0", 4 * C, 1, bias=False)
        gain = 1 + tensor(name + ".pool.1.weight", 4 * C)
        y = F.group_norm(y, 4, gain, tensor(name + ".pool.1.bias", 4 * C)).relu()
        x = x + conv(y, name + ".pool.3", C, 1, bias=False)
    h = conv(x, name + ".conv.0", C).relu()
    h = conv(h, name + ".conv.2", C).relu()
    return (x + conv(h, name + ".conv.4", C)).relu()


def decode(c, z):
    widths, at = c["decoder_block_out_channels"], 2
    z = F.pixel_shuffle(z, c.get("latent_pack", 1))
    h = conv(torch.tanh(z / 3) * 3, named(c, "decoder", 0), widths[0]).relu()
    for level, n in enumerate(c["num_decoder_blocks"]):
        for _ in range(n):
            norm = "use_midblock_gn" in c and level == 0
            h, at = block(h, named(c, "decoder", at), norm), at + 1
        if level < len(widths) - 1:
            h = F.interpolate(h, scale_factor=2)
            h, at = conv(h, named(c, "decoder", at + 1), widths[0], bias=False), at + 2
    return 2 * conv(h, named(c, "decoder", at), 3) - 1


def encode(c, x):
    widths, at = c["encoder_block_out_channels"], 1
    h = conv(x / 2 + 0.5, named(c, "encoder", 0), widths[0])
    for level, n in enumerate(c["num_encoder_blocks"]):
        last_level = level == len(widths) - 1
        for _ in range(n):
            norm = "use_midblock_gn" in c and last_level
            h, at = block(h, named(c, "encoder", at), norm), at + 1
        if not last_level:
            h = conv(h, named(c, "encoder", at), widths[0], stride=2, bias=False)
            at += 1
    z = F.pixel_unshuffle(conv(h, named(c, "encoder", at), c["latent_channels"]),
                          c.get("latent_pack", 1))
    return torch.cat([z, torch.full_like(z, -30)], dim=1)       # moments of no distribution


def run(name, out):
    c, (h, w) = CASES[name]
    pack = c.get("latent_pack", 1)
    f, keep = pack * 2 ** (len(c["num_decoder_blocks"]) - 1), {}
    for t in (1, 2):
        z = weights(f"decode.{t}", (t, h, w, c["latent_channels"] * pack ** 2), 1.0, 0.0)
        keep[f"decode.{t}"] = last(torch.cat([decode(c, one) for one in first(z).split(1)]))
    if "tensor_names" not in c:
        x = weights("encode.1", (1, h * f, w * f, 3), 0.5, 0.0)
        keep["encode.1"] = last(encode(c, first(x)))
    d = out / name
    d.mkdir(parents=True, exist_ok=True)
    save_file(keep, d / "golden.safetensors")
    (d / "golden.safetensors").chmod(0o644)
    (d / "config.json").write_text(json.dumps({"_class_name": "AutoencoderTiny"} | c,
                                              indent=2) + "\n")
    print(name, {k: (tuple(v.shape), f"{v.std():.2f}") for k, v in keep.items()})


def make(names, options):
    with torch.no_grad():
        for name in names:
            run(name, options.out / "taesd")
