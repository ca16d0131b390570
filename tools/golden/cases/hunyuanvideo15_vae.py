"""AutoencoderKLHunyuanVideo15 alone, with this program's random weights.

Layout and names of tensors as in cog_vae.py. The case whose name begins with "tiles" has tiles of
pixels.
"""
import json

import diffusers
import torch
from diffusers import AutoencoderKLHunyuanVideo15
from safetensors.torch import save_file

from ..fill import weights
from .causal_vae import fill
from .cog_vae import first, last

# config; latent rows and columns; latent frames to decode; frames to encode; are tiles used
CASES = {
    "four": (dict(block_out_channels=[8, 8, 16], layers_per_block=1, latent_channels=4,
                  spatial_compression_ratio=4), (3, 2), (1, 2, 4), (1, 9), False),
    "sixteen": (dict(block_out_channels=[8, 8, 8, 16, 16], layers_per_block=1, latent_channels=2),
                (1, 2), (1, 3), (1, 5), False),
    "still": (dict(block_out_channels=[12, 24, 24], layers_per_block=2, latent_channels=3,
                   spatial_compression_ratio=4, temporal_compression_ratio=2,
                   scaling_factor=0.7), (2, 3), (1, 3), (3,), False),
    "tiles": (dict(block_out_channels=[8, 8], layers_per_block=1, latent_channels=2,
                   spatial_compression_ratio=2, temporal_compression_ratio=1), (1, 130), (2,),
              (2,), True),
}


def run(name, out):
    config, (h, w), decodes, encodes, tiled = CASES[name]
    vae = AutoencoderKLHunyuanVideo15(**config).eval()
    fill(vae)
    if tiled:
        vae.enable_tiling()
    f, keep = vae.spatial_compression_ratio, {}
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
    (d / "config.json").write_text(json.dumps({"_class_name": type(vae).__name__} | config,
                                              indent=2) + "\n")
    print(name, {k: (tuple(v.shape), f"{v.std():.2f}") for k, v in keep.items()})


def make(names, options):
    diffusers.logging.set_verbosity_error()
    with torch.no_grad():
        for name in names:
            run(name, options.out / "hunyuanvideo15-vae")
