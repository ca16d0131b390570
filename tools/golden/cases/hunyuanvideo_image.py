"""HunyuanVideo from an image: whole requests with random weights, with LLaVA and CLIP as text
encoders.

Layout and names of tensors as in hunyuanvideo.py; `ids` repeat the id of the image, and the first
rows of `prompt_embeds` are those of the image. LLaVA reads images of 36 x 36 pixels, of whose
patches one column and one row are left over. hunyuanvideo-i2v has a transformer in which the image
is the first latent frame (token_replace), hunyuanvideo-i2v-33ch one with further channels
(latent_concat). The prompt of hunyuanvideo-i2v-cut is truncated.
"""
import json
import shutil

import torch
from diffusers import (AutoencoderKLHunyuanVideo, FlowMatchEulerDiscreteScheduler,
                       HunyuanVideoImageToVideoPipeline, HunyuanVideoTransformer3DModel)
from diffusers.pipelines.hunyuan_video.pipeline_hunyuan_video_image2video import (
    DEFAULT_PROMPT_TEMPLATE)
from transformers import (CLIPImageProcessorPil, CLIPTokenizer, LlavaConfig,
                          LlavaForConditionalGeneration)

from ..common import add_loras, make_each, make_image, save_run, tidy
from ..fill import configure, fill
from ..lm_vocab import llama
from .hunyuanvideo import DIT, FRAMES_FIRST, KOHYA, LLAMA, PEFT, VAE, load_tokenizer
from .joint import CLIP_L, make_clip, make_clip_tokenizer
from .video import keep_frames

FRAME, DROP = DEFAULT_PROMPT_TEMPLATE["template"], DEFAULT_PROMPT_TEMPLATE["crop_start"]
IMAGE = "<image>"
SIDE, PATCH = 36, 7
TOKENS = (SIDE // PATCH) ** 2
TOWER = dict(model_type="clip_vision_model", hidden_size=27, intermediate_size=33,
             num_attention_heads=3, num_hidden_layers=4, image_size=SIDE, patch_size=PATCH,
             projection_dim=8)
PIXELS = dict(size={"shortest_edge": SIDE}, crop_size={"height": SIDE, "width": SIDE},
              image_mean=[0.45, 0.5, 0.55], image_std=[0.3, 0.25, 0.2])
# the pipeline's template with the number of image tokens of the small model
TEMPLATE = DEFAULT_PROMPT_TEMPLATE | dict(image_emb_end=5 + TOKENS, image_emb_len=TOKENS)
TEXT = dict(LLAMA, model_type="llama", vocab_size=532)
WORDS = "a large red circle on a blue background"

MODELS = {
    "hunyuanvideo-i2v": dict(dit=dict(DIT, num_attention_heads=3, num_layers=2, num_single_layers=3,
                                      image_condition_type="token_replace"),
                             shift=7.0, weights="bf16"),
    "hunyuanvideo-i2v-33ch": dict(dit=dict(DIT, in_channels=9, num_attention_heads=5, num_layers=1,
                                           num_single_layers=2, num_refiner_layers=1,
                                           guidance_embeds=False,
                                           image_condition_type="latent_concat"),
                                  shift=3.0, weights="f16"),
}
RUNS = {
    "hunyuanvideo-i2v": dict(prompts=["A large Red circle, on a blue background"], width=64,
                             height=48, frames=9, steps=4, seed=111, image=(70, 37),
                             negative="a green ring", true_cfg=2.5, guidance=3.5),
    "hunyuanvideo-i2v-cut": dict(model="hunyuanvideo-i2v",
                                 prompts=["a cyan triangle between two stars"], width=48,
                                 height=80, frames=5, steps=2, seed=112, image=(33, 52), length=7),
    "hunyuanvideo-i2v-lora": dict(model="hunyuanvideo-i2v", prompts=["a white star"], width=32,
                                  height=48, frames=5, steps=2, seed=113, image=(40, 40),
                                  loras=dict(peft=0.7, kohya=-0.4)),
    "hunyuanvideo-i2v-33ch": dict(prompts=["a purple ring"], width=48, height=64, frames=9, steps=3,
                                  seed=114, image=(50, 61), negative="", true_cfg=3.0),
}


# ---- models --------------------------------------------------------------------------------------

def make_parts(name, ids):
    """ids: those of the image and of padding."""
    spec = MODELS[name]
    text = LlavaConfig(text_config=TEXT, vision_config=TOWER,
                       image_token_index=ids[0], pad_token_id=ids[1], image_seq_length=TOKENS)
    parts = {"text_encoder": LlavaForConditionalGeneration(text),
             "text_encoder_2": make_clip(CLIP_L, False),
             "transformer": HunyuanVideoTransformer3DModel(**spec["dit"]),
             "vae": AutoencoderKLHunyuanVideo(**VAE)}
    return {folder: fill(m, spec["weights"]) for folder, m in parts.items()}


def image_and_padding(tokenizer):
    return tokenizer.convert_tokens_to_ids([IMAGE, "<pad>"])


def make_model(name, out):
    """Configurations, the tokenizers and the image processor."""
    if out.exists():
        shutil.rmtree(out)
    index = {"_class_name": "HunyuanVideoImageToVideoPipeline",
             "tokenizer": ["transformers", "LlamaTokenizerFast"],
             "tokenizer_2": ["transformers", "CLIPTokenizer"],
             "image_processor": ["transformers", "CLIPImageProcessor"],
             "scheduler": ["diffusers", "FlowMatchEulerDiscreteScheduler"]}
    llama(out / "tokenizer", [FRAME.replace(IMAGE, "").format(WORDS)] * 3, 250, [IMAGE])
    ids = image_and_padding(load_tokenizer(out / "tokenizer"))
    for folder, m in make_parts(name, ids).items():
        configure(m, out / folder)
        index[folder] = ["transformers" if folder.startswith("text") else "diffusers",
                         type(m).__name__]
    make_clip_tokenizer(out / "tokenizer_2", "<|endoftext|>")
    CLIPImageProcessorPil(**PIXELS).save_pretrained(out / "image_processor")
    FlowMatchEulerDiscreteScheduler(shift=MODELS[name]["shift"]).save_pretrained(out / "scheduler")
    (out / "model_index.json").write_text(json.dumps(index))
    tidy(out, {})


def load(model, out):
    d = out / model
    tokenizer = load_tokenizer(d / "tokenizer")
    pipe = HunyuanVideoImageToVideoPipeline(
        scheduler=FlowMatchEulerDiscreteScheduler.from_pretrained(d / "scheduler"),
        tokenizer=tokenizer, tokenizer_2=CLIPTokenizer.from_pretrained(d / "tokenizer_2"),
        image_processor=CLIPImageProcessorPil(**PIXELS),
        **make_parts(model, image_and_padding(tokenizer)))
    pipe.set_progress_bar_config(disable=True)
    assert len(tokenizer) <= TEXT["vocab_size"], len(tokenizer)
    return pipe


# ---- runs ----------------------------------------------------------------------------------------

def record_text(pipe, out, r, encoded):
    """Ids and what encode_prompt gave for prompt 0 and the negative prompt."""
    before = len(pipe.tokenizer(FRAME.split("{}")[0]).input_ids)
    assert before == DROP, f"{before} ids before a prompt, not {DROP}"
    mark = image_and_padding(pipe.tokenizer)[0]
    texts = (("", r["prompts"][0]), ("negative_", r["negative"]))
    for (prefix, text), (rows, pooled, mask) in zip(texts, encoded):
        how = dict(truncation=True, return_tensors="pt")
        ids = pipe.tokenizer(FRAME.format(text), max_length=DROP + r["length"], **how).input_ids[0]
        at = ids.tolist().index(mark)
        out[prefix + "ids"] = torch.cat([ids[:at], ids[at].repeat(TOKENS), ids[at + 1:]]).int()
        out[prefix + "ids_2"] = pipe.tokenizer_2(text, padding="max_length", max_length=77,
                                                 **how).input_ids[0].int()
        out[prefix + "prompt_embeds"] = rows[0][mask[0].bool()]
        out[prefix + "pooled_prompt_embeds"] = pooled


def run(name, out_dir):
    """One request."""
    r = dict(model=name, negative="", guidance=1.0, true_cfg=1.0, length=256, loras={}) | RUNS[name]
    d = out_dir / name
    d.mkdir(parents=True, exist_ok=True)
    pipe = load(r["model"], out_dir)
    if r["loras"]:
        add_loras(pipe, r, d, PEFT, KOHYA, merges=True)
    image = make_image(r["image"], r["seed"])
    image.save(d / "image.png")
    out, trail, encoded = {}, [], []
    encode = pipe.encode_prompt
    pipe.encode_prompt = lambda **k: encoded.append(encode(**k)) or encoded[-1]

    def keep(p, step, t, kw):
        trail.append((float(t), kw["latents"].clone()))
        return {}
    more = dict(negative_prompt=r["negative"], true_cfg_scale=r["true_cfg"]) \
        if r["true_cfg"] > 1 else {}
    frames = pipe(image=image, prompt=r["prompts"][0], num_inference_steps=r["steps"],
                  guidance_scale=r["guidance"], num_frames=r["frames"], height=r["height"],
                  width=r["width"], generator=torch.Generator("cpu").manual_seed(r["seed"]),
                  output_type="pt", callback_on_step_end=keep, max_sequence_length=r["length"],
                  prompt_template=TEMPLATE, **more).frames
    record_text(pipe, out, r, encoded)
    noise = torch.randn(trail[0][1].shape, generator=torch.Generator("cpu").manual_seed(r["seed"]))
    keep_frames(name, r, out, trail, noise, frames, order=FRAMES_FIRST)
    save_run(d, name, r["model"], {
        "weights": MODELS[r["model"]]["weights"], "prompts": r["prompts"],
        "negative_prompt": r["negative"], "width": r["width"], "height": r["height"],
        "num_frames": r["frames"], "num_inference_steps": r["steps"],
        "guidance_scale": r["guidance"], "true_cfg_scale": r["true_cfg"], "seed": r["seed"],
        "image": 1, "num_images_per_prompt": 1, "images": 1,
        "max_sequence_length": r["length"], "scheduler": None, "tiling": False,
        "resolution_binning": False}
        | ({"loras": [{"path": f"{k}.safetensors", "scale": v} for k, v in r["loras"].items()]}
           if r["loras"] else {}), out)


def make(names, options):
    make_each(names, options.out, MODELS, make_model, run)
