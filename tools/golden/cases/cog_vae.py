"""AutoencoderKLCogVideoX alone, with this program's random weights.

Weights and inputs are those that the program makes of a name (fill.py), so that only
configs and results are kept. "decode.T" is what T latent frames become [T',H,W,3], of the numbers
named "decode.T" [T,h,w,C]; "encode.T" the moments of T frames of pixels, of half the numbers named
"encode.T".
"""
import json

import diffusers
import torch
from diffusers import AutoencoderKLCogVideoX
from safetensors.torch import save_file

from ..fill import weights
from .cog import fill

# config; latent rows and columns; latent frames to decode; frames to encode; are tiles used
CASES = {
    "four": (dict(block_out_channels=[8, 16, 16, 32], layers_per_block=1, latent_channels=4,
                  norm_num_groups=4,
                  temporal_compression_ratio=4), (2, 1), (1, 3, 4), (1, 9, 16), False),
    "two": (dict(block_out_channels=[8, 24, 16], layers_per_block=2, latent_channels=3,
                 norm_num_groups=8,
                 norm_eps=1e-3, temporal_compression_ratio=2, use_quant_conv=True,
                 use_post_quant_conv=True),
            (3, 3), (2, 5), (3, 12, 17), False),
    "eight": (dict(block_out_channels=[8, 8, 16, 16], layers_per_block=1, latent_channels=6,
                   norm_num_groups=2,
                   temporal_compression_ratio=8), (1, 1), (3, 4), (8, 25), False),
    "one": (dict(block_out_channels=[16, 8], layers_per_block=1, latent_channels=4,
                 norm_num_groups=4, temporal_compression_ratio=1), (3, 5), (4, 5), (6, 17), False),
    "tiles": (dict(block_out_channels=[8, 16], layers_per_block=1, latent_channels=4,
                   norm_num_groups=4,
                   temporal_compression_ratio=2, sample_height=24, sample_width=20), (8, 7), (1, 5),
              (1, 17), True),
}


def last(t):
    """[1,C,T,H,W] -> [T,H,W,C]"""
    return t[0].permute(1, 2, 3, 0).contiguous()


def first(t):
    return t.permute(3, 0, 1, 2)[None]


def run(name, out):
    config, (h, w), decodes, encodes, tiled = CASES[name]
    kinds = len(config["block_out_channels"])
    config = dict(config, down_block_types=["CogVideoXDownBlock3D"] * kinds,
                  up_block_types=["CogVideoXUpBlock3D"] * kinds)
    vae = AutoencoderKLCogVideoX(**config).eval()
    fill(vae)
    vae.use_tiling = tiled
    f, keep = 2 ** (kinds - 1), {}
    for t in decodes:
        z = weights(f"decode.{t}", (t, h, w, config["latent_channels"]), 1.0, 0.0)
        keep[f"decode.{t}"] = last(vae.decode(first(z)).sample)
    for t in encodes:
        x = weights(f"encode.{t}", (t, h * f, w * f, 3), 0.5, 0.0)
        keep[f"encode.{t}"] = last(vae.encode(first(x)).latent_dist.parameters)
    d = out / name
    d.mkdir(parents=True, exist_ok=True)
    save_file(keep, d / "golden.safetensors")
    (d / "golden.safetensors").chmod(0o644)
    (d / "config.json").write_text(json.dumps({"_class_name": "AutoencoderKLCogVideoX"} | config,
                                              indent=2) + "\n")
    print(name, {k: (tuple(v.shape), f"{v.std():.2f}") for k, v in keep.items()})


def make(names, options):
    diffusers.logging.set_verbosity_error()
    with torch.no_grad():
        for name in names:
            run(name, options.out / "cog-vae")
