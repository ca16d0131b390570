"""Wan 2.2: requests of two transformers, in the layout of wan.py. transformer_2 has random weights
of its own: "second." stands before the names of its tensors. wan22-low has no first transformer;
wan22-i2v begins with image.png.

wan-ti2v has a time for each token. With image.png the first frame of its latents is the image's in
all steps, as the transformer reads it; diffusers puts it there at the end.

wan22-lora adds a random LoRA file to each transformer, as diffusers loads them.
"""
import torch
from diffusers import FlowMatchEulerDiscreteScheduler, UniPCMultistepScheduler
from safetensors.torch import save_file

from ..common import make_each, matrices
from . import wan
from .causal_vae import RESIDUAL
from .wan import PEFT, SMALL, UNIPC, VAE


def add_lora(pipe, part, name, scale, seed, d):
    """Writes a file, and adds it to one transformer with diffusers."""
    dit, out = getattr(pipe, part), {}
    g = torch.Generator().manual_seed(seed)
    for i, (m, targets) in enumerate(PEFT.items()):
        down, up = matrices(targets, dit, 2 + i % 2, g)
        out[f"diffusion_model.{m}.lora_A.weight"], out[f"diffusion_model.{m}.lora_B.weight"] = (
            down, up)
    save_file(out, d / f"{name}.safetensors")
    before = {m: dit.get_submodule(m).weight.clone() for targets in PEFT.values()
              for m in targets}
    pipe.load_lora_weights(d, weight_name=f"{name}.safetensors", adapter_name=name,
                           load_into_transformer_2=part == "transformer_2")
    dit.set_adapters([name], [scale])
    dit.fuse_lora(adapter_names=[name])
    dit.unload_lora()
    for m, w in before.items():
        moved = (dit.get_submodule(m).weight - w).abs().max()
        assert moved > 1e-2, (part, m, moved)


def add_both(pipe, r, d):
    for part, key in (("transformer", "loras"), ("transformer_2", "loras_2")):
        for k, scale in r.get(key, {}).items():
            add_lora(pipe, part, k, scale, r["seed"] + len(part), d)


MODELS = {
    "wan22": dict(dit=SMALL, boundary=0.85, weights="bf16", add_loras=add_both,
                  scheduler=UniPCMultistepScheduler(**UNIPC)),
    "wan22-two": dict(dit=dict(SMALL, num_attention_heads=5, attention_head_dim=10, num_layers=3),
                      boundary=0.8, weights="f16",
                      scheduler=FlowMatchEulerDiscreteScheduler(shift=5.0)),
    "wan22-low": dict(dit=SMALL, boundary=1.0, weights="bf16", only_low=True,
                      scheduler=UniPCMultistepScheduler(**UNIPC)),
    "wan22-i2v": dict(dit=dict(SMALL, in_channels=12), clip=None, boundary=0.9, weights="bf16",
                      scheduler=UniPCMultistepScheduler(**UNIPC)),
    "wan-ti2v": dict(dit=SMALL, index=dict(expand_timesteps=True), weights="bf16",
                     vae=dict(RESIDUAL, z_dim=4, latents_mean=VAE["latents_mean"],
                              latents_std=VAE["latents_std"]),
                     scheduler=UniPCMultistepScheduler(**UNIPC)),
}
RUNS = {
    "wan22": dict(prompts=["a red circle"], negative_prompt="a green ring", width=64, height=48,
                  frames=9, steps=5, seed=3, guidance=4.0, guidance_scale_2=2.5),
    "wan22-two": dict(prompts=["a purple ring", "a star"], negative_prompt="", width=32, height=48,
                      frames=5, steps=4, seed=41, guidance=3.0, guidance_scale_2=1.0,
                      boundary_ratio=0.9),
    "wan22-one": dict(model="wan22", prompts=["a star"], width=32, height=32, frames=1, steps=3,
                      seed=42, guidance=1.0, guidance_scale_2=1.0, boundary_ratio=0.9),
    "wan22-low": dict(prompts=["a blue square"], negative_prompt="a ring", width=32, height=48,
                      frames=5, steps=2, seed=5, guidance=2.0, guidance_scale_2=3.0),
    "wan22-lora": dict(model="wan22", prompts=["a white star"], width=32, height=48, frames=5,
                       steps=3, seed=72, guidance=1.0, loras={"high": 0.6}, loras_2={"low": -0.7}),
    "wan22-i2v": dict(prompts=["a cyan triangle"], negative_prompt="a ring", width=48, height=32,
                      frames=9, steps=3, seed=86, guidance=3.5, image=(40, 56)),
    "wan-ti2v": dict(prompts=["a red circle", "a star"], negative_prompt="a ring", width=96,
                     height=64, frames=9, steps=4, seed=87, guidance=4.0, image=(50, 41)),
    "wan-ti2v-text": dict(model="wan-ti2v", prompts=["a purple star"], width=64, height=96,
                          frames=5, steps=2, seed=88),
}


def make(names, options):
    wan.MODELS |= MODELS
    wan.RUNS |= RUNS
    make_each(names, options.out, MODELS, wan.make_model, wan.run)
