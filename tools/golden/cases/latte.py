"""Latte: whole requests with random weights.

Layout and names of tensors as in video.py, with latents [T,C,h,w]. Embeddings have the rows of all
padded tokens; of those the transformer reads as many as the prompt has tokens. The pipeline always
pads to 120 tokens; here rows behind max_sequence_length, which it does not read, are left out.
"""
import json
import shutil

import torch
from diffusers import (AutoencoderKL, DDIMScheduler, DPMSolverMultistepScheduler, LattePipeline,
                       LatteTransformer3DModel)
from transformers import T5Config, T5EncoderModel, T5Tokenizer

from ..common import PLAIN, make_each, make_tokenizer, save_run, tidy
from ..fill import configure, fill
from .video import keep_frames

FRAMES_FIRST = (1, 0, 2, 3)
# As in pixart.py: gentler than the published ones, which let errors grow.
SCALED = dict(beta_schedule="scaled_linear", beta_start=0.00085, beta_end=0.006)
T5 = dict(d_model=24, d_kv=8, num_heads=3, d_ff=40, num_layers=2, feed_forward_proj="gated-gelu")
DIT = dict(attention_head_dim=8, in_channels=4, out_channels=8, attention_bias=True, patch_size=2,
           activation_fn="gelu-approximate", norm_type="ada_norm_single",
           norm_elementwise_affine=False, norm_eps=1e-6, num_embeds_ada_norm=1000,
           caption_channels=24, sample_size=16)
VAE = dict(block_out_channels=(8, 8, 12), layers_per_block=1, norm_num_groups=4, latent_channels=4,
           sample_size=64, scaling_factor=0.6, **PLAIN(3))

MODELS = {
    "latte": dict(dit=dict(DIT, num_attention_heads=5, cross_attention_dim=40, num_layers=2,
                           video_length=5),
                  scheduler=DDIMScheduler(clip_sample=False, **SCALED), weights="bf16"),
    # one layer of each kind, and two heads
    "latte-dpm": dict(dit=dict(DIT, num_attention_heads=2, cross_attention_dim=16, num_layers=1,
                               video_length=3),
                      scheduler=DPMSolverMultistepScheduler(**SCALED), weights="f16"),
}
RUNS = {
    "latte": dict(prompts=["A large Red circle, on a blue background"], frames=5, width=40,
                  height=56, steps=3, seed=7, guidance=4.0),
    # One frame has no position. The negative prompt is longer than the prompt.
    "latte-one": dict(model="latte", prompts=["two stars"],
                      negative="a green ring on a brown square", frames=1, width=48, height=40,
                      steps=3, seed=8, guidance=3.0),
    "latte-dpm": dict(prompts=["a red star"], frames=3, width=32, height=48, steps=4, seed=9,
                      guidance=1.0),
}


def make_parts(name):
    spec = MODELS[name]
    text = T5Config(vocab_size=88, dropout_rate=0.0, pad_token_id=0, eos_token_id=1, **T5)
    return dict(text_encoder=fill(T5EncoderModel(text), spec["weights"]),
                transformer=fill(LatteTransformer3DModel(**spec["dit"]), spec["weights"]),
                vae=fill(AutoencoderKL(**VAE), spec["weights"]))


def make_model(name, out):
    """Configurations and tokenizer."""
    spec = MODELS[name]
    if out.exists():
        shutil.rmtree(out)
    index = {"_class_name": "LattePipeline", "tokenizer": ["transformers", "T5Tokenizer"],
             "scheduler": ["diffusers", type(spec["scheduler"]).__name__]}
    for folder, m in make_parts(name).items():
        configure(m, out / folder)
        index[folder] = ["transformers" if folder == "text_encoder" else "diffusers",
                         type(m).__name__]
    make_tokenizer("identity", out / "tokenizer")
    spec["scheduler"].save_pretrained(out / "scheduler")
    (out / "model_index.json").write_text(json.dumps(index))
    tidy(out, {})


def record_text(pipe, r, out):
    n = r["max_sequence_length"]
    both = pipe.encode_prompt(r["prompts"][0], True, negative_prompt=r["negative"],
                              clean_caption=False, mask_feature=False)
    for prefix, text, e in zip(("", "negative_")[:1 + (r["guidance"] > 1)],
                               (r["prompts"][0], r["negative"]), both):
        out[prefix + "ids"] = pipe.tokenizer(
            text.lower(), padding="max_length", max_length=n, truncation=True,
            return_tensors="pt").input_ids[0].int()
        out[prefix + "prompt_embeds"] = e[0, :n]


def run(name, out_dir):
    r = dict(model=name, negative="", max_sequence_length=24) | RUNS[name]
    d, spec = out_dir / name, MODELS[r["model"]]
    d.mkdir(parents=True, exist_ok=True)
    pipe = LattePipeline(tokenizer=T5Tokenizer.from_pretrained(out_dir / r["model"] / "tokenizer"),
                         scheduler=spec["scheduler"], **make_parts(r["model"]))
    pipe.set_progress_bar_config(disable=True)
    out, trail, noise, prepare = {}, [], [], pipe.prepare_latents
    record_text(pipe, r, out)

    def watched(*args, **kwargs):
        noise.append(prepare(*args, **kwargs))
        return noise[0]
    pipe.prepare_latents = watched

    def keep(p, step, t, kw):
        trail.append((float(t), kw["latents"].clone()))
        return {}
    frames = pipe(prompt=r["prompts"][0], negative_prompt=r["negative"],
                  num_inference_steps=r["steps"], guidance_scale=r["guidance"],
                  video_length=r["frames"], height=r["height"], width=r["width"],
                  generator=torch.Generator("cpu").manual_seed(r["seed"]), output_type="pt",
                  clean_caption=False, callback_on_step_end=keep).frames
    keep_frames(name, r, out, trail, noise[0] / pipe.scheduler.init_noise_sigma, frames,
                order=FRAMES_FIRST)
    save_run(d, name, r["model"], {
        "weights": spec["weights"], "prompts": r["prompts"], "negative_prompt": r["negative"],
        "width": r["width"], "height": r["height"], "num_frames": r["frames"],
        "num_inference_steps": r["steps"], "guidance_scale": r["guidance"], "seed": r["seed"],
        "num_images_per_prompt": 1, "images": 1, "max_sequence_length": r["max_sequence_length"],
        "scheduler": None, "tiling": False, "resolution_binning": False}, out)


def make(names, options):
    make_each(names, options.out, MODELS, make_model, run)
