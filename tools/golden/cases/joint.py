"""Models with joint attention: FLUX.1 and Stable Diffusion 3.

Layout and names of tensors as in pixart.py; in addition

    ids, ids_2, ids_3               [n] I32 of prompt 0 for each text encoder, padded; negative_ids
    pooled_prompt_embeds            [1,P]; negative_pooled_prompt_embeds
    image.png                       what an image-to-image run starts from
    mask.png                        what is inpainted of it

Weights are random. A flow needs no trained head: its steps add velocities of about one. A model's
directory has no weights: "weights" of golden.json is their type, and their numbers follow from the
names of tensors (fill.py).
"""
import json
import shutil

import numpy as np
import torch
from diffusers import (AutoencoderKL, FlowMatchEulerDiscreteScheduler,
                       FluxControlImg2ImgPipeline, FluxControlInpaintPipeline,
                       FluxControlPipeline, FluxFillPipeline, FluxImg2ImgPipeline,
                       FluxInpaintPipeline, FluxKontextPipeline, FluxPipeline,
                       FluxTransformer2DModel, SD3Transformer2DModel,
                       StableDiffusion3Img2ImgPipeline, StableDiffusion3InpaintPipeline,
                       StableDiffusion3Pipeline)
from transformers import (CLIPTextConfig, CLIPTextModel, CLIPTextModelWithProjection, CLIPTokenizer,
                          T5Config, T5EncoderModel, T5Tokenizer)

from ..common import (PLAIN, keep_images, make_each, make_image, make_mask, make_tokenizer,
                      save_run, say_images, tidy)
from ..fill import configure, fill

VAE = dict(block_out_channels=(8, 8, 12), layers_per_block=1, norm_num_groups=4, latent_channels=4,
           sample_size=64,
           scaling_factor=0.6, shift_factor=0.1, use_quant_conv=False, use_post_quant_conv=False,
           **PLAIN(3))
T5 = dict(d_model=40, d_kv=8, num_heads=3, d_ff=40, num_layers=2, feed_forward_proj="gated-gelu")
CLIP_L = dict(hidden_size=24, intermediate_size=40, num_hidden_layers=3, num_attention_heads=3,
              projection_dim=24, hidden_act="quick_gelu")
CLIP_G = dict(hidden_size=16, intermediate_size=44, num_hidden_layers=3, num_attention_heads=2,
              projection_dim=16, hidden_act="gelu")
FLUX = dict(attention_head_dim=8, axes_dims_rope=(2, 2, 4), in_channels=16, joint_attention_dim=40,
            pooled_projection_dim=24)
SD3 = dict(attention_head_dim=8, num_layers=3, in_channels=4,
           out_channels=4, joint_attention_dim=40, pooled_projection_dim=40, pos_embed_max_size=12,
           sample_size=16)
DYNAMIC = dict(shift=3.0, use_dynamic_shifting=True, base_shift=0.5, max_shift=1.15,
               base_image_seq_len=256, max_image_seq_len=4096)

MODELS = {
    "flux": dict(seed=61, kind="flux", clip=[CLIP_L],
                 dit=dict(guidance_embeds=True, num_attention_heads=3, num_layers=2,
                          num_single_layers=3, **FLUX),
                 scheduler=FlowMatchEulerDiscreteScheduler(**DYNAMIC), weights="bf16"),
    "flux-schnell": dict(seed=62, kind="flux", clip=[CLIP_L],
                         dit=dict(guidance_embeds=False, num_attention_heads=5, num_layers=1,
                                  num_single_layers=2, **FLUX),
                         scheduler=FlowMatchEulerDiscreteScheduler(shift=1.0), weights="f16"),
    "flux-fill": dict(seed=66, kind="flux", clip=[CLIP_L], edits=FluxFillPipeline,
                      dit=dict(guidance_embeds=True, num_attention_heads=5, num_layers=1,
                               num_single_layers=2, **FLUX | dict(in_channels=96, out_channels=16)),
                      scheduler=FlowMatchEulerDiscreteScheduler(**DYNAMIC), weights="bf16"),
    "flux-control": dict(seed=67, kind="flux", clip=[CLIP_L],
                         edits=(FluxControlPipeline, FluxControlImg2ImgPipeline,
                                FluxControlInpaintPipeline),
                         dit=dict(guidance_embeds=True, num_attention_heads=5, num_layers=1,
                                  num_single_layers=2,
                                  **FLUX | dict(in_channels=32, out_channels=16)),
                         scheduler=FlowMatchEulerDiscreteScheduler(**DYNAMIC), weights="bf16"),
    "kontext": dict(seed=65, kind="flux", clip=[CLIP_L], edits=FluxKontextPipeline,
                    dit=dict(guidance_embeds=True, num_attention_heads=5, num_layers=1,
                             num_single_layers=2, **FLUX),
                    scheduler=FlowMatchEulerDiscreteScheduler(**DYNAMIC), weights="bf16"),
    "sd3": dict(seed=63, kind="sd3", clip=[CLIP_L, CLIP_G],
                dit=dict(num_attention_heads=3, caption_projection_dim=24, **SD3),
                scheduler=FlowMatchEulerDiscreteScheduler(shift=3.0), weights="f16"),
    "sd35": dict(seed=64, kind="sd3", clip=[CLIP_L, CLIP_G],
                 dit=dict(num_attention_heads=5, caption_projection_dim=40, qk_norm="rms_norm",
                          dual_attention_layers=(0, 1), **SD3),
                 scheduler=FlowMatchEulerDiscreteScheduler(shift=3.0), weights="bf16"),
}

RUNS = {
    "flux": dict(prompts=["A large Red circle, on a blue background"], width=40, height=56, steps=4,
                 seed=7, guidance=3.5, max_sequence_length=13),
    "flux-true": dict(model="flux", prompts=["two stars"], negative_prompt="a green ring", width=48,
                      height=48, steps=3,
                      seed=8, guidance=2.0, true_cfg=2.5, max_sequence_length=9),
    # Every encoder reads a prompt of its own.
    "flux-prompts": dict(model="flux", prompts=["two stars"], negative_prompt="a green ring",
                         more=dict(prompt_2="a red square", negative_prompt_2="a large circle"),
                         width=32, height=32, steps=2, seed=12, guidance=2.0, true_cfg=2.5,
                         max_sequence_length=9),
    "flux-image": dict(model="flux", prompts=["a cyan triangle"], width=48, height=40, steps=5,
                       seed=9, guidance=3.0, max_sequence_length=11, strength=0.6),
    # The mask has another size than the image.
    "flux-mask": dict(model="flux", prompts=["a red star"], width=56, height=40, steps=5, seed=10,
                      guidance=3.0, max_sequence_length=9, strength=0.7, image=(61, 50),
                      mask=(30, 44)),
    # A part of the image is inpainted, too close to its edges for the ratio that is asked for.
    "flux-crop": dict(model="flux", prompts=["a red star"], width=48, height=32, steps=3, seed=11,
                      guidance=3.0, max_sequence_length=9, strength=1.0, image=(41, 90),
                      mask=(41, 90), crop=3),
    "flux-schnell": dict(prompts=["a purple ring next to a brown square", "a star"], width=32,
                         height=64, steps=3,
                         seed=40, images=2, guidance=0.0, max_sequence_length=10),
    # Its transformer reads the image, the mask's part in grey, and the mask.
    "flux-fill": dict(prompts=["a red star"], width=40, height=56, steps=3, seed=45, guidance=30.0,
                      max_sequence_length=9, image=(61, 50), mask=(30, 44)),
    # The noise starts from the whole image.
    "flux-fill-image": dict(model="flux-fill", prompts=["a blue ring"], width=48, height=40,
                            steps=5, seed=46, guidance=30.0, max_sequence_length=9, image=(50, 61),
                            mask=(30, 44), strength=0.6),
    # Its transformer reads a control image; every image has a sample of that, and then its noise.
    "flux-control": dict(prompts=["a red star"], width=40, height=56, steps=3, seed=47, images=2,
                         guidance=10.0, max_sequence_length=9, control=(61, 50)),
    "flux-control-image": dict(model="flux-control", prompts=["a blue ring"], width=48, height=40,
                               steps=5, seed=48, guidance=7.0, max_sequence_length=9,
                               image=(50, 61), control=(30, 44), strength=0.6),
    "flux-control-mask": dict(model="flux-control", prompts=["two stars"], width=40, height=48,
                              steps=5, seed=49, guidance=7.0, max_sequence_length=9,
                              image=(40, 48), control=(40, 48), mask=(30, 44), strength=0.7),
    # Width and height give the ratio, max_area the size (48 x 64); the image keeps its own.
    "kontext": dict(prompts=["make the square red"], width=300, height=400, steps=3, seed=50,
                    guidance=2.5, max_sequence_length=9, image=(88, 40), max_area=48 * 64),
    "kontext-true": dict(model="kontext", prompts=["make it a star"], negative_prompt="a ring",
                         width=48, height=64, steps=3, seed=51, guidance=2.5, true_cfg=3.0,
                         max_sequence_length=9, image=(40, 56), max_area=48 * 64),
    "kontext-none": dict(model="kontext", prompts=["a star"], width=64, height=48, steps=2,
                         seed=52, guidance=2.5, max_sequence_length=9, max_area=48 * 64),
    "sd3": dict(prompts=["a blue square above a red circle"], negative_prompt="a small orange star",
                width=56, height=40, steps=4, seed=21, guidance=5.0, max_sequence_length=11),
    "sd3-prompts": dict(model="sd3", prompts=["a blue square"], negative_prompt="a star",
                        more=dict(prompt_2="a red circle", prompt_3="a small ring",
                                  negative_prompt_2="", negative_prompt_3="a brown triangle"),
                        width=32, height=32, steps=2, seed=25, guidance=5.0,
                        max_sequence_length=7),
    "sd3-image": dict(model="sd3", prompts=["a blue square"], width=48, height=56, steps=4, seed=22,
                      guidance=3.0, max_sequence_length=11, strength=0.75, image=(70, 37)),
    "sd3-mask": dict(model="sd3", prompts=["a blue square"], width=40, height=56, steps=4, seed=24,
                     guidance=3.0, max_sequence_length=7, strength=0.8, image=(40, 56),
                     mask=(40, 56)),
    "sd3-no-t5": dict(model="sd3", prompts=["a white star"], width=40, height=40, steps=3, seed=23,
                      guidance=4.0, max_sequence_length=7, no_t5=True),
    "sd35": dict(prompts=["a white star on a black background"], width=72, height=40, steps=4,
                 seed=31, guidance=1.0, max_sequence_length=8),
    # A third pass in some of the steps, without these layers.
    "sd35-skip": dict(model="sd35", prompts=["a white star"], negative_prompt="a ring", width=40,
                      height=56, steps=6, seed=32, guidance=4.0, max_sequence_length=8,
                      more=dict(skip_guidance_layers=[0, 2], skip_layer_guidance_scale=2.5,
                                skip_layer_guidance_start=0.2, skip_layer_guidance_stop=0.6)),
}


# ---- models --------------------------------------------------------------------------------------

def byte_letters():
    """The 256 letters that stand for bytes in byte-level BPE."""
    plain = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    others = [b for b in range(256) if b not in plain]
    return [chr(b) for b in plain] + [chr(256 + i) for i in range(len(others))]


MERGES = ["r e", "re d</w>", "s t", "a r</w>", "st ar</w>", "o n</w>", "b l", "c i", "r c",
          "l e</w>", "ci rc"]


def clip_vocab():
    """Letters, a few merges, and the two marks."""
    letters = byte_letters()
    vocab = letters + [c + "</w>" for c in letters] + [m.replace(" ", "") for m in MERGES]
    return vocab + ["<|startoftext|>", "<|endoftext|>"]


def make_clip_tokenizer(out, pad):
    out.mkdir(parents=True)
    (out / "vocab.json").write_text(json.dumps({t: i for i, t in enumerate(clip_vocab())},
                                               ensure_ascii=False))
    (out / "merges.txt").write_text("#version: 0.2\n" + "\n".join(MERGES) + "\n")
    mark = lambda t: dict(content=t, lstrip=False, normalized=True, rstrip=False, single_word=False)
    (out / "special_tokens_map.json").write_text(json.dumps(dict(
        bos_token=mark("<|startoftext|>"), eos_token=mark("<|endoftext|>"),
        unk_token=mark("<|endoftext|>"), pad_token=pad), indent=2) + "\n")
    (out / "tokenizer_config.json").write_text(json.dumps(dict(
        tokenizer_class="CLIPTokenizer", model_max_length=77, add_prefix_space=False,
        do_lower_case=True, errors="replace",
        bos_token="<|startoftext|>", eos_token="<|endoftext|>", unk_token="<|endoftext|>",
        pad_token=pad), indent=2)
        + "\n")


def make_clip(cfg, projection):
    vocab = len(clip_vocab())
    c = CLIPTextConfig(vocab_size=vocab, max_position_embeddings=77, bos_token_id=vocab - 2,
                       eos_token_id=vocab - 1, pad_token_id=1, **cfg)
    return (CLIPTextModelWithProjection if projection else CLIPTextModel)(c)


def make_parts(name):
    """Networks by folder."""
    spec = MODELS[name]
    flux = spec["kind"] == "flux"
    parts = {f"text_encoder{'' if i == 0 else f'_{i + 1}'}": make_clip(cfg, not flux)
             for i, cfg in enumerate(spec["clip"])}
    parts[f"text_encoder_{len(parts) + 1}"] = T5EncoderModel(T5Config(
        vocab_size=88, dropout_rate=0.0, pad_token_id=0, eos_token_id=1, tie_word_embeddings=False,
        **T5))
    dit_class = FluxTransformer2DModel if flux else SD3Transformer2DModel
    parts["transformer"] = dit_class(**spec["dit"])
    parts["vae"] = AutoencoderKL(**spec.get("vae", VAE))
    return {folder: fill(m, spec["weights"]) for folder, m in parts.items()}


def make_model(name, out):
    """Configurations and tokenizers."""
    spec = MODELS[name]
    if out.exists():
        shutil.rmtree(out)
    index = {"_class_name": kind_of_pipeline(spec, False, False).__name__}
    for folder, m in make_parts(name).items():
        configure(m, out / folder)
        text = folder.startswith("text_encoder")
        index[folder] = ["transformers" if text else "diffusers", type(m).__name__]
        tokenizer = folder.replace("text_encoder", "tokenizer")
        if text:
            index[tokenizer] = ["transformers", "CLIPTokenizer"
                                if isinstance(m.config, CLIPTextConfig) else "T5Tokenizer"]
        if text and isinstance(m.config, CLIPTextConfig):
            make_clip_tokenizer(out / tokenizer, "<|endoftext|>" if folder == "text_encoder"
                                else "!")
        elif text:
            make_tokenizer("identity", out / tokenizer)
    spec["scheduler"].save_pretrained(out / "scheduler")
    index["scheduler"] = ["diffusers", "FlowMatchEulerDiscreteScheduler"]
    (out / "model_index.json").write_text(json.dumps(index))
    tidy(out, {})


def kind_of_pipeline(spec, image, mask):
    """The class of a request."""
    edits = spec.get("edits")
    if edits:
        return edits[image + mask] if isinstance(edits, tuple) else edits
    return {"flux": (FluxPipeline, FluxImg2ImgPipeline, FluxInpaintPipeline),
            "sd3": (StableDiffusion3Pipeline, StableDiffusion3Img2ImgPipeline,
                    StableDiffusion3InpaintPipeline)}[spec["kind"]][image + mask]


def mend(pipe):
    """The pipeline takes 16 channels only, which its transformer need not have, and decodes without
    the shift."""
    pipe.transformer.register_to_config(in_channels=16)
    decode, shift = pipe.vae.decode, pipe.vae.config.shift_factor
    pipe.vae.decode = lambda z, **kw: decode(z + shift, return_dict=False)


def load(model, out, image, no_t5, mask=False):
    spec, d, parts = MODELS[model], out / model, make_parts(model)
    flux = spec["kind"] == "flux"
    for folder in [f for f in parts if f.startswith("text_encoder")]:
        clip, tokenizer = isinstance(parts[folder].config,
                                     CLIPTextConfig), folder.replace("text_encoder", "tokenizer")
        parts[tokenizer] = (CLIPTokenizer if clip else T5Tokenizer).from_pretrained(d / tokenizer)
        if no_t5 and not clip:
            parts[folder] = parts[tokenizer] = None
    pipe = kind_of_pipeline(spec, image, mask)(
        scheduler=FlowMatchEulerDiscreteScheduler.from_pretrained(d / "scheduler"), **parts)
    if mask and not flux:
        mend(pipe)
    pipe.set_progress_bar_config(disable=True)
    return pipe


# ---- runs ----------------------------------------------------------------------------------------

def record_text(pipe, r, out):
    """What the pipeline's own encode_prompt gives for prompt 0 and the negative prompt."""
    flux = isinstance(pipe.transformer, FluxTransformer2DModel)
    n = r["max_sequence_length"]
    guided = (r["true_cfg"] if flux else r["guidance"]) > 1
    for prefix, first in (("", r["prompts"][0]), ("negative_", r["negative_prompt"]))[:1 + guided]:
        texts = {tail: r["more"].get(f"{prefix}prompt{tail}") or first for tail in ("", "_2", "_3")}
        for tail, text in texts.items():
            tok = getattr(pipe, "tokenizer" + tail, None)
            if tok is None:
                continue
            most = n if isinstance(tok, T5Tokenizer) else 77
            out[f"{prefix}ids{tail}"] = tok(text, padding="max_length", max_length=most,
                                            truncation=True, return_tensors="pt").input_ids[0].int()
        if flux:
            e, p, _ = pipe.encode_prompt(first, texts["_2"], max_sequence_length=n)
        else:
            e, _, p, _ = pipe.encode_prompt(first, texts["_2"], texts["_3"],
                                            do_classifier_free_guidance=False,
                                            max_sequence_length=n)
        out[prefix + "prompt_embeds"], out[prefix + "pooled_prompt_embeds"] = e[0], p


def whole_size(r):
    """Height and width that are generated."""
    if not r["max_area"]:
        return r["height"], r["width"]
    ratio = r["width"] / r["height"]
    return tuple(round((r["max_area"] * v) ** 0.5) // 16 * 16 for v in (1 / ratio, ratio))


def run(name, out_dir, change=None, more_json=None):
    """One request; change(pipe) comes before it, and then floats of the image are not kept. It may
    return another pipeline."""
    r = dict(model=name, negative_prompt="", images=1, strength=0.0, true_cfg=0.0,
             no_t5=False, max_area=0, crop=None, more={}) | RUNS[name]
    d = out_dir / name
    d.mkdir(parents=True, exist_ok=True)
    flux = MODELS[r["model"]]["kind"] == "flux"
    pipe = load(r["model"], out_dir, r["strength"] > 0, r["no_t5"], "mask" in r)
    size = whole_size(r)
    if change:
        pipe = change(pipe) or pipe
    count = len(r["prompts"]) * r["images"]
    gens = [torch.Generator("cpu").manual_seed(r["seed"] + i) for i in range(count)]
    out, trail, more = {}, [], {}
    record_text(pipe, r, out)
    f = pipe.vae_scale_factor

    def keep(p, step, t, kw):
        z = kw["latents"]
        trail.append((float(t), (p._unpack_latents(z, *size, f) if flux
                                 else z).clone()))
        return {}
    if r["strength"] or "image" in r:
        # of another size: it is resized
        more = dict(image=make_image(r.get("image", (r["width"], r["height"])), r["seed"] + 2000))
        more["image"].save(d / "image.png")
    if "control" in r:
        more["control_image"] = make_image(r["control"], r["seed"] + 3000)
        more["control_image"].save(d / "control.png")
    if r["strength"]:
        more["strength"] = r["strength"]
    if "mask" in r:
        more["mask_image"] = make_mask(r["mask"])
        more["mask_image"].save(d / "mask.png")
    if r["crop"] is not None:
        more["padding_mask_crop"] = r["crop"]
    if r["max_area"]:
        more |= dict(max_area=r["max_area"], _auto_resize=False)
    if r["true_cfg"]:
        more |= dict(negative_prompt=r["negative_prompt"], true_cfg_scale=r["true_cfg"])
    elif not flux:
        more |= dict(negative_prompt=r["negative_prompt"])
    more |= r["more"]
    images = pipe(prompt=r["prompts"], num_inference_steps=r["steps"],
                  guidance_scale=r["guidance"],
                  num_images_per_prompt=r["images"], height=r["height"], width=r["width"],
                  generator=gens, output_type="pt" if r["crop"] is None else "pil",
                  max_sequence_length=r["max_sequence_length"],
                  callback_on_step_end=keep, **more).images
    if r["crop"] is not None:
        images = torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2) / 255
    keep_images(out, trail, images, r, count, not {"mask", "control"} & r.keys()
                and not r["strength"],
                not change and r["crop"] is None)
    save_run(d, name, r["model"], {
        "weights": MODELS[r["model"]]["weights"], "prompts": r["prompts"],
        "negative_prompt": r["negative_prompt"], "width": r["width"],
        "height": r["height"], "model_width": size[1], "model_height": size[0],
        "num_inference_steps": r["steps"], "guidance_scale": r["guidance"],
        "true_cfg_scale": r["true_cfg"],
        "seed": r["seed"], "num_images_per_prompt": r["images"], "images": count,
        "max_sequence_length": r["max_sequence_length"], "scheduler": None, "tiling": False,
        "resolution_binning": False, "strength": r["strength"], "no_t5": r["no_t5"]}
        | r["more"]
        | ({"mask": True} if "mask" in r else {})
        | ({"control": True} if "control" in r else {})
        | ({"image": True} if "mask" in r and not r["strength"] else {})
        | ({"padding_mask_crop": r["crop"]} if r["crop"] is not None else {})
        | ({"max_area": r["max_area"], "image": "image" in r, "no_auto_resize": "image" in r}
           if r["max_area"] else {})
        | (more_json or {}), out)
    say_images(name, r, out, trail, count)


def make(names, options):
    make_each(names, options.out, MODELS, make_model, run)
