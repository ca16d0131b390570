"""The decoder of AutoencoderKLMochi alone, with this program's random weights.

Weights and inputs are those that the program makes of a name (fill.py), so that only configs and
results are kept. Latents are normalized by latents_mean, latents_std and scaling_factor. "decode.T"
is what T latent frames become [T',H,W,3], of the numbers named "decode.T" [T,h,w,C].
"""
import json

import diffusers
import torch
from diffusers import AutoencoderKLMochi
from safetensors.torch import save_file

from ..fill import weights
from .causal_vae import MEAN, STD
from .cog import fill
from .cog_vae import first, last

BASE = dict(in_channels=15, latent_channels=5, latents_mean=MEAN, latents_std=STD,
            scaling_factor=0.7)
# config; latent rows and columns; latent frames to decode; are tiles used
CASES = {
    "six": (dict(BASE, decoder_block_out_channels=[32, 64, 32, 96],
                 encoder_block_out_channels=[32, 32, 32, 32], layers_per_block=[1, 1, 2, 1, 1]),
            (2, 1), (1, 3), False),
    # of one frame three, then one; of one row two, then three; wider at the end
    "three": (dict(BASE, decoder_block_out_channels=[128, 64, 32],
                   encoder_block_out_channels=[32, 32, 32], layers_per_block=[1, 2, 1, 1],
                   temporal_expansions=[1, 3], spatial_expansions=[3, 2],
                   add_attention_block=[False] * 4), (1, 3), (1, 2), False),
    "one": (dict(BASE, decoder_block_out_channels=[32], encoder_block_out_channels=[32],
                 layers_per_block=[1, 2], temporal_expansions=[], spatial_expansions=[],
                 add_attention_block=[False] * 2), (3, 5), (1, 4), False),
    "tiles": (dict(BASE, decoder_block_out_channels=[32, 32],
                   encoder_block_out_channels=[32, 32], layers_per_block=[1, 1, 1],
                   temporal_expansions=[1], spatial_expansions=[8],
                   add_attention_block=[False] * 3), (1, 35), (1, 2), True),
}


def run(name, out):
    config, (h, w), decodes, tiled = CASES[name]
    vae = AutoencoderKLMochi(**config).eval()
    fill(vae)
    if tiled:
        vae.enable_tiling()
    mean, std = (torch.tensor(config[k]) for k in ("latents_mean", "latents_std"))
    keep = {}
    for t in decodes:
        z = weights(f"decode.{t}", (t, h, w, config["latent_channels"]), 1.0, 0.0)
        keep[f"decode.{t}"] = last(vae.decode(first(z * std / config["scaling_factor"] +
                                                    mean)).sample)
    d = out / name
    d.mkdir(parents=True, exist_ok=True)
    save_file(keep, d / "golden.safetensors")
    (d / "golden.safetensors").chmod(0o644)
    (d / "config.json").write_text(json.dumps({"_class_name": "AutoencoderKLMochi"} | config,
                                              indent=2) + "\n")
    print(name, {k: (tuple(v.shape), f"{v.std():.2f}") for k, v in keep.items()})


def make(names, options):
    diffusers.logging.set_verbosity_error()
    with torch.no_grad():
        for name in names:
            run(name, options.out / "mochi-vae")
