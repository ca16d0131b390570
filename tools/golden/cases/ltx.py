"""LTX-Video: the transformer alone, and whole requests.

ltx-forms/NAME has the results of the transformer alone, with the random weights of fill.py: tokens
[N,C]; rows of text [m,E] without padding, although diffusers' text had some; "step", the distances
of tokens in seconds and pixels; "held", the tokens whose timestep is 0. The other folders are whole
requests; layout and names of tensors as in video.py, with latents [T,C,h,w]. Embeddings have no
rows of padding, ids do.

ltx-lora adds two random LoRA files at once: peft.safetensors with diffusers' names and
kohya.safetensors with the original names of modules, which diffusers does not read.
"""
import json
import shutil

import numpy as np
import torch
from diffusers import (AutoencoderKLLTXVideo, FlowMatchEulerDiscreteScheduler,
                       LTXConditionPipeline, LTXImageToVideoPipeline, LTXPipeline,
                       LTXVideoTransformer3DModel)
from diffusers.pipelines.ltx import pipeline_ltx_condition, pipeline_ltx_image2video
from diffusers.pipelines.ltx.pipeline_ltx_condition import LTXVideoCondition
from safetensors.torch import save_file
from transformers import T5Config, T5EncoderModel, T5Tokenizer

from ..common import add_loras, make_each, make_image, make_tokenizer, quiet, save_run, tidy
from ..fill import configure, fill, weights
from .video import keep_frames
from .wan import FRAMES_FIRST

# 48 features turn by 8 frequencies of three axes; of 50 features two do not turn
SMALL = dict(num_attention_heads=3, attention_head_dim=16, cross_attention_dim=48, in_channels=6,
             out_channels=6, caption_channels=20, num_layers=2)
FIVE = dict(SMALL, num_attention_heads=5, attention_head_dim=10, cross_attention_dim=50,
            num_layers=3)
FORMS = {
    "plain": (SMALL, (3, 5, 7), (8 / 25, 32, 32), 0),
    "held": (dict(FIVE, in_channels=3, out_channels=3), (2, 4, 3), (0.5, 24, 40), 12),
    "bare": (dict(FIVE, attention_bias=False, attention_out_bias=False, norm_eps=1e-5,
                  num_layers=1), (2, 3, 5), (4 / 30, 16, 16), 0),
}
T5 = dict(d_model=20, d_kv=8, num_heads=3, d_ff=40, num_layers=2, feed_forward_proj="gated-gelu")
VAE = dict(latent_channels=6, block_out_channels=(8, 12, 16, 16), patch_size=4,
           layers_per_block=(1, 1, 1, 2, 1), decoder_block_out_channels=(8, 12, 16, 16),
           decoder_layers_per_block=(2, 1, 1, 1, 1))
MOVED = dict(block_out_channels=(8, 16, 16, 32, 32), layers_per_block=(1, 1, 1, 1, 1),
             down_block_types=("LTXVideo095DownBlock3D",) * 4,
             downsample_type=("spatial", "temporal", "spatiotemporal", "spatiotemporal"),
             spatio_temporal_scaling=(True,) * 4, spatial_compression_ratio=32,
             temporal_compression_ratio=8, decoder_block_out_channels=(16, 32, 64),
             decoder_layers_per_block=(1, 1, 1, 1), decoder_inject_noise=(False,) * 4,
             decoder_spatio_temporal_scaling=(True,) * 3, upsample_residual=(True,) * 3,
             upsample_factor=(2,) * 3, timestep_conditioning=True)
SCHEDULER = dict(base_image_seq_len=1024, base_shift=0.95, max_image_seq_len=4096, max_shift=2.05,
                 shift_terminal=0.1, use_dynamic_shifting=True)
MODELS = {
    "ltx": dict(dit=SMALL, vae={}, weights="bf16"),
    "ltx-five": dict(dit=FIVE, vae=dict(decoder_causal=True), weights="f16"),
    # with the autoencoder of version 0.9.5
    "ltx-i2v": dict(dit=FIVE, vae=MOVED, weights="bf16"),
    "ltx-cond": dict(dit=FIVE, vae=MOVED, weights="bf16", index="LTXConditionPipeline",
                     scheduler={}),
}
RUNS = {
    "ltx": dict(prompts=["a red circle on a blue background"], negative_prompt="a green ring",
                width=160, height=96, frames=9, steps=5, seed=7, guidance_rescale=0.6),
    "ltx-one": dict(model="ltx", prompts=["a cyan triangle"], width=96, height=160, frames=1,
                    steps=3, seed=8, guidance=1.0),
    "ltx-i2v": dict(prompts=["a blue square"], negative_prompt="red", width=160,
                    height=96, frames=17, steps=4, seed=21, image=(70, 37), frame_rate=12,
                    more=dict(decode_timestep=0.4, decode_noise_scale=0.25)),
    "ltx-timed": dict(model="ltx-i2v", prompts=["a star"], width=96, height=64, frames=9, steps=2,
                      seed=22, guidance=1.0, more=dict(decode_timestep=0.3)),
    "ltx-five": dict(prompts=["a purple ring", "a star"], width=64, height=96, frames=15, steps=4,
                     seed=40, guidance=2.5, max_sequence_length=5, frame_rate=30),
    # an image, and a video whose last latent frame is mixed with the result's
    "ltx-cond": dict(prompts=["a blue ring"], negative_prompt="red", width=96, height=64,
                     frames=33, steps=5, seed=31, guidance_rescale=0.4, frame_rate=24,
                     given=[dict(image=(70, 37)), dict(clip=20, frame_index=8, strength=0.7)],
                     more=dict(decode_timestep=0.4, decode_noise_scale=0.25)),
    "ltx-cond-late": dict(model="ltx-cond", prompts=["a star"], width=64, height=96, frames=17,
                          steps=4, seed=32, guidance=1.0, more=dict(image_cond_noise_scale=0.0),
                          given=[dict(image=(40, 60), strength=0.4),
                                 dict(image=(33, 21), frame_index=16)]),
    "ltx-cond-text": dict(model="ltx-cond", prompts=["a cyan square"], width=64, height=64,
                          frames=9, steps=3, seed=33, guidance=1.0,
                          timesteps=[1000, 981, 725]),
    "ltx-lora": dict(model="ltx", prompts=["a white star"], width=64, height=32, frames=9, steps=2,
                     seed=71, guidance=1.0, loras=dict(peft=0.7, kohya=-0.4)),
}
PEFT = {m: [m] for m in (
    "transformer_blocks.0.attn1.to_q", "transformer_blocks.0.attn2.to_k",
    "transformer_blocks.1.ff.net.0.proj", "transformer_blocks.0.attn1.to_out.0", "proj_out",
    "caption_projection.linear_1")}
KOHYA = {"patchify_proj": ["proj_in"], "adaln_single_linear": ["time_embed.linear"],
         "adaln_single_emb_timestep_embedder_linear_1": [
             "time_embed.emb.timestep_embedder.linear_1"],
         "transformer_blocks_1_attn2_to_v": ["transformer_blocks.1.attn2.to_v"],
         "transformer_blocks_0_ff_net_2": ["transformer_blocks.0.ff.net.2"]}


# ---- the transformer alone -----------------------------------------------------------------------

def run_form(name, out):
    config, (T, H, W), step, held = FORMS[name]
    model = LTXVideoTransformer3DModel(**config).eval()
    for n, p in model.named_parameters():
        small = p.ndim == 1 or n.endswith("scale_shift_table")
        gain = 0.1 if small else 0.9 / np.sqrt(np.float32(p[0].numel()))
        p.data.copy_(weights(n, p.shape, gain, 1.0 if p.ndim == 1 and n.endswith("weight")
                             else 0.0))
    c, g, real, N = model.config, torch.Generator().manual_seed(19), 7, T * H * W
    z = torch.randn(1, N, c.in_channels, generator=g)
    text = torch.randn(1, real + 2, c.caption_channels, generator=g)
    mask, t = (torch.arange(real + 2)[None] < real).int(), torch.tensor([613.0])
    times = t if not held else torch.where(torch.arange(N) < held, 0.0, t)[None]
    y = model(z, text, times, mask, T, H, W, step, return_dict=False)[0]
    d = out / "ltx-forms" / name
    d.mkdir(parents=True, exist_ok=True)
    kept = {k: v for k, v in c.items() if not k.startswith("_")}
    (d / "config.json").write_text(json.dumps({"_class_name": type(model).__name__, **kept},
                                              indent=2) + "\n")
    save_file({"latents": z[0], "text": text[0, :real].contiguous(), "time": t,
               "out": y[0], "grid": torch.tensor([T, H, W], dtype=torch.float32),
               "step": torch.tensor(step), "held": torch.tensor([float(held)])},
              d / "golden.safetensors")
    for p in d.iterdir():
        p.chmod(0o644)
    print(f"{name}: {N} tokens, {y.std():.2f}")


# ---- models --------------------------------------------------------------------------------------

def make_parts(name):
    spec = MODELS[name]
    text = T5Config(vocab_size=88, dropout_rate=0.0, pad_token_id=0, eos_token_id=1,
                    tie_word_embeddings=False, **T5)
    parts = dict(text_encoder=T5EncoderModel(text),
                 transformer=LTXVideoTransformer3DModel(**spec["dit"]),
                 vae=AutoencoderKLLTXVideo(**VAE | spec["vae"]))
    return {folder: fill(m, spec["weights"]) for folder, m in parts.items()}


def make_model(name, out):
    """Configurations and tokenizer."""
    if out.exists():
        shutil.rmtree(out)
    spec = MODELS[name]
    index = {"_class_name": spec.get("index", "LTXPipeline"),
             "tokenizer": ["transformers", "T5TokenizerFast"],
             "scheduler": ["diffusers", "FlowMatchEulerDiscreteScheduler"]}
    for folder, m in make_parts(name).items():
        configure(m, out / folder)
        index[folder] = ["transformers" if folder == "text_encoder" else "diffusers",
                         type(m).__name__]
    make_tokenizer("identity", out / "tokenizer")
    scheduler = FlowMatchEulerDiscreteScheduler(**spec.get("scheduler", SCHEDULER))
    scheduler.save_pretrained(out / "scheduler")
    (out / "model_index.json").write_text(json.dumps(index))
    tidy(out, {})


# ---- runs ----------------------------------------------------------------------------------------

def record_text(pipe, r, out):
    rows = pipe.encode_prompt(r["prompts"][0], r["negative_prompt"], r["guidance"] > 1,
                              max_sequence_length=r["max_sequence_length"])
    for prefix, text, got, mask in (("", r["prompts"][0], *rows[:2]),
                                    ("negative_", r["negative_prompt"],
                                     *rows[2:]))[:1 + (r["guidance"] > 1)]:
        out[prefix + "ids"] = pipe.tokenizer(
            text, padding="max_length", max_length=r["max_sequence_length"], truncation=True,
            return_tensors="pt").input_ids[0].int()
        if isinstance(pipe, LTXConditionPipeline):          # nothing reads padding
            out[prefix + "ids"] = out[prefix + "ids"][mask[0]]
        out[prefix + "prompt_embeds"] = got[0][mask[0]]


def make_condition(c, r, i, d):
    """A given image or video, whose file or folder is image.png, image_2.png or video."""
    place = dict(frame_index=c.get("frame_index", 0), strength=c.get("strength", 1.0))
    if "image" in c:
        image = make_image(c["image"], r["seed"] + i)
        image.save(d / ("image_2.png" if i else "image.png"))
        return LTXVideoCondition(image=image, **place)
    video = [make_image((50, 40), r["seed"] + 10 + k) for k in range(c["clip"])]
    (d / "video").mkdir(exist_ok=True)
    for k, frame in enumerate(video):
        frame.save(d / "video" / f"{k}.png")
    return LTXVideoCondition(video=video, **place)


def condition_notes(r):
    given = r.get("given", [])
    notes = {"image": 1, "more_images": len(given) - 1,
             "frame_index": ",".join(str(c.get("frame_index", 0)) for c in given),
             "condition_strength": ",".join(str(c.get("strength", 1.0)) for c in given)}
    return ((notes if given else {})
            | ({"clip": 1} if any("clip" in c for c in given) else {})
            | ({"timesteps": ",".join(map(str, r["timesteps"]))} if "timesteps" in r else {}))


def run(name, out_dir):
    r = dict(model=name, negative_prompt="", guidance=3.0, guidance_rescale=0.0, loras={},
             frame_rate=25, max_sequence_length=13, more={}) | RUNS[name]
    d = out_dir / name
    d.mkdir(parents=True, exist_ok=True)
    where, spec = out_dir / r["model"], MODELS[r["model"]]
    kind = (LTXConditionPipeline if "index" in spec else
            LTXImageToVideoPipeline if "image" in r else LTXPipeline)
    pipe = kind(
        scheduler=FlowMatchEulerDiscreteScheduler.from_pretrained(where / "scheduler"),
        tokenizer=T5Tokenizer.from_pretrained(where / "tokenizer"), **make_parts(r["model"]))
    pipe.set_progress_bar_config(disable=True)
    if r["loras"]:
        add_loras(pipe, r, d, PEFT, KOHYA, merges=True)
    count = len(r["prompts"])
    gens = [torch.Generator("cpu").manual_seed(r["seed"] + i) for i in range(count)]
    out, trail, noise, prepare = {}, [], [], pipe.prepare_latents
    record_text(pipe, r, out)
    cell = (pipe.vae_temporal_compression_ratio, *[pipe.vae_spatial_compression_ratio] * 2)
    grid = [(n - (k == 0)) // c + (k == 0) for k, (n, c) in
            enumerate(zip((r["frames"], r["height"], r["width"]), cell))]

    def unpack(z):                      # given latent frames come before the video's
        return z.transpose(1, 2).reshape(z.shape[0], r_channels, -1, *grid[1:])

    r_channels = pipe.transformer.config.in_channels
    draw = pipeline_ltx_image2video.randn_tensor

    def drawn(*args, **kwargs):         # before the image replaces the first frame
        noise.append(draw(*args, **kwargs))
        return noise[-1].clone()

    def watched(*args, **kwargs):
        z = prepare(*args, **kwargs)
        if "index" in spec:
            noise[:] = [torch.cat([*noise[1:], noise[0]], 2)]
        elif "image" not in r:
            noise.append(unpack(z.clone()))
        return z
    pipe.prepare_latents = watched
    pipeline_ltx_image2video.randn_tensor = pipeline_ltx_condition.randn_tensor = drawn

    def keep(p, step, t, kw):
        trail.append((float(t), unpack(kw["latents"].clone())))
        return {}
    more = dict(r["more"])
    if "image" in r:
        more["image"] = make_image(r["image"], r["seed"])
        more["image"].save(d / "image.png")
    if "given" in r:
        more["conditions"] = [make_condition(c, r, i, d) for i, c in enumerate(r["given"])]
    if "timesteps" in r:
        more["timesteps"] = r["timesteps"]
    frames = pipe(prompt=r["prompts"], negative_prompt=[r["negative_prompt"]] * count,
                  num_inference_steps=r["steps"], guidance_scale=r["guidance"],
                  guidance_rescale=r["guidance_rescale"], num_frames=r["frames"],
                  height=r["height"], width=r["width"], frame_rate=r["frame_rate"],
                  generator=gens if count > 1 else gens[0], output_type="pt",
                  callback_on_step_end=keep, max_sequence_length=r["max_sequence_length"],
                  **more).frames
    pipeline_ltx_image2video.randn_tensor = pipeline_ltx_condition.randn_tensor = draw
    keep_frames(name, r, out, trail, noise[0], frames, order=FRAMES_FIRST)
    save_run(d, name, r["model"], {
        "weights": spec["weights"], "prompts": r["prompts"],
        "negative_prompt": r["negative_prompt"], "width": r["width"], "height": r["height"],
        "num_frames": r["frames"], "num_inference_steps": r["steps"],
        "guidance_scale": r["guidance"], "guidance_rescale": r["guidance_rescale"],
        "seed": r["seed"], "num_images_per_prompt": 1, "images": count,
        "max_sequence_length": r["max_sequence_length"], "scheduler": None,
        "tiling": False, "resolution_binning": False}
        | ({"fps": r["frame_rate"]} if r["frame_rate"] != 25 else {}) | r["more"]
        | ({"image": 1} if "image" in r else {}) | condition_notes(r)
        | ({"loras": [{"path": f"{k}.safetensors", "scale": v} for k, v in r["loras"].items()]}
           if r["loras"] else {}), out)


def make(names, options):
    quiet()
    with torch.no_grad():
        for name in FORMS if "forms" in names else ():
            run_form(name, options.out)
    make_each([n for n in names if n in RUNS], options.out, MODELS, make_model, run)
