"""Qwen-Image-2.1, from a prompt with and without guidance.

qwen21-five lists the sigmas of its steps (sample_sigmas). qwen21-lora adds two random LoRA files:
peft.safetensors in the form of diffusers, kohya.safetensors with the joint gate and input of the
feed-forward in ComfyUI's files.

Layout and names of tensors as in joint.py. A model's directory has no weights, as in joint.py. The
tokenizer is that of flux2.py. The pipeline keeps the keys and values of the text, which must not
change what it predicts.
"""
import json
import shutil

import torch
from diffusers import (AutoencoderKLQwenImage21, FlowMatchEulerDiscreteScheduler,
                       QwenImage21Pipeline, QwenImage21Transformer2DModel)
from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration

from ..common import add_loras, keep_images, make_each, save_run, say_images, tidy
from ..fill import configure, fill
from .flux2 import SPECIAL, load_tokenizer, make_tokenizer

TEXT = dict(
    text_config=dict(vocab_size=288, hidden_size=40, intermediate_size=72, num_hidden_layers=3,
                     num_attention_heads=5, num_key_value_heads=1, head_dim=12, rms_norm_eps=1e-6,
                     max_position_embeddings=2048,
                     rope_parameters=dict(rope_type="default", rope_theta=5e6,
                                          mrope_interleaved=True, mrope_section=[2, 2, 2])),
    vision_config=dict(depth=2, hidden_size=8, intermediate_size=12, num_heads=2,
                       out_hidden_size=40, patch_size=4, num_position_embeddings=16,
                       deepstack_visual_indexes=[0]))
VAE = dict(base_dim=8, decoder_base_dim=12, z_dim=6, dim_mult=[1, 2, 4, 4, 4], num_res_blocks=1,
           latents_mean=[-0.4, 0.1, 0.7, -0.2, 0.3, 0.0],
           latents_std=[2.5, 0.8, 1.4, 0.6, 1.1, 0.9])
SCHEDULER = dict(shift=1.0, use_dynamic_shifting=True, base_shift=0.5, max_shift=0.9,
                 base_image_seq_len=256, max_image_seq_len=8192, shift_terminal=0.02)
DIT = dict(in_channels=6, out_channels=6, attention_head_dim=12, axes_dims_rope=(2, 4, 6),
           context_in_dim=40)

MODELS = {
    "qwen21": dict(weights="bf16", dit=dict(num_attention_heads=3, num_layers=3, **DIT)),
    "qwen21-five": dict(weights="f16", dit=dict(num_attention_heads=5, num_layers=2, mlp_ratio=2,
                                                **DIT), sigmas=[1.0, 0.72, 0.31]),
}
RUNS = {
    "qwen21": dict(prompts=["A large Red circle, on a blue background"], width=96, height=160,
                   steps=4, seed=31, negative="", true_cfg=4.0),
    "qwen21-five": dict(prompts=["two stars"], width=160, height=64, steps=3, seed=32,
                        images=2),
    "qwen21-lora": dict(model="qwen21", prompts=["a white star"], width=64, height=96, steps=3,
                        seed=33, loras=dict(peft=0.7, kohya=-0.4)),
}
# Module of a LoRA file -> those of diffusers whose rows it holds.
PEFT = {m: [m] for m in (
    "transformer_blocks.0.attn.to_k", "transformer_blocks.1.attn.to_out.0",
    "transformer_blocks.0.img_mlp.gate_layer", "transformer_blocks.2.img_mlp.proj",
    "transformer_blocks.1.img_mlp.out", "img_in", "txt_in.in_layer", "modulation.1",
    "norm_out.linear")}
KOHYA = {"transformer_blocks_0_attn_to_q": ["transformer_blocks.0.attn.to_q"],
         "transformer_blocks_1_attn_to_v": ["transformer_blocks.1.attn.to_v"],
         "transformer_blocks_2_img_mlp_gate_up": ["transformer_blocks.2.img_mlp.gate_layer",
                                                  "transformer_blocks.2.img_mlp.proj"],
         "transformer_blocks_0_img_mlp_out": ["transformer_blocks.0.img_mlp.out"],
         "txt_in_out_layer": ["txt_in.out_layer"], "proj_out": ["proj_out"]}


class Processor:
    """What the pipeline calls of Qwen3VLProcessor, for texts without images."""

    def __init__(self, tokenizer):
        self.tokenizer = tokenizer

    def apply_chat_template(self, messages, **more):
        text = "".join(f"<|im_start|>{m['role']}\n{m['content'][0]['text']}<|im_end|>\n"
                       for m in messages)
        return [self.tokenizer(text).input_ids]

    def __call__(self, text, **more):
        return self.tokenizer(text, **more)


# ---- models --------------------------------------------------------------------------------------

def make_parts(name):
    spec = MODELS[name]
    parts = {"text_encoder": Qwen3VLForConditionalGeneration(Qwen3VLConfig(**TEXT)),
             "transformer": QwenImage21Transformer2DModel(**spec["dit"]),
             "vae": AutoencoderKLQwenImage21(**VAE)}
    return {folder: fill(m, spec["weights"]) for folder, m in parts.items()}


def make_model(name, out):
    """Configurations and the tokenizer."""
    if out.exists():
        shutil.rmtree(out)
    index = {"_class_name": "QwenImage21Pipeline",
             **({"sample_sigmas": MODELS[name]["sigmas"]} if "sigmas" in MODELS[name] else {}),
             "processor": ["transformers", "Qwen3VLProcessor"],
             "scheduler": ["diffusers", "FlowMatchEulerDiscreteScheduler"]}
    for folder, m in make_parts(name).items():
        configure(m, out / folder)
        index[folder] = ["transformers" if folder == "text_encoder" else "diffusers",
                         type(m).__name__]
    make_tokenizer(out / "processor", SPECIAL + ["<|image_pad|>"])
    FlowMatchEulerDiscreteScheduler(**SCHEDULER).save_pretrained(out / "scheduler")
    (out / "model_index.json").write_text(json.dumps(index))
    tidy(out, {})


def load(model, out):
    d = out / model
    pipe = QwenImage21Pipeline(
        scheduler=FlowMatchEulerDiscreteScheduler.from_pretrained(d / "scheduler"),
        processor=Processor(load_tokenizer(d / "processor", False)),
        sample_sigmas=MODELS[model].get("sigmas"), **make_parts(model))
    pipe.set_progress_bar_config(disable=True)
    return pipe


# ---- runs ----------------------------------------------------------------------------------------

def record_text(pipe, r, out):
    """Ids and what encode_prompt gives for prompt 0 and the negative prompt."""
    texts = [("", r["prompts"][0])] + ([("negative_", r["negative"])] if "negative" in r else [])
    for prefix, text in texts:
        framed = pipe.prompt_template_t2i.format(text or " ")
        out[prefix + "ids"] = torch.tensor(pipe.processor.tokenizer(framed).input_ids,
                                           dtype=torch.int32)
        out[prefix + "prompt_embeds"] = pipe.encode_prompt(text)[0][0]


def run(name, out_dir):
    """One request."""
    r = dict(model=name, images=1, true_cfg=1.0, loras={}) | RUNS[name]
    d = out_dir / name
    d.mkdir(parents=True, exist_ok=True)
    pipe = load(r["model"], out_dir)
    if r["loras"]:
        add_loras(pipe, r, d, PEFT, KOHYA, merges=True)
    count = len(r["prompts"]) * r["images"]
    gens = [torch.Generator("cpu").manual_seed(r["seed"] + i) for i in range(count)]
    out, trail, more = {}, [], {}
    record_text(pipe, r, out)
    if "negative" in r:
        more = dict(negative_prompt=[r["negative"]] * len(r["prompts"]),
                    true_cfg_scale=r["true_cfg"])

    def keep(p, step, t, kw):
        z = p._unpack_latents(kw["latents"], r["height"], r["width"], p.vae_scale_factor)
        trail.append((float(t), z[:, :, 0].clone()))
        return {}
    images = pipe(prompt=r["prompts"], num_inference_steps=r["steps"],
                  num_images_per_prompt=r["images"], height=r["height"], width=r["width"],
                  generator=gens, output_type="pt", callback_on_step_end=keep, **more).images
    keep_images(out, trail, images[:, :3], r, count, whole=not r["loras"])
    save_run(d, name, r["model"], {
        "weights": MODELS[r["model"]]["weights"], "prompts": r["prompts"],
        "negative_prompt": r.get("negative", ""), "width": r["width"], "height": r["height"],
        "model_width": r["width"], "model_height": r["height"], "num_inference_steps": r["steps"],
        "guidance_scale": 1.0, "true_cfg_scale": r["true_cfg"], "seed": r["seed"],
        "num_images_per_prompt": r["images"], "images": count, "max_sequence_length": 1024,
        "scheduler": None, "tiling": False, "resolution_binning": False}
        | ({"loras": [{"path": f"{k}.safetensors", "scale": v} for k, v in r["loras"].items()]}
           if r["loras"] else {}), out)
    say_images(name, r, out, trail, count)


def make(names, options):
    make_each(names, options.out, MODELS, make_model, run)
