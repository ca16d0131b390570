"""SANA, SANA 1.5 and SANA-Sprint: linear attention, a feed-forward that convolves the tokens, and
the deep compression autoencoder. Gemma 2 encodes the texts.

Layout and names of tensors as in joint.py. `ids` and `prompt_embeds` have no padding: the pipeline
pads both, and the transformer reads none of it. The ids have those of the instruction, the
embeddings only its first and its last row. The latents after the last step of SANA-Sprint are
divided by sigma_data, as the pipeline divides them before decoding.

sana15 has learned sigmas, and asks for another size than a trained one. sana-sprint-4 has patches
of four cells and no intermediate timestep.
"""
import inspect
import json
import shutil

import torch
from diffusers import (AutoencoderDC, DPMSolverMultistepScheduler, SanaPipeline,
                       SanaSprintPipeline, SanaTransformer2DModel, SCMScheduler)
from transformers import Gemma2Config, Gemma2Model

from ..common import (add_loras, keep_images, make_each, save_run, say_images, tidy, tile_options,
                      tile_sizes)
from ..fill import configure, fill
from ..lm_vocab import gemma
from .lumina2 import load_tokenizer

INSTRUCTION = inspect.signature(
    SanaPipeline.__call__).parameters["complex_human_instruction"].default
WORDS = ["\n".join(INSTRUCTION) + "a large red circle on a blue background"] * 3
GEMMA = dict(vocab_size=800, hidden_size=48, intermediate_size=70, num_hidden_layers=3,
             num_attention_heads=6, num_key_value_heads=2, head_dim=8, query_pre_attn_scalar=60,
             sliding_window=24, attn_logit_softcapping=2.0, max_position_embeddings=2048,
             rope_parameters=dict(rope_type="default", rope_theta=1e4))
VIT, RES = "EfficientViTBlock", "ResBlock"


def autoencoder(width, layers, scales, head, channels, **more):
    kinds = [VIT if s else RES for s in scales]
    return dict(latent_channels=channels, attention_head_dim=head, scaling_factor=9.0,
                **{f"{side}_{k}": v for side in ("encoder", "decoder") for k, v in (
                    ("block_types", kinds), ("block_out_channels", width),
                    ("layers_per_block", layers), ("qkv_multiscales", scales))}, **more)


PLAIN = dict(upsample_block_type="interpolate", downsample_block_type="Conv")
DIT = dict(in_channels=6, caption_channels=48, sample_size=16, dropout=0.0)
FLOW = dict(prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=3.0)

MODELS = {
    "sana": dict(dit=dict(num_attention_heads=5, attention_head_dim=12, num_layers=3,
                          num_cross_attention_heads=3, cross_attention_head_dim=20,
                          cross_attention_dim=60, mlp_ratio=1.55, out_channels=6, **DIT),
                 vae=autoencoder((12, 12, 24, 24), (1, 2, 1, 1), ((), (), (5,), (3, 5)), 8, 6,
                                 **PLAIN), weights="bf16"),
    "sana15": dict(dit=dict(num_attention_heads=7, attention_head_dim=8, num_layers=2,
                            num_cross_attention_heads=2, cross_attention_head_dim=28,
                            cross_attention_dim=56, mlp_ratio=2.0, attention_bias=True,
                            out_channels=12, qk_norm="rms_norm_across_heads", **DIT),
                   vae=autoencoder((6, 12, 12, 24, 24, 24), (1, 1, 1, 1, 1, 1),
                                   ((), (), (), (5,), (5,), (5,)), 8, 6, **PLAIN), weights="f16"),
    "sana-sprint": dict(dit=dict(num_attention_heads=5, attention_head_dim=12, num_layers=2,
                            num_cross_attention_heads=3, cross_attention_head_dim=20,
                            cross_attention_dim=60, mlp_ratio=2.5, guidance_embeds=True,
                            qk_norm="rms_norm_across_heads", out_channels=6, **DIT),
                   vae=autoencoder((6, 24, 24), (1, 1, 2), ((), (), (5,)), 12, 6), weights="bf16"),
    "sana-sprint-4": dict(dit=dict(num_attention_heads=3, attention_head_dim=16, num_layers=2,
                              num_cross_attention_heads=2, cross_attention_head_dim=24,
                              cross_attention_dim=48, mlp_ratio=2.5, guidance_embeds=True,
                              qk_norm="rms_norm_across_heads", out_channels=6, patch_size=2,
                              guidance_embeds_scale=0.2, **DIT),
                     vae=autoencoder((12, 12, 24), (1, 1, 1), ((), (), (5,)), 8, 6, **PLAIN,
                                     decoder_conv_act_fn="silu"), weights="bf16"),
}
RUNS = {
    "sana": dict(prompts=["A large Red circle, on a blue background"], width=40, height=56,
                 steps=4, seed=7, guidance=4.5, negative_prompt="a green ring"),
    "sana15": dict(prompts=["two stars", "a Ring"], width=120, height=72, steps=3, seed=8,
                   guidance=3.0, binning=True, system="Paint.\nUser: "),
    "sana-tiles": dict(model="sana", prompts=["a white star"], width=600, height=40, steps=2,
                       seed=15, guidance=1.0, system="", tiling=True),
    # Tiles of other sizes than the autoencoder's, which overlap by more than half in one direction.
    "sana-window": dict(model="sana", prompts=["a white star"], width=56, height=64, steps=1,
                        seed=16, guidance=1.0, system="", tiling=True,
                        tiles=dict(size=(24, 32), overlap=(16, 8))),
    "sana-lora": dict(model="sana", prompts=["a white star"], width=40, height=32, steps=3,
                      seed=71, guidance=1.0, system="", loras=dict(peft=0.7, kohya=-0.4)),
    "sana-sprint": dict(prompts=["A large Red circle"], width=28, height=36, steps=2, seed=40,
                   guidance=4.5, images=2, system="Paint: "),
    "sana-sprint-4": dict(prompts=["a purple ring next to a brown square"], width=56, height=40,
                     steps=4, seed=41, guidance=2.0, length=9, middle=None, system="Paint: "),
}
# Module of a LoRA file -> those of diffusers whose rows it holds.
PEFT = {m: [m] for m in (
    "transformer_blocks.0.attn1.to_k", "transformer_blocks.1.attn2.to_out.0",
    "transformer_blocks.2.attn2.to_q", "caption_projection.linear_1", "time_embed.linear",
    "proj_out")}
KOHYA = {m.replace(".", "_"): [m] for m in (
    "transformer_blocks.0.attn1.to_q", "transformer_blocks.1.attn2.to_v",
    "transformer_blocks.2.attn1.to_out.0", "caption_projection.linear_2")}


# ---- models --------------------------------------------------------------------------------------

def make_parts(name):
    spec = MODELS[name]
    config = Gemma2Config(**GEMMA)
    config._attn_implementation = "eager"       # the others have no soft cap
    parts = {"text_encoder": Gemma2Model(config),
             "transformer": SanaTransformer2DModel(**spec["dit"]),
             "vae": AutoencoderDC(**spec["vae"])}
    return {folder: fill(m, spec["weights"]) for folder, m in parts.items()}


def is_sprint(name):
    return "sprint" in name


def make_model(name, out):
    """Configurations and the tokenizer."""
    if out.exists():
        shutil.rmtree(out)
    scheduler = SCMScheduler() if is_sprint(name) else DPMSolverMultistepScheduler(**FLOW)
    index = {"_class_name": "SanaSprintPipeline" if is_sprint(name) else "SanaPipeline",
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


def load(model, out):
    d = out / model
    kind, scheduler = ((SanaSprintPipeline, SCMScheduler) if is_sprint(model) else
                       (SanaPipeline, DPMSolverMultistepScheduler))
    pipe = kind(scheduler=scheduler.from_pretrained(d / "scheduler"),
                tokenizer=load_tokenizer(d / "tokenizer"), **make_parts(model))
    pipe.set_progress_bar_config(disable=True)
    pipe.check_inputs = lambda *a, **k: None    # which takes 32 pixels per latent for granted
    assert len(pipe.tokenizer) <= GEMMA["vocab_size"], len(pipe.tokenizer)
    return pipe


# ---- runs ----------------------------------------------------------------------------------------

def record_text(pipe, r, out):
    """Ids and what encode_prompt gives for prompt 0 and the negative prompt."""
    guided = r["guidance"] > 1 and not is_sprint(r["model"])
    how = dict(max_sequence_length=r["length"], complex_human_instruction=r["instruction"])
    text = r["prompts"][0].lower().strip()
    if guided:
        rows = pipe.encode_prompt(r["prompts"][0], True, r["negative_prompt"], **how)
    else:
        rows = pipe.encode_prompt(r["prompts"][0], **how)
    before = "\n".join(r["instruction"])
    most = r["length"] + (len(pipe.tokenizer.encode(before)) - 2 if before else 0)
    for prefix, text, got, mask, n in (
            ("", before + text, *rows[:2], most),
            ("negative_", r["negative_prompt"].lower(), *rows[2:4], r["length"]))[:1 + guided]:
        out[prefix + "ids"] = pipe.tokenizer(text, max_length=n, truncation=True,
                                             return_tensors="pt").input_ids[0].int()
        out[prefix + "prompt_embeds"] = got[0][mask[0].bool()]


def run(name, out_dir):
    """One request."""
    r = dict(model=name, negative_prompt="", images=1, system=None, length=300, loras={},
             binning=False, tiling=False, tiles=None, middle=1.3) | RUNS[name]
    r["instruction"] = (INSTRUCTION if r["system"] is None else
                        r["system"].split("\n") if r["system"] else [])
    d = out_dir / name
    d.mkdir(parents=True, exist_ok=True)
    pipe = load(r["model"], out_dir)
    if r["loras"]:
        add_loras(pipe, r, d, PEFT, KOHYA, merges=True)
    if r["tiling"]:
        pipe.vae.enable_tiling(**tile_sizes(r["tiles"]))
    count = len(r["prompts"]) * r["images"]
    gens = [torch.Generator("cpu").manual_seed(r["seed"] + i) for i in range(count)]
    out, trail, sprint = {}, [], is_sprint(r["model"])
    record_text(pipe, r, out)

    def keep(p, step, t, kw):
        last = sprint and step == r["steps"] - 1
        lat = kw["latents"] / (p.scheduler.config.sigma_data if last else 1)
        trail.append((float(t), lat.clone()))
        return {}
    more = (dict(intermediate_timesteps=r["middle"]) if sprint else
            dict(negative_prompt=[r["negative_prompt"]] * len(r["prompts"])))
    images = pipe(list(r["prompts"]), num_inference_steps=r["steps"],
                  guidance_scale=r["guidance"], num_images_per_prompt=r["images"],
                  height=r["height"], width=r["width"], generator=gens, output_type="pt",
                  use_resolution_binning=r["binning"], max_sequence_length=r["length"],
                  complex_human_instruction=r["instruction"], callback_on_step_end=keep,
                  **more).images
    keep_images(out, trail, images, r, count, True, not (r["loras"] or r["tiling"]))
    cells = trail[0][1].shape
    cell = 2 ** (len(pipe.vae.config.encoder_block_out_channels) - 1)
    save_run(d, name, r["model"], {
        "weights": MODELS[r["model"]]["weights"], "prompts": r["prompts"],
        "negative_prompt": r["negative_prompt"], "width": r["width"], "height": r["height"],
        "model_width": cells[3] * cell, "model_height": cells[2] * cell,
        "num_inference_steps": r["steps"], "guidance_scale": r["guidance"],
        "seed": r["seed"], "num_images_per_prompt": r["images"],
        "images": count, "max_sequence_length": r["length"], "scheduler": None,
        "tiling": r["tiling"], "resolution_binning": r["binning"]}
        | ({} if r["system"] is None else {"system_prompt": r["system"]})
        | ({"loras": [{"path": f"{k}.safetensors", "scale": v} for k, v in r["loras"].items()]}
           if r["loras"] else {}) | tile_options(r["tiles"]), out)
    say_images(name, r, out, trail, count)


def make(names, options):
    make_each(names, options.out, MODELS, make_model, run)
