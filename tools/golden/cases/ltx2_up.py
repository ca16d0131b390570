"""LTX-2 in two passes: latents of a smaller size, a latent upsampler, and a second pass that mixes
noise with the enlarged latents and with those of the audio.

Layout and names of tensors as in ltx2.py. Sizes are those of the result; the first pass has half as
many rows and columns. latents.I.S and audio_latents.I.S are those of the steps of both passes,
noise.I and upsampled_noise.I the noise of either, and upsampled.I the enlarged latents, all
[T,C,h,w]. The config of the latent upsampler is in the folder of ltx2.
"""
import torch
from diffusers import (FlowMatchEulerDiscreteScheduler, LTX2ConditionPipeline,
                       LTX2LatentUpsamplePipeline, LTX2Pipeline)
from diffusers.pipelines.ltx2 import pipeline_ltx2, pipeline_ltx2_condition
from diffusers.pipelines.ltx2.utils import STAGE_2_DISTILLED_SIGMA_VALUES

from ..common import make_each, save_run
from . import ltx2
from .lumina2 import load_tokenizer
from .video import keep_frames
from .wan import FRAMES_FIRST

RUNS = {
    "ltx2-up": dict(prompts=["a blue ring"], negative_prompt="red", width=192, height=128,
                    frames=9, steps=3, seed=51, own=ltx2.OFF, guidance=2.5),
    # as published for distilled models, with given images in both passes
    "ltx2-up-cond": dict(prompts=["a star, a Loud bell"], width=128, height=192, frames=17,
                         steps=3, seed=52, guidance=1.0, own=ltx2.OFF, second=[0.8, 0.5],
                         change=dict(adain_factor=0.7, tone_map_compression_ratio=0.4),
                         given=[dict(image=(70, 37), strength=0.9),
                                dict(image=(33, 21), index=-1)]),
}


class Draws:
    """Keeps the noise that a pipeline draws."""

    def __init__(self, module):
        self.module, self.draw, self.kept = module, module.randn_tensor, []
        module.randn_tensor = self.call

    def call(self, *args, **kwargs):
        self.kept.append(self.draw(*args, **kwargs))
        return self.kept[-1].clone()

    def close(self):
        self.module.randn_tensor = self.draw


def run_pass(pipe, r, d, half, out, trail, **more):
    """Latents, or frames, and audio of one pass; the latents of its steps are added to the
    trail."""
    rows, cols = (r[k] // (2 if half else 1) for k in ("height", "width"))
    ratio, frames = pipe.vae_spatial_compression_ratio, (r["frames"] - 1) // 8 + 1

    def unpack(z):
        if z.ndim == 5:
            return z
        z = z.transpose(1, 2).reshape(1, z.shape[2], -1, rows // ratio, cols // ratio)
        return torch.cat([z[:, :, frames:], z[:, :, :frames]], 2)

    def unpack_audio(z):
        z = z.unflatten(2, (ltx2.AUDIO_VAE["latent_channels"], -1)) if z.ndim == 3 else z
        return (z.transpose(1, 2) if z.shape[1] != 8 else z)[0].contiguous()

    def keep(p, step, t, kw):
        out[f"audio_latents.0.{len(trail)}"] = unpack_audio(kw["audio_latents"].clone())
        trail.append((float(t), unpack(kw["latents"].clone())))
        return {}
    if "given" in r:
        more["conditions"] = [ltx2.make_condition(c, r, i, d) for i, c in enumerate(r["given"])]
    draws = Draws(pipeline_ltx2_condition if "given" in r else pipeline_ltx2)
    result = pipe(prompt=r["prompts"], negative_prompt=[r["negative_prompt"]],
                  guidance_scale=r["guidance"], num_frames=r["frames"], height=rows, width=cols,
                  frame_rate=24, generator=torch.Generator("cpu").manual_seed(r["seed"]),
                  callback_on_step_end=keep, max_sequence_length=r["max_sequence_length"],
                  callback_on_step_end_tensor_inputs=["latents", "audio_latents"], **r["own"],
                  **more)
    draws.close()
    video, sound = draws.kept
    out["noise.0" if half else "upsampled_noise.0"] = unpack(video)[0].permute(FRAMES_FIRST)
    if half:
        out["audio_noise.0"] = unpack_audio(sound)
    return result


def run(name, out_dir):
    r = dict(model="ltx2", negative_prompt="", change={}, max_sequence_length=12,
             second=STAGE_2_DISTILLED_SIGMA_VALUES) | RUNS[name]
    d, where, spec = out_dir / name, out_dir / r["model"], ltx2.MODELS[r["model"]]
    d.mkdir(parents=True, exist_ok=True)
    scheduler = FlowMatchEulerDiscreteScheduler.from_pretrained(where / "scheduler")
    pipe = (LTX2ConditionPipeline if "given" in r else LTX2Pipeline)(
        scheduler=scheduler, tokenizer=load_tokenizer(where / "tokenizer"),
        **ltx2.make_parts(r["model"]))
    pipe.tokenizer_padding_side = "left"
    pipe._callback_tensor_inputs = ["latents", "audio_latents"]
    enlarge = LTX2LatentUpsamplePipeline(vae=pipe.vae, latent_upsampler=ltx2.make_upsampler())
    for p in (pipe, enlarge):
        p.set_progress_bar_config(disable=True)
    out, trail = {}, []
    ltx2.record_text(pipe, r, out)
    first = run_pass(pipe, r, d, True, out, trail, output_type="latent",
                     num_inference_steps=r["steps"])
    large = enlarge(latents=first.frames, output_type="latent", height=r["height"] // 2,
                    width=r["width"] // 2, num_frames=r["frames"], **r["change"]).frames
    pipe.scheduler = FlowMatchEulerDiscreteScheduler.from_config(
        scheduler.config, use_dynamic_shifting=False, shift_terminal=None)
    result = run_pass(pipe, r, d, False, out, trail, output_type="pt", latents=large,
                      audio_latents=first.audio, sigmas=r["second"], noise_scale=r["second"][0],
                      num_inference_steps=len(r["second"]))
    for i, wave in enumerate(result.audio):
        out[f"audio.{i}"] = wave.T.contiguous()
    noise = out["noise.0"]
    keep_frames(name, r, out, trail, [large[0]], result.frames, order=FRAMES_FIRST)
    out["noise.0"] = noise
    mean, std = pipe.vae.latents_mean, pipe.vae.latents_std
    shape = (-1, 1, 1, 1)
    out["upsampled.0"] = ((large[0] - mean.view(shape)) / std.view(shape)).permute(FRAMES_FIRST)
    save_run(d, name, r["model"], {
        "weights": spec["weights"], "prompts": r["prompts"],
        "negative_prompt": r["negative_prompt"], "width": r["width"], "height": r["height"],
        "num_frames": r["frames"], "num_inference_steps": r["steps"],
        "guidance_scale": r["guidance"], "seed": r["seed"], "num_images_per_prompt": 1,
        "images": 1, "max_sequence_length": r["max_sequence_length"], "scheduler": None,
        "tiling": False, "resolution_binning": False, "latent_upsampler": "latent_upsampler"}
        | r["own"] | r["change"] | ltx2.condition_notes(r)
        | ({"upsampled_sigmas": ",".join(map(str, r["second"]))} if "second" in RUNS[name]
           else {}), out)


def make(names, options):
    make_each(names, options.out, {}, None, run)
