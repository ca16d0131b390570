"""Qwen-Image-Edit: of one image and of several, with and without a modulation of its own for them,
with two LoRA files at once, as in flux2.py, and inpainted.

Layout and names of tensors as in joint.py. A model's directory has no weights, as in joint.py. Two
things differ from the pipelines: the area of the images is max_area's, as a tiny model has no use
for a megapixel, and the language model is told which ids are an image's (mm_token_type_ids), which
diffusers forgets with transformers 5, so that its tokens would stand in one line.
"""
import json
import shutil

import diffusers.pipelines.qwenimage.pipeline_qwenimage_edit as one
import diffusers.pipelines.qwenimage.pipeline_qwenimage_edit_inpaint as inpaint
import diffusers.pipelines.qwenimage.pipeline_qwenimage_edit_plus as plus
import torch
from diffusers import (AutoencoderKLQwenImage, FlowMatchEulerDiscreteScheduler,
                       QwenImageEditInpaintPipeline, QwenImageEditPipeline,
                       QwenImageEditPlusPipeline, QwenImageTransformer2DModel)
from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from ..common import (add_loras, keep_images, make_each, make_image, make_mask, save_run,
                      say_images, tidy)
from ..fill import configure, fill
from .flux2 import SPECIAL, load_tokenizer, make_tokenizer
from .qwen import DIT, SCHEDULER, TEXT, VAE

MEGAPIXEL = 1024 * 1024
VISION = ["<|vision_start|>", "<|vision_end|>", "<|image_pad|>"]
TOWER = dict(depth=3, hidden_size=36, intermediate_size=21, num_heads=3, out_hidden_size=48,
             patch_size=4, fullatt_block_indexes=[1], window_size=16)
# Sides of whole 8 pixels; of a larger image the area is cut down to max_pixels.
PROCESSOR = dict(patch_size=4, merge_size=2, temporal_patch_size=2, min_pixels=1024,
                 image_mean=[0.48, 0.46, 0.41], image_std=[0.27, 0.26, 0.28])

MODELS = {
    "qwen-edit": dict(pipe=QwenImageEditPipeline, module=one, weights="bf16", most=4000,
                      dit=dict(num_attention_heads=3, num_layers=3, **DIT)),
    "qwen-edit-plus": dict(pipe=QwenImageEditPlusPipeline, module=plus, weights="f16", most=2000,
                           dit=dict(num_attention_heads=5, num_layers=2, zero_cond_t=True, **DIT)),
}
# width 0: the pipeline's own size.
RUNS = {
    "qwen-edit": dict(prompt="make the Red circle blue", sizes=[(61, 90)], width=0, height=0,
                      area=64 * 96, steps=3, seed=21, negative=" ", true_cfg=4.0),
    "qwen-edit-plus": dict(prompt="put both side by side", sizes=[(75, 64), (40, 91)], width=48,
                           height=40, area=64 * 96, steps=3, seed=22, negative="a star",
                           true_cfg=2.5),
    "qwen-edit-last": dict(model="qwen-edit-plus", prompt="a cyan triangle",
                           sizes=[(33, 33), (80, 47)], width=0, height=0, area=64 * 64, steps=2,
                           seed=23),
    "qwen-edit-one": dict(model="qwen-edit", prompt="a star", sizes=[(32, 32)], width=16, height=16,
                          area=32 * 32, steps=2, seed=26),
    "qwen-edit-lora": dict(model="qwen-edit-plus", prompt="a cyan triangle", sizes=[(80, 47)],
                           width=40, height=48, area=64 * 64, steps=2, seed=24,
                           loras=dict(peft=0.7, kohya=-0.4)),
    "qwen-edit-mask": dict(model="qwen-edit", prompt="a cyan triangle", sizes=[(75, 52)], width=0,
                           height=0, area=64 * 96, steps=4, seed=25, negative=" ", true_cfg=3.0,
                           strength=0.75, mask=(60, 44)),
}
PEFT = {m: [m] for m in (
    "transformer_blocks.0.attn.to_q", "transformer_blocks.1.attn.add_v_proj",
    "transformer_blocks.0.img_mlp.net.0.proj", "transformer_blocks.1.txt_mlp.net.2",
    "transformer_blocks.1.img_mod.1", "img_in", "time_text_embed.timestep_embedder.linear_2")}
KOHYA = {m.replace(".", "_"): [m] for m in (
    "transformer_blocks.1.attn.to_out.0", "transformer_blocks.0.attn.add_k_proj",
    "transformer_blocks.0.txt_mod.1", "transformer_blocks.1.img_mlp.net.2")}


# ---- models --------------------------------------------------------------------------------------

def make_parts(name):
    spec = MODELS[name]
    marks = {f"{w}_token_id": 256 + 11 + len(SPECIAL) + i
             for i, w in enumerate(("vision_start", "vision_end", "image"))}
    text = Qwen2_5_VLConfig(text_config=TEXT["text_config"], vision_config=TOWER, **marks)
    parts = {"text_encoder": Qwen2_5_VLForConditionalGeneration(text),
             "transformer": QwenImageTransformer2DModel(**spec["dit"]),
             "vae": AutoencoderKLQwenImage(**VAE)}
    return {folder: fill(m, spec["weights"]) for folder, m in parts.items()}


def make_model(name, out):
    """Configurations, the tokenizer and the image processor."""
    if out.exists():
        shutil.rmtree(out)
    spec = MODELS[name]
    index = {"_class_name": spec["pipe"].__name__, "tokenizer": ["transformers", "Qwen2Tokenizer"],
             "processor": ["transformers", "Qwen2VLProcessor"],
             "scheduler": ["diffusers", "FlowMatchEulerDiscreteScheduler"]}
    for folder, m in make_parts(name).items():
        configure(m, out / folder)
        index[folder] = ["transformers" if folder == "text_encoder" else "diffusers",
                         type(m).__name__]
    make_tokenizer(out / "tokenizer", SPECIAL + VISION)
    (out / "processor").mkdir()
    (out / "processor" / "preprocessor_config.json").write_text(json.dumps(
        PROCESSOR | {"max_pixels": spec["most"], "image_processor_type": "Qwen2VLImageProcessor"}))
    FlowMatchEulerDiscreteScheduler(**SCHEDULER).save_pretrained(out / "scheduler")
    (out / "model_index.json").write_text(json.dumps(index))
    tidy(out, {})


class Processor:
    """transformers' Qwen2VLProcessor with Pillow's filter, which needs no torchvision."""

    def __init__(self, tokenizer, most):
        self.tokenizer = tokenizer
        self.images = Qwen2VLImageProcessorPil(**PROCESSOR, max_pixels=most)

    def __call__(self, text, images, **kw):
        seen = self.images(images=images, return_tensors="pt")
        counts = [int(g.prod()) // PROCESSOR["merge_size"] ** 2 for g in seen["image_grid_thw"]]
        parts = text[0].split(VISION[2])
        assert len(parts) == len(counts) + 1
        whole = parts[0] + "".join(VISION[2] * n + p for n, p in zip(counts, parts[1:]))
        return {**self.tokenizer([whole], return_tensors="pt"), **seen}


class Batch(dict):
    __getattr__ = dict.__getitem__

    def to(self, device):
        return self


def load(model, out, mask):
    d, spec = out / model, MODELS[model]
    tokenizer = load_tokenizer(d / "tokenizer", False)
    make = Processor(tokenizer, spec["most"])
    pipe = (QwenImageEditInpaintPipeline if mask else spec["pipe"])(
        scheduler=FlowMatchEulerDiscreteScheduler.from_pretrained(d / "scheduler"),
        tokenizer=tokenizer, processor=None, **make_parts(model))
    pipe.processor = lambda **kw: Batch(make(**kw))
    pipe.set_progress_bar_config(disable=True)
    return pipe


# ---- runs ----------------------------------------------------------------------------------------

def record_text(pipe, out):
    """Ids and rows of the prompt and the negative prompt as the pipeline makes them."""
    image = pipe.text_encoder.config.image_token_id
    plain, embed, prefixes = pipe.text_encoder.forward, pipe._get_qwen_prompt_embeds, ["",
                                                                                       "negative_"]

    def forward(input_ids, **kw):
        out[prefixes[0] + "ids"] = input_ids[0].int()
        return plain(input_ids=input_ids, mm_token_type_ids=(input_ids == image).int(), **kw)

    def rows(*a, **kw):
        y = embed(*a, **kw)
        out[prefixes.pop(0) + "prompt_embeds"] = y[0][0]
        return y
    pipe.text_encoder.forward, pipe._get_qwen_prompt_embeds = forward, rows


def set_area(module, area):
    """Images of this area in place of a megapixel."""
    plain = module.calculate_dimensions
    module.calculate_dimensions = lambda a, ratio: plain(area if a == MEGAPIXEL else a, ratio)
    return plain


def run(name, out_dir):
    r = dict(model=name, images=1, true_cfg=1.0, loras={}, strength=0.0) | RUNS[name]
    d, module = out_dir / name, inpaint if "mask" in r else MODELS[r["model"]]["module"]
    d.mkdir(parents=True, exist_ok=True)
    pipe, out, trail, more, given = load(r["model"], out_dir, "mask" in r), {}, [], {}, []
    record_text(pipe, out)
    if r["loras"]:
        add_loras(pipe, r, d, PEFT, KOHYA, ranks=2)
    for i, wide_high in enumerate(r["sizes"]):
        given.append(make_image(wide_high, r["seed"] + 2000 + i))
        given[i].save(d / ("image.png" if i == 0 else f"image_{i + 1}.png"))
    size = [r["height"], r["width"]]
    if not r["width"]:
        wide, high = r["sizes"][-1]
        size = module.calculate_dimensions(r["area"], wide / high)[1::-1]
    if "negative" in r:
        more = dict(negative_prompt=r["negative"], true_cfg_scale=r["true_cfg"])
    if "mask" in r:
        more |= dict(mask_image=make_mask(r["mask"]), strength=r["strength"])
        more["mask_image"].save(d / "mask.png")

    def keep(p, step, t, kw):
        z = p._unpack_latents(kw["latents"], *size, p.vae_scale_factor)
        trail.append((float(t), z[:, :, 0].clone()))
        return {}
    plain = set_area(module, r["area"])
    images = pipe(image=given if len(given) > 1 else given[0], prompt=r["prompt"],
                  num_inference_steps=r["steps"], height=r["height"] or None,
                  width=r["width"] or None, output_type="pt", callback_on_step_end=keep,
                  generator=[torch.Generator("cpu").manual_seed(r["seed"])], **more).images
    module.calculate_dimensions = plain
    keep_images(out, trail, images, r, 1, not r["strength"], not r["loras"])
    save_run(d, name, r["model"], {
        "weights": MODELS[r["model"]]["weights"], "prompts": [r["prompt"]],
        "negative_prompt": r.get("negative"), "width": r["width"], "height": r["height"],
        "model_width": size[1], "model_height": size[0], "num_inference_steps": r["steps"],
        "guidance_scale": 1.0, "true_cfg_scale": r["true_cfg"] if "negative" in r else 0.0,
        "seed": r["seed"],
        "num_images_per_prompt": 1, "images": 1, "max_sequence_length": 1024, "scheduler": None,
        "tiling": False, "resolution_binning": False, "strength": r["strength"], "image": True,
        "more_images": len(given) - 1, "max_area": r["area"]}
        | ({"mask": True} if "mask" in r else {})
        | ({"loras": [{"path": f"{k}.safetensors", "scale": v} for k, v in r["loras"].items()]}
           if r["loras"] else {}), out)
    say_images(name, r | dict(width=size[1], height=size[0]), out, trail, 1)


def make(names, options):
    make_each(names, options.out, MODELS, make_model, run)
