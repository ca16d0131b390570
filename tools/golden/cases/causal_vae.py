"""AutoencoderKLWan and AutoencoderKLQwenImage alone, with this program's random weights.

Weights and inputs are those that the program makes of a name (fill.py), so that only configs and
results are kept. Latents are normalized by latents_mean and latents_std on both sides. "decode.T"
is what T latent frames become [T',H,W,3], of the numbers named "decode.T" [T,h,w,C]; "encode.T" the
moments of T frames of pixels, of half the numbers named "encode.T".
"""
import json

import diffusers
import numpy as np
import torch
from diffusers import AutoencoderKLQwenImage, AutoencoderKLWan
from safetensors.torch import save_file

from ..fill import weights
from .cog_vae import first, last

MEAN, STD = [-0.4, 0.1, 0.7, -0.2, 0.3], [2.5, 0.8, 1.4, 0.6, 1.1]
SMALL = dict(base_dim=8, z_dim=3, dim_mult=[1, 2, 2], num_res_blocks=1,
             temperal_downsample=[True, True])
LIKE = dict(base_dim=8, z_dim=5, dim_mult=[1, 2, 4, 4], num_res_blocks=2,
            temperal_downsample=[False, True, True])
RESIDUAL = dict(SMALL, dim_mult=[1, 2, 4, 4], base_dim=4, decoder_base_dim=6, is_residual=True,
                temperal_downsample=[False, True, True], in_channels=12, out_channels=12,
                patch_size=2, scale_factor_spatial=16)
# class; config; latent rows and columns; latent frames to decode; frames to encode; are tiles used
CASES = {
    "small": (AutoencoderKLWan, SMALL, (3, 2), (1, 2, 3, 4), (1, 5, 9, 13), False),
    "like": (AutoencoderKLWan, LIKE, (1, 2), (1, 3), (1, 9, 11), False),
    "decoder": (AutoencoderKLWan, dict(SMALL, decoder_base_dim=12, dim_mult=[1, 1, 2],
                                       temperal_downsample=[True, True]), (2, 3), (3,), (5,),
                False),
    "residual": (AutoencoderKLWan, RESIDUAL, (1, 2), (1, 2, 3), (1, 9), False),
    "tiles-residual": (AutoencoderKLWan, RESIDUAL, (1, 35), (1,), (1,), True),
    "image": (AutoencoderKLQwenImage, LIKE, (3, 2), (1,), (1,), False),
    "tiles-video": (AutoencoderKLWan, dict(SMALL, scale_factor_spatial=4), (1, 76), (2,), (5,),
                    True),
    "tiles-image": (AutoencoderKLQwenImage, LIKE, (36, 1), (1,), (1,), True),
}


def fill(model):
    for name, p in model.named_parameters():
        if name.endswith("gamma"):
            v = weights(name, p.shape, 0.1, 1.0)
        elif p.ndim > 1:
            v = weights(name, p.shape, 0.9 / np.sqrt(np.float32(p[0].numel())), 0.0)
        else:
            v = weights(name, p.shape, 0.1, 0.0)
        p.data.copy_(v)


def run(name, out):
    kind, config, (h, w), decodes, encodes, tiled = CASES[name]
    C = config["z_dim"]
    config = dict(config, latents_mean=MEAN[:C], latents_std=STD[:C])
    vae = kind(**config).eval()
    fill(vae)
    if tiled:
        vae.enable_tiling()
    f, keep = 2 ** (len(config["dim_mult"]) - 1) * config.get("patch_size", 1), {}
    mean, std = (torch.tensor(config[k]) for k in ("latents_mean", "latents_std"))
    for t in decodes:
        z = weights(f"decode.{t}", (t, h, w, C), 1.0, 0.0) * std + mean
        keep[f"decode.{t}"] = last(vae.decode(first(z)).sample)
    for t in encodes:
        x = weights(f"encode.{t}", (t, h * f, w * f, 3), 0.5, 0.0)
        m, v = last(vae.encode(first(x)).latent_dist.parameters).chunk(2, -1)
        keep[f"encode.{t}"] = torch.cat([(m - mean) / std, v - 2 * std.log()], -1).contiguous()
    d = out / name
    d.mkdir(parents=True, exist_ok=True)
    save_file(keep, d / "golden.safetensors")
    (d / "golden.safetensors").chmod(0o644)
    (d / "config.json").write_text(json.dumps({"_class_name": kind.__name__} | config, indent=2) +
                                   "\n")
    print(name, {k: (tuple(v.shape), f"{v.std():.2f}") for k, v in keep.items()})


def make(names, options):
    diffusers.logging.set_verbosity_error()
    clamp, torch.clamp = torch.clamp, lambda x, *a, **k: x      # pixels beyond 1 count, too
    with torch.no_grad():
        for name in names:
            run(name, options.out / "causal-vae")
    torch.clamp = clamp
