"""Qwen-Image, from a prompt with and without guidance, from an image, and inpainting one.

qwen-forms/NAME has the results of the transformer of Qwen-Image-Layered alone, with the random
weights of fill.py: tokens of the layers and of the image that is read (ref, ref_size), the text,
the time 0..1000 and the grid of tokens.

Layout and names of tensors as in joint.py. A model's directory has no weights, as in joint.py. The
tokenizer is that of flux2.py; the pipeline cuts 34 rows off whatever its template becomes.
"""
import json
import shutil

import numpy as np
import torch
from diffusers import (AutoencoderKLQwenImage, FlowMatchEulerDiscreteScheduler,
                       QwenImageImg2ImgPipeline, QwenImageInpaintPipeline, QwenImagePipeline,
                       QwenImageTransformer2DModel)
from safetensors.torch import save_file
from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

from ..common import (keep_images, make_each, make_image, make_mask, quiet, save_run, say_images,
                      tidy)
from ..fill import configure, fill, weights
from .flux2 import load_tokenizer, make_tokenizer

TEXT = dict(
    text_config=dict(vocab_size=288, hidden_size=48, intermediate_size=80, num_hidden_layers=2,
                     num_attention_heads=4, num_key_value_heads=2, rms_norm_eps=1e-6,
                     max_position_embeddings=2048, use_sliding_window=False,
                     rope_parameters=dict(rope_type="default", rope_theta=1e6,
                                          mrope_section=[2, 2, 2])),
    vision_config=dict(depth=1, hidden_size=8, intermediate_size=12, num_heads=2,
                       out_hidden_size=48, patch_size=4, fullatt_block_indexes=[0],
                       window_size=16))
VAE = dict(base_dim=8, z_dim=4, dim_mult=[1, 2, 2], num_res_blocks=1,
           temperal_downsample=[True, True], latents_mean=[-0.4, 0.1, 0.7, -0.2],
           latents_std=[2.5, 0.8, 1.4, 0.6])
SCHEDULER = dict(shift=1.0, use_dynamic_shifting=True, base_shift=0.5, max_shift=0.9,
                 base_image_seq_len=256, max_image_seq_len=8192, shift_terminal=0.02)
DIT = dict(patch_size=2, in_channels=16, out_channels=4, attention_head_dim=12,
           axes_dims_rope=(2, 4, 6), joint_attention_dim=48)

LAYERED = dict(use_additional_t_cond=True, use_layer3d_rope=True, **DIT)
# the config, the tokens of the layers, and of the image that is read
FORMS = {
    "layers": (dict(num_attention_heads=3, num_layers=2, **LAYERED), (3, 3, 5), (4, 3)),
    # more layers than half a side, behind which the text stands
    "many": (dict(num_attention_heads=5, num_layers=1, **LAYERED), (5, 2, 3), (2, 3)),
}
MODELS = {
    "qwen": dict(weights="bf16", dit=dict(num_attention_heads=3, num_layers=3, **DIT)),
    "qwen-five": dict(weights="f16", dit=dict(num_attention_heads=5, num_layers=2, **DIT)),
}
RUNS = {
    "qwen": dict(prompts=["A large Red circle, on a blue background"], width=40, height=56,
                 steps=4, seed=11, negative=" ", true_cfg=4.0, max_sequence_length=512),
    "qwen-five": dict(prompts=["two stars", "a purple ring"], width=56, height=32, steps=3,
                      seed=12, max_sequence_length=124),
    "qwen-image": dict(model="qwen", prompts=["a cyan triangle"], width=48, height=40, steps=5,
                       seed=13, negative="blue", true_cfg=2.5, strength=0.6,
                       max_sequence_length=200),
    "qwen-mask": dict(model="qwen", prompts=["a cyan triangle"], width=40, height=48, steps=4,
                      seed=14, negative=" ", true_cfg=3.0, strength=0.75, mask=(30, 44),
                      max_sequence_length=200),
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
    index = {"_class_name": "QwenImagePipeline", "tokenizer": ["transformers", "Qwen2Tokenizer"],
             "scheduler": ["diffusers", "FlowMatchEulerDiscreteScheduler"]}
    for folder, m in make_parts(name).items():
        configure(m, out / folder)
        index[folder] = ["transformers" if folder == "text_encoder" else "diffusers",
                         type(m).__name__]
    make_tokenizer(out / "tokenizer")
    FlowMatchEulerDiscreteScheduler(**SCHEDULER).save_pretrained(out / "scheduler")
    (out / "model_index.json").write_text(json.dumps(index))
    tidy(out, {})


def load(model, out, image, mask):
    d = out / model
    pipe = (QwenImageInpaintPipeline if mask else QwenImageImg2ImgPipeline if image else
            QwenImagePipeline)(
        scheduler=FlowMatchEulerDiscreteScheduler.from_pretrained(d / "scheduler"),
        tokenizer=load_tokenizer(d / "tokenizer", False), **make_parts(model))
    pipe.set_progress_bar_config(disable=True)
    return pipe


# ---- runs ----------------------------------------------------------------------------------------

def record_text(pipe, r, out):
    """Ids and what encode_prompt gives for prompt 0 and the negative prompt. Ids behind those of
    max_sequence_length rows do not change the rows before."""
    n = r["max_sequence_length"]
    texts = [("", r["prompts"][0])] + ([("negative_", r["negative"])] if "negative" in r else [])
    for prefix, text in texts:
        framed = pipe.prompt_template_encode.format(text)
        out[prefix + "ids"] = pipe.tokenizer(
            framed, max_length=n + pipe.prompt_template_encode_start_idx, truncation=True,
            return_tensors="pt").input_ids[0].int()
        out[prefix + "prompt_embeds"] = pipe.encode_prompt(text, max_sequence_length=n)[0][0]


def run(name, out_dir, change=None, more_json=None):
    """One request; change(pipe) comes before it, and then floats of the image are not kept."""
    r = dict(model=name, images=1, strength=0.0, true_cfg=1.0) | RUNS[name]
    d = out_dir / name
    d.mkdir(parents=True, exist_ok=True)
    pipe = load(r["model"], out_dir, r["strength"] > 0, "mask" in r)
    if change:
        change(pipe)
    count = len(r["prompts"]) * r["images"]
    gens = [torch.Generator("cpu").manual_seed(r["seed"] + i) for i in range(count)]
    out, trail, more = {}, [], {}
    record_text(pipe, r, out)
    if r["strength"]:
        more = dict(image=make_image((r["width"], r["height"]), r["seed"] + 2000),
                    strength=r["strength"])
        more["image"].save(d / "image.png")
    if "mask" in r:
        more["mask_image"] = make_mask(r["mask"])
        more["mask_image"].save(d / "mask.png")
    if "negative" in r:
        more |= dict(negative_prompt=[r["negative"]] * len(r["prompts"]),
                     true_cfg_scale=r["true_cfg"])

    def keep(p, step, t, kw):
        z = p._unpack_latents(kw["latents"], r["height"], r["width"], p.vae_scale_factor)
        trail.append((float(t), z[:, :, 0].clone()))
        return {}
    images = pipe(prompt=r["prompts"], num_inference_steps=r["steps"],
                  num_images_per_prompt=r["images"], height=r["height"], width=r["width"],
                  generator=gens, output_type="pt", max_sequence_length=r["max_sequence_length"],
                  callback_on_step_end=keep, **more).images
    keep_images(out, trail, images, r, count, not r["strength"], not change)
    save_run(d, name, r["model"], {
        "weights": MODELS[r["model"]]["weights"], "prompts": r["prompts"],
        "negative_prompt": r.get("negative", ""), "width": r["width"], "height": r["height"],
        "model_width": r["width"], "model_height": r["height"], "num_inference_steps": r["steps"],
        "guidance_scale": 1.0, "true_cfg_scale": r["true_cfg"], "seed": r["seed"],
        "num_images_per_prompt": r["images"], "images": count,
        "max_sequence_length": r["max_sequence_length"], "scheduler": None, "tiling": False,
        "resolution_binning": False, "strength": r["strength"]}
        | ({"mask": True} if "mask" in r else {})
        | (more_json or {}), out)
    say_images(name, r, out, trail, count)


def run_form(name, out):
    config, grid, ref = FORMS[name]
    model = QwenImageTransformer2DModel(**config).eval()
    for n, p in model.named_parameters():
        small = p.ndim == 1 or n.endswith("addition_t_embedding.weight")
        gain = 0.1 if small else 0.9 / np.sqrt(np.float32(p[0].numel()))
        p.data.copy_(weights(n, p.shape, gain,
                             1.0 if p.ndim == 1 and n.endswith("weight") else 0.0))
    c, g = model.config, torch.Generator().manual_seed(40)
    layers, rows = grid[0], [int(np.prod(grid)), int(np.prod(ref))]
    z = torch.randn(1, sum(rows), c.in_channels, generator=g)
    text = torch.randn(1, 7, c.joint_attention_dim, generator=g)
    y = model(z, text, timestep=torch.tensor([0.613]),
              img_shapes=[[(1, *grid[1:])] * layers + [(1, *ref)]],
              additional_t_cond=torch.tensor([0]), return_dict=False)[0][0, :rows[0]]
    d = out / "qwen-forms" / name
    d.mkdir(parents=True, exist_ok=True)
    kept = {k: v for k, v in c.items() if not k.startswith("_")}
    (d / "config.json").write_text(json.dumps({"_class_name": type(model).__name__, **kept},
                                              indent=2) + "\n")
    save_file({"latents": z[0, :rows[0]].clone(), "ref": z[0, rows[0]:].clone(), "text": text[0],
               "time": torch.tensor([613.0]), "out": y.clone(),
               "ref_size": torch.tensor(ref, dtype=torch.float32),
               "grid": torch.tensor(grid, dtype=torch.float32)}, d / "golden.safetensors")
    for p in d.iterdir():
        p.chmod(0o644)
    print(f"{name}: {grid} tokens, {y.std():.2f}")


def make(names, options):
    quiet()
    with torch.no_grad():
        for name in FORMS if "forms" in names else ():
            run_form(name, options.out)
    make_each([n for n in names if n in RUNS], options.out, MODELS, make_model, run)
