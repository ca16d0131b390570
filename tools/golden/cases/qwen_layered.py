"""Qwen-Image-Layered: an image with alpha in three layers, with guidance; one without in one layer;
one in two layers, with cfg_normalize.

Layout and names of tensors as in joint.py. A model's directory has no weights, as in joint.py. The
area of the image is max_area's (resolution), as a tiny model has no use for 640 x 640 pixels.
Latents and noise are [layers + 1,C,h,w], pixels [layers,H,W,4], or [H,W,4] of one layer. Latents
do not have 4 channels, because the pipeline takes an image of as many channels for latents.
"""
import json
import shutil

import diffusers.pipelines.qwenimage.pipeline_qwenimage_layered as module
import torch
from diffusers import (AutoencoderKLQwenImage, FlowMatchEulerDiscreteScheduler,
                       QwenImageLayeredPipeline, QwenImageTransformer2DModel)
from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

from ..common import (add_alpha, keep_images, make_each, make_image, save_run, say_images, tidy)
from ..fill import configure, fill
from .flux2 import load_tokenizer, make_tokenizer
from .qwen import LAYERED, SCHEDULER, TEXT
from .qwen import VAE as RGB

VAE = RGB | dict(z_dim=6, input_channels=4, latents_mean=[-0.4, 0.1, 0.7, -0.2, 0.3, 0.0],
                 latents_std=[2.5, 0.8, 1.4, 0.6, 1.1, 0.9])
DIT = LAYERED | dict(in_channels=24, out_channels=6)

MODELS = {
    "qwen-layered": dict(weights="bf16", dit=dict(num_attention_heads=3, num_layers=2, **DIT)),
}
RUNS = {
    "qwen-layered": dict(prompt="two stars on a purple ring", size=(60, 33), alpha=True,
                         area=64 * 32, layers=3, steps=3, seed=41, negative=" ", true_cfg=4.0),
    "qwen-layered-one": dict(model="qwen-layered", prompt="a cyan triangle", size=(40, 47),
                             area=32 * 32, layers=1, steps=2, seed=42),
    "qwen-layered-norm": dict(model="qwen-layered", prompt="a red ring", size=(40, 60),
                              area=32 * 48, layers=2, steps=3, seed=43, negative="a star",
                              true_cfg=5.0, normalize=True),
}


# ---- models --------------------------------------------------------------------------------------

def make_parts(name):
    spec = MODELS[name]
    parts = {"text_encoder": Qwen2_5_VLForConditionalGeneration(Qwen2_5_VLConfig(**TEXT)),
             "transformer": QwenImageTransformer2DModel(**spec["dit"]),
             "vae": AutoencoderKLQwenImage(**VAE)}
    return {folder: fill(m, spec["weights"]) for folder, m in parts.items()}


def make_model(name, out):
    """Configurations and the tokenizer."""
    if out.exists():
        shutil.rmtree(out)
    index = {"_class_name": "QwenImageLayeredPipeline",
             "tokenizer": ["transformers", "Qwen2Tokenizer"],
             "processor": ["transformers", "Qwen2VLProcessor"],
             "scheduler": ["diffusers", "FlowMatchEulerDiscreteScheduler"]}
    for folder, m in make_parts(name).items():
        configure(m, out / folder)
        index[folder] = ["transformers" if folder == "text_encoder" else "diffusers",
                         type(m).__name__]
    make_tokenizer(out / "tokenizer")
    FlowMatchEulerDiscreteScheduler(**SCHEDULER).save_pretrained(out / "scheduler")
    (out / "model_index.json").write_text(json.dumps(index))
    tidy(out, {})


def load(model, out):
    d = out / model
    pipe = QwenImageLayeredPipeline(
        scheduler=FlowMatchEulerDiscreteScheduler.from_pretrained(d / "scheduler"),
        tokenizer=load_tokenizer(d / "tokenizer", False), processor=None, **make_parts(model))
    pipe.set_progress_bar_config(disable=True)
    return pipe


# ---- runs ----------------------------------------------------------------------------------------

def record_text(pipe, r, out):
    """Ids and what encode_prompt gives for the prompt and the negative prompt."""
    texts = [("", r["prompt"])] + ([("negative_", r["negative"])] if "negative" in r else [])
    for prefix, text in texts:
        framed = pipe.prompt_template_encode.format(text)
        out[prefix + "ids"] = torch.tensor(pipe.tokenizer(framed).input_ids, dtype=torch.int32)
        out[prefix + "prompt_embeds"] = pipe.encode_prompt(text)[0][0]


def give_image(r, d):
    image = make_image(r["size"], r["seed"] + 2000)
    image = add_alpha(image, r["seed"] + 3000) if r.get("alpha") else image
    image.save(d / "image.png")
    return image.convert("RGBA")


def run(name, out_dir):
    """One request."""
    r = dict(model=name, true_cfg=1.0) | RUNS[name]
    d = out_dir / name
    d.mkdir(parents=True, exist_ok=True)
    pipe, out, trail, more = load(r["model"], out_dir), {}, [], {}
    plain = module.calculate_dimensions
    wide, high = plain(r["area"], r["size"][0] / r["size"][1])
    if "negative" in r:
        more = dict(negative_prompt=r["negative"])
    record_text(pipe, r, out)

    def keep(p, step, t, kw):
        z = p._unpack_latents(kw["latents"], high, wide, r["layers"], p.vae_scale_factor)
        trail.append((float(t), z.transpose(1, 2).clone()))
        return {}
    module.calculate_dimensions = lambda area, ratio: plain(r["area"], ratio)
    images = pipe(image=give_image(r, d), prompt=r["prompt"], layers=r["layers"],
                  num_inference_steps=r["steps"], true_cfg_scale=r["true_cfg"], output_type="pt",
                  cfg_normalize=r.get("normalize", False),
                  callback_on_step_end=keep,
                  generator=[torch.Generator("cpu").manual_seed(r["seed"])], **more).images
    module.calculate_dimensions = plain
    keep_images(out, trail, images if r["layers"] > 1 else images[0], r, 1)
    save_run(d, name, r["model"], {
        "weights": MODELS[r["model"]]["weights"], "prompts": [r["prompt"]],
        "negative_prompt": r.get("negative", ""), "width": 0, "height": 0, "model_width": wide,
        "model_height": high, "num_inference_steps": r["steps"], "guidance_scale": 1.0,
        "true_cfg_scale": r["true_cfg"], "seed": r["seed"], "num_images_per_prompt": 1,
        "images": 1, "max_sequence_length": 512, "scheduler": None, "tiling": False,
        "resolution_binning": False, "image": True, "max_area": r["area"],
        "layers": r["layers"]} | ({"cfg_normalization": 1.0} if "normalize" in r else {}), out)
    say_images(name, r | dict(width=wide, height=high), out, trail, 1)


def make(names, options):
    make_each(names, options.out, MODELS, make_model, run)
