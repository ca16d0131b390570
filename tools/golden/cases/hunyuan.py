"""HunyuanDiT: the transformer alone, and whole requests.

hunyuan-forms/NAME holds what the transformer alone computes, with the random weights that the
program makes of a tensor's name (src/exec/store.c, xd_random_weight): tokens [N, C p p], features
in the order channel, row, column. The other folders are whole requests; layout and names of tensors
as in pixart.py and joint.py. prompt_embeds are rows of BERT, filled up with zeros to the wider of
both, then those of mT5.
"""
import json
import shutil
from types import SimpleNamespace

import numpy as np
import torch
from diffusers import (AutoencoderKL, DDPMScheduler, HunyuanDiT2DControlNetModel,
                       HunyuanDiT2DModel, HunyuanDiTControlNetPipeline, HunyuanDiTPipeline)
from diffusers.models.embeddings import get_2d_rotary_pos_embed
from diffusers.pipelines.hunyuandit import pipeline_hunyuandit as module
from safetensors.torch import save_file
from transformers import BertConfig, BertModel, BertTokenizer, T5Config, T5EncoderModel, T5Tokenizer

from ..common import (PLAIN, begin_with_image, keep_images, make_image, make_tokenizer, quiet,
                      save_run, say_images, tidy)
from ..fill import configure, fill, weights

VAE = dict(block_out_channels=(8, 8, 8, 12), layers_per_block=1, norm_num_groups=4,
           latent_channels=4, sample_size=64, scaling_factor=0.13, **PLAIN(4))
T5 = dict(d_model=64, d_kv=8, num_heads=3, d_ff=40, num_layers=2, feed_forward_proj="gated-gelu")
BERT = dict(hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=3,
            hidden_act="gelu")
DIT = dict(in_channels=4, patch_size=2, sample_size=16, cross_attention_dim=24,
           cross_attention_dim_t5=64, pooled_projection_dim=20, mlp_ratio=4.3637)
# what v1.1 and v1.2 have: a head of 88 in 16 heads; here of 20 and 12, and feed-forwards of odd
# widths
OLD = dict(DIT, num_attention_heads=3, attention_head_dim=20, hidden_size=60, num_layers=6)
NEW = dict(DIT, num_attention_heads=5, attention_head_dim=12, hidden_size=60, num_layers=8,
           use_style_cond_and_image_meta_size=False)
NOISE = dict(beta_schedule="scaled_linear", beta_start=0.00085, beta_end=0.03,
             prediction_type="v_prediction", clip_sample=False, steps_offset=1)

FORMS = {"1.1": (OLD, (5, 7)), "1.2": (dict(NEW, activation_fn="gelu"), (9, 4)),
         "two": (dict(NEW, num_layers=2, learn_sigma=False), (1, 3))}
MODELS = {
    "hunyuan": dict(dit=OLD, weights="bf16", scheduler=DDPMScheduler(**NOISE)),
    "hunyuan12": dict(dit=NEW, weights="f16", scheduler=DDPMScheduler(**NOISE)),
    # control networks with and without style
    "hunyuan-control": dict(dit=NEW, weights="bf16", scheduler=DDPMScheduler(**NOISE),
                            sides=({}, {"use_style_cond_and_image_meta_size": True})),
}
RUNS = {
    "hunyuan": dict(prompts=["A large Red circle, on a blue background"],
                    negative_prompt="a green ring", width=80,
                    height=112, steps=4, seed=7, guidance=5.0),
    # one image a prompt: with more, diffusers gives images the padding of other prompts
    "hunyuan12": dict(prompts=["two stars", "a red 圆圈 on blue"], negative_prompt="", width=96,
                      height=64, steps=3, seed=40, guidance=3.0),
    "hunyuan12-one": dict(model="hunyuan12", prompts=["a star"], width=48, height=80, steps=3,
                          seed=9, guidance=1.0),
    "hunyuan12-rescale": dict(model="hunyuan12", prompts=["a blue ring"], negative_prompt="a star",
                              width=64, height=80, steps=3, seed=12, guidance=3.0, rescale=0.7),
    "hunyuan-image": dict(model="hunyuan", prompts=["a blue star"], width=64, height=48, steps=6,
                          seed=61, guidance=3.0, strength=0.58, image=(70, 37)),
    "hunyuan-control": dict(prompts=["a red ring", "two stars"], negative_prompt="a star",
                            width=80, height=112, steps=3, seed=71, guidance=4.0,
                            control=[(70, 37)], scale=[0.8]),
    # of five steps, the first network runs in those from 2 to 4 and the second in those up to 3
    "hunyuan-control-two": dict(model="hunyuan-control", prompts=["a blue ring"], width=64,
                                height=48, steps=5, seed=72, guidance=1.0,
                                control=[(64, 48), (40, 90)], scale=[0.7, 1.3], start=[0.2, 0],
                                end=[0.8, 0.6]),
    "hunyuan-control-image": dict(model="hunyuan-control", prompts=["a star"],
                                  negative_prompt="a ring", width=48, height=80, steps=6, seed=73,
                                  guidance=3.0, strength=0.58, image=(70, 37), control=[(50, 50)],
                                  scale=[1.0]),
}


# ---- the transformer alone -----------------------------------------------------------------------

def tokens(z, p):
    """[C,H,W] -> [N, C p p]"""
    C, H, W = z.shape
    return z.reshape(C, H // p, p, W // p, p).permute(1, 3, 0, 2, 4).reshape(-1,
                                                                             C * p * p).contiguous()


def run_form(name, out):
    config, (H, W) = FORMS[name]
    model = HunyuanDiT2DModel(**config).eval()
    for n, p in model.named_parameters():
        table = n.endswith(("text_embedding_padding", "positional_embedding",
                            "style_embedder.weight"))
        gain = 0.1 if p.ndim == 1 or table else 0.9 / np.sqrt(np.float32(p[0].numel()))
        p.data.copy_(weights(n, p.shape, gain, 1.0 if p.ndim == 1 and n.endswith("weight")
                             else 0.0))
    c, g = model.config, torch.Generator().manual_seed(17)
    p, d = c.patch_size, c.attention_head_dim
    lat, bert = torch.randn(1, 4, H * p, W * p, generator=g), torch.randn(1, 77, 24, generator=g)
    t5, t, real = torch.randn(1, 256, 64, generator=g), 417.0, (11, 23)
    base = 512 // 8 // p
    rope = get_2d_rotary_pos_embed(d, module.get_resize_crop_region_for_grid((H, W), base), (H, W))
    mask = [torch.tensor([[1] * k + [0] * (n - k)]) for k, n in zip(real, (77, 256))]
    size = torch.tensor([[1024.0, 1024.0, H * p * 8.0, W * p * 8.0, 0.0, 0.0]])
    y = model(lat, torch.tensor([t]), encoder_hidden_states=bert, text_embedding_mask=mask[0],
              encoder_hidden_states_t5=t5, text_embedding_mask_t5=mask[1], image_meta_size=size,
              style=torch.tensor([0]), image_rotary_emb=rope, return_dict=False)[0][0, :4]
    text = torch.zeros(77 + 256, 64)
    text[:77, :24], text[77:] = bert[0], t5[0]
    d = out / "hunyuan-forms" / name
    d.mkdir(parents=True, exist_ok=True)
    kept = {k: v for k, v in model.config.items() if not k.startswith("_")}
    (d / "config.json").write_text(json.dumps({"_class_name": type(model).__name__, **kept},
                                              indent=2) + "\n")
    f = lambda *v: torch.tensor([float(i) for i in v])
    save_file({"latents": tokens(lat[0], p), "text": text, "out": tokens(y, p), "grid": f(1, H, W),
               "time": f(t),
               "real": f(*real), "size": f(H * p * 8, W * p * 8)}, d / "golden.safetensors")
    print(f"{name}: {H} x {W} tokens, {y.std():.2f}")


def standard_sizes(out):
    """What the pipeline generates: [width, height, standard width, standard height]."""
    sizes = [(16, 16), (64, 8192), (8192, 64), (1000, 1500), (1500, 1000), (1920, 1080),
             (1080, 1920), (512, 512),
             (777, 333), (333, 777), (1152, 1152), (1151, 1151), (2000, 2000), (1024, 1039),
             *module.SUPPORTED_SHAPE]
    sizes += [(400 + 97 * i, 400 + 61 * k) for i in range(12) for k in range(12)]
    rows = []
    for w, h in sizes:
        a, b = w // 16 * 16, h // 16 * 16
        rows.append([w, h, *((a, b) if (b, a) in module.SUPPORTED_SHAPE
                             else module.map_to_standard_shapes(a, b))])
    text = ",\n".join("  " + json.dumps([int(v) for v in r]) for r in rows)
    (out / "hunyuan-forms" / "standard.json").write_text("[\n" + text + "\n]\n")


# ---- models --------------------------------------------------------------------------------------

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ",", ".", "a", "on", "red", "large",
         "circle", "blue", "star",
         "green", "ring", "##s", "##ground", "back", "圆", "圈", "tw", "##o"]


def make_bert_tokenizer(out):
    out.mkdir(parents=True)
    (out / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    (out / "tokenizer_config.json").write_text(json.dumps(dict(
        tokenizer_class="BertTokenizer", do_lower_case=True, do_basic_tokenize=True,
        tokenize_chinese_chars=True,
        strip_accents=None, never_split=None, model_max_length=77, cls_token="[CLS]",
        sep_token="[SEP]",
        pad_token="[PAD]", unk_token="[UNK]", mask_token="[MASK]"), indent=2) + "\n")


def make_parts(name):
    """Networks by folder."""
    spec = MODELS[name]
    parts = {"text_encoder": BertModel(BertConfig(vocab_size=len(WORDS), max_position_embeddings=80,
                                                  **BERT)),
             "text_encoder_2": T5EncoderModel(T5Config(vocab_size=88, dropout_rate=0.0,
                                                       pad_token_id=0, eos_token_id=1,
                                                       tie_word_embeddings=False, **T5)),
             "transformer": HunyuanDiT2DModel(**spec["dit"]), "vae": AutoencoderKL(**VAE)}
    parts = {folder: fill(m, spec["weights"]) for folder, m in parts.items()}
    for i, more in enumerate(spec.get("sides", ())):
        kept = {k: v for k, v in spec["dit"].items() if k != "num_layers"}
        m = HunyuanDiT2DControlNetModel(transformer_num_layers=spec["dit"]["num_layers"],
                                        **(kept | more))
        folder = "controlnet" + ("_2" if i else "")
        parts[folder] = fill(m, spec["weights"], folder + ".")
    return parts


def make_model(name, out):
    """Configurations and tokenizers."""
    if out.exists():
        shutil.rmtree(out)
    parts = make_parts(name)
    for folder, m in parts.items():
        configure(m, out / folder)
    make_bert_tokenizer(out / "tokenizer")
    make_tokenizer("identity", out / "tokenizer_2")
    MODELS[name]["scheduler"].save_pretrained(out / "scheduler")
    index = {"_class_name": ("HunyuanDiTControlNetPipeline" if "sides" in MODELS[name] else
                             "HunyuanDiTPipeline"), "feature_extractor": [None, None],
             "safety_checker": [None, None],
             "requires_safety_checker": True, "scheduler": ["diffusers", "DDPMScheduler"],
             "tokenizer": ["transformers", "BertTokenizer"], "tokenizer_2": ["transformers",
                                                                             "T5Tokenizer"]}
    for folder, m in parts.items():
        if folder == "controlnet_2":    # only for requests with two control networks
            continue
        index[folder] = ["transformers" if "text" in folder else "diffusers", type(m).__name__]
    (out / "model_index.json").write_text(json.dumps(index))
    tidy(out, {})


def load(name, out, controls):
    parts, cls = make_parts(name), HunyuanDiTPipeline
    if controls:
        nets = [parts.pop(k) for k in ("controlnet", "controlnet_2")][:controls]
        parts["controlnet"], cls = nets[0] if controls == 1 else nets, HunyuanDiTControlNetPipeline
    pipe = cls(
        tokenizer=BertTokenizer.from_pretrained(out / name / "tokenizer"),
        tokenizer_2=T5Tokenizer.from_pretrained(out / name / "tokenizer_2"),
        scheduler=DDPMScheduler.from_pretrained(out / name / "scheduler"), safety_checker=None,
        feature_extractor=None, requires_safety_checker=False, **parts)
    pipe.set_progress_bar_config(disable=True)
    return pipe


# ---- runs ----------------------------------------------------------------------------------------

def record_text(pipe, r, out):
    texts = (("", r["prompts"][0]), ("negative_", r["negative_prompt"]))
    for prefix, text in texts[:1 + (r["guidance"] > 1)]:
        rows = torch.zeros(77 + 256, 64)
        for k, (tok, n) in enumerate(((pipe.tokenizer, 77), (pipe.tokenizer_2, 256))):
            ids = tok(text, padding="max_length", max_length=n, truncation=True,
                      return_tensors="pt").input_ids[0]
            out[prefix + ("ids", "ids_2")[k]] = ids.int()
            e = pipe.encode_prompt(text, None, None, do_classifier_free_guidance=False,
                                   text_encoder_index=k)[0][0]
            rows[77 * k:77 * k + n, :e.shape[1]] = e
        out[prefix + "prompt_embeds"] = rows


def from_image(pipe, r, d, g):
    """diffusers has no such pipeline of HunyuanDiT: its own one runs the steps that are left."""
    z, times = begin_with_image(pipe, r, d, g)
    set_timesteps = pipe.scheduler.set_timesteps

    def set_rest(*args, **kwargs):
        set_timesteps(*args, **kwargs)
        pipe.scheduler.timesteps = times
    pipe.scheduler.set_timesteps = set_rest
    return {"latents": z}


def control(pipe, r, d):
    """Arguments of the pipeline and options of the request for control networks. The pipeline has
    no shares of the steps in which a network is used: as in those of other models, its scale is 0
    in other steps. Latents of a control image are the mean, where diffusers draws without a
    seed."""
    encode = pipe.vae.encode

    def encode_mean(x):
        latents = encode(x).latent_dist.mode()
        return SimpleNamespace(latent_dist=SimpleNamespace(sample=lambda: latents))
    pipe.vae.encode = encode_mean
    n = len(r["control"])
    images = [make_image(size, r["seed"] + 3000 + i) for i, size in enumerate(r["control"])]
    for i, image in enumerate(images):
        image.save(d / ("control_2.png" if i else "control.png"))
    start, end = r.get("start", [0] * n), r.get("end", [1] * n)
    steps, forward, seen = r["steps"], pipe.controlnet.forward, []

    def forward_step(*args, conditioning_scale, **kwargs):
        i = len(seen)
        seen.append(i)
        on = [v * (1.0 - float(i / steps < s or (i + 1) / steps > e))
              for v, s, e in zip(r["scale"], start, end)]
        return forward(*args, conditioning_scale=on if n > 1 else on[0], **kwargs)
    pipe.controlnet.forward = forward_step
    text = lambda v: ",".join(f"{x:g}" for x in v)
    notes = {"control": n, "conditioning_scale": text(r["scale"])}
    if "start" in r:
        notes |= {"control_guidance_start": text(start), "control_guidance_end": text(end)}
    if n > 1:
        notes["controlnets"] = ["controlnet", "controlnet_2"]
    return {"control_image": images if n > 1 else images[0],
            "controlnet_conditioning_scale": r["scale"] if n > 1 else r["scale"][0]}, notes


def run(name, out_dir):
    r = dict(model=name, negative_prompt="", images=1, rescale=0.0) | RUNS[name]
    d = out_dir / name
    d.mkdir(parents=True, exist_ok=True)
    pipe = load(r["model"], out_dir, len(r.get("control", ())))
    count = len(r["prompts"]) * r["images"]
    gens = [torch.Generator("cpu").manual_seed(r["seed"] + i) for i in range(count)]
    out, trail = {}, []
    record_text(pipe, r, out)
    more, notes = from_image(pipe, r, d, gens[0]) if "image" in r else {}, {}
    started = bool(more)
    if "control" in r:
        sides, notes = control(pipe, r, d)
        more |= sides

    def keep(p, step, t, kw):
        trail.append((float(t), kw["latents"].clone()))
        return {}
    images = pipe(r["prompts"], negative_prompt=[r["negative_prompt"]] * len(r["prompts"]),
                  num_inference_steps=r["steps"], guidance_scale=r["guidance"],
                  guidance_rescale=r["rescale"],
                  num_images_per_prompt=r["images"], height=r["height"], width=r["width"],
                  generator=gens,
                  output_type="pt", use_resolution_binning=False, callback_on_step_end=keep,
                  **more).images
    keep_images(out, trail, images, r, count, noise=not started)
    save_run(d, name, r["model"], {
        "weights": MODELS[r["model"]]["weights"], "prompts": r["prompts"],
        "negative_prompt": r["negative_prompt"], "width": r["width"], "height": r["height"],
        "model_width": r["width"], "model_height": r["height"], "num_inference_steps": r["steps"],
        "guidance_scale": r["guidance"], "guidance_rescale": r["rescale"], "seed": r["seed"],
        "num_images_per_prompt": r["images"], "images": count,
        "max_sequence_length": 0, "scheduler": None, "tiling": False, "resolution_binning": False}
        | ({"strength": r["strength"]} if started else {}) | notes, out)
    say_images(name, r, out, trail, count)


def make(names, options):
    quiet()
    with torch.no_grad():
        for name in names:
            if name == "forms":
                for form in FORMS:
                    run_form(form, options.out)
                standard_sizes(options.out)
                continue
            if name in MODELS:
                make_model(name, options.out / name)
            run(name, options.out)
