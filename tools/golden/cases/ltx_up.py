"""LTX-Video in two passes: latents of a smaller size, a latent upsampler, and a second pass.

Layout and names of tensors as in ltx.py. Sizes are those of the result; the first pass has half as
many rows and columns. latents.I.S are those of the steps of both passes, noise.I and
upsampled_noise.I the noise of either, and upsampled.I the enlarged latents, all [T,C,h,w].
"""
import torch
from diffusers import (FlowMatchEulerDiscreteScheduler, LTXConditionPipeline,
                       LTXLatentUpsamplePipeline)
from diffusers.pipelines.ltx import pipeline_ltx_condition
from diffusers.pipelines.ltx.modeling_latent_upsampler import LTXLatentUpsamplerModel
from transformers import T5Tokenizer

from ..common import make_each, save_run
from ..fill import configure, fill
from . import ltx
from .ltx import condition_notes, make_condition, record_text
from .video import keep_frames
from .wan import FRAMES_FIRST

UPSAMPLER = dict(in_channels=6, mid_channels=32, num_blocks_per_stage=1)
MODELS = {"ltx-up": ltx.MODELS["ltx-cond"]}
RUNS = {
    "ltx-up": dict(prompts=["a blue ring"], negative_prompt="red", width=128, height=192,
                   frames=17, steps=4, seed=51, guidance=2.5, frame_rate=24,
                   given=[dict(image=(70, 37), strength=0.9),
                          dict(image=(33, 21), frame_index=16)],
                   more=dict(decode_timestep=0.4, decode_noise_scale=0.25),
                   change=dict(adain_factor=0.8, tone_map_compression_ratio=0.6),
                   second=dict(denoise_strength=0.65, num_inference_steps=5)),
    # timesteps as published for distilled models: of five steps, four run
    "ltx-up-few": dict(prompts=["a star"], width=128, height=128, frames=9, seed=52, steps=3,
                       guidance=1.0, timesteps=[1000, 981, 725],
                       second=dict(denoise_strength=0.999,
                                   timesteps=[1000, 909, 725, 421, 0])),
    "ltx-up-once": dict(prompts=["a cyan square", "a ring"], width=192, height=128, frames=9,
                        steps=3, seed=53, guidance=1.0, change=dict(adain_factor=1.0),
                        more=dict(decode_timestep=0.3)),
}


def make_model(name, out):
    """Configurations and tokenizer, and the configuration of the latent upsampler."""
    ltx.MODELS[name] = MODELS[name]
    ltx.make_model(name, out)
    configure(upsampler(name), out / "latent_upsampler")


def upsampler(name):
    return fill(LTXLatentUpsamplerModel(**UPSAMPLER), MODELS[name]["weights"])


class Draws:
    """Keeps what a pipeline draws."""

    def __init__(self, module):
        self.module, self.draw, self.kept = module, module.randn_tensor, []
        module.randn_tensor = self.call

    def call(self, *args, **kwargs):
        self.kept.append(self.draw(*args, **kwargs))
        return self.kept[-1].clone()

    def noise(self, before):
        """The noise of the video and of `before` given images with frames before it."""
        return torch.cat([*self.kept[1:1 + before], self.kept[0]], 2)

    def close(self):
        self.module.randn_tensor = self.draw


def run_pass(pipe, r, d, half, out, trail, **more):
    """Latents, or frames, of one pass; the latents of its steps are added to the trail."""
    rows, cols = (r[k] // (2 if half else 1) for k in ("height", "width"))
    channels = pipe.transformer.config.in_channels
    ratio = pipe.vae_spatial_compression_ratio
    before = sum(c.get("frame_index", 0) > 0 for c in r.get("given", []))

    def keep(p, step, t, kw):
        z = kw["latents"].clone().transpose(1, 2)
        trail.append((float(t), z.reshape(z.shape[0], channels, -1, rows // ratio, cols // ratio)))
        return {}
    if "given" in r:
        more["conditions"] = [make_condition(c, r, i, d) for i, c in enumerate(r["given"])]
    count = len(r["prompts"])
    gens = [torch.Generator("cpu").manual_seed(r["seed"] + i) for i in range(count)]
    draws = Draws(pipeline_ltx_condition)
    result = pipe(prompt=r["prompts"], negative_prompt=[r["negative_prompt"]] * count,
                  guidance_scale=r["guidance"], num_frames=r["frames"], height=rows, width=cols,
                  frame_rate=r["frame_rate"], generator=gens if count > 1 else gens[0],
                  callback_on_step_end=keep, max_sequence_length=r["max_sequence_length"],
                  **more).frames
    draws.close()
    noise = draws.noise(before)
    for i in range(count):
        name = f"noise.{i}" if half else f"upsampled_noise.{i}"
        out[name] = noise[i].permute(FRAMES_FIRST)
    return result


def run(name, out_dir):
    r = dict(model="ltx-up", negative_prompt="", guidance=3.0, frame_rate=25, change={}, second={},
             max_sequence_length=13, more={}) | RUNS[name]
    d, where, spec = out_dir / name, out_dir / r["model"], MODELS[r["model"]]
    d.mkdir(parents=True, exist_ok=True)
    ltx.MODELS[r["model"]] = spec
    pipe = LTXConditionPipeline(
        scheduler=FlowMatchEulerDiscreteScheduler.from_pretrained(where / "scheduler"),
        tokenizer=T5Tokenizer.from_pretrained(where / "tokenizer"), **ltx.make_parts(r["model"]))
    enlarge = LTXLatentUpsamplePipeline(vae=pipe.vae, latent_upsampler=upsampler(r["model"]))
    for p in (pipe, enlarge):
        p.set_progress_bar_config(disable=True)
    out, trail, count = {}, [], len(r["prompts"])
    record_text(pipe, r, out)
    first = dict(timesteps=r["timesteps"]) if "timesteps" in r else {}
    z = run_pass(pipe, r, d, True, out, trail, output_type="latent",
                 num_inference_steps=r["steps"], **first)
    size = dict(height=r["height"], width=r["width"])
    large = enlarge(latents=z, output_type="latent", **size, **r["change"]).frames
    if r["second"]:
        frames = run_pass(pipe, r, d, False, out, trail, output_type="pt", latents=large,
                          **r["second"], **r["more"])
    else:
        gens = [torch.Generator("cpu").manual_seed(r["seed"] + i) for i in range(count)]
        frames = enlarge(latents=z, output_type="pt", generator=gens, **size, **r["change"],
                         **r["more"]).frames
    noise = {k: v for k, v in out.items() if k.startswith("noise.")}
    keep_frames(name, r, out, trail, [large[0]] * count, frames, order=FRAMES_FIRST)
    out |= noise
    for i in range(count):
        out[f"upsampled.{i}"] = large[i].permute(FRAMES_FIRST)
    s = r["second"]
    save_run(d, name, r["model"], {
        "weights": spec["weights"], "prompts": r["prompts"],
        "negative_prompt": r["negative_prompt"], "width": r["width"], "height": r["height"],
        "num_frames": r["frames"], "num_inference_steps": r["steps"],
        "guidance_scale": r["guidance"], "seed": r["seed"], "num_images_per_prompt": 1,
        "images": count, "max_sequence_length": r["max_sequence_length"], "scheduler": None,
        "tiling": False, "resolution_binning": False, "latent_upsampler": "latent_upsampler"}
        | ({"fps": r["frame_rate"]} if r["frame_rate"] != 25 else {})
        | r["more"] | r["change"] | condition_notes(r)
        | ({"denoise_strength": s["denoise_strength"]} if s else {})
        | {f"upsampled_{k}": ",".join(map(str, v)) if k == "timesteps" else v
           for k, v in s.items() if k != "denoise_strength"}, out)


def make(names, options):
    make_each(names, options.out, MODELS, make_model, run)
