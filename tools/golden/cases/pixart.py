"""PixArt: tiny random pipelines and what diffusers computes, stage by stage.

A directory of a model (alpha, micro, sigma, bins) has weights. Tensors:

    ids, negative_ids               [n] I32, with the closing </s>, without padding; prompt 0
    text.block.L, prompt_embeds     [n,E] of prompt 0; negative_prompt_embeds [m,E]
    noise.I                         [C,h,w] of image I, N(0,1), before the scheduler scales it
    timesteps                       [steps] what the network is given
    dit.in                          [C,h,w] image 0, first step, scaled as the scheduler asks
    dit.size                        [2] height, width in pixels (micro-conditions)
    dit.embed, dit.block.L          [N,D] hidden rows with the prompt: after patches, after block L
    dit.cond, dit.uncond            [Cout,h,w] output with the prompt and the negative prompt
    latents.I.S                     [C,h,w] of image I after step S (from 0)
    vae.decode.in, vae.decode.out   [C,h,w] unscaled latents of image 0, [H,W,3] in about [-1,1]
    vae.encode.in, vae.encode.out   [H,W,3] U8 (the network reads u / 127.5 - 1), [2C,h,w] moments:
                                    means, then log variances
    vae.tiled.decode.out, vae.tiled.encode.out    instead, in a run with tiles
    image.0, pixels.I               [H,W,3] F32 in [0,1], and U8

image.png is what an image-to-image run starts from; of one, only timesteps, text, latents and
images are kept.

So that random weights behave like a trained model, the last linear layer is fitted by least squares
to predict the noise of random latents, and the decoder's last convolution is scaled to fill [-1,1].
"""
import json
import math
import os
import shutil

import torch
import torch.nn.functional as F
from diffusers import (AutoencoderKL, DDIMScheduler, DPMSolverMultistepScheduler,
                       EulerDiscreteScheduler, PixArtAlphaPipeline, PixArtSigmaPipeline,
                       PixArtTransformer2DModel)
from diffusers.pipelines.pixart_alpha import pipeline_pixart_alpha as alpha_module
from diffusers.pipelines.pixart_alpha import pipeline_pixart_sigma as sigma_module
from safetensors.torch import load_file, save_file
from transformers import T5Config, T5EncoderModel, T5Tokenizer

from ..common import (PLAIN, ROOT, keep_images, make_tokenizer, quiet, rows_last, smooth,
                      start_from_image, tidy)

# Gentler than the published 0.012 and 0.02: an error of an untrained model's first prediction
# grows by 1/alpha, and these leave alpha at 0.2.
SCALED = dict(beta_schedule="scaled_linear", beta_start=0.00085, beta_end=0.006)
LINEAR = dict(beta_schedule="linear", beta_start=0.0002, beta_end=0.006)
SCHEDULERS = {"dpm++": DPMSolverMultistepScheduler, "ddim": DDIMScheduler,
              "euler": EulerDiscreteScheduler}

MODELS = {
    "alpha": dict(
        seed=1, pipeline=PixArtAlphaPipeline, tokenizer="identity",
        text=dict(d_model=24, d_kv=8, num_heads=3, d_ff=40, num_layers=2,
                  feed_forward_proj="gated-gelu"),
        dit=dict(num_attention_heads=5, attention_head_dim=8, num_layers=3, in_channels=4,
                 out_channels=8, sample_size=16, patch_size=2, use_additional_conditions=False),
        vae=dict(block_out_channels=(8, 16, 16, 16), layers_per_block=1, norm_num_groups=4,
                 latent_channels=4, sample_size=64, scaling_factor=0.6, **PLAIN(4)),
        scheduler=DPMSolverMultistepScheduler(**LINEAR),
        store=torch.bfloat16, old_vae_names=True),
    "micro": dict(
        seed=2, pipeline=PixArtAlphaPipeline, tokenizer="identity",
        text=dict(d_model=20, d_kv=12, num_heads=2, d_ff=56, num_layers=2,
                  feed_forward_proj="relu"),
        dit=dict(num_attention_heads=3, attention_head_dim=12, num_layers=2, in_channels=4,
                 out_channels=8, sample_size=128, patch_size=2),
        dit_class="Transformer2DModel", dit_drop=["use_additional_conditions",
                                                  "interpolation_scale"],
        vae=dict(block_out_channels=(8, 16, 16), layers_per_block=1, norm_num_groups=4,
                 latent_channels=4, sample_size=512, scaling_factor=0.18215, use_quant_conv=False,
                 use_post_quant_conv=False,
                 down_block_types=("DownEncoderBlock2D", "AttnDownEncoderBlock2D",
                                   "DownEncoderBlock2D"),
                 up_block_types=("UpDecoderBlock2D", "AttnUpDecoderBlock2D", "UpDecoderBlock2D")),
        scheduler=DPMSolverMultistepScheduler(use_karras_sigmas=True, solver_order=3, **SCALED),
        store=torch.float16, shards={"transformer": "70KB"}),
    "sigma": dict(
        seed=3, pipeline=PixArtSigmaPipeline, tokenizer="json",
        text=dict(d_model=28, d_kv=8, num_heads=3, d_ff=48, num_layers=2,
                  feed_forward_proj="gated-gelu"),
        dit=dict(num_attention_heads=2, attention_head_dim=22, num_layers=2, in_channels=3,
                 out_channels=6, sample_size=64, patch_size=2, interpolation_scale=2,
                 use_additional_conditions=False),
        vae=dict(block_out_channels=(8, 16, 16), layers_per_block=2, norm_num_groups=4,
                 latent_channels=3,
                 sample_size=256, scaling_factor=0.13025, use_post_quant_conv=False,
                 mid_block_add_attention=False, **PLAIN(3)),
        scheduler=EulerDiscreteScheduler(timestep_spacing="leading", steps_offset=1, **SCALED),
        store=torch.bfloat16, store_text=torch.float32, shards={"text_encoder": "40KB"}),
    "bins": dict(
        seed=4, pipeline=PixArtAlphaPipeline, tokenizer="identity",
        text=dict(d_model=16, d_kv=8, num_heads=2, d_ff=32, num_layers=1,
                  feed_forward_proj="gated-gelu"),
        dit=dict(num_attention_heads=2, attention_head_dim=16, num_layers=1, in_channels=4,
                 out_channels=4, sample_size=32, patch_size=2),
        vae=dict(block_out_channels=(8, 8, 8, 16), layers_per_block=1, norm_num_groups=4,
                 latent_channels=4, sample_size=256, scaling_factor=0.5, **PLAIN(4)),
        scheduler=DDIMScheduler(clip_sample=False, set_alpha_to_one=False, steps_offset=1,
                                prediction_type="v_prediction", **SCALED),
        store=torch.bfloat16),
}

DEFAULTS = dict(negative_prompt="", guidance=4.5, scheduler=None, images=1, tiling=False,
                binning=False, max_sequence_length=0)
RUNS = {
    "alpha": dict(prompts=["A large Red circle on a blue background "],
                  negative_prompt="a green ring", width=80, height=48, steps=6, seed=7),
    "alpha-ddim": dict(model="alpha", prompts=["two stars, 42 left of the moon"], width=48,
                       height=48, steps=5, seed=8, guidance=2.0, scheduler="ddim"),
    "alpha-euler": dict(model="alpha", prompts=["a cyan triangle at the top"], width=48, height=80,
                        steps=5, seed=9, scheduler="euler"),
    "alpha-batch": dict(model="alpha", prompts=["a purple ring next to a brown square on the right",
                                                "a star"],
                        negative_prompt="black diamond at the bottom", width=32, height=64, steps=3,
                        seed=40, images=2, max_sequence_length=7, guidance=2.0),
    "alpha-tiles": dict(model="alpha", prompts=["a pink diamond above a gray square"], width=112,
                        height=80, steps=3, seed=11, guidance=2.5, tiling=True),
    "alpha-free": dict(model="alpha", prompts=[""], width=64, height=48, steps=2, seed=-3,
                       guidance=1.0),
    "micro": dict(prompts=["a blue square above a red circle on a yellow background"],
                  negative_prompt="a small orange star on the left", width=72, height=40, steps=6,
                  seed=21, guidance=3.5),
    "sigma": dict(prompts=["a white star on a black background"], width=56, height=72, steps=6,
                  seed=31),
    "sigma-dpm": dict(model="sigma", prompts=["a white star on a black background"], width=72,
                      height=40, steps=7, seed=2**31 + 5, scheduler="dpm++"),
    "bins": dict(prompts=["a yellow circle next to a red star"], width=66, height=58, steps=4,
                 seed=41, binning=True),
    # From an image of another size, and with a scheduler whose noise is not scaled back.
    "alpha-image": dict(model="alpha", prompts=["a cyan triangle"], width=48, height=64, steps=6,
                        seed=61, guidance=2.0, strength=0.58, image=(70, 37)),
    "sigma-image": dict(model="sigma", prompts=["a white star"], width=40, height=48, steps=4,
                        seed=62, guidance=2.0, strength=0.8, image=(40, 48)),
    # The trained model, with the published noise schedule.
    "demo": dict(model="demo-pixart", prompts=["a large red circle on a blue background"],
                 width=128, height=112, steps=6, seed=51),
}


# ---- models --------------------------------------------------------------------------------------

def randomise(module, seed):
    """Weights of variance 1/fan_in, norms near one, biases and tables that are not zero."""
    g = torch.Generator().manual_seed(seed)
    rand = lambda p, std: torch.randn(p.shape, generator=g) * std
    for name, p in sorted(module.named_parameters()):
        if "relative_attention_bias" in name:
            v = rand(p, 0.7)
        elif p.ndim > 1 and "table" in name:
            v = rand(p, 0.3)
        elif p.ndim > 1 and ("shared" in name or "embed_tokens" in name):
            v = rand(p, 1.0)
        elif p.ndim > 1:
            v = rand(p, 1 / math.sqrt(p[0].numel()))
        elif name.endswith("weight"):
            v = 1 + rand(p, 0.15)
        else:
            v = rand(p, 0.15)
        p.data.copy_(v)


def make_text(spec):
    cfg = T5Config(vocab_size=88, dropout_rate=0.0, pad_token_id=0, eos_token_id=1,
                   tie_word_embeddings=False, **spec["text"])
    te = T5EncoderModel(cfg).eval()
    randomise(te, spec["seed"] * 10)
    # T5 does not divide by sqrt(d_kv): keep logits near one
    for name, p in te.named_parameters():
        if name.endswith((".q.weight", ".k.weight")):
            p.data *= cfg.d_kv ** -0.25
    return te


def fit_head(dit, te, tok, spec):
    """Least squares for the rows of proj_out that predict the noise (or v)."""
    g = torch.Generator().manual_seed(spec["seed"] * 10 + 3)
    sched, cfg = spec["scheduler"], dit.config
    ac = sched.alphas_cumprod
    prompts = ["", "a red circle", "a small blue star on a white background",
               "green ring above a square"]
    rows, goals, weights = [], [], []
    dit.proj_out.register_forward_pre_hook(lambda m, a: rows.append(a[0].double()))
    p, c = cfg.patch_size, cfg.in_channels
    for i in range(160):
        t = torch.randint(0, 1000, (1,), generator=g)
        n = 4
        x0 = smooth(n, c, 10, 12, g)
        eps = torch.randn(x0.shape, generator=g)
        a, s = ac[t].sqrt(), (1 - ac[t]).sqrt()
        ids = tok(prompts[i % 4], return_tensors="pt").input_ids
        emb = te(ids)[0].expand(n, -1, -1)
        size = {"resolution": torch.tensor([[40.0, 48.0]]).expand(n, 2),
                "aspect_ratio": torch.tensor([[40 / 48]]).expand(n, 1)}
        dit(a * x0 + s * eps, encoder_hidden_states=emb, timestep=t.expand(n),
            added_cond_kwargs=size)
        goal = eps if sched.config.prediction_type == "epsilon" else a * eps - s * x0
        weights.append(min(1 / ac[t].item(), 1e4))            # an error here grows by 1/alpha
        goals.append(goal.reshape(n, c, 10 // p, p, 12 // p, p).permute(0, 2, 4, 3, 5,
                                                                        1).reshape(-1, p * p * c))
    x = torch.cat([r.reshape(-1, r.shape[-1]) for r in rows])
    y = torch.cat(goals).double()
    x1 = torch.cat([x, torch.ones(len(x), 1, dtype=x.dtype)], 1)
    k = torch.tensor(weights, dtype=x.dtype).repeat_interleave(len(x) // len(weights))[:, None]
    xk = x1 * k
    w = torch.linalg.solve(xk.T @ x1 + 1e-3 * k.sum() * torch.eye(x1.shape[1], dtype=x.dtype),
                           xk.T @ y)
    err = (k * (x1 @ w - y) ** 2).sum().div(k.sum() * y.shape[1]).sqrt().item()
    pick = torch.arange(p * p * cfg.out_channels).reshape(p * p, cfg.out_channels)[:,
                                                                                   :c].reshape(-1)
    dit.proj_out.weight.data[pick] = w[:-1].T.float()
    dit.proj_out.bias.data[pick] = w[-1].float()
    dit.proj_out._forward_pre_hooks.clear()
    print(f"  head fitted on {len(x)} tokens, rms error {err:.3f}")


def calm(dit):
    """Patches speak louder than blocks, as in a trained model, so that a prediction is possible."""
    dit.pos_embed.proj.weight.data *= 3
    # steadies the norm at the end: nearly linear
    dit.pos_embed.proj.bias.data *= 12
    for b in dit.transformer_blocks:
        for out, gain in ((b.attn1.to_out[0], 0.4), (b.attn2.to_out[0], 0.3), (b.ff.net[2], 0.4)):
            out.weight.data *= gain


def make_dit(spec, te, tok):
    inner = spec["dit"]["num_attention_heads"] * spec["dit"]["attention_head_dim"]
    dit = PixArtTransformer2DModel(cross_attention_dim=inner, caption_channels=te.config.d_model,
                                   **spec["dit"]).eval()
    randomise(dit, spec["seed"] * 10 + 1)
    calm(dit)
    fit_head(dit, te, tok, spec)
    return dit


def make_vae(spec):
    vae = AutoencoderKL(**spec["vae"]).eval()
    randomise(vae, spec["seed"] * 10 + 2)
    for name, p in vae.named_parameters():          # branches add a little to what passes by
        if name.endswith(("conv2.weight", "to_out.0.weight")):
            p.data *= 0.4
    g = torch.Generator().manual_seed(spec["seed"])
    z = smooth(4, vae.config.latent_channels, 9, 8, g) / vae.config.scaling_factor
    y = vae.decode(z).sample
    out = vae.decoder.conv_out
    out.weight.data *= 0.45 / y.std()
    out.bias.data *= 0.1
    return vae


def rename_old(path):
    """Writes a VAE's attention the way checkpoints of 2022 name it."""
    old = {"to_q": "query", "to_k": "key", "to_v": "value", "to_out.0": "proj_attn"}
    tensors = {}
    for name, t in load_file(path).items():
        for new, was in old.items():
            name = name.replace(f".{new}.", f".{was}.")
        tensors[name] = t
    save_file(tensors, path, metadata={"format": "pt"})


def make_model(name, out):
    spec = MODELS[name]
    if out.exists():
        shutil.rmtree(out)
    make_tokenizer(spec["tokenizer"], out / "tokenizer")
    tok = T5Tokenizer.from_pretrained(out / "tokenizer")
    te = make_text(spec)
    dit = make_dit(spec, te, tok)
    vae = make_vae(spec)
    shards = spec.get("shards", {})
    for part, m, dtype in (("text_encoder", te, spec.get("store_text", spec["store"])),
                           ("transformer", dit, spec["store"]), ("vae", vae, spec["store"])):
        m.to(dtype).save_pretrained(out / part, max_shard_size=shards.get(part, "1GB"))
    spec["scheduler"].save_pretrained(out / "scheduler")
    (out / "model_index.json").write_text(json.dumps({
        "_class_name": spec["pipeline"].__name__,
        "scheduler": ["diffusers", type(spec["scheduler"]).__name__],
        "text_encoder": ["transformers", "T5EncoderModel"],
        "tokenizer": ["transformers", "T5Tokenizer"],
        "transformer": ["diffusers", "PixArtTransformer2DModel"],
        "vae": ["diffusers", "AutoencoderKL"]}))
    if spec.get("old_vae_names"):
        rename_old(out / "vae" / "diffusion_pytorch_model.safetensors")
    tidy(out, spec)


def place(name, out):
    return out / name if name in MODELS else ROOT / "models" / name


def load(name, out):
    """The pipeline that the files on disk describe, in f32."""
    part, spec = place(name, out), MODELS.get(name, {})
    cls = spec.get("pipeline", PixArtAlphaPipeline)
    dit = PixArtTransformer2DModel.from_pretrained(part / "transformer", torch_dtype=torch.float32)
    te = T5EncoderModel.from_pretrained(part / "text_encoder", dtype=torch.float32)
    vae = AutoencoderKL.from_pretrained(part / "vae", torch_dtype=torch.float32)
    sched = type(spec.get("scheduler", DPMSolverMultistepScheduler())).from_pretrained(part /
                                                                                       "scheduler")
    pipe = cls(T5Tokenizer.from_pretrained(part / "tokenizer"), te.eval(), vae.eval(), dit.eval(),
               sched)
    pipe.set_progress_bar_config(disable=True)
    return pipe


# ---- runs ----------------------------------------------------------------------------------------

class Recorder:
    """Hooks that keep what the first call of each stage saw and gave."""

    def __init__(self, pipe):
        self.seen, self.hooks = {}, []
        self.watch(pipe.transformer, "dit", with_kwargs=True)
        self.watch(pipe.transformer.pos_embed, "embed")
        for i, b in enumerate(pipe.transformer.transformer_blocks):
            self.watch(b, f"block.{i}")
        for i, b in enumerate(pipe.text_encoder.encoder.block):
            self.watch(b, f"text.{i}")
        self.watch(pipe.text_encoder, "text", with_kwargs=True)

    def watch(self, module, name, with_kwargs=False):
        def keep(m, args, kwargs, out):
            out = out[0] if isinstance(out, (tuple, list)) or hasattr(out,
                                                                      "last_hidden_state") else out
            self.seen.setdefault(name, []).append((args, kwargs if with_kwargs else {},
                                                   out.detach().clone()))
        self.hooks.append(module.register_forward_hook(keep, with_kwargs=True))

    def close(self):
        for h in self.hooks:
            h.remove()


def record_text(rec, out, guided):
    for k, prefix in enumerate(["", "negative_"] if guided else [""]):
        args, kwargs, emb = rec.seen["text"][k]
        n = int(kwargs["attention_mask"][0].sum())
        out[prefix + "ids"] = args[0][0, :n].int()
        out[prefix + "prompt_embeds"] = emb[0, :n]
    n, i = len(out["ids"]), 0
    while f"text.{i}" in rec.seen:
        out[f"text.block.{i}"] = rec.seen[f"text.{i}"][0][2][0, :n]
        i += 1


def record_dit(rec, out, guided, height, width, blocks):
    args, _, pred = rec.seen["dit"][0]
    batch = pred.shape[0] // (2 if guided else 1)
    row = batch if guided else 0                            # the unguided half comes first
    out["dit.in"] = args[0][row]
    out["dit.size"] = torch.tensor([float(height), float(width)])
    out["dit.cond"] = pred[row]
    if guided:
        out["dit.uncond"] = pred[0]
    if blocks:
        out["dit.embed"] = rec.seen["embed"][0][2][row]
    i = 0
    while blocks and f"block.{i}" in rec.seen:
        out[f"dit.block.{i}"] = rec.seen[f"block.{i}"][0][2][row]
        i += 1


def record_vae(vae, out, latents, seed, tiling):
    z = latents[:1] / vae.config.scaling_factor
    g = torch.Generator().manual_seed(seed)
    f = 2 ** (len(vae.config.block_out_channels) - 1)
    u8 = (smooth(1, 3, z.shape[2] * f, z.shape[3] * f, g) * 50 + 128).clamp(0, 255).to(torch.uint8)
    x = u8.float() / 127.5 - 1
    vae.use_tiling = tiling
    tag = "vae.tiled." if tiling else "vae."
    out[tag + "decode.out"] = rows_last(vae.decode(z).sample)
    out[tag + "encode.out"] = vae.encode(x).latent_dist.parameters[0]
    out["vae.decode.in"], out["vae.encode.in"] = z[0], rows_last(u8)
    vae.use_tiling = False


def bin_of(pipe, width, height):
    tables = {32: alpha_module.ASPECT_RATIO_256_BIN, 64: alpha_module.ASPECT_RATIO_512_BIN,
              128: alpha_module.ASPECT_RATIO_1024_BIN}
    return pipe.image_processor.classify_height_width_bin(
        height, width, ratios=tables[pipe.transformer.config.sample_size])


def run_image(name, out_dir):
    """diffusers has no such pipeline of PixArt: its text encoder, networks and scheduler in the
    order of StableDiffusionImg2ImgPipeline."""
    r = DEFAULTS | dict(model=name) | RUNS[name]
    d = out_dir / name
    d.mkdir(parents=True, exist_ok=True)
    pipe, out = load(r["model"], out_dir), {}
    rec = Recorder(pipe)
    emb, mask, none, none_mask = pipe.encode_prompt(
        r["prompts"], True, r["negative_prompt"],
        max_sequence_length=120 if isinstance(pipe, PixArtAlphaPipeline) else 300)
    record_text(rec, out, True)
    rec.close()
    size = {"resolution": torch.tensor([[float(r["height"]), float(r["width"])]] * 2),
            "aspect_ratio": torch.tensor([[r["height"] / r["width"]]] * 2)}
    if pipe.transformer.config.sample_size != 128:
        size = {"resolution": None, "aspect_ratio": None}

    def predict(z, t):
        y = pipe.transformer(torch.cat([z] * 2), encoder_hidden_states=torch.cat([none, emb]),
                             encoder_attention_mask=torch.cat([none_mask, mask]),
                             timestep=t.expand(2), added_cond_kwargs=size).sample
        return y[:, :z.shape[1]]
    images, trail = start_from_image(pipe, predict, r, d)
    keep_images(out, trail, images, r, 1, noise=False)
    save(name, out_dir, r, out, 1, r["height"], r["width"])


def run(name, out_dir, write=True):
    if "image" in RUNS[name]:
        return run_image(name, out_dir)
    r = DEFAULTS | dict(model=name) | RUNS[name]
    pipe = load(r["model"], out_dir)
    if r["scheduler"]:
        pipe.scheduler = SCHEDULERS[r["scheduler"]].from_config(pipe.scheduler.config)
    if r["tiling"]:
        pipe.vae.enable_tiling()
    count = len(r["prompts"]) * r["images"]
    gens = [torch.Generator("cpu").manual_seed(r["seed"] + i) for i in range(count)]
    out, trail = {}, []
    rec = Recorder(pipe)
    more = {"max_sequence_length": r["max_sequence_length"]} if r["max_sequence_length"] else {}
    images = pipe(r["prompts"], negative_prompt=r["negative_prompt"],
                  num_inference_steps=r["steps"],
                  guidance_scale=r["guidance"], num_images_per_prompt=r["images"],
                  height=r["height"], width=r["width"], generator=gens, output_type="pt",
                  use_resolution_binning=r["binning"],
                  clean_caption=False, callback=lambda s, t, z: trail.append((float(t), z.clone())),
                  callback_steps=1, **more).images
    rec.close()
    high, wide = bin_of(pipe, r["width"], r["height"]) if r["binning"] else (r["height"],
                                                                             r["width"])
    guided = r["guidance"] > 1
    record_text(rec, out, guided)
    record_dit(rec, out, guided, high, wide, blocks=r["model"] == name and not r["binning"])
    if (r["model"] == name and not r["binning"]) or r["tiling"]:
        record_vae(pipe.vae, out, trail[-1][1], r["seed"] + 1000, r["tiling"])
    keep_images(out, trail, images, r, count, whole=r["model"] in MODELS and not r["tiling"])
    out["timesteps"] = torch.tensor([float(c[1]["timestep"][0]) for c in rec.seen["dit"]])
    if write:
        save(name, out_dir, r, out, count, high, wide)
    return out


def save(name, out_dir, r, out, count, high, wide):
    d = out_dir / name
    d.mkdir(parents=True, exist_ok=True)
    save_file({k: v.contiguous() for k, v in out.items()}, d / "golden.safetensors")
    (d / "golden.json").write_text(json.dumps({
        "model": os.path.relpath(place(r["model"], out_dir), d).replace(os.sep, "/"),
        "prompts": r["prompts"],
        "negative_prompt": r["negative_prompt"], "width": r["width"], "height": r["height"],
        "model_width": wide, "model_height": high, "num_inference_steps": r["steps"],
        "guidance_scale": r["guidance"], "seed": r["seed"], "num_images_per_prompt": r["images"],
        "images": count, "max_sequence_length": r["max_sequence_length"],
        "scheduler": r["scheduler"],
        "tiling": r["tiling"], "resolution_binning": r["binning"]}
        | ({"strength": r["strength"]} if "strength" in r else {}), indent=2) + "\n")
    z = [out[f"latents.0.{s}"].abs().max().item() for s in range(len(out["timesteps"]))]
    p = out["pixels.0"].float()
    for f in d.rglob("*"):
        f.chmod(0o755 if f.is_dir() else 0o644)
    if "dit.uncond" in out:
        print("  prompt matters: "
              f"{((out['dit.cond'] - out['dit.uncond']).std() / out['dit.cond'].std()):.3f}")
    print(f"{name}: {count} of {r['width']}x{r['height']}, latents up to "
          f"{', '.join(f'{v:.1f}' for v in z)}; "
          f"pixels {p.mean():.0f} +- {p.std():.0f}, at the ends "
          f"{((p < 1) | (p > 254)).float().mean():.2f}")


def bin_tables(out_dir):
    """What classify_height_width_bin answers: [sample_size, width, height, binned w, binned h]."""
    tables = {32: alpha_module.ASPECT_RATIO_256_BIN, 64: alpha_module.ASPECT_RATIO_512_BIN,
              128: alpha_module.ASPECT_RATIO_1024_BIN, 256: sigma_module.ASPECT_RATIO_2048_BIN}
    sizes = [(1, 1), (100, 90), (64, 8192), (8192, 64), (1023, 1), (1000, 1500), (1500, 1000),
             (1920, 1080),
             (1080, 1920), (512, 512), (1024, 1024), (1280, 768), (777, 333), (333, 777),
             (640, 1000), (999, 1001)]
    rows = []
    for sample, ratios in tables.items():
        both = [(int(w), int(h)) for h, w in ratios.values()]
        for w, h in sizes + both:
            bh, bw = alpha_module.PixArtImageProcessor.classify_height_width_bin(h, w,
                                                                                 ratios=ratios)
            rows.append([sample, w, h, bw, bh])
    text = ",\n".join("  " + json.dumps(r) for r in rows)
    (out_dir / "binning.json").write_text("[\n" + text + "\n]\n")


# ---- how far bf16 goes ---------------------------------------------------------------------------

def round_bf16():
    """From now on linear layers, convolutions and attention read inputs rounded to bf16."""
    def cut(t):
        floats = t is not None and t.is_floating_point()
        return t.to(torch.bfloat16).to(t.dtype) if floats else t

    for owner, fn in ((F, "linear"), (F, "scaled_dot_product_attention"),
                      (torch.nn.Conv2d, "_conv_forward")):
        def wrap(plain):
            return lambda *a, **k: plain(*[cut(v) if torch.is_tensor(v) and v.ndim > 1 else v
                                           for v in a], **k)
        setattr(owner, fn, wrap(getattr(owner, fn)))


def compare_bf16(names, out_dir):
    exact = {n: run(n, out_dir, write=False) for n in names}
    round_bf16()
    for n in names:
        got, worst = run(n, out_dir, write=False), {}
        for k, v in exact[n].items():
            if v.dtype == torch.float32 and v.numel() and v.abs().max() > 0:
                stage = k.split(".")[0] if k[:3] not in ("dit", "vae") else k
                rel = ((got[k] - v).abs().max() / v.abs().max()).item()
                worst[stage] = max(worst.get(stage, 0), rel)
        print(n, " ".join(f"{k} {v:.1e}" for k, v in worst.items() if v))


def make(names, options):
    quiet()
    torch.manual_seed(0)
    with torch.no_grad():
        if options.bf16:
            return compare_bf16([n for n in names if n in RUNS], options.out)
        for name in names:
            if name == "binning":
                bin_tables(options.out)
                continue
            if name in MODELS:
                make_model(name, options.out / name)
            run(name, options.out)
