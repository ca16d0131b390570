"""Lumina-Image 2.0: a single stream of text and image with refiners before it, heads of keys that
several heads of queries share, and Gemma 2 as text encoder.

Layout and names of tensors as in joint.py. `ids` and `prompt_embeds` have no padding: the pipeline
pads both, and the transformer reads none of it.

lumina2-cut ends guidance early and keeps the norm that guidance gives. lumina2-lora adds two random
LoRA files: peft.safetensors in the form of diffusers, kohya.safetensors with the names of the
original code, as sd-scripts writes them, which diffusers does not read. The pipeline takes 8 pixels
per latent for granted, of which the tiny VAE has 4.
"""
import json
import shutil

import torch
from diffusers import (AutoencoderKL, FlowMatchEulerDiscreteScheduler, Lumina2Pipeline,
                       Lumina2Transformer2DModel)
from transformers import Gemma2Config, Gemma2Model, PreTrainedTokenizerFast

from ..common import add_loras, keep_images, make_each, save_run, say_images, tidy
from ..fill import configure, fill
from ..lm_vocab import gemma
from .joint import VAE

SYSTEM = ("You are an assistant designed to generate superior images with the superior degree of "
          "image-text alignment based on textual prompts or user prompts.")
WORDS = [SYSTEM + " <Prompt Start> a large red circle on a blue background"] * 3
GEMMA = dict(vocab_size=480, hidden_size=18, intermediate_size=27, num_hidden_layers=3,
             num_attention_heads=6, num_key_value_heads=2, head_dim=8, query_pre_attn_scalar=60,
             sliding_window=24, attn_logit_softcapping=2.0, max_position_embeddings=1024,
             rope_parameters=dict(rope_type="default", rope_theta=1e4))
DIT = dict(in_channels=4, num_refiner_layers=2, cap_feat_dim=18, multiple_of=5,
           axes_lens=[300, 32, 32], sample_size=16)
SHIFT = dict(shift=6.0, use_dynamic_shifting=False)

MODELS = {
    "lumina2": dict(dit=dict(hidden_size=72, num_attention_heads=9, num_kv_heads=3, num_layers=3,
                             axes_dim_rope=[4, 2, 2], **DIT), weights="bf16"),
    "lumina2-five": dict(dit=dict(hidden_size=40, num_attention_heads=5, num_kv_heads=5,
                                  num_layers=2, axes_dim_rope=[2, 4, 2], ffn_dim_multiplier=0.7,
                                  **DIT), weights="f16"),
}
RUNS = {
    "lumina2": dict(prompts=["A large Red circle, on a blue background"], width=40, height=56,
                    steps=4, seed=7, guidance=4.0, negative_prompt="a green ring"),
    "lumina2-cut": dict(model="lumina2", prompts=["two stars"], width=56, height=40, steps=5,
                        seed=8, guidance=3.0, ratio=0.6, normalization=False, system="Paint."),
    "lumina2-lora": dict(model="lumina2", prompts=["a white star"], width=40, height=32, steps=3,
                         seed=71, guidance=1.0, loras=dict(peft=0.7, kohya=-0.4)),
    "lumina2-five": dict(prompts=["a purple ring next to a brown square", "a star"], width=48,
                         height=32, steps=3, seed=40, guidance=1.0, length=31, system=""),
}
# Module of a LoRA file -> those of diffusers whose rows it holds.
PEFT = {m: [m] for m in (
    "layers.0.attn.to_k", "layers.1.feed_forward.linear_2", "noise_refiner.0.attn.to_out.0",
    "context_refiner.1.feed_forward.linear_3", "layers.2.norm1.linear", "x_embedder",
    "time_caption_embed.caption_embedder.1", "norm_out.linear_2")}
KOHYA = {"layers_0_attention_qkv": ["layers.0.attn.to_" + k for k in "qkv"],
         "context_refiner_0_attention_qkv": ["context_refiner.0.attn.to_" + k for k in "qkv"],
         "layers_1_attention_out": ["layers.1.attn.to_out.0"],
         "noise_refiner_1_feed_forward_w1": ["noise_refiner.1.feed_forward.linear_1"],
         "layers_2_feed_forward_w3": ["layers.2.feed_forward.linear_3"],
         "noise_refiner_0_adaLN_modulation_1": ["noise_refiner.0.norm1.linear"],
         "final_layer_linear": ["norm_out.linear_2"]}


# ---- models --------------------------------------------------------------------------------------

def load_tokenizer(folder):
    return PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"),
                                   pad_token="<pad>", eos_token="<eos>", bos_token="<bos>",
                                   unk_token="<unk>", padding_side="right")


def make_parts(name):
    spec = MODELS[name]
    config = Gemma2Config(**GEMMA)
    config._attn_implementation = "eager"       # the others have no soft cap
    parts = {"text_encoder": Gemma2Model(config),
             "transformer": Lumina2Transformer2DModel(**spec["dit"]), "vae": AutoencoderKL(**VAE)}
    return {folder: fill(m, spec["weights"]) for folder, m in parts.items()}


def make_model(name, out):
    """Configurations and the tokenizer."""
    if out.exists():
        shutil.rmtree(out)
    index = {"_class_name": "Lumina2Pipeline", "tokenizer": ["transformers", "GemmaTokenizerFast"],
             "scheduler": ["diffusers", "FlowMatchEulerDiscreteScheduler"]}
    for folder, m in make_parts(name).items():
        configure(m, out / folder)
        index[folder] = ["transformers" if folder == "text_encoder" else "diffusers",
                         type(m).__name__]
    gemma(out / "tokenizer", WORDS, 60)
    FlowMatchEulerDiscreteScheduler(**SHIFT).save_pretrained(out / "scheduler")
    (out / "model_index.json").write_text(json.dumps(index))
    tidy(out, {})


def load(model, out):
    d = out / model
    pipe = Lumina2Pipeline(
        scheduler=FlowMatchEulerDiscreteScheduler.from_pretrained(d / "scheduler"),
        tokenizer=load_tokenizer(d / "tokenizer"), **make_parts(model))
    pipe.vae_scale_factor = 2 ** (len(VAE["block_out_channels"]) - 1)
    pipe.set_progress_bar_config(disable=True)
    assert len(pipe.tokenizer) <= GEMMA["vocab_size"]
    return pipe


# ---- runs ----------------------------------------------------------------------------------------

def record_text(pipe, r, out):
    """Ids and what encode_prompt gives for prompt 0 and the negative prompt."""
    system = SYSTEM if r["system"] is None else r["system"]
    rows = pipe.encode_prompt(r["prompts"][0], r["guidance"] > 1, r["negative_prompt"],
                              system_prompt=r["system"], max_sequence_length=r["length"])
    for prefix, text, got, mask in (
            ("", system + " <Prompt Start> " + r["prompts"][0], *rows[:2]),
            ("negative_", r["negative_prompt"], *rows[2:]))[:1 + (r["guidance"] > 1)]:
        out[prefix + "ids"] = pipe.tokenizer(text, max_length=r["length"], truncation=True,
                                             return_tensors="pt").input_ids[0].int()
        out[prefix + "prompt_embeds"] = got[0][mask[0].bool()]
        assert len(out[prefix + "ids"]) == len(out[prefix + "prompt_embeds"])


def run(name, out_dir):
    """One request."""
    r = dict(model=name, negative_prompt="", images=1, normalization=True, ratio=1.0, system=None,
             length=256, loras={}) | RUNS[name]
    d = out_dir / name
    d.mkdir(parents=True, exist_ok=True)
    pipe = load(r["model"], out_dir)
    if r["loras"]:
        add_loras(pipe, r, d, PEFT, KOHYA, merges=True)
    count = len(r["prompts"]) * r["images"]
    gens = [torch.Generator("cpu").manual_seed(r["seed"] + i) for i in range(count)]
    out, trail = {}, []
    record_text(pipe, r, out)

    def keep(p, step, t, kw):
        trail.append((float(t), kw["latents"].clone()))
        return {}
    images = pipe(list(r["prompts"]), num_inference_steps=r["steps"],
                  guidance_scale=r["guidance"],
                  negative_prompt=[r["negative_prompt"]] * len(r["prompts"]),
                  cfg_normalization=r["normalization"], cfg_trunc_ratio=r["ratio"],
                  system_prompt=r["system"], num_images_per_prompt=r["images"],
                  height=r["height"], width=r["width"], generator=gens, output_type="pt",
                  max_sequence_length=r["length"], callback_on_step_end=keep).images
    keep_images(out, trail, images, r, count, True, not r["loras"])
    save_run(d, name, r["model"], {
        "weights": MODELS[r["model"]]["weights"], "prompts": r["prompts"],
        "negative_prompt": r["negative_prompt"], "width": r["width"], "height": r["height"],
        "model_width": r["width"], "model_height": r["height"],
        "num_inference_steps": r["steps"], "guidance_scale": r["guidance"],
        "cfg_trunc_ratio": r["ratio"], "seed": r["seed"], "num_images_per_prompt": r["images"],
        "images": count, "max_sequence_length": r["length"], "scheduler": None, "tiling": False,
        "resolution_binning": False}
        | ({} if r["normalization"] else {"cfg_normalization": 0})
        | ({} if r["system"] is None else {"system_prompt": r["system"]})
        | ({"loras": [{"path": f"{k}.safetensors", "scale": v} for k, v in r["loras"].items()]}
           if r["loras"] else {}), out)
    say_images(name, r, out, trail, count)


def make(names, options):
    make_each(names, options.out, MODELS, make_model, run)
