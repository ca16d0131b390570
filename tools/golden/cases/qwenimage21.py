"""Qwen-Image-2.1, from a prompt with and without guidance, and with reference images.

qwen21-five lists the sigmas of its steps (sample_sigmas). qwen21-lora adds two random LoRA files:
peft.safetensors in the form of diffusers, kohya.safetensors with the joint gate and input of the
feed-forward in ComfyUI's files.

Layout and names of tensors as in joint.py. A model's directory has no weights, as in joint.py. The
tokenizer is that of flux2.py. The area of reference images is max_area's (output_resolution), as a
tiny model has no use for a megapixel; one image of qwen21-edit has alpha. The pipeline keeps the
keys and values of text and reference images, which must not change what it predicts.
"""
import json
import shutil

import diffusers.pipelines.qwenimage21.pipeline_qwenimage21 as module
import torch
from diffusers import (AutoencoderKLQwenImage21, FlowMatchEulerDiscreteScheduler,
                       QwenImage21Pipeline, QwenImage21Transformer2DModel)
from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from ..common import (add_alpha, add_loras, keep_images, make_each, make_image, save_run,
                      say_images, tidy)
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
VISION = ["<|vision_start|>", "<|vision_end|>", "<|image_pad|>"]
# A token of the text encoder has 32 x 32 pixels, for which the transformer has 2 x 2 tokens.
TOWER = dict(depth=3, hidden_size=24, intermediate_size=21, num_heads=2, out_hidden_size=40,
             patch_size=16, num_position_embeddings=9, deepstack_visual_indexes=[0, 1])
PROCESSOR = dict(patch_size=16, merge_size=2, temporal_patch_size=2, min_pixels=1024,
                 max_pixels=20000, image_mean=[0.5, 0.45, 0.55], image_std=[0.5, 0.4, 0.6])
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
    "qwen21-edit": dict(weights="bf16", sees=True,
                        dit=dict(num_attention_heads=3, num_layers=3, **DIT)),
}
RUNS = {
    "qwen21": dict(prompts=["A large Red circle, on a blue background"], width=96, height=160,
                   steps=4, seed=31, negative="", true_cfg=4.0),
    "qwen21-five": dict(prompts=["two stars"], width=160, height=64, steps=3, seed=32,
                        images=2),
    "qwen21-lora": dict(model="qwen21", prompts=["a white star"], width=64, height=96, steps=3,
                        seed=33, loras=dict(peft=0.7, kohya=-0.4)),
    # width 0: the pipeline's own size
    "qwen21-edit": dict(prompts=["put both side by side"], sizes=[(75, 64), (40, 91)], alpha=[0],
                        width=96, height=64, side=96, steps=3, seed=34, negative="a star",
                        true_cfg=2.5),
    "qwen21-edit-one": dict(model="qwen21-edit", prompts=["a cyan triangle"], sizes=[(120, 67)],
                            width=0, height=0, side=80, steps=2, seed=35, images=2),
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


class Batch(dict):
    __getattr__ = dict.__getitem__

    def to(self, device):
        return self


class Processor:
    """What the pipeline calls of Qwen3VLProcessor, with Pillow's filter, which needs no
    torchvision."""

    def __init__(self, tokenizer):
        self.tokenizer = tokenizer
        self.images = Qwen2VLImageProcessorPil(**PROCESSOR)

    def apply_chat_template(self, messages, **more):
        text = "".join(f"<|im_start|>{m['role']}\n{m['content'][0]['text']}<|im_end|>\n"
                       for m in messages)
        return [self.tokenizer(text).input_ids]

    def __call__(self, text, images=None, **more):
        if images is None:
            return self.tokenizer(text, **more)
        seen = self.images(images=images, return_tensors="pt")
        counts = [int(g.prod()) // 4 for g in seen["image_grid_thw"]]
        whole = []
        for t in text:
            parts = t.split(VISION[2])
            mine, counts = counts[:len(parts) - 1], counts[len(parts) - 1:]
            whole.append(parts[0] + "".join(VISION[2] * n + p for n, p in zip(mine, parts[1:])))
        ids = self.tokenizer(whole, **more)
        return Batch({**ids, **seen, "mm_token_type_ids": (
            ids["input_ids"] == self.tokenizer.convert_tokens_to_ids(VISION[2])).int()})


# ---- models --------------------------------------------------------------------------------------

def make_parts(name):
    spec, text = MODELS[name], TEXT
    if "sees" in spec:
        text = TEXT | {"vision_config": TOWER} | {
            f"{w}_token_id": 256 + 11 + len(SPECIAL) + i
            for i, w in enumerate(("vision_start", "vision_end", "image"))}
    parts = {"text_encoder": Qwen3VLForConditionalGeneration(Qwen3VLConfig(**text)),
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
    if "sees" in MODELS[name]:
        make_tokenizer(out / "processor", SPECIAL + VISION)
        (out / "processor" / "preprocessor_config.json").write_text(json.dumps(
            PROCESSOR | {"image_processor_type": "Qwen2VLImageProcessorFast"}))
    else:
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

def record_seen(pipe, out):
    """Ids and rows of the prompt and the negative prompt as the pipeline makes them with images,
    and the processor's numbers."""
    plain, embed = pipe.text_encoder.forward, pipe._get_qwen_prompt_embeds
    prefixes = ["", "negative_"]

    def forward(input_ids, **kw):
        out[prefixes[0] + "ids"] = input_ids[0].int()
        return plain(input_ids=input_ids, **kw)

    def rows(*a, **kw):
        y = embed(*a, **kw)
        out[prefixes.pop(0) + "prompt_embeds"] = y[0][0]
        return y
    pipe.text_encoder.forward, pipe._get_qwen_prompt_embeds = forward, rows


def record_text(pipe, r, out):
    """Ids and what encode_prompt gives for prompt 0 and the negative prompt."""
    texts = [("", r["prompts"][0])] + ([("negative_", r["negative"])] if "negative" in r else [])
    for prefix, text in texts:
        framed = pipe.prompt_template_t2i.format(text or " ")
        out[prefix + "ids"] = torch.tensor(pipe.processor.tokenizer(framed).input_ids,
                                           dtype=torch.int32)
        out[prefix + "prompt_embeds"] = pipe.encode_prompt(text)[0][0]


def give_images(r, d):
    """Writes the reference images of a request, and returns them and the size of its result."""
    given = []
    for i, wide_high in enumerate(r.get("sizes", [])):
        given.append(make_image(wide_high, r["seed"] + 2000 + i))
        if i in r.get("alpha", []):
            given[i] = add_alpha(given[i], r["seed"] + 3000 + i)
        given[i].save(d / ("image.png" if i == 0 else f"image_{i + 1}.png"))
    size = r["height"], r["width"]
    if not r["width"]:
        wide, high = r["sizes"][-1]
        size = module.calculate_dimensions(r["side"] ** 2, wide / high)[1::-1]
    return given, size


def options_of(r, given):
    """Arguments of the pipeline's call that only some requests have."""
    more = {}
    if "negative" in r:
        more = dict(negative_prompt=[r["negative"]] * len(r["prompts"]),
                    true_cfg_scale=r["true_cfg"])
    return more | (dict(image=given, output_resolution=r["side"]) if given else {})


def notes_of(r, size, given):
    """golden.json of a request."""
    count = len(r["prompts"]) * r["images"]
    return {
        "weights": MODELS[r["model"]]["weights"], "prompts": r["prompts"],
        "negative_prompt": r.get("negative", ""), "width": r["width"], "height": r["height"],
        "model_width": size[1], "model_height": size[0], "num_inference_steps": r["steps"],
        "guidance_scale": 1.0, "true_cfg_scale": r["true_cfg"], "seed": r["seed"],
        "num_images_per_prompt": r["images"], "images": count, "max_sequence_length": 1024,
        "scheduler": None, "tiling": False, "resolution_binning": False} | (
            {"image": True, "more_images": len(given) - 1, "max_area": r["side"] ** 2}
            if given else {}) | (
            {"loras": [{"path": f"{k}.safetensors", "scale": v} for k, v in r["loras"].items()]}
            if r["loras"] else {})


def run(name, out_dir):
    """One request."""
    r = dict(model=name, images=1, true_cfg=1.0, loras={}) | RUNS[name]
    d = out_dir / name
    d.mkdir(parents=True, exist_ok=True)
    pipe = load(r["model"], out_dir)
    if r["loras"]:
        add_loras(pipe, r, d, PEFT, KOHYA, merges=True)
    given, size = give_images(r, d)
    count = len(r["prompts"]) * r["images"]
    gens = [torch.Generator("cpu").manual_seed(r["seed"] + i) for i in range(count)]
    out, trail = {}, []
    if given:
        record_seen(pipe, out)
    else:
        record_text(pipe, r, out)

    def keep(p, step, t, kw):
        z = p._unpack_latents(kw["latents"], *size, p.vae_scale_factor)
        trail.append((float(t), z[:, :, 0].clone()))
        return {}
    images = pipe(prompt=r["prompts"], num_inference_steps=r["steps"],
                  num_images_per_prompt=r["images"], height=r["height"] or None,
                  width=r["width"] or None, generator=gens,
                  output_type="pt", callback_on_step_end=keep, **options_of(r, given)).images
    keep_images(out, trail, images, r, count, whole=not r["loras"])
    save_run(d, name, r["model"], notes_of(r, size, given), out)
    say_images(name, r | dict(width=size[1], height=size[0]), out, trail, count)


def make(names, options):
    make_each(names, options.out, MODELS, make_model, run)
