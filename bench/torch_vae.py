#!/usr/bin/env python3
"""Seconds and memory of AutoencoderKL's decode in diffusers and PyTorch, eager, with random
weights: what `xdit bench --config DIR --random_weights --parts vae` is compared with.

usage: torch_vae.py VAE_CONFIG_DIR SIZE [--threads 2] [--repeats 1] [--dtype bf16|f32]
[--channels_last]
                    [--tiling]

One decode warms up unless --cold. Prints the times, and the most memory that was resident.
"""
import argparse
import json
import resource
import time

import need

need.packages("torch", "diffusers")
import torch
from diffusers import AutoencoderKL

p = argparse.ArgumentParser()
p.add_argument("config")
p.add_argument("size", type=int)
p.add_argument("--threads", type=int, default=2)
p.add_argument("--repeats", type=int, default=1)
p.add_argument("--dtype", choices=("bf16", "f32"), default="bf16")
p.add_argument("--channels_last", action="store_true")
p.add_argument("--tiling", action="store_true")
p.add_argument("--cold", action="store_true", help="time the first decode")
a = p.parse_args()

torch.set_num_threads(a.threads)
torch.manual_seed(0)
dtype = torch.bfloat16 if a.dtype == "bf16" else torch.float32
with open(a.config + "/config.json") as f:
    config = {k: v for k, v in json.load(f).items() if not k.startswith("_")}
vae = AutoencoderKL(**config).to(dtype).eval()
if a.channels_last:
    vae = vae.to(memory_format=torch.channels_last)
if a.tiling:
    vae.enable_tiling()
side = a.size >> (len(config["block_out_channels"]) - 1)
z = torch.randn(1, config["latent_channels"], side, side, dtype=dtype)
if a.channels_last:
    z = z.contiguous(memory_format=torch.channels_last)


def decode():
    t = time.perf_counter()
    with torch.inference_mode():
        vae.decode(z, return_dict=False)
    return time.perf_counter() - t


if not a.cold:
    decode()
times = [decode() for _ in range(a.repeats)]
rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
print(f"torch {torch.__version__}, {a.dtype}, {a.threads} threads, "
      f"{'channels last' if a.channels_last else 'channels first'}"
      f": decode {a.size} x {a.size} " + " ".join(f"{t:.3f}"
                                                  for t in times) + f" s, {rss:.3f} GB resident")
