"""Networks that enlarge latents, with this program's random weights.

Weights and inputs are those that the program makes of a name (fill.py), so that only configs and
results are kept. "run.T" is what T latent frames become [T',h',w',C], of the numbers named "run.T"
[T,h,w,C]. Of the case spatial, "adain" is what adain_filter_latent makes of the result and the
input with the factor FACTOR, and "tone" what tone_map_latents then makes with the ratio RATIO, both
[T',C,h',w'].
"""
import json

import diffusers
import numpy as np
import torch
from diffusers.pipelines.ltx import LTXLatentUpsamplePipeline
from diffusers.pipelines.ltx.modeling_latent_upsampler import LTXLatentUpsamplerModel
from diffusers.pipelines.ltx2.latent_upsampler import LTX2LatentUpsamplerModel
from safetensors.torch import save_file

from ..fill import weights
from .cog_vae import first, last

FACTOR, RATIO = 0.6, 0.7
SMALL = dict(in_channels=5, mid_channels=64, num_blocks_per_stage=2)
# class; config; rows and columns; frames
CASES = {
    "spatial": (LTXLatentUpsamplerModel, SMALL, (3, 2), (1, 3)),
    "flat": (LTXLatentUpsamplerModel, dict(SMALL, dims=2), (1, 4), (2,)),
    "temporal": (LTXLatentUpsamplerModel,
                 dict(SMALL, spatial_upsample=False, temporal_upsample=True), (2, 3), (1, 2)),
    "both": (LTXLatentUpsamplerModel, dict(SMALL, temporal_upsample=True), (2, 2), (2,)),
    "rational": (LTX2LatentUpsamplerModel, dict(SMALL, use_rational_resampler=True), (2, 3), (2,)),
}


def fill(net):
    for name, p in net.named_parameters():
        gain = 0.1 if p.ndim < 2 else 0.9 / np.sqrt(np.float32(p[0].numel()))
        mean = 1.0 if p.ndim == 1 and name.endswith("weight") else 0.0
        p.data.copy_(weights(name, p.shape, gain, mean))


def run(name, out):
    kind, config, (h, w), frames = CASES[name]
    net = kind(**config).eval()
    fill(net)
    keep = {}
    for t in frames:
        z = first(weights(f"run.{t}", (t, h, w, config["in_channels"]), 1.0, 0.0))
        y = net(z)
        keep[f"run.{t}"] = last(y)
    if name == "spatial":
        change = LTXLatentUpsamplePipeline
        y = change.adain_filter_latent(None, y, z, FACTOR)
        keep["adain"] = y[0].transpose(0, 1).contiguous()
        keep["tone"] = change.tone_map_latents(None, y, RATIO)[0].transpose(0, 1).contiguous()
    d = out / name
    d.mkdir(parents=True, exist_ok=True)
    save_file(keep, d / "golden.safetensors")
    (d / "golden.safetensors").chmod(0o644)
    (d / "config.json").write_text(json.dumps({"_class_name": kind.__name__} | config,
                                              indent=2) + "\n")
    print(name, {k: (tuple(v.shape), f"{v.std():.2f}") for k, v in keep.items()})


def make(names, options):
    diffusers.logging.set_verbosity_error()
    with torch.no_grad():
        for name in names:
            run(name, options.out / "upsample")
