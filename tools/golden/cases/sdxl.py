"""Stable Diffusion XL: a U-Net with cross-attention, and two CLIP text encoders.

Layout and names of tensors as in joint.py. Sizes are such that maps of some levels have an odd
number of rows or columns. sdxl-zeros has no negative prompt, so its embeddings are zeros.
sdxl-turbo draws noise in each step; its U-Net has two levels and convolutions around its
transformers. sd2 predicts velocities, and its text encoder has the activation, the padding and the
list of heads of Stable Diffusion 2. The prompts of sdxl-weights and sd-weights have weights, and
are encoded in several chunks.
"""
import json
import shutil

import torch
from diffusers import (AutoencoderKL, DDIMScheduler, EulerAncestralDiscreteScheduler,
                       EulerDiscreteScheduler, LCMScheduler, PNDMScheduler,
                       StableDiffusionImg2ImgPipeline, StableDiffusionInpaintPipeline,
                       StableDiffusionPipeline, StableDiffusionXLImg2ImgPipeline,
                       StableDiffusionXLInpaintPipeline, StableDiffusionXLPipeline,
                       UNet2DConditionModel)
from safetensors.torch import save_file
from transformers import CLIPTokenizer

from ..common import (PLAIN, keep_images, make_each, make_image, make_mask, save_run, say_images,
                      tidy)
from .. import emphasis
from ..fill import configure, fill
from .joint import CLIP_G, CLIP_L, make_clip, make_clip_tokenizer

VAE = dict(block_out_channels=(8, 8, 12), layers_per_block=1, norm_num_groups=4, latent_channels=4,
           sample_size=64, scaling_factor=0.13025, force_upcast=True, **PLAIN(3))
COMMON = dict(in_channels=4, out_channels=4, cross_attention_dim=40, norm_num_groups=4,
              sample_size=10, addition_embed_type="text_time", addition_time_embed_dim=6,
              projection_class_embeddings_input_dim=16 + 6 * 6)
UNET = dict(block_out_channels=(8, 16, 24), layers_per_block=2, attention_head_dim=(1, 2, 2),
            transformer_layers_per_block=(1, 2, 3), use_linear_projection=True,
            down_block_types=("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
            up_block_types=("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"))
SMALL = dict(block_out_channels=(24, 40), layers_per_block=1, attention_head_dim=(3, 2),
             transformer_layers_per_block=(1, 2), use_linear_projection=False,
             down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
             up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"))
SD = dict(block_out_channels=(16, 16, 24, 24), layers_per_block=2, attention_head_dim=2,
          in_channels=4, out_channels=4, cross_attention_dim=24, norm_num_groups=4, sample_size=10)
SD2 = SD | dict(block_out_channels=(8, 16, 24, 24), attention_head_dim=(1, 2, 3, 3),
                cross_attention_dim=40, use_linear_projection=True, upcast_attention=True)
CLIP_H = dict(hidden_size=40, intermediate_size=44, num_hidden_layers=3, num_attention_heads=5,
              projection_dim=20, hidden_act="gelu")
BETAS = dict(beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear", steps_offset=1)
MODELS = {
    "sdxl": dict(unet=COMMON | UNET, weights="f16",
                 scheduler=EulerDiscreteScheduler(timestep_spacing="leading", **BETAS)),
    "sdxl-turbo": dict(unet=COMMON | SMALL, weights="bf16",
                       scheduler=EulerAncestralDiscreteScheduler(timestep_spacing="trailing",
                                                                 **BETAS)),
    "sd": dict(unet=SD, weights="f16", kind="StableDiffusion",
               scheduler=PNDMScheduler(skip_prk_steps=True, set_alpha_to_one=False, **BETAS)),
    "sd2": dict(unet=SD2, weights="bf16", kind="StableDiffusion", clip=CLIP_H, pad="!",
                scheduler=DDIMScheduler(prediction_type="v_prediction", clip_sample=False,
                                        set_alpha_to_one=False, **BETAS)),
    "sdxl-lcm": dict(unet=COMMON | SMALL | dict(time_cond_proj_dim=10), weights="f16",
                     scheduler=LCMScheduler(**BETAS)),
}
RUNS = {
    "sdxl": dict(prompts=["a blue square above a red circle"],
                 negative_prompt="a small orange star", width=56, height=40, steps=4, seed=21,
                 guidance=5.0),
    "sdxl-zeros": dict(model="sdxl", prompts=["two stars", "a red ring"], width=52, height=44,
                       steps=2, seed=25, guidance=3.0),
    "sdxl-turbo": dict(prompts=["a white star"], width=44, height=60, steps=3, seed=31,
                       guidance=0.0, images=2),
    "sdxl-one": dict(model="sdxl-turbo", prompts=["a purple ring"], width=40, height=40, steps=1,
                     seed=33, guidance=0.0),
    "sdxl-image": dict(model="sdxl", prompts=["a cyan triangle"], negative_prompt="a red star",
                       width=48, height=40, steps=6, seed=22, guidance=4.0, strength=0.5,
                       image=(70, 37)),
    "sdxl-mask": dict(model="sdxl", prompts=["a blue square"], negative_prompt="a red star",
                      width=40, height=56, steps=4, seed=24, guidance=3.0, strength=0.8,
                      image=(40, 56), mask=(40, 56)),
    "sd": dict(prompts=["a purple ring"], negative_prompt="a red star", width=44, height=40,
               steps=5, seed=36, guidance=4.0),
    "sd-image": dict(model="sd", prompts=["a cyan star"], width=40, height=40, steps=5, seed=37,
                     guidance=4.0, strength=0.6, image=(52, 37)),
    "sd-mask": dict(model="sd", prompts=["a blue square"], negative_prompt="a red star", width=40,
                    height=56, steps=5, seed=38, guidance=3.0, strength=0.8, image=(40, 56),
                    mask=(40, 56)),
    "sd-lora": dict(model="sd", prompts=["a white star"], negative_prompt="a red star", width=40,
                    height=40, steps=2, seed=39, guidance=3.0,
                    loras=dict(peft=0.7, kohya=-0.4, original=0.5)),
    "sd2": dict(prompts=["a green ring"], negative_prompt="a red star", width=44, height=40,
                steps=4, seed=41, guidance=4.0),
    "sdxl-lcm": dict(prompts=["a purple ring"], width=40, height=44, steps=3, seed=35,
                     guidance=8.0),
    "sdxl-sizes": dict(model="sdxl", prompts=["a red ring"], negative_prompt="a red star",
                       width=44, height=40, steps=2, seed=26, guidance=3.0,
                       sizes=dict(original_size=(200, 100), crops_coords_top_left=(16, 3),
                                  target_size=(80, 90), negative_original_size=(50, 60),
                                  negative_crops_coords_top_left=(7, 5),
                                  negative_target_size=(40, 30))),
    "sdxl-sizes-image": dict(model="sdxl", prompts=["a red ring"], negative_prompt="a red star",
                             width=40, height=40, steps=4, seed=27, guidance=3.0, strength=0.5,
                             image=(40, 40),
                             sizes=dict(crops_coords_top_left=(16, 3), target_size=(80, 90),
                                        negative_original_size=(50, 60))),
    "sdxl-weights": dict(model="sdxl", weighted=True, prompts=[
        "a (red:1.4) circle, [[small]] and ((blue)) BREAK a \\(green\\) (star, [above:0.5] it"],
                         negative_prompt="(orange:0.7): ring BREAK BREAKS a square", width=44,
                         height=40, steps=2, seed=28, guidance=3.0),
    "sd-weights": dict(model="sd", weighted=True, prompts=[
        "a (white:1.3) star, " + "a red circle and a blue square, " * 8 + "(nothing] else"],
                       negative_prompt="a red star BREAK (green:1.2) BREAK a ring", width=40,
                       height=40, steps=2, seed=42, guidance=3.0),
    "sdxl-lora": dict(model="sdxl", prompts=["a white star"], negative_prompt="a red star",
                      width=40, height=40, steps=2, seed=71, guidance=3.0,
                      loras=dict(peft=0.7, kohya=-0.4, original=0.5)),
}
# Modules of LoRA files, of the U-Net and of text encoders. Those of original.safetensors have the
# names of the original code.
UNET_PEFT = ("down_blocks.1.attentions.0.transformer_blocks.1.attn1.to_q",
             "mid_block.attentions.0.proj_in", "up_blocks.1.resnets.2.conv1")
KOHYA = ("up_blocks.0.attentions.2.transformer_blocks.2.ff.net.0.proj",
         "down_blocks.0.downsamplers.0.conv", "up_blocks.2.resnets.1.time_emb_proj")
LORAS = {
    "sdxl": dict(
        peft={f"unet.{m}": m for m in UNET_PEFT},
        kohya={f"lora_unet_{m.replace('.', '_')}": m for m in KOHYA},
        original={
            "lora_unet_input_blocks_8_1_transformer_blocks_0_attn2_to_out_0":
                "down_blocks.2.attentions.1.transformer_blocks.0.attn2.to_out.0",
            "lora_unet_output_blocks_0_0_skip_connection": "up_blocks.0.resnets.0.conv_shortcut",
            "lora_unet_output_blocks_2_2_conv": "up_blocks.0.upsamplers.0.conv",
            "lora_unet_out_2": "conv_out"}),
    "sd": dict(
        peft={"unet.down_blocks.0.attentions.1.transformer_blocks.0.attn1.to_q":
                  "down_blocks.0.attentions.1.transformer_blocks.0.attn1.to_q",
              "unet.mid_block.attentions.0.proj_in": "mid_block.attentions.0.proj_in",
              "text_encoder.text_model.encoder.layers.0.self_attn.q_proj":
                  "text_encoder.encoder.layers.0.self_attn.q_proj"},
        kohya={"lora_unet_down_blocks_3_resnets_1_conv2": "down_blocks.3.resnets.1.conv2",
               "lora_unet_up_blocks_3_attentions_2_transformer_blocks_0_ff_net_2":
                   "up_blocks.3.attentions.2.transformer_blocks.0.ff.net.2",
               "lora_te_text_model_encoder_layers_2_mlp_fc1":
                   "text_encoder.encoder.layers.2.mlp.fc1"},
        original={
            "lora_unet_input_blocks_1_1_transformer_blocks_0_attn2_to_k":
                "down_blocks.0.attentions.0.transformer_blocks.0.attn2.to_k",
            "lora_unet_input_blocks_9_0_op": "down_blocks.2.downsamplers.0.conv",
            "lora_unet_output_blocks_2_1_conv": "up_blocks.0.upsamplers.0.conv",
            "lora_unet_output_blocks_8_2_conv": "up_blocks.2.upsamplers.0.conv",
            "lora_unet_output_blocks_10_1_proj_out": "up_blocks.3.attentions.1.proj_out"}),
}


# ---- models --------------------------------------------------------------------------------------

def is_single(name):
    """Whether the model has one text encoder, as Stable Diffusion 1 and 2."""
    return MODELS[name].get("kind") == "StableDiffusion"


def make_parts(name):
    """Networks by folder."""
    spec = MODELS[name]
    parts = {"text_encoder": make_clip(spec.get("clip", CLIP_L), False),
             "text_encoder_2": make_clip(CLIP_G, True),
             "unet": UNet2DConditionModel(**spec["unet"]), "vae": AutoencoderKL(**VAE)}
    if is_single(name):
        del parts["text_encoder_2"]
    return {folder: fill(m, spec["weights"]) for folder, m in parts.items()}


def make_model(name, out):
    """Configurations and tokenizers."""
    if out.exists():
        shutil.rmtree(out)
    scheduler = MODELS[name]["scheduler"]
    kind = MODELS[name].get("kind", "StableDiffusionXL")
    index = {"_class_name": kind + "Pipeline", "force_zeros_for_empty_prompt": True,
             "scheduler": ["diffusers", type(scheduler).__name__]}
    for folder, m in make_parts(name).items():
        configure(m, out / folder)
        text = folder.startswith("text_encoder")
        index[folder] = ["transformers" if text else "diffusers", type(m).__name__]
        if text:
            tokenizer = folder.replace("text_encoder", "tokenizer")
            index[tokenizer] = ["transformers", "CLIPTokenizer"]
            pad = MODELS[name].get("pad", "!" if folder.endswith("2") else "<|endoftext|>")
            make_clip_tokenizer(out / tokenizer, pad)
    scheduler.save_pretrained(out / "scheduler")
    (out / "model_index.json").write_text(json.dumps(index))
    tidy(out, {})


def load(r, out):
    d, parts = out / r["model"], make_parts(r["model"])
    single = is_single(r["model"])
    for tokenizer in ("tokenizer", "tokenizer_2")[:2 - single]:
        parts[tokenizer] = CLIPTokenizer.from_pretrained(d / tokenizer)
    kind = (StableDiffusionXLInpaintPipeline if "mask" in r else StableDiffusionXLImg2ImgPipeline
            if "image" in r else StableDiffusionXLPipeline)
    if single:
        kind = (StableDiffusionInpaintPipeline if "mask" in r else StableDiffusionImg2ImgPipeline
                if "image" in r else StableDiffusionPipeline)
        parts |= dict(safety_checker=None, feature_extractor=None, requires_safety_checker=False)
    pipe = kind(scheduler=MODELS[r["model"]]["scheduler"].from_pretrained(d / "scheduler"), **parts)
    pipe.set_progress_bar_config(disable=True)
    pipe.check_inputs = lambda *a, **k: None    # which takes 8 pixels per latent for granted
    return pipe


# ---- LoRA ----------------------------------------------------------------------------------------

def add_loras(pipe, r, d):
    """Writes a file of each kind, and adds its terms to the weights."""
    g = torch.Generator().manual_seed(r["seed"])
    for kind, modules in LORAS[r["model"]].items():
        out, ends = {}, ("lora_A", "lora_B") if kind == "peft" else ("lora_down", "lora_up")
        for i, (key, module) in enumerate(modules.items()):
            part = pipe.text_encoder if module.startswith("text_encoder.") else pipe.unet
            w = part.get_submodule(module.removeprefix("text_encoder.")).weight
            rank = 1 + i % 2
            down = 0.2 * torch.randn(rank, *w.shape[1:], generator=g)
            up = 0.2 * torch.randn(len(w), rank, *[1] * (w.dim() - 2), generator=g)
            out |= {f"{key}.{ends[0]}.weight": down, f"{key}.{ends[1]}.weight": up}
            if kind != "peft":
                out[f"{key}.alpha"] = torch.tensor(1.5)
            scale = r["loras"][kind] * (1 if kind == "peft" else 1.5 / rank)
            w.data += scale * (up.flatten(1) @ down.flatten(1)).view(w.shape)
        save_file(out, d / f"{kind}.safetensors")


# ---- runs ----------------------------------------------------------------------------------------

def record_text(pipe, r, out):
    """What encode_prompt gives for prompt 0 and the negative prompt."""
    guided = r["guidance"] > 1 and not pipe.unet.config.time_cond_proj_dim
    rows = pipe.encode_prompt(r["prompts"][0], device="cpu", num_images_per_prompt=1,
                              do_classifier_free_guidance=guided,
                              negative_prompt=r["negative_prompt"])
    for i, (prefix, text) in enumerate((("", r["prompts"][0]),
                                        ("negative_", r["negative_prompt"] or ""))[:1 + guided]):
        for tail in ("", "_2")[:2 - is_single(r["model"])]:
            out[f"{prefix}ids{tail}"] = getattr(pipe, "tokenizer" + tail)(
                text, padding="max_length", max_length=77, truncation=True,
                return_tensors="pt").input_ids[0].int()
        out[prefix + "prompt_embeds"] = rows[i][0]
        if len(rows) > 2:
            out[prefix + "pooled_prompt_embeds"] = rows[2 + i]


def weigh_texts(pipe, r, out):
    """Arguments of the pipeline for texts with weights."""
    texts, more = (r["prompts"][0], r["negative_prompt"]), {}
    most = emphasis.count(pipe, texts[0])
    assert most > 1 and most == emphasis.count(pipe, texts[1])
    for prefix, text in zip(("", "negative_"), texts):
        ids, rows, pooled = emphasis.encode(pipe, text, most)
        for tail, row in zip(("", "_2"), ids):
            out[f"{prefix}ids{tail}"] = row
        more[prefix + "prompt_embeds"] = rows
        if pooled is not None:
            more[prefix + "pooled_prompt_embeds"] = pooled
    out.update({k: v if "pooled" in k else v[0] for k, v in more.items()})
    return more


def run(name, out_dir):
    """One request."""
    r = dict(model=name, negative_prompt=None, images=1, strength=0.0, loras={}, weighted=False,
             sizes={}) | RUNS[name]
    d = out_dir / name
    d.mkdir(parents=True, exist_ok=True)
    pipe = load(r, out_dir)
    if r["loras"]:
        pipe.unet.float()
        pipe.text_encoder.float()
        add_loras(pipe, r, d)
    count = len(r["prompts"]) * r["images"]
    gens = [torch.Generator("cpu").manual_seed(r["seed"] + i) for i in range(count)]
    out, trail, more = {}, [], {}
    if r["weighted"]:
        more = weigh_texts(pipe, r, out)
    else:
        record_text(pipe, r, out)

    def keep(p, step, t, kw):
        trail.append((float(t), kw["latents"].clone()))
        return {}
    if "image" in r:
        more = dict(image=make_image(r["image"], r["seed"] + 2000), strength=r["strength"])
        if "mask" not in r:
            more["image"] = more["image"].resize((r["width"], r["height"]), 1)
        more["image"].save(d / "image.png")
    if "mask" in r:
        more["mask_image"] = make_mask(r["mask"])
        more["mask_image"].save(d / "mask.png")
    if "image" not in r or "mask" in r:
        more |= dict(height=r["height"], width=r["width"])
    negative = r["negative_prompt"]
    if not r["weighted"]:
        more |= dict(prompt=r["prompts"],
                     negative_prompt=negative and [negative] * len(r["prompts"]))
    images = pipe(num_inference_steps=r["steps"],
                  guidance_scale=r["guidance"], num_images_per_prompt=r["images"],
                  generator=gens, output_type="pt", callback_on_step_end=keep, **more,
                  **r["sizes"]).images
    keep_images(out, trail, images, r, count, "image" not in r, not r["loras"])
    save_run(d, name, r["model"], {
        "weights": MODELS[r["model"]]["weights"], "prompts": r["prompts"],
        "width": r["width"], "height": r["height"],
        "num_inference_steps": r["steps"], "guidance_scale": r["guidance"],
        "seed": r["seed"], "num_images_per_prompt": r["images"], "images": count,
        "max_sequence_length": 0, "scheduler": None, "tiling": False,
        "resolution_binning": False, "strength": r["strength"]}
        | {k: ",".join(map(str, v)) for k, v in r["sizes"].items()}
        | ({"mask": True} if "mask" in r else {})
        | ({"prompt_weighting": 1} if r["weighted"] else {})
        | ({"loras": [{"path": f"{k}.safetensors", "scale": v} for k, v in r["loras"].items()]}
           if r["loras"] else {})
        | ({"negative_prompt": negative} if negative else {}), out)
    say_images(name, r, out, trail, count)


def make(names, options):
    make_each(names, options.out, MODELS, make_model, run)
