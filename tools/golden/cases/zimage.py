"""Z-Image: a single stream of text and image with refiners before it, and Qwen3 as text encoder.

Layout and names of tensors as in joint.py. `prompt_embeds` has zeros below the rows of the text, up
to a multiple of 32: the transformer reads its own learned rows there. Seven by five tokens of the
image are padded to 64, six by eight of them to 64, too, and eight by eight are not padded.

zimage-lora adds two random LoRA files at once, both loaded by diffusers: peft.safetensors in the
form of diffusers, kohya.safetensors with the names of ComfyUI's layout, as sd-scripts writes them.

`cfg_normalization` and `cfg_truncation` are the pipeline's. A model's directory has no weights, as
in joint.py.
"""
import json
import shutil

import torch
from diffusers import (AutoencoderKL, FlowMatchEulerDiscreteScheduler, ZImageImg2ImgPipeline,
                       ZImageInpaintPipeline, ZImagePipeline, ZImageTransformer2DModel)
from PIL import Image
from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers,
                        pre_tokenizers)
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3Model

from ..common import (add_loras, keep_images, make_each, make_image, make_mask, save_run,
                      say_images, tidy)
from ..fill import configure, fill
from .joint import VAE, byte_letters

MULTIPLE = 32
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MERGES = ["r e", "re d", "s t", "a r", "st ar", "Ġ c", "Ġc i", "r c", "l e", "Ġci rc", "Ġcirc le"]
# The words of Qwen's pre-tokenizer.
WORDS = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
         r"|\s*[\r\n]+|\s+(?!\S)|\s+")
TEMPLATE = ("{%- for m in messages %}{{- '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>'"
            " + '\n' }}{%- endfor %}{%- if add_generation_prompt %}"
            "{{- '<|im_start|>assistant\n' }}{%- endif %}")
QWEN = dict(vocab_size=288, hidden_size=20, intermediate_size=27, num_hidden_layers=3,
            num_attention_heads=6, num_key_value_heads=2, head_dim=8, max_position_embeddings=1024,
            rope_parameters=dict(rope_type="default", rope_theta=1e6), tie_word_embeddings=True)
DIT = dict(in_channels=4, n_refiner_layers=2, cap_feat_dim=20, axes_lens=[1024, 32, 32])
SHIFT = dict(shift=3.0, use_dynamic_shifting=False)

MODELS = {
    "zimage": dict(dit=dict(dim=24, n_heads=3, n_kv_heads=3, n_layers=3, axes_dims=[4, 2, 2],
                            **DIT), weights="bf16"),
    "zimage-five": dict(dit=dict(dim=40, n_heads=5, n_kv_heads=5, n_layers=2, axes_dims=[2, 4, 2],
                                 **DIT), weights="f16"),
}
RUNS = {
    "zimage": dict(prompts=["A large Red circle, on a blue background"], width=40, height=56,
                   steps=4, seed=7, guidance=3.5, negative_prompt="a green ring"),
    "zimage-cut": dict(model="zimage", prompts=["two stars"], width=64, height=48, steps=5, seed=8,
                       guidance=4.0, negative_prompt="", normalization=0.9, truncation=0.55),
    "zimage-image": dict(model="zimage", prompts=["a cyan triangle"], width=48, height=40, steps=5,
                         seed=9, guidance=0.7, strength=0.6, image=(70, 37)),
    "zimage-mask": dict(model="zimage", prompts=["a star"], width=40, height=48, steps=5,
                        seed=10, guidance=0.7, strength=0.7, image=(70, 37), mask=(40, 48)),
    "zimage-lora": dict(model="zimage", prompts=["a white star"], width=40, height=32, steps=3,
                        seed=71, guidance=0.0, loras=dict(peft=0.7, kohya=-0.4)),
    "zimage-five": dict(prompts=["a purple ring next to a brown square", "a star"], width=64,
                        height=64, steps=3, seed=40, images=2, guidance=0.0, length=31),
}
# Module of a LoRA file -> those of diffusers whose rows it holds.
PEFT = {m: [m] for m in (
    "layers.0.attention.to_k", "layers.1.feed_forward.w2", "noise_refiner.0.attention.to_out.0",
    "context_refiner.1.feed_forward.w3", "layers.2.adaLN_modulation.0", "all_x_embedder.2-1",
    "cap_embedder.1", "t_embedder.mlp.0", "all_final_layer.2-1.linear")}
KOHYA = {"layers_0_attention_qkv": ["layers.0.attention.to_" + k for k in "qkv"],
         "context_refiner_0_attention_qkv": ["context_refiner.0.attention.to_" + k for k in "qkv"],
         "layers_1_attention_out": ["layers.1.attention.to_out.0"],
         "noise_refiner_1_feed_forward_w1": ["noise_refiner.1.feed_forward.w1"],
         "layers_2_feed_forward_w3": ["layers.2.feed_forward.w3"],
         "noise_refiner_0_adaLN_modulation_0": ["noise_refiner.0.adaLN_modulation.0"]}


# ---- models --------------------------------------------------------------------------------------

def make_tokenizer(out):
    """Byte-level BPE with Qwen's words and a few merges."""
    out.mkdir(parents=True)
    letters = byte_letters()
    vocab = letters + [m.replace(" ", "") for m in MERGES]
    t = Tokenizer(models.BPE(vocab={w: i for i, w in enumerate(vocab)},
                             merges=[tuple(m.split(" ")) for m in MERGES]))
    t.normalizer = normalizers.NFC()
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(WORDS), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    t.add_special_tokens([AddedToken(w, normalized=False, special=True) for w in SPECIAL])
    t.save(str(out / "tokenizer.json"))
    (out / "tokenizer_config.json").write_text(json.dumps(dict(
        tokenizer_class="Qwen2Tokenizer", model_max_length=1024, padding_side="right",
        pad_token="<|endoftext|>", eos_token="<|im_end|>", bos_token=None, unk_token=None,
        chat_template=TEMPLATE), indent=2) + "\n")


def load_tokenizer(folder):
    return PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"),
                                   pad_token="<|endoftext|>", eos_token="<|im_end|>",
                                   chat_template=TEMPLATE, padding_side="right")


def make_parts(name):
    spec = MODELS[name]
    parts = {"text_encoder": Qwen3Model(Qwen3Config(**QWEN)),
             "transformer": ZImageTransformer2DModel(**spec["dit"]), "vae": AutoencoderKL(**VAE)}
    return {folder: fill(m, spec["weights"]) for folder, m in parts.items()}


def make_model(name, out):
    """Configurations and the tokenizer."""
    if out.exists():
        shutil.rmtree(out)
    index = {"_class_name": "ZImagePipeline", "tokenizer": ["transformers", "Qwen2Tokenizer"],
             "scheduler": ["diffusers", "FlowMatchEulerDiscreteScheduler"]}
    for folder, m in make_parts(name).items():
        configure(m, out / folder)
        index[folder] = ["transformers" if folder == "text_encoder" else "diffusers",
                         type(m).__name__]
    make_tokenizer(out / "tokenizer")
    FlowMatchEulerDiscreteScheduler(**SHIFT).save_pretrained(out / "scheduler")
    (out / "model_index.json").write_text(json.dumps(index))
    tidy(out, {})


def load(model, out, image, mask):
    d = out / model
    pipe = (ZImageInpaintPipeline if mask else ZImageImg2ImgPipeline if image else
            ZImagePipeline)(
        scheduler=FlowMatchEulerDiscreteScheduler.from_pretrained(d / "scheduler"),
        tokenizer=load_tokenizer(d / "tokenizer"), **make_parts(model))
    pipe.set_progress_bar_config(disable=True)
    return pipe


# ---- runs ----------------------------------------------------------------------------------------

def padded(rows):
    """Rows of zeros below, up to the multiple."""
    return torch.cat([rows, rows.new_zeros(-len(rows) % MULTIPLE, rows.shape[1])])


def record_text(pipe, r, out):
    """Ids and what encode_prompt gives for prompt 0 and the negative prompt."""
    for prefix, text in (("", r["prompts"][0]),
                         ("negative_", r["negative_prompt"]))[:1 + (r["guidance"] > 0)]:
        chat = pipe.tokenizer.apply_chat_template(
            [dict(role="user", content=text)], tokenize=False, add_generation_prompt=True,
            enable_thinking=True)
        out[prefix + "ids"] = pipe.tokenizer(chat, max_length=r["length"], truncation=True,
                                             return_tensors="pt").input_ids[0].int()
        rows, _ = pipe.encode_prompt(text, do_classifier_free_guidance=False,
                                     max_sequence_length=r["length"])
        out[prefix + "prompt_embeds"] = padded(rows[0])


def start_image(r, d):
    """What an image-to-image run starts from, of another size: diffusers gets it resized."""
    image = make_image(r["image"], r["seed"] + 2000)
    image.save(d / "image.png")
    return image.resize((r["width"], r["height"]), Image.Resampling.LANCZOS)


def run(name, out_dir):
    """One request."""
    r = dict(model=name, negative_prompt="", images=1, strength=0.0, normalization=0.0,
             truncation=1.0, length=512, loras={}) | RUNS[name]
    d = out_dir / name
    d.mkdir(parents=True, exist_ok=True)
    pipe = load(r["model"], out_dir, r["strength"] > 0, "mask" in r)
    if r["loras"]:
        add_loras(pipe, r, d, PEFT, KOHYA)
    count = len(r["prompts"]) * r["images"]
    gens = [torch.Generator("cpu").manual_seed(r["seed"] + i) for i in range(count)]
    out, trail = {}, []
    record_text(pipe, r, out)

    def keep(p, step, t, kw):
        trail.append((float(t), kw["latents"].clone()))
        return {}
    more = dict(image=start_image(r, d), strength=r["strength"]) if r["strength"] else {}
    if "mask" in r:
        more["mask_image"] = make_mask(r["mask"])
        more["mask_image"].save(d / "mask.png")
    images = pipe(list(r["prompts"]), num_inference_steps=r["steps"],
                  guidance_scale=r["guidance"],
                  negative_prompt=[r["negative_prompt"]] * len(r["prompts"]),
                  cfg_normalization=r["normalization"], cfg_truncation=r["truncation"],
                  num_images_per_prompt=r["images"], height=r["height"], width=r["width"],
                  generator=gens, output_type="pt", max_sequence_length=r["length"],
                  callback_on_step_end=keep, **more).images
    keep_images(out, trail, images, r, count, not r["strength"], not r["loras"])
    save_run(d, name, r["model"], {
        "weights": MODELS[r["model"]]["weights"], "prompts": r["prompts"],
        "negative_prompt": r["negative_prompt"], "width": r["width"], "height": r["height"],
        "model_width": r["width"], "model_height": r["height"],
        "num_inference_steps": r["steps"], "guidance_scale": r["guidance"],
        "cfg_normalization": r["normalization"], "cfg_truncation": r["truncation"],
        "seed": r["seed"], "num_images_per_prompt": r["images"], "images": count,
        "max_sequence_length": r["length"], "scheduler": None, "tiling": False,
        "resolution_binning": False, "strength": r["strength"]}
        | ({"mask": True} if "mask" in r else {})
        | ({"loras": [{"path": f"{k}.safetensors", "scale": v} for k, v in r["loras"].items()]}
           if r["loras"] else {}), out)
    say_images(name, r, out, trail, count)


def make(names, options):
    make_each(names, options.out, MODELS, make_model, run)
