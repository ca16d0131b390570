"""Chroma: the blocks of FLUX.1 with modulation from the approximator, T5 alone, true guidance.

Layout and names of tensors as in joint.py. ids and embeddings are the rows that attention sees: the
text and one row of padding where there is room.

The pipeline of diffusers 0.42 hands the attention a mask of floats, where 0 and 1 are added to the
logits and nothing is masked (its pull request 12263 made the mask boolean). Here it is boolean, as
the model was trained.
"""
import json
import shutil

import torch
from diffusers import (AutoencoderKL, ChromaImg2ImgPipeline, ChromaPipeline,
                       ChromaTransformer2DModel, FlowMatchEulerDiscreteScheduler)
from transformers import T5Config, T5EncoderModel, T5Tokenizer

from ..common import (keep_images, make_each, make_image, make_tokenizer, save_run, say_images,
                      tidy)
from ..fill import configure, fill
from .joint import DYNAMIC, T5, VAE

DIT = dict(attention_head_dim=8, num_attention_heads=3, axes_dims_rope=(2, 2, 4), in_channels=16,
           num_layers=2, num_single_layers=3, joint_attention_dim=40, approximator_num_channels=24,
           approximator_hidden_dim=20, approximator_layers=2)
MODELS = {"chroma": dict(weights="bf16")}
RUNS = {
    "chroma": dict(prompts=["A large Red circle, on a blue background"],
                   negative_prompt="a green ring", width=40, height=56, steps=4, seed=71,
                   guidance=5.0, max_sequence_length=37),
    # The text is cut: there is no room for padding. The strength is the pipeline's default.
    "chroma-image": dict(model="chroma", prompts=["a cyan triangle next to a purple square"],
                         width=48, height=40, steps=10, seed=72, guidance=2.5,
                         max_sequence_length=9, strength=0.9),
    "chroma-one": dict(model="chroma", prompts=["a white star", "a ring"], width=32, height=48,
                       steps=3, seed=74, guidance=1.0, max_sequence_length=24),
}


def make_parts():
    parts = {"text_encoder": T5EncoderModel(T5Config(
        vocab_size=88, dropout_rate=0.0, pad_token_id=0, eos_token_id=1, tie_word_embeddings=False,
        **T5)), "transformer": ChromaTransformer2DModel(**DIT), "vae": AutoencoderKL(**VAE)}
    return {folder: fill(m, MODELS["chroma"]["weights"]) for folder, m in parts.items()}


def make_model(name, out):
    if out.exists():
        shutil.rmtree(out)
    index = {"_class_name": "ChromaPipeline"}
    for folder, m in make_parts().items():
        configure(m, out / folder)
        text = folder == "text_encoder"
        index[folder] = ["transformers" if text else "diffusers", type(m).__name__]
    index["tokenizer"] = ["transformers", "T5Tokenizer"]
    make_tokenizer("identity", out / "tokenizer")
    FlowMatchEulerDiscreteScheduler(**DYNAMIC).save_pretrained(out / "scheduler")
    index["scheduler"] = ["diffusers", "FlowMatchEulerDiscreteScheduler"]
    (out / "model_index.json").write_text(json.dumps(index))
    tidy(out, {})


def load(model, out, image):
    d, parts = out / model, make_parts()
    pipe = (ChromaImg2ImgPipeline if image else ChromaPipeline)(
        scheduler=FlowMatchEulerDiscreteScheduler.from_pretrained(d / "scheduler"),
        tokenizer=T5Tokenizer.from_pretrained(d / "tokenizer"), **parts)
    pipe.set_progress_bar_config(disable=True)
    mask = pipe._prepare_attention_mask

    def boolean(*args, **more):
        m = mask(*args, **more)
        return m if m is None else m.bool()
    pipe._prepare_attention_mask = boolean
    return pipe


def record_text(pipe, r, out):
    n = r["max_sequence_length"]
    texts = (("", r["prompts"][0]), ("negative_", r["negative_prompt"]))
    for prefix, text in texts[:1 + (r["guidance"] > 1)]:
        ids = pipe.tokenizer(text, padding="max_length", max_length=n, truncation=True,
                             return_tensors="pt").input_ids[0].int()
        e, mask = pipe._get_t5_prompt_embeds(text, max_sequence_length=n)
        seen = int(mask.sum())
        out[prefix + "ids"], out[prefix + "prompt_embeds"] = ids[:seen], e[0, :seen]


def run(name, out_dir, change=None, more_json=None):
    """One request; change(pipe) comes before it, and then floats of the image are not kept."""
    r = dict(model=name, negative_prompt="", images=1, strength=0.0) | RUNS[name]
    d = out_dir / name
    d.mkdir(parents=True, exist_ok=True)
    pipe = load(r["model"], out_dir, r["strength"] > 0)
    if change:
        change(pipe)
    count = len(r["prompts"])
    gens = [torch.Generator("cpu").manual_seed(r["seed"] + i) for i in range(count)]
    out, trail, more = {}, [], {}
    record_text(pipe, r, out)

    def keep(p, step, t, kw):
        trail.append((float(t), p._unpack_latents(kw["latents"], r["height"], r["width"],
                                                  p.vae_scale_factor).clone()))
        return {}
    if r["strength"]:
        more = dict(image=make_image((r["width"], r["height"]), r["seed"] + 2000))
        more["image"].save(d / "image.png")
    images = pipe(prompt=r["prompts"], negative_prompt=[r["negative_prompt"]] * count,
                  num_inference_steps=r["steps"], guidance_scale=r["guidance"],
                  height=r["height"], width=r["width"],
                  generator=gens if count > 1 else gens[0], output_type="pt",
                  max_sequence_length=r["max_sequence_length"],
                  callback_on_step_end=keep, **more).images
    keep_images(out, trail, images, r, count, not r["strength"], not change)
    save_run(d, name, r["model"], {
        "weights": MODELS[r["model"]]["weights"], "prompts": r["prompts"],
        "negative_prompt": r["negative_prompt"], "width": r["width"], "height": r["height"],
        "num_inference_steps": r["steps"], "guidance_scale": r["guidance"], "seed": r["seed"],
        "num_images_per_prompt": 1, "images": count,
        "max_sequence_length": r["max_sequence_length"], "scheduler": None, "tiling": False,
        "resolution_binning": False, "strength": 0.0, "image": r["strength"] > 0}
        | (more_json or {}), out)
    say_images(name, r, out, trail, count)


def make(names, options):
    make_each(names, options.out, MODELS, make_model, run)
