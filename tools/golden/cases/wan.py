"""Wan: the transformer alone, and whole requests.

wan-forms/NAME holds what the transformer alone computes, with the random weights that the program
makes of a tensor's name (src/exec/store.c, xd_random_weight): tokens [N, C pt ph pw], features in
the order channel, frame, row, column; rows of text [m,E]. The other folders are whole requests;
layout and names of tensors as in video.py, with latents [T,C,h,w]. Embeddings of padding are zeros.

wan-lora adds two random LoRA files at once, both loaded by diffusers: peft.safetensors with the
original names of modules behind "diffusion_model.", as lightx2v writes them, kohya.safetensors with
all modules of a block, as musubi-tuner does.

Videos that begin with image.png, and end with last.png, also have "condition" [T,C,h,w], what the
transformer reads beside the latents. The rows of their images stand behind those of the text in
"prompt_embeds", with zeros in further columns. They are resized by Pillow; torchvision, which the
other processor of transformers uses, rounds otherwise by a level or two. Text has 512 rows there,
the only number that diffusers tells from rows of images.
"""
import json
import shutil

import numpy as np
import torch
from diffusers import (AutoencoderKLWan, FlowMatchEulerDiscreteScheduler, UniPCMultistepScheduler,
                       WanImageToVideoPipeline, WanPipeline, WanTransformer3DModel)
from diffusers.pipelines.wan.pipeline_wan import prompt_clean
from safetensors.torch import save_file
from transformers import (CLIPImageProcessorPil, CLIPVisionConfig, CLIPVisionModel, T5Tokenizer,
                          UMT5Config, UMT5EncoderModel)

from ..common import add_loras, make_each, make_image, make_tokenizer, quiet, save_run, tidy
from ..fill import configure, fill, weights
from .video import keep_frames

# heads of 16 and of 10 features, whose thirds are uneven; odd widths
SMALL = dict(num_attention_heads=3, attention_head_dim=16, in_channels=4, out_channels=4,
             text_dim=20, freq_dim=24, ffn_dim=37, num_layers=2)
FORMS = {
    "plain": (SMALL, (3, 6, 10)),
    "bare": (dict(num_attention_heads=5, attention_head_dim=10, in_channels=3, out_channels=3,
                  text_dim=12, freq_dim=32, ffn_dim=40, num_layers=3, cross_attn_norm=False,
                  patch_size=(2, 1, 3), eps=1e-5), (4, 3, 6)),
    # a first and a last image of three rows each, beside 512 of text
    "image": (dict(SMALL, in_channels=9, text_dim=16, image_dim=14, added_kv_proj_dim=48,
                   pos_embed_seq_len=6), (2, 4, 6)),
}
UMT5 = dict(d_model=20, d_kv=8, num_heads=3, d_ff=40, num_layers=2, feed_forward_proj="gated-gelu")
VAE = dict(base_dim=8, z_dim=4, dim_mult=[1, 2, 2, 2], num_res_blocks=1,
           temperal_downsample=[False, True, True], latents_mean=[-0.4, 0.1, 0.7, -0.2],
           latents_std=[2.5, 0.8, 1.4, 0.6])
# an image of 20 x 20 pixels, whose patches leave two columns and rows: 10 rows
CLIP = dict(hidden_size=27, intermediate_size=33, num_attention_heads=3, num_hidden_layers=3,
            image_size=20, patch_size=6, hidden_act="gelu", projection_dim=8)
PIXELS = dict(size={"shortest_edge": 23}, crop_size={"height": 20, "width": 20},
              image_mean=[0.45, 0.5, 0.55], image_std=[0.3, 0.25, 0.2])
SEES = dict(SMALL, in_channels=12, text_dim=28, image_dim=27)
UNIPC = dict(prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=3.0)

MODELS = {
    "wan": dict(dit=SMALL, weights="bf16", scheduler=UniPCMultistepScheduler(**UNIPC)),
    "wan-five": dict(dit=dict(SMALL, num_attention_heads=5, attention_head_dim=10, num_layers=3,
                              cross_attn_norm=False), weights="f16",
                     scheduler=FlowMatchEulerDiscreteScheduler(shift=5.0)),
    "wan-i2v": dict(dit=dict(SEES, added_kv_proj_dim=48), text=dict(d_model=28), clip=CLIP,
                    weights="bf16", scheduler=UniPCMultistepScheduler(**UNIPC)),
    # a first and a last image, with places
    "wan-flf": dict(dit=dict(SEES, num_attention_heads=5, attention_head_dim=10,
                             added_kv_proj_dim=50, pos_embed_seq_len=20),
                    text=dict(d_model=28), clip=dict(CLIP, hidden_act="quick_gelu"), weights="f16",
                    scheduler=FlowMatchEulerDiscreteScheduler(shift=5.0)),
    # channels of the image alone, as in Wan 2.2
    "wan-i2v-blind": dict(dit=dict(SMALL, in_channels=12), clip=None, weights="bf16",
                          scheduler=UniPCMultistepScheduler(**UNIPC)),
}
RUNS = {
    "wan": dict(prompts=["\u201ca red circle\u201d \uff0con  a blue &quot;background&quot;"],
                negative_prompt="a green ring", width=64, height=48, frames=9, steps=5, seed=7),
    "wan-one": dict(model="wan", prompts=["a cyan triangle"], width=48, height=64, frames=1,
                    steps=3, seed=8, guidance=1.0),
    "wan-five": dict(prompts=["a purple ring", "a star"], negative_prompt="", width=32, height=48,
                     frames=16, steps=3, seed=40, guidance=3.0, max_sequence_length=9),
    "wan-lora": dict(model="wan", prompts=["a white star"], width=32, height=48, frames=5, steps=2,
                     seed=71, guidance=1.0, loras=dict(peft=0.7, kohya=-0.4)),
    "wan-i2v": dict(prompts=["a red circle"], negative_prompt="a green ring", width=64, height=48,
                    frames=9, steps=4, seed=81, image=(70, 37)),
    "wan-i2v-two": dict(model="wan-i2v", prompts=["a star", "two stars"], width=48, height=32,
                        frames=5, steps=2, seed=82, guidance=1.0, image=(31, 55)),
    "wan-i2v-one": dict(model="wan-i2v", prompts=["a star"], width=32, height=32, frames=5, steps=2,
                        seed=86, guidance=1.0, image=(20, 24)),
    "wan-i2v-lora": dict(model="wan-i2v", prompts=["a white star"], width=32, height=48, frames=5,
                         steps=2, seed=83, guidance=1.0, image=(32, 48),
                         loras=dict(peft=0.8, kohya=-0.5)),
    "wan-flf": dict(prompts=["a purple ring"], negative_prompt="", width=48, height=64, frames=13,
                    steps=3, seed=84, guidance=3.0, image=(60, 44), last=(29, 80)),
    "wan-i2v-blind": dict(prompts=["a cyan triangle"], width=32, height=48, frames=9, steps=2,
                          seed=85, image=(40, 56), last=(32, 48)),
}
FRAMES_FIRST = (1, 0, 2, 3)
# original names of modules
BLOCK = {"self_attn.q": "attn1.to_q", "self_attn.k": "attn1.to_k", "self_attn.v": "attn1.to_v",
         "self_attn.o": "attn1.to_out.0", "cross_attn.q": "attn2.to_q",
         "cross_attn.k": "attn2.to_k", "cross_attn.v": "attn2.to_v",
         "cross_attn.o": "attn2.to_out.0", "ffn.0": "ffn.net.0.proj", "ffn.2": "ffn.net.2"}
BLOCK_IMAGE = {"cross_attn.k_img": "attn2.add_k_proj", "cross_attn.v_img": "attn2.add_v_proj"}
PEFT = {f"blocks.1.{k}": [f"blocks.1.{v}"] for k, v in BLOCK.items()} | {
    "time_projection.1": ["condition_embedder.time_proj"], "head.head": ["proj_out"],
    "text_embedding.0": ["condition_embedder.text_embedder.linear_1"],
    "text_embedding.2": ["condition_embedder.text_embedder.linear_2"],
    "time_embedding.0": ["condition_embedder.time_embedder.linear_1"],
    "time_embedding.2": ["condition_embedder.time_embedder.linear_2"]}
PEFT_IMAGE = PEFT | {f"blocks.1.{k}": [f"blocks.1.{v}"] for k, v in BLOCK_IMAGE.items()} | {
    "img_emb.proj.1": ["condition_embedder.image_embedder.ff.net.0.proj"],
    "img_emb.proj.3": ["condition_embedder.image_embedder.ff.net.2"]}
KOHYA = {f"blocks_0_{k.replace('.', '_')}": [f"blocks.0.{v}"] for k, v in BLOCK.items()}
KOHYA_IMAGE = KOHYA | {f"blocks_0_{k.replace('.', '_')}": [f"blocks.0.{v}"]
                       for k, v in BLOCK_IMAGE.items()}


# ---- the transformer alone -----------------------------------------------------------------------

def tokens(z, patch):
    """[C,T,H,W] -> [N, C pt ph pw]"""
    (C, T, H, W), (a, b, c) = z.shape, patch
    z = z.reshape(C, T // a, a, H // b, b, W // c, c).permute(1, 3, 5, 0, 2, 4, 6)
    return z.reshape(-1, C * a * b * c).contiguous()


def run_form(name, out):
    config, (T, H, W) = FORMS[name]
    model = WanTransformer3DModel(**config).eval()
    for n, p in model.named_parameters():
        small = p.ndim == 1 or n.endswith(("scale_shift_table", "pos_embed"))
        gain = 0.1 if small else 0.9 / np.sqrt(np.float32(p[0].numel()))
        p.data.copy_(weights(n, p.shape, gain, 1.0 if p.ndim == 1 and n.endswith("weight")
                             else 0.0))
    c, g = model.config, torch.Generator().manual_seed(19)
    z = torch.randn(1, c.in_channels, T, H, W, generator=g)
    text = torch.randn(1, 512 if c.image_dim else 7, c.text_dim, generator=g)
    t, rows, seen, keep = torch.tensor([613.0]), text[0], None, {}
    if c.image_dim:
        seen = torch.randn(2, c.pos_embed_seq_len // 2, c.image_dim, generator=g)
        wide = torch.zeros(c.pos_embed_seq_len, c.text_dim)
        wide[:, :c.image_dim] = seen.reshape(-1, c.image_dim)
        rows = torch.cat([rows, wide])
        keep["extra"] = tokens(z[0, c.out_channels:], c.patch_size)
        keep["real"] = torch.tensor([float(c.pos_embed_seq_len)])
    y = model(z, t, text, encoder_hidden_states_image=seen, return_dict=False)[0]
    d = out / "wan-forms" / name
    d.mkdir(parents=True, exist_ok=True)
    kept = {k: v for k, v in c.items() if not k.startswith("_")}
    (d / "config.json").write_text(json.dumps({"_class_name": type(model).__name__, **kept},
                                              indent=2) + "\n")
    grid = [n // k for n, k in zip((T, H, W), c.patch_size)]
    keep |= {"latents": tokens(z[0, :c.out_channels], c.patch_size), "text": rows, "time": t,
             "out": tokens(y[0], c.patch_size), "grid": torch.tensor(grid, dtype=torch.float32)}
    save_file(keep, d / "golden.safetensors")
    for p in d.iterdir():
        p.chmod(0o644)
    print(f"{name}: {grid} tokens, {y.std():.2f}")


def kind_of(spec):
    return spec.get("kind", WanImageToVideoPipeline if "clip" in spec else WanPipeline)


# ---- models --------------------------------------------------------------------------------------

def make_parts(name):
    spec = MODELS[name]
    dtype = spec["weights"]
    text = UMT5Config(vocab_size=88, dropout_rate=0.0, pad_token_id=0, eos_token_id=1,
                      tie_word_embeddings=False, **UMT5 | spec.get("text", {}))
    parts = dict(text_encoder=fill(UMT5EncoderModel(text), dtype),
                 transformer=fill(spec.get("dit_kind", WanTransformer3DModel)(**spec["dit"]),
                                  dtype),
                 vae=fill(AutoencoderKLWan(**spec.get("vae", VAE)), dtype))
    if "boundary" in spec:              # wan22.py
        parts["transformer_2"] = fill(WanTransformer3DModel(**spec["dit"]), dtype, "second.")
    if spec.get("only_low"):
        parts["transformer"] = None
    if spec.get("clip"):
        kind = spec.get("clip_kind", CLIPVisionModel)
        parts["image_encoder"] = fill(kind(CLIPVisionConfig(**spec["clip"])), dtype)
    return parts


def make_model(name, out):
    """Configurations and tokenizer."""
    spec = MODELS[name]
    if out.exists():
        shutil.rmtree(out)
    index = {"_class_name": kind_of(spec).__name__}
    if "clip" in spec:
        index |= dict.fromkeys(("image_encoder", "image_processor"), [None, None])
    index |= spec.get("index", {})
    for folder, m in make_parts(name).items():
        if m is None:
            continue
        configure(m, out / folder)
        index[folder] = ["transformers" if folder.endswith("_encoder") else "diffusers",
                         type(m).__name__]
    if spec.get("clip"):
        CLIPImageProcessorPil(**PIXELS).save_pretrained(out / "image_processor")
        index["image_processor"] = ["transformers", "CLIPImageProcessor"]
    make_tokenizer("identity", out / "tokenizer")
    index["tokenizer"] = ["transformers", "T5TokenizerFast"]
    for part in ("transformer", "transformer_2"):
        index.setdefault(part, [None, None])
    if "boundary" in spec:
        index["boundary_ratio"] = spec["boundary"]
    spec["scheduler"].save_pretrained(out / "scheduler")
    index["scheduler"] = ["diffusers", type(spec["scheduler"]).__name__]
    (out / "model_index.json").write_text(json.dumps(index))
    tidy(out, {})


# ---- runs ----------------------------------------------------------------------------------------

def record_text(pipe, r, seen, out):
    texts = (("", r["prompts"][0]), ("negative_", r["negative_prompt"]))
    for prefix, text in texts[:1 + (r["guidance"] > 1)]:
        ids = pipe.tokenizer(prompt_clean(text), padding="max_length", truncation=True,
                             max_length=r["max_sequence_length"], return_tensors="pt").input_ids
        out[prefix + "ids"] = ids[0].int()
        e, _ = pipe.encode_prompt(text, None, False, max_sequence_length=r["max_sequence_length"])
        out[prefix + "prompt_embeds"] = torch.cat([e[0], *seen])


def images_of(r, d):
    """The images that a run begins and ends with, written to its folder."""
    images = []
    for i, name in enumerate(("image", "last")):
        if name in r:
            images.append(make_image(r[name], r["seed"] + i))
            images[-1].save(d / f"{name}.png")
    return images


def rows_of(pipe, images, width):
    """Rows of the images, each as wide as those of the text."""
    seen = pipe.encode_image(images, "cpu") if pipe.image_encoder else ()
    return [torch.nn.functional.pad(s, (0, width - s.shape[1])) for s in seen]


def run(name, out_dir):
    r = dict(model=name, negative_prompt="", guidance=5.0, loras={}) | RUNS[name]
    sees = MODELS[r["model"]].get("clip")
    r = dict(max_sequence_length=512 if sees else 21) | r
    d = out_dir / name
    d.mkdir(parents=True, exist_ok=True)
    spec = MODELS[r["model"]]
    more = dict(image_processor=CLIPImageProcessorPil(**PIXELS)) if spec.get("clip") else {}
    holds = spec.get("index", {}).get("expand_timesteps", False)
    kind = WanImageToVideoPipeline if holds and "image" in r else kind_of(spec)
    if kind in (WanPipeline, WanImageToVideoPipeline):
        more |= dict(boundary_ratio=r.get("boundary_ratio", spec.get("boundary")),
                     expand_timesteps=holds)
    pipe = kind(
        tokenizer=T5Tokenizer.from_pretrained(out_dir / r["model"] / "tokenizer"),
        scheduler=spec["scheduler"], **more, **make_parts(r["model"]))
    pipe.set_progress_bar_config(disable=True)
    if "add_loras" in spec:
        spec["add_loras"](pipe, r, d)
    elif r["loras"]:
        add_loras(pipe, r, d, PEFT_IMAGE if sees else PEFT, KOHYA_IMAGE if sees else KOHYA,
                  prefix="diffusion_model")
    count = len(r["prompts"])
    gens = [torch.Generator("cpu").manual_seed(r["seed"] + i) for i in range(count)]
    out, trail, noise, held, images = {}, [], [], [], images_of(r, d)
    record_text(pipe, r, rows_of(pipe, images, spec["dit"]["text_dim"]) if images else [], out)
    prepare = pipe.prepare_latents

    def watched(*args, **kwargs):
        z = prepare(*args, **kwargs)
        noise.append((z[0] if isinstance(z, tuple) else z).clone())
        if images and holds:
            held.append(z[1])
        elif images:
            out["condition"] = z[1][0].permute(FRAMES_FIRST).contiguous()
        return z
    pipe.prepare_latents = watched

    def keep(p, step, t, kw):
        z = kw["latents"].clone()
        for first in held:              # what the transformer reads in its place
            z[:, :, :1] = first
        trail.append((float(t.max()), z))
        return {}
    own = {key: r[key] for key in ("guidance_scale_2", "fps") if key in r}
    frames = pipe(prompt=r["prompts"], negative_prompt=[r["negative_prompt"]] * count,
                  num_inference_steps=r["steps"], guidance_scale=r["guidance"],
                  num_frames=r["frames"], height=r["height"], width=r["width"], generator=gens,
                  output_type="pt", callback_on_step_end=keep,
                  max_sequence_length=r["max_sequence_length"],
                  **own, **dict(zip(("image", "last_image"), images))).frames
    keep_frames(name, r, out, trail, noise[0], frames, order=FRAMES_FIRST)
    save(d, name, r, out, count)


def save(d, name, r, out, count, more=None):
    save_run(d, name, r["model"], {
        "weights": MODELS[r["model"]]["weights"], "prompts": r["prompts"],
        "negative_prompt": r["negative_prompt"], "width": r["width"], "height": r["height"],
        "num_frames": r["frames"], "num_inference_steps": r["steps"],
        "guidance_scale": r["guidance"], "seed": r["seed"], "num_images_per_prompt": 1,
        "images": count, "max_sequence_length": r["max_sequence_length"], "scheduler": None,
        "tiling": False, "resolution_binning": False}
        | {key: 1 for key, k in (("image", "image"), ("last_image", "last")) if k in r}
        | {key: r[key] for key in ("guidance_scale_2", "boundary_ratio", "fps")
           if key in r}
        | {key: [{"path": f"{k}.safetensors", "scale": v} for k, v in r[key].items()]
           for key in ("loras", "loras_2") if r.get(key)} | (more or {}), out)


def make(names, options):
    quiet()
    with torch.no_grad():
        for name in FORMS if "forms" in names else ():
            run_form(name, options.out)
    make_each([n for n in names if n in RUNS], options.out, MODELS, make_model, run)
