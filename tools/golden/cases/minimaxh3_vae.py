"""The decoder of AutoencoderKLMiniMaxH3 alone, with this program's random weights.

Weights and inputs are those that the program makes of a name (fill.py), so that only configs and
results are kept. Latents are normalized by latents_mean and latents_std. "decode.T" is what T
latent frames become [T',H,W,3], of the numbers named "decode.T" [T,h,w,C]; the pixels are those of
ImageNet's range turned to -1..1, as the pipeline turns them to 0..1.
"""
import json

import diffusers
import torch
from diffusers import AutoencoderKLMiniMaxH3
from diffusers.modular_pipelines.minimax_h3.modular_pipeline import MiniMaxH3ModularPipeline
from safetensors.torch import save_file

from ..fill import weights
from .causal_vae import MEAN, STD
from .cog import fill
from .cog_vae import first, last

ENCODER = dict(layers_per_block=1, norm_num_groups=1)
BASE = dict(ENCODER, latent_channels=5, latents_mean=MEAN, latents_std=STD, decoder_num_layers=2)
# one frame in common
TILES = dict(ENCODER, latent_channels=5, decoder_num_layers=1, block_out_channels=[4],
             spatial_downsample_factors=[4], temporal_downsample_factors=[2],
             decoder_num_attention_heads=2, decoder_attention_head_dim=8, clip_length=3,
             token_drop=1)
# config; latent rows and columns; latent frames to decode
CASES = {
    # 18 of 24 features turn; chunks of 5 latent frames, two more, five frames in common
    "four": (dict(BASE, block_out_channels=[4, 4], spatial_downsample_factors=[2, 1],
                  temporal_downsample_factors=[2, 2], decoder_num_attention_heads=3,
                  decoder_attention_head_dim=24), (3, 5), (7, 17)),
    # all features turn; chunks of 3 latent frames, two more, three frames in common
    "two": (dict(BASE, block_out_channels=[4], spatial_downsample_factors=[4],
                 temporal_downsample_factors=[2], decoder_num_attention_heads=5,
                 decoder_attention_head_dim=12, decoder_num_register_tokens=1,
                 decoder_rope_dim_ratio=1.0, decoder_rope_theta=7.0, decoder_ffn_mult=2,
                 decoder_norm_eps=1e-3, clip_length=5, token_drop=1), (2, 3), (5, 8)),
    # three tiles, of which the first two are nearer; two tiles
    "tiles": (TILES, (1, 116), (3, 5)),
    "tiles-rows": (TILES, (72, 1), (3, 5)),
}


def run(name, out):
    config, (h, w), decodes = CASES[name]
    vae = AutoencoderKLMiniMaxH3(**config).eval()
    fill(vae)
    tokens = vae.decoder.register_tokens
    tokens.data.copy_(weights("decoder.register_tokens", tokens.shape, 0.1, 0.0))
    C = config["latent_channels"]
    mean, std = (torch.tensor(config.get(k, d)) for k, d in (("latents_mean", [0.0] * C),
                                                             ("latents_std", [1.0] * C)))
    colours = [torch.tensor(getattr(MiniMaxH3ModularPipeline, k).fget(None))
               for k in ("pixel_std", "pixel_mean")]
    keep = {}
    for t in decodes:
        z = weights(f"decode.{t}", (t, h, w, C), 1.0, 0.0)
        y = last(vae.decode(first(z * std + mean)).sample)
        keep[f"decode.{t}"] = (2 * (y * colours[0] + colours[1]) - 1).contiguous()
    d = out / name
    d.mkdir(parents=True, exist_ok=True)
    save_file(keep, d / "golden.safetensors")
    (d / "golden.safetensors").chmod(0o644)
    (d / "config.json").write_text(json.dumps({"_class_name": "AutoencoderKLMiniMaxH3"} | config,
                                              indent=2) + "\n")
    print(name, {k: (tuple(v.shape), f"{v.std():.2f}") for k, v in keep.items()})


def make(names, options):
    diffusers.logging.set_verbosity_error()
    with torch.no_grad():
        for name in names:
            run(name, options.out / "minimaxh3-vae")
