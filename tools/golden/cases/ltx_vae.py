"""AutoencoderKLLTXVideo and AutoencoderKLLTX2Video alone, with this program's random weights.

Weights and inputs are those that the program makes of a name (fill.py), so that only configs and
results are kept. Latents are normalized by the buffers latents_mean and latents_std. "decode.T" is
what T latent frames become [T',H,W,3], of the numbers named "decode.T" [T,h,w,C]; "encode.T" the
moments of T frames of pixels, of half the numbers named "encode.T", also normalized. The decoder
reads the timestep TIME, and the noise that it adds is the program's for the seed SEED.
"""
import json
import math

import diffusers
import numpy as np
import torch
from diffusers import AutoencoderKLLTX2Video, AutoencoderKLLTXVideo
from diffusers.models.autoencoders import autoencoder_kl_ltx, autoencoder_kl_ltx2
from safetensors.torch import save_file

from ..fill import MASK, mix, weights
from .cog_vae import first, last

TIME, SEED = 0.05, 7
PLAIN = dict(latent_channels=5, block_out_channels=(8, 12, 16), layers_per_block=(1, 2, 1, 1),
             down_block_types=("LTXVideoDownBlock3D",) * 3, downsample_type=("conv",) * 3,
             spatio_temporal_scaling=(True, True, False), patch_size=2,
             decoder_block_out_channels=(8, 12, 16), decoder_layers_per_block=(1, 1, 2, 1),
             decoder_spatio_temporal_scaling=(True, True, False),
             decoder_inject_noise=(False,) * 4, upsample_residual=(False,) * 3,
             upsample_factor=(1,) * 3)
TIMED = dict(PLAIN, spatio_temporal_scaling=(True, True, True),
             decoder_block_out_channels=(16, 32, 64), timestep_conditioning=True,
             decoder_spatio_temporal_scaling=(True, True, True),
             upsample_residual=(True,) * 3, upsample_factor=(2,) * 3)
MOVED = dict(TIMED, block_out_channels=(8, 16, 32, 64, 64), layers_per_block=(1, 1, 1, 1, 1),
             down_block_types=("LTXVideo095DownBlock3D",) * 4,
             downsample_type=("spatial", "temporal", "spatiotemporal", "spatiotemporal"),
             spatio_temporal_scaling=(True,) * 4, spatial_compression_ratio=16,
             temporal_compression_ratio=8)
SECOND = dict(latent_channels=6, block_out_channels=(8, 16, 32, 32), patch_size=1,
              layers_per_block=(1, 1, 1, 1, 1), decoder_block_out_channels=(16, 32, 64),
              decoder_layers_per_block=(1, 2, 1, 1), decoder_causal=False,
              spatial_compression_ratio=8, temporal_compression_ratio=8)
# as in LTX-2.3
TYPES = dict(SECOND, block_out_channels=(12, 24, 24, 24), decoder_layers_per_block=(1, 1, 1, 1, 1),
             decoder_block_out_channels=(16, 32, 32, 64), decoder_inject_noise=(False,) * 5,
             upsample_residual=(False,) * 4, upsample_factor=(2, 2, 1, 2),
             upsample_type=("spatiotemporal", "spatiotemporal", "temporal", "spatial"),
             decoder_spatio_temporal_scaling=(True,) * 4, decoder_spatial_padding_mode="zeros")
# config; latent rows and columns; latent frames to decode; frames to encode; are tiles used
CASES = {
    "plain": (PLAIN, (2, 3), (1, 3), (1, 9), False),
    "causal": (dict(PLAIN, decoder_causal=True, resnet_norm_eps=1e-3, scaling_factor=0.7), (3, 1),
               (1, 2), (5,), False),
    "timed": (TIMED, (1, 2), (1, 2), (9,), False),
    "noise": (dict(TIMED, decoder_inject_noise=(True, False, True, True)), (1, 2), (1, 2), (),
              False),
    "moved": (MOVED, (1, 2), (2,), (1, 17), False),
    "second": (SECOND, (2, 3), (1, 3), (1, 17), False),
    "types": (TYPES, (2, 2), (2,), (9,), False),
    "old": (dict(TYPES, upsample_residual=(True, False, True, True), timestep_conditioning=True,
                 decoder_inject_noise=(True, False, True, True, False), decoder_causal=True,
                 decoder_spatial_padding_mode="reflect"), (3, 2), (1, 2), (), False),
    # tiles of 512 pixels
    "tiles": (PLAIN, (1, 68), (1,), (1,), True),
}


# ---- noise ---------------------------------------------------------------------------------------

def philox(counter, key):
    """Philox 4x32-10 of one counter."""
    c, low = list(counter), (1 << 32) - 1
    k0, k1 = key & low, key >> 32
    for _ in range(10):
        a, b = 0xd2511f53 * c[0], 0xcd9e8d57 * c[2]
        c = [(b >> 32) ^ c[1] ^ k0, b & low, (a >> 32) ^ c[3] ^ k1, a & low]
        k0, k1 = (k0 + 0x9e3779b9) & low, (k1 + 0xbb67ae85) & low
    return c


def normal(n, seed):
    """What xd_noise_philox (src/base/rng.c) makes of a seed."""
    out = []
    for i in range((n + 3) // 4):
        c = philox([i & 0xffffffff, i >> 32, 0, 0], seed)
        for a, b in ((c[0], c[1]), (c[2], c[3])):
            radius = math.sqrt(-2 * math.log((a + 0.5) / 4294967296.0))
            angle = 2 * math.pi * b / 4294967296.0
            out += [radius * math.cos(angle), radius * math.sin(angle)]
    return torch.tensor(np.array(out[:n], np.float32))


def hashed(text):
    h = 0xcbf29ce484222325
    for b in text.encode():
        h = ((h ^ b) * 0x100000001b3) & MASK
    return int(mix(np.array([h], np.uint64))[0])


class Noise:
    """Stands for the module torch of an autoencoder: its randn is the program's noise."""

    def __init__(self):
        self.hash = hash_mix(hashed("decoder noise"), SEED)

    def __getattr__(self, name):
        return getattr(torch, name)

    def randn(self, shape, **_):
        z = normal(math.prod(shape), self.hash >> 1).reshape(shape)
        self.hash = hash_mix(self.hash, 1)
        return z


def hash_mix(h, i):
    with np.errstate(over="ignore"):
        z = np.array([h], np.uint64) + np.uint64(i + 1) * np.uint64(0x9e3779b97f4a7c15)
        return int(mix(z)[0])


# ---- cases ---------------------------------------------------------------------------------------

def fill(vae):
    buffers = [(n, b) for n, b in vae.named_buffers()]
    for name, p in list(vae.named_parameters()) + buffers:
        small = p.ndim < 2 or name.endswith("scale_shift_table") or "per_channel" in name
        gain = 0.1 if small else 0.9 / np.sqrt(np.float32(p[0].numel()))
        mean = 1.0 if p.ndim == 1 and name.endswith(("weight", "std")) else 0.0
        p.data.copy_(weights(name, p.shape, gain, mean))


def run(name, out):
    config, (h, w), decodes, encodes, tiled = CASES[name]
    second = config["latent_channels"] == SECOND["latent_channels"]
    kind, module = ((AutoencoderKLLTX2Video, autoencoder_kl_ltx2) if second else
                    (AutoencoderKLLTXVideo, autoencoder_kl_ltx))
    vae = kind(**config).eval()
    fill(vae)
    if tiled:
        vae.enable_tiling()
    mean, std, keep = vae.latents_mean, vae.latents_std, {}
    c, f, time = vae.config, vae.spatial_compression_ratio, None
    if c.timestep_conditioning:
        time = torch.tensor([TIME])
    for t in decodes:
        z = weights(f"decode.{t}", (t, h, w, c.latent_channels), 1.0, 0.0)
        module.torch = Noise()
        keep[f"decode.{t}"] = last(vae.decode(first(z * std / c.scaling_factor + mean),
                                              time).sample)
        module.torch = torch
    for t in encodes:
        x = weights(f"encode.{t}", (t, h * f, w * f, 3), 0.5, 0.0)
        m = last(vae.encode(first(x)).latent_dist.parameters)
        a, b = m.chunk(2, -1)
        keep[f"encode.{t}"] = torch.cat([(a - mean) / std, b - 2 * std.log()], -1)
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
            run(name, options.out / "ltx-vae")
