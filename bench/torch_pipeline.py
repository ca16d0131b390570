#!/usr/bin/env python3
"""Seconds of pipelines of diffusers by themselves and with xdit.accelerate, in one run.

usage: torch_pipeline.py [FAMILY...] [--size 512] [--steps 2] [--rounds 3] [--dtype bf16]
                         [--threads N]

FAMILY is flux (4 + 8 blocks of width 1536, 512 rows of text) or pixart (14 blocks of width 1152,
120 rows of text, guidance); the weights are random, and so are the embeddings of the text. Every
round runs each pipeline in turn: torch's, with weights in place, and with copies of them. A round
before them warms up. Needs the package xdit, torch and diffusers.
"""
import argparse
import copy
import statistics
import time

import need

need.packages("torch", "diffusers", "xdit")
import diffusers
import torch
import xdit

p = argparse.ArgumentParser()
p.add_argument("families", nargs="*", default=["flux", "pixart"])
p.add_argument("--size", type=int, default=512)
p.add_argument("--steps", type=int, default=2)
p.add_argument("--rounds", type=int, default=3)
p.add_argument("--dtype", choices=("bf16", "f32"), default="bf16")
p.add_argument("--threads", type=int, default=0)
a = p.parse_args()
dtype = torch.bfloat16 if a.dtype == "bf16" else torch.float32
if a.threads:
    torch.set_num_threads(a.threads)
torch.manual_seed(0)
diffusers.utils.logging.set_verbosity_error()


def vae(channels, **more):
    return diffusers.AutoencoderKL(
        down_block_types=("DownEncoderBlock2D",) * 4, up_block_types=("UpDecoderBlock2D",) * 4,
        block_out_channels=(128, 256, 512, 512), layers_per_block=2, latent_channels=channels,
        sample_size=a.size, **more)


def flux():
    part = diffusers.FluxTransformer2DModel(
        num_layers=4, num_single_layers=8, num_attention_heads=12, joint_attention_dim=4096,
        guidance_embeds=True)
    pipe = diffusers.FluxPipeline(
        scheduler=diffusers.FlowMatchEulerDiscreteScheduler(), text_encoder=None, tokenizer=None,
        text_encoder_2=None, tokenizer_2=None, transformer=part.to(dtype).eval(),
        vae=vae(16, scaling_factor=0.3611, shift_factor=0.1159, use_quant_conv=False,
                use_post_quant_conv=False).to(dtype).eval())
    return pipe, {"prompt_embeds": torch.randn(1, 512, 4096, dtype=dtype),
                  "pooled_prompt_embeds": torch.randn(1, 768, dtype=dtype)}


def pixart():
    part = diffusers.PixArtTransformer2DModel(
        num_layers=14, num_attention_heads=16, attention_head_dim=72, in_channels=4, out_channels=8,
        cross_attention_dim=1152, caption_channels=4096, sample_size=64,
        use_additional_conditions=False)
    pipe = diffusers.PixArtAlphaPipeline(
        scheduler=diffusers.DPMSolverMultistepScheduler(), text_encoder=None, tokenizer=None,
        transformer=part.to(dtype).eval(), vae=vae(4).to(dtype).eval())
    text, mask = torch.randn(1, 120, 4096, dtype=dtype), torch.ones(1, 120)
    return pipe, {"prompt_embeds": text, "negative_prompt_embeds": text.flip(1), "prompt": None,
                  "negative_prompt": None, "prompt_attention_mask": mask,
                  "negative_prompt_attention_mask": mask, "use_resolution_binning": False}


def once(pipe, args):
    """Seconds of a step, and of decoding."""
    t = time.perf_counter()
    out = pipe(height=a.size, width=a.size, num_inference_steps=a.steps, output_type="latent",
               generator=torch.Generator().manual_seed(1), **args)
    step = (time.perf_counter() - t) / a.steps
    latents = torch.randn(1, pipe.vae.config.latent_channels, a.size // 8, a.size // 8, dtype=dtype)
    t = time.perf_counter()
    with torch.no_grad():
        pipe.vae.decode(latents)
    return step, time.perf_counter() - t, out.images


def measure(family):
    """One table row for each pipeline: the median, the least and the most of the rounds."""
    pipe, args = {"flux": flux, "pixart": pixart}[family]()
    pipe.set_progress_bar_config(disable=True)
    pipes = {"torch": pipe, "in place": copy.deepcopy(pipe), "copied": copy.deepcopy(pipe)}
    xdit.accelerate(pipes["in place"], threads=a.threads)
    t = time.perf_counter()
    xdit.accelerate(pipes["copied"], threads=a.threads, copy=True)
    packing, seen = time.perf_counter() - t, {name: [] for name in pipes}
    for i in range(a.rounds + 1):
        for name, q in pipes.items():
            step, decode, latents = once(q, args)
            if i:
                seen[name].append((step, decode))
            elif name == "torch":
                want = latents.float()
            else:
                assert (latents.float() - want).abs().max() < 0.2 * want.abs().max()
    plain = [statistics.median(v) for v in zip(*seen["torch"])]
    for name, rounds in seen.items():
        cells = []
        for k, times in enumerate(zip(*rounds)):
            m = statistics.median(times)
            cells.append(f"{m:.3g} ({min(times):.3g}-{max(times):.3g}) | {plain[k] / m:.2f}")
        print(f"| {family}, {a.size}, {a.dtype} | {name} | {' | '.join(cells)} |", flush=True)
    print(f"packing the copies took {packing:.2f} s")


print(f"torch {torch.__version__}, diffusers {diffusers.__version__}, "
      f"{torch.get_num_threads()} threads, {xdit.about()['kernels']}")
print("| pipeline | weights | step, s | ratio | decode, s | ratio |\n|---|---|--:|--:|--:|--:|")
for name in a.families:
    measure(name)
