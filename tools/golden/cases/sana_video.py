"""SANA-Video: linear attention with RoPE, and a feed-forward that convolves rows, columns and
frames. Texts as in sana.py, videos as in wan.py.

sana-video-five has learned sigmas and patches of one cell, sana-video-720 the autoencoder of LTX-2.
sana-video-720, sana-video-i2v and sana-video-still start from an image.
"""
import inspect
import json
import shutil

import torch
from diffusers import (AutoencoderKLLTX2Video, AutoencoderKLWan, DPMSolverMultistepScheduler,
                       FlowMatchEulerDiscreteScheduler, SanaImageToVideoPipeline,
                       SanaVideoPipeline, SanaVideoTransformer3DModel)
from diffusers.pipelines.sana_video import pipeline_sana_video_i2v
from transformers import Gemma2Config, Gemma2Model

from ..common import add_loras, make_each, make_image, save_run, tidy
from ..fill import configure, fill
from ..lm_vocab import gemma
from .lumina2 import load_tokenizer
from .ltx_vae import SECOND
from .sana import FLOW, GEMMA, KOHYA, PEFT, record_text
from .video import keep_frames
from .wan import FRAMES_FIRST, VAE

INSTRUCTION = inspect.signature(
    SanaVideoPipeline.__call__).parameters["complex_human_instruction"].default
WORDS = ["\n".join(INSTRUCTION) + "a large red circle on a blue background"] * 3
DIT = dict(in_channels=4, caption_channels=48, sample_size=16)
MODELS = {
    "sana-video": dict(dit=dict(num_attention_heads=5, attention_head_dim=12, num_layers=3,
                                num_cross_attention_heads=3, cross_attention_head_dim=20,
                                cross_attention_dim=60, mlp_ratio=1.55, out_channels=4, **DIT),
                       weights="bf16",
                       scheduler=DPMSolverMultistepScheduler(**FLOW | {"flow_shift": 8.0})),
    "sana-video-five": dict(dit=dict(num_attention_heads=5, attention_head_dim=16, num_layers=2,
                                     num_cross_attention_heads=2, cross_attention_head_dim=40,
                                     cross_attention_dim=80, mlp_ratio=2.0, attention_bias=True,
                                     out_channels=8, patch_size=[1, 1, 1], qk_norm=None, **DIT),
                            weights="f16", scheduler=FlowMatchEulerDiscreteScheduler(shift=8.0)),
    "sana-video-720": dict(dit=dict(num_attention_heads=3, attention_head_dim=16, num_layers=2,
                                    num_cross_attention_heads=3, cross_attention_head_dim=16,
                                    cross_attention_dim=48, mlp_ratio=3.0, out_channels=6,
                                    patch_size=[1, 1, 1], **DIT | dict(in_channels=6)),
                           vae=SECOND | dict(patch_size=4, spatial_compression_ratio=32),
                           weights="bf16",
                           scheduler=DPMSolverMultistepScheduler(**FLOW | {"flow_shift": 8.0})),
}
RUNS = {
    "sana-video": dict(prompts=["A large Red circle, on a blue background"], width=80, height=48,
                       frames=12, steps=4, seed=7, guidance=6.0, negative_prompt="a green ring"),
    "sana-video-five": dict(prompts=["a Ring", "two stars"], width=24, height=32, frames=5,
                            steps=3, seed=8, guidance=3.0, system="Paint.\nUser: "),
    "sana-video-720": dict(prompts=["A cyan Triangle"], width=96, height=64, frames=20, steps=3,
                           seed=33, guidance=4.0, negative_prompt="a star", system="Paint: ",
                           image=(50, 30)),
    "sana-video-i2v": dict(model="sana-video", prompts=["A blue Square"], width=48, height=80,
                           frames=9, steps=4, seed=31, guidance=6.0, negative_prompt="red",
                           image=(70, 37)),
    "sana-video-still": dict(model="sana-video-five", prompts=["a star", "a Ring"], width=40,
                             height=24, frames=5, steps=3, seed=32, guidance=1.0, system="",
                             image=(24, 40)),
    "sana-video-lora": dict(model="sana-video", prompts=["A large Red circle"], width=32, height=48,
                            frames=5, steps=2, seed=75, guidance=1.0, system="Paint: ",
                            loras=dict(peft=0.7, kohya=-0.4)),
}


def make_parts(name):
    spec = MODELS[name]
    config = Gemma2Config(**GEMMA)
    config._attn_implementation = "eager"       # the others have no soft cap
    parts = {"text_encoder": Gemma2Model(config),
             "transformer": SanaVideoTransformer3DModel(**spec["dit"]),
             "vae": (AutoencoderKLLTX2Video(**spec["vae"]) if "vae" in spec else
                     AutoencoderKLWan(**VAE))}
    return {folder: fill(m, spec["weights"]) for folder, m in parts.items()}


def make_model(name, out):
    """Configurations and the tokenizer."""
    if out.exists():
        shutil.rmtree(out)
    scheduler = MODELS[name]["scheduler"]
    index = {"_class_name": "SanaVideoPipeline",
             "tokenizer": ["transformers", "GemmaTokenizerFast"],
             "scheduler": ["diffusers", type(scheduler).__name__]}
    for folder, m in make_parts(name).items():
        configure(m, out / folder)
        index[folder] = ["transformers" if folder == "text_encoder" else "diffusers",
                         type(m).__name__]
    gemma(out / "tokenizer", WORDS, 120)
    scheduler.save_pretrained(out / "scheduler")
    (out / "model_index.json").write_text(json.dumps(index))
    tidy(out, {})


def run(name, out_dir):
    """One request."""
    r = dict(model=name, negative_prompt="", system=None, length=300, loras={}) | RUNS[name]
    r["instruction"] = (INSTRUCTION if r["system"] is None else
                        r["system"].split("\n") if r["system"] else [])
    d = out_dir / name
    d.mkdir(parents=True, exist_ok=True)
    spec = MODELS[r["model"]]
    kind = SanaImageToVideoPipeline if "image" in r else SanaVideoPipeline
    pipe = kind(scheduler=spec["scheduler"], **make_parts(r["model"]),
                tokenizer=load_tokenizer(out_dir / r["model"] / "tokenizer"))
    pipe.set_progress_bar_config(disable=True)
    pipe.check_inputs = lambda *a, **k: None    # which only takes multiples of 32 pixels
    assert len(pipe.tokenizer) <= GEMMA["vocab_size"], len(pipe.tokenizer)
    if r["loras"]:
        add_loras(pipe, r, d, PEFT, KOHYA, merges=True)
    count = len(r["prompts"])
    gens = [torch.Generator("cpu").manual_seed(r["seed"] + i) for i in range(count)]
    out, trail, noise = {}, [], []
    record_text(pipe, r, out)
    prepare, draw, more = pipe.prepare_latents, pipeline_sana_video_i2v.randn_tensor, {}

    def watched(*args, **kwargs):
        z = prepare(*args, **kwargs)
        if "image" not in r:
            noise.append(z)
        return z

    def drawn(*args, **kwargs):         # before the image replaces the first frame
        noise.append(draw(*args, **kwargs))
        return noise[-1].clone()
    pipe.prepare_latents = watched
    pipeline_sana_video_i2v.randn_tensor = drawn
    if "image" in r:
        more["image"] = make_image(r["image"], r["seed"])
        more["image"].save(d / "image.png")

    def keep(p, step, t, kw):
        trail.append((float(t), kw["latents"].clone()))
        return {}
    frames = pipe(prompt=list(r["prompts"]), negative_prompt=[r["negative_prompt"]] * count,
                  num_inference_steps=r["steps"], guidance_scale=r["guidance"],
                  height=r["height"], width=r["width"], frames=r["frames"], generator=gens,
                  output_type="pt", use_resolution_binning=False,
                  max_sequence_length=r["length"], complex_human_instruction=r["instruction"],
                  callback_on_step_end=keep, **more).frames
    pipeline_sana_video_i2v.randn_tensor = draw
    keep_frames(name, r, out, trail, noise[0], frames, order=FRAMES_FIRST)
    save_run(d, name, r["model"], {
        "weights": spec["weights"], "prompts": r["prompts"],
        "negative_prompt": r["negative_prompt"], "width": r["width"], "height": r["height"],
        "num_frames": r["frames"], "num_inference_steps": r["steps"],
        "guidance_scale": r["guidance"], "seed": r["seed"], "num_images_per_prompt": 1,
        "images": count, "max_sequence_length": r["length"], "scheduler": None, "tiling": False,
        "resolution_binning": False}
        | ({} if r["system"] is None else {"system_prompt": r["system"]})
        | ({"image": 1} if "image" in r else {})
        | ({"loras": [{"path": f"{k}.safetensors", "scale": v} for k, v in r["loras"].items()]}
           if r["loras"] else {}), out)


def make(names, options):
    make_each(names, options.out, MODELS, make_model, run)
