"""Krea-2: a single stream of text and image with gated attention, before which blocks join several
hidden states of Qwen3-VL for each token of the text.

Layout and names of tensors as in joint.py; the tokenizer is that of flux2.py. `ids` and
`prompt_embeds` have no padding: the pipeline pads between the prompt and the end of its template,
and masks the padding. It cuts 34 rows off whatever its template becomes.

krea2 lists hidden states in model_index.json; krea2-turbo has a fixed shift, the default list, and
other numbers of heads. krea2-cut has a prompt that is too long, of which the end of the template
remains. krea2-image starts from an image, as a pipeline of Qwen-Image does, because
diffusers has no such pipeline for Krea-2. krea2-lora adds two random LoRA files: peft.safetensors
in the form of diffusers, kohya.safetensors with the names of the original code.
"""
import json
import shutil

import numpy as np
import torch
from diffusers import (AutoencoderKLQwenImage, FlowMatchEulerDiscreteScheduler, Krea2Pipeline,
                       Krea2Transformer2DModel)
from diffusers.pipelines.krea2.pipeline_krea2 import calculate_shift
from transformers import Qwen3VLConfig, Qwen3VLModel

from ..common import (add_loras, keep_images, make_each, make_image, save_run,
                      say_images, tidy)
from ..fill import configure, fill
from .flux2 import load_tokenizer, make_tokenizer
from .qwen import VAE

VISION = dict(depth=1, hidden_size=8, intermediate_size=12, num_heads=2, patch_size=4,
              deepstack_visual_indexes=[0], num_position_embeddings=16)
TEXT = dict(vocab_size=288, num_attention_heads=6, num_key_value_heads=2, head_dim=8,
            max_position_embeddings=2048,
            rope_parameters=dict(rope_type="default", rope_theta=5e6, mrope_section=[2, 1, 1]))
SCHEDULER = dict(shift=1.0, use_dynamic_shifting=True, base_shift=0.5, max_shift=1.15,
                 base_image_seq_len=256, max_image_seq_len=6400)

MODELS = {
    "krea2": dict(
        weights="bf16", text=dict(hidden_size=20, intermediate_size=27, num_hidden_layers=5),
        index=dict(text_encoder_select_layers=[0, 2, 4], is_distilled=False, patch_size=2),
        dit=dict(in_channels=16, num_layers=3, attention_head_dim=12, num_attention_heads=9,
                 num_key_value_heads=3, intermediate_size=77, timestep_embed_dim=30,
                 text_hidden_dim=20, num_text_layers=3, text_num_attention_heads=5,
                 text_num_key_value_heads=5, text_intermediate_size=33,
                 axes_dims_rope=(2, 4, 6))),
    "krea2-turbo": dict(
        weights="f16", text=dict(hidden_size=16, intermediate_size=22, num_hidden_layers=36),
        index=dict(is_distilled=True, patch_size=2),
        dit=dict(in_channels=16, num_layers=2, attention_head_dim=8, num_attention_heads=5,
                 num_key_value_heads=5, intermediate_size=51, timestep_embed_dim=16,
                 text_hidden_dim=16, num_text_layers=12, text_num_attention_heads=4,
                 text_num_key_value_heads=2, text_intermediate_size=21,
                 num_layerwise_text_blocks=1, num_refiner_text_blocks=3,
                 axes_dims_rope=(2, 2, 4), rope_theta=500.0, norm_eps=1e-6)),
}
RUNS = {
    "krea2": dict(prompts=["A large Red circle, on a blue background"], width=40, height=56,
                  steps=4, seed=11, negative="a green ring", guidance=3.5),
    "krea2-cut": dict(model="krea2", prompts=["two large stars on a blue background, a ring"],
                      width=48, height=40, steps=3, seed=12, guidance=0.8, length=200),
    "krea2-image": dict(model="krea2", prompts=["a cyan triangle"], width=48, height=40, steps=5,
                        seed=13, guidance=1.5, strength=0.6),
    "krea2-lora": dict(model="krea2", prompts=["a white star"], width=40, height=32, steps=3,
                       seed=71, guidance=0.0, loras=dict(peft=0.7, kohya=-0.4)),
    "krea2-turbo": dict(prompts=["two stars", "a purple ring"], width=56, height=32, steps=3,
                        seed=14, guidance=0.0),
}
# Module of a LoRA file -> those of diffusers whose rows it holds.
PEFT = {m: [m] for m in (
    "transformer_blocks.0.attn.to_k", "transformer_blocks.1.attn.to_gate",
    "transformer_blocks.2.ff.down", "text_fusion.layerwise_blocks.1.attn.to_q",
    "text_fusion.refiner_blocks.0.ff.up", "time_mod_proj", "txt_in.linear_2",
    "final_layer.linear")}
KOHYA = {"blocks_0_attn_wq": ["transformer_blocks.0.attn.to_q"],
         "blocks_1_attn_wo": ["transformer_blocks.1.attn.to_out.0"],
         "blocks_2_attn_gate": ["transformer_blocks.2.attn.to_gate"],
         "blocks_1_mlp_gate": ["transformer_blocks.1.ff.gate"],
         "blocks_0_mlp_down": ["transformer_blocks.0.ff.down"],
         "txtfusion_layerwise_blocks_0_attn_wv": ["text_fusion.layerwise_blocks.0.attn.to_v"],
         "txtfusion_refiner_blocks_1_mlp_up": ["text_fusion.refiner_blocks.1.ff.up"],
         "first": ["img_in"], "tproj_1": ["time_mod_proj"], "txtmlp_1": ["txt_in.linear_1"]}


# ---- models --------------------------------------------------------------------------------------

def make_parts(name):
    spec = MODELS[name]
    text = dict(TEXT, **spec["text"])
    config = Qwen3VLConfig(text_config=text, vision_config=dict(
        VISION, out_hidden_size=text["hidden_size"]), tie_word_embeddings=True)
    parts = {"text_encoder": Qwen3VLModel(config),
             "transformer": Krea2Transformer2DModel(**spec["dit"]),
             "vae": AutoencoderKLQwenImage(**VAE)}
    return {folder: fill(m, spec["weights"]) for folder, m in parts.items()}


def make_model(name, out):
    """Configurations and the tokenizer."""
    if out.exists():
        shutil.rmtree(out)
    index = {"_class_name": "Krea2Pipeline", "tokenizer": ["transformers", "Qwen2Tokenizer"],
             "scheduler": ["diffusers", "FlowMatchEulerDiscreteScheduler"]} | MODELS[name]["index"]
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
    tokenizer = load_tokenizer(d / "tokenizer", False)
    tokenizer.padding_side = "right"
    pipe = Krea2Pipeline(
        scheduler=FlowMatchEulerDiscreteScheduler.from_pretrained(d / "scheduler"),
        tokenizer=tokenizer, **make_parts(model), **MODELS[model]["index"])
    pipe.set_progress_bar_config(disable=True)
    return pipe


# ---- runs ----------------------------------------------------------------------------------------

def record_text(pipe, r, out):
    """Ids and the rows of prompt 0 and the negative prompt, without padding."""
    suffix = pipe.tokenizer(pipe.prompt_template_encode_suffix).input_ids
    drop, n = pipe.prompt_template_encode_start_idx, r["length"]
    for prefix, text in (("", r["prompts"][0]), ("negative_", r["negative"]))[:1 + (
            r["guidance"] > 0)]:
        ids = pipe.tokenizer(pipe.prompt_template_encode_prefix + text, truncation=True,
                             max_length=n + drop - pipe.prompt_template_encode_num_suffix_tokens)
        got, mask = pipe.get_text_hidden_states(text, n)
        out[prefix + "ids"] = torch.tensor(ids.input_ids + suffix).int()
        out[prefix + "prompt_embeds"] = got[0][mask[0]].flatten(1)
        assert len(out[prefix + "ids"]) == len(out[prefix + "prompt_embeds"]) + drop


def begin_with_image(pipe, r, d):
    """Noisy latents of an image, packed, and the sigmas from which they are denoised."""
    g, vae, s = torch.Generator("cpu").manual_seed(r["seed"]), pipe.vae, pipe.scheduler
    image = make_image((r["width"], r["height"]), r["seed"] + 2000)
    image.save(d / "image.png")
    x = pipe.image_processor.preprocess(image, r["height"], r["width"])[:, :, None]
    shape = (1, vae.config.z_dim, 1, 1, 1)
    mean, std = (torch.tensor(v).view(shape) for v in (vae.config.latents_mean,
                                                       vae.config.latents_std))
    z = (vae.encode(x).latent_dist.sample(g) - mean) / std
    tokens = z.shape[-1] * z.shape[-2] // 4
    config = s.config
    mu = calculate_shift(tokens, config.base_image_seq_len, config.max_image_seq_len,
                         config.base_shift, config.max_shift)
    s.set_timesteps(sigmas=np.linspace(1.0, 1 / r["steps"], r["steps"]), mu=mu)
    first = int(max(r["steps"] - min(r["steps"] * r["strength"], r["steps"]), 0))
    noise = torch.randn(z[:, :, 0].shape, generator=g)
    y = s.scale_noise(z[:, :, 0], s.timesteps[first:first + 1], noise)
    return pipe._pack_latents(y, 1, *y.shape[1:]), first


def denoise_image(pipe, r, d, keep):
    """What the pipeline does from its first step on, for latents that begin at a later step."""
    z, first = begin_with_image(pipe, r, d)
    rows, grid = [pipe.get_text_hidden_states(text, r["length"]) for text in (
        r["prompts"][0], r["negative"])], (r["height"] // 8, r["width"] // 8)
    at = pipe.prepare_position_ids(rows[0][0].shape[1], *grid, "cpu")
    pipe.scheduler.set_begin_index(first)
    for t in pipe.scheduler.timesteps[first:]:
        y, none = (pipe.transformer(
            hidden_states=z, encoder_hidden_states=text, timestep=t[None] / 1000, position_ids=at,
            encoder_attention_mask=mask, return_dict=False)[0] for text, mask in rows)
        z = pipe.scheduler.step(y + r["guidance"] * (y - none), t, z, return_dict=False)[0]
        keep(pipe, 0, t, {"latents": z})
    shape = (1, pipe.vae.config.z_dim, 1, 1, 1)
    mean, std = (torch.tensor(v).view(shape) for v in (pipe.vae.config.latents_mean,
                                                       pipe.vae.config.latents_std))
    y = pipe._unpack_latents(z, r["height"], r["width"]) * std + mean
    return (pipe.vae.decode(y).sample[:, :, 0] / 2 + 0.5).clamp(0, 1)


def run(name, out_dir):
    """One request."""
    r = dict(model=name, images=1, negative="", length=512, strength=0.0, loras={}) | RUNS[name]
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
        z = p._unpack_latents(kw["latents"], r["height"], r["width"])
        trail.append((float(t), z[:, :, 0].clone()))
        return {}
    if r["strength"]:
        images = denoise_image(pipe, r, d, keep)
    else:
        images = pipe(prompt=r["prompts"], num_inference_steps=r["steps"],
                      guidance_scale=r["guidance"], height=r["height"], width=r["width"],
                      negative_prompt=[r["negative"]] * len(r["prompts"]),
                      num_images_per_prompt=r["images"], generator=gens, output_type="pt",
                      max_sequence_length=r["length"], callback_on_step_end=keep).images
    keep_images(out, trail, images, r, count, not r["strength"], not r["loras"])
    save_run(d, name, r["model"], {
        "weights": MODELS[r["model"]]["weights"], "prompts": r["prompts"],
        "negative_prompt": r["negative"], "width": r["width"], "height": r["height"],
        "model_width": r["width"], "model_height": r["height"],
        "num_inference_steps": r["steps"], "guidance_scale": r["guidance"], "seed": r["seed"],
        "num_images_per_prompt": r["images"], "images": count, "max_sequence_length": r["length"],
        "scheduler": None, "tiling": False, "resolution_binning": False, "strength": r["strength"]}
        | ({"loras": [{"path": f"{k}.safetensors", "scale": v} for k, v in r["loras"].items()]}
           if r["loras"] else {}), out)
    say_images(name, r, out, trail, count)


def make(names, options):
    make_each(names, options.out, MODELS, make_model, run)
