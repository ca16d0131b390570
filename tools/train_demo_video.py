#!/usr/bin/env python3
"""Train the video demo: a small CogVideoX that generates coloured shapes in motion.

Every part is the real thing in small: a SentencePiece unigram tokenizer, a T5 encoder, a
CogVideoXTransformer3DModel, an AutoencoderKLCogVideoX and a CogVideoXDDIMScheduler with
v-prediction and zero terminal SNR, written in the diffusers directory layout in bf16. The videos
and captions are drawn here, so the weights are ours to give away.

    pip install torch diffusers transformers sentencepiece
    ./train_demo_video.py --out demo-video

A caption is "a COLOUR SHAPE moving DIRECTION on a BACKGROUND background"; all that it leaves open
is where the shape is, and small differences of size and colour. Everything that is random follows
from the seed, the number of ranks and the number of the step, and the state is kept in --work, so a
run that was cut goes on where it stopped and becomes what it would have been. The defaults made
models/demo-video on two cores of an AMD EPYC (Zen 3) in 55 minutes, beside other work: a step of
the autoencoder took 0.4 s on pieces and 1.1 s on whole videos, one of the transformer 0.4 s. Its
autoencoder is within 7 levels rms of what it is given. Of 20 prompts all have their colour,
background and direction, and 12 their shape, which more steps of the transformer would sharpen.
"""
import argparse
import json
import os
import random
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F

SIZE, FRAMES = 64, 9
COLOURS = {"red": (225, 40, 40), "green": (40, 170, 60), "blue": (40, 80, 225),
           "yellow": (240, 215, 40), "purple": (150, 50, 185), "orange": (245, 140, 30)}
BACKGROUNDS = {"white": (240, 240, 240), "black": (20, 20, 20), "gray": (130, 130, 130)}
SHAPES = ["circle", "square", "triangle"]
DIRECTIONS = {"left": (-1, 0), "right": (1, 0), "up": (0, -1), "down": (0, 1)}
PATH = 0.30                         # what a shape moves from the first frame to the last, of SIZE
MAX_TEXT = 16                       # tokens of a caption, padded
LATENT, SNR_SHIFT = 8, 1.0


def caption(colour, shape, direction, background):
    article = "an" if colour[0] in "aeiou" else "a"
    return f"{article} {colour} {shape} moving {direction} on a {background} background"


def coverage(shape, x, y, r):
    """How much of each pixel the shape covers; x, y: pixels from its middle, r: its radius."""
    if shape == "circle":
        edge = np.hypot(x, y) - r
    elif shape == "square":
        edge = np.maximum(np.abs(x), np.abs(y)) - 0.86 * r
    else:
        edge = np.maximum(y - 0.62 * r, 0.866 * np.abs(x) - 0.5 * y - 0.62 * r)
    return np.clip(0.5 - edge, 0, 1)


def draw(shape, colour, background, direction, rng, frames=FRAMES, crop=SIZE):
    """A video [3, frames, crop, crop] in -1 to 1: the whole, or a square of its pixels."""
    dx, dy = DIRECTIONS[direction]
    r = rng.uniform(0.165, 0.185) * SIZE
    mid = [0.5 + rng.uniform(-a, a) for a in ((0.05, 0.12) if dx else (0.12, 0.05))]
    left, top = (rng.randrange(0, SIZE - crop + 1, 8) for _ in range(2))
    start = rng.randrange(0, FRAMES - frames + 1, 4)
    t = ((np.arange(frames) + start) / (FRAMES - 1) - 0.5)[:, None, None] * PATH
    at = np.arange(crop) + 0.5
    x = at[None, None, :] + left - (mid[0] + dx * t) * SIZE
    y = at[None, :, None] + top - (mid[1] + dy * t) * SIZE
    tint = lambda c: np.array([v + rng.uniform(-6, 6) for v in c], np.float32) / 127.5 - 1
    front, back = tint(COLOURS[colour]), tint(BACKGROUNDS[background])
    part = coverage(shape, *np.broadcast_arrays(x, y), r).astype(np.float32)
    return back[:, None, None, None] + part * (front - back)[:, None, None, None]


def sample(rng, frames=FRAMES, crop=SIZE):
    """One video and its caption."""
    colour, shape = rng.choice(list(COLOURS)), rng.choice(SHAPES)
    direction, back = rng.choice(list(DIRECTIONS)), rng.choice(list(BACKGROUNDS))
    return (draw(shape, colour, back, direction, rng, frames, crop),
            caption(colour, shape, direction, back))


def batch(rng, n, frames=FRAMES, crop=SIZE):
    videos, captions = zip(*(sample(rng, frames, crop) for _ in range(n)))
    return torch.from_numpy(np.stack(videos)).float(), list(captions)


def rate(step, steps, peak, warmup=100, fall=0.25):
    """Learning rate: rises, stays, and falls to nothing over the last quarter of the steps."""
    return peak * min(1, (step + 1) / warmup, max(0.01, (steps - step) / (fall * steps)))


def save(state, path):
    torch.save(state, path.with_suffix(".part"))
    os.replace(path.with_suffix(".part"), path)


def say(*words):
    if dist.get_rank() == 0:
        print(*words, flush=True)


def average_gradients(params):
    """Over the ranks, each of which has seen a part of the batch."""
    params = [p for p in params if p.grad is not None]
    flat = torch.cat([p.grad.flatten() for p in params])
    dist.all_reduce(flat)
    parts = torch.split(flat / dist.get_world_size(), [p.numel() for p in params])
    for p, g in zip(params, parts):
        p.grad.copy_(g.view_as(p))


def train_tokenizer(work, out):
    import sentencepiece as spm
    folder = out / "tokenizer"
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "spiece.model").exists():
        rng, text = random.Random(1), work / "captions.txt"
        words = [list(COLOURS), SHAPES, list(DIRECTIONS), list(BACKGROUNDS)]
        lines = [caption(*map(rng.choice, words)) for _ in range(20000)]
        # a piece is a string that several different words have in common
        known = sorted({w for line in lines for w in line.split()})
        lines += [w + end for w in known for end in ("s", "less", "like")]
        lines += ["the quick brown fox jumps over the lazy dog 0123456789"] * 50
        text.write_text("\n".join(lines) + "\n")
        spm.SentencePieceTrainer.train(
            input=str(text), model_prefix=str(work / "spiece"), vocab_size=200,
            model_type="unigram", character_coverage=1.0, hard_vocab_limit=False, pad_id=0,
            eos_id=1, unk_id=2, bos_id=-1, pad_piece="<pad>", eos_piece="</s>",
            unk_piece="<unk>", normalization_rule_name="nmt_nfkc", minloglevel=2)
        os.replace(work / "spiece.model", folder / "spiece.model")
    special = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    config = {"tokenizer_class": "T5Tokenizer", "extra_ids": 0, "additional_special_tokens": [],
              "legacy": True, "clean_up_tokenization_spaces": True, "model_max_length": MAX_TEXT,
              "sp_model_kwargs": {}} | special
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")
    (folder / "special_tokens_map.json").write_text(json.dumps(special, indent=2) + "\n")


def make_vae():
    """Its first weights pass on what they are given: latents that say little, or noise that is
    larger than they are, take hundreds of steps to unlearn. Samplers begin near to means and
    copies, residual blocks near to nothing, norms of the decoder near to plain ones, and the
    latents with little noise."""
    from diffusers import AutoencoderKLCogVideoX
    vae = AutoencoderKLCogVideoX(
        latent_channels=LATENT, layers_per_block=1, block_out_channels=(8, 16, 32, 64),
        down_block_types=("CogVideoXDownBlock3D",) * 4,
        up_block_types=("CogVideoXUpBlock3D",) * 4, norm_num_groups=2,
        temporal_compression_ratio=4, sample_height=SIZE, sample_width=SIZE, scaling_factor=1.0)
    residual, modulation = (".conv1.", ".conv2."), (".conv_y.", ".conv_b.")
    with torch.no_grad():
        for name, p in vae.named_parameters():
            if p.ndim >= 4 and not any(k in name for k in residual + modulation):
                torch.nn.init.normal_(p, std=p[0].numel() ** -0.5)
            if ".conv_y." in name:
                p.fill_(1.0) if name.endswith("bias") else p.mul_(0.1)
            elif ".conv2." in name:
                p.mul_(0.25)
            elif "sampler" in name and p.ndim >= 4:
                p.mul_(0.3)
                for c in range(min(p.shape[:2])):
                    p[c, c] += 1 / p[0, 0].numel()
        vae.encoder.conv_out.conv.weight[LATENT:] = 0
        vae.encoder.conv_out.conv.bias[LATENT:] = -6
    return vae


def train_vae(work, steps, size):
    """Pieces of videos first, whole videos then. The absolute error, which makes edges sharp and
    small shapes vanish, counts from the second half on."""
    vae = make_vae()
    opt = torch.optim.AdamW(vae.parameters(), lr=1e-3, weight_decay=1e-4, betas=(0.9, 0.99))
    path, step, began = work / "vae.pt", 0, time.time()
    if path.exists():
        s = torch.load(path)
        vae.load_state_dict(s["vae"])
        opt.load_state_dict(s["opt"])
        step = s["step"]
    say("parameters: vae", sum(p.numel() for p in vae.parameters()))
    while step < steps:
        seed = 20000000 + step * dist.get_world_size() + dist.get_rank()
        torch.manual_seed(seed)
        rng, part = random.Random(seed), step / steps
        n, crop = (size, SIZE // 2) if part < 0.6 else ((size + 3) // 4, SIZE)
        x, _ = batch(rng, n, crop=crop)
        for g in opt.param_groups:
            g["lr"] = rate(step, steps, 1e-3, warmup=30, fall=0.4)
        post = vae.encode(x).latent_dist
        y = vae.decode(post.sample()).sample
        loss = F.mse_loss(y, x) + 0.01 * post.kl().sum() / x.numel()
        if part > 0.5:
            loss = loss + 0.5 * F.l1_loss(y, x)
        opt.zero_grad()
        loss.backward()
        average_gradients(list(vae.parameters()))
        torch.nn.utils.clip_grad_norm_(vae.parameters(), 1.0)
        opt.step()
        step += 1
        if step % 20 == 0:
            say(f"vae step {step} s {time.time() - began:.0f} loss {loss.item():.4f} "
                f"rms {F.mse_loss(y, x).sqrt().item() * 127.5:.1f} levels")
        if dist.get_rank() == 0 and (step % 40 == 0 or step == steps):
            save({"vae": vae.state_dict(), "opt": opt.state_dict(), "step": step}, path)
    return vae.eval().requires_grad_(False)


def encode_set(work, vae, count):
    """Latents of `count` videos, a part of them by each rank, and their captions."""
    ranks, rank = dist.get_world_size(), dist.get_rank()
    path = work / f"latents-{rank}.pt"
    if not path.exists():
        rng, latents, captions = random.Random(30000000 + rank), [], []
        with torch.no_grad():
            while len(captions) < count // ranks:
                x, c = batch(rng, 16)
                latents.append(vae.encode(x).latent_dist.mean)
                captions += c
                if len(captions) % 320 == 0:
                    say("encoded", len(captions), "on each rank")
        save({"z": torch.cat(latents), "captions": captions}, path)
    dist.barrier()
    parts = [torch.load(work / f"latents-{r}.pt") for r in range(ranks)]
    z = torch.cat([p["z"] for p in parts])
    return {"z": z, "captions": sum((p["captions"] for p in parts), []),
            "scale": 1.0 / z.std().item()}


def make_text(tok):
    from transformers import T5Config, T5EncoderModel
    return T5EncoderModel(T5Config(
        vocab_size=(tok.vocab_size + 7) // 8 * 8, d_model=128, d_kv=32, d_ff=256, num_layers=2,
        num_heads=4, feed_forward_proj="gated-gelu", dropout_rate=0.0, pad_token_id=0,
        eos_token_id=1, tie_word_embeddings=False))


def make_transformer():
    from diffusers import CogVideoXTransformer3DModel
    return CogVideoXTransformer3DModel(
        num_attention_heads=4, attention_head_dim=32, in_channels=LATENT, out_channels=LATENT,
        time_embed_dim=128, text_embed_dim=128, num_layers=6, sample_width=SIZE // 8,
        sample_height=SIZE // 8, sample_frames=FRAMES, patch_size=2, max_text_seq_length=MAX_TEXT,
        temporal_compression_ratio=4, spatial_interpolation_scale=1.0)


def make_scheduler():
    from diffusers import CogVideoXDDIMScheduler
    return CogVideoXDDIMScheduler(
        beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear", clip_sample=False,
        prediction_type="v_prediction", rescale_betas_zero_snr=True, set_alpha_to_one=True,
        snr_shift_scale=SNR_SHIFT, timestep_spacing="trailing")


def train_transformer(work, tok, data, steps, size):
    """The transformer and the text encoder, jointly; returns the averages of their weights."""
    text, dit = make_text(tok), make_transformer()
    params = list(text.parameters()) + list(dit.parameters())
    say("parameters: text", sum(p.numel() for p in text.parameters()), "transformer",
        sum(p.numel() for p in dit.parameters()))
    opt = torch.optim.AdamW(params, lr=1e-3, weight_decay=0.01, betas=(0.9, 0.98))
    mean = [p.detach().clone() for p in params]
    path, step, began, shown = work / "dit.pt", 0, time.time(), None
    if path.exists():
        s = torch.load(path)
        text.load_state_dict(s["text"])
        dit.load_state_dict(s["dit"])
        opt.load_state_dict(s["opt"])
        mean, step = s["mean"], s["step"]
    levels = make_scheduler().alphas_cumprod
    z = (data["z"] * data["scale"]).permute(0, 2, 1, 3, 4).contiguous()     # [count, T, C, h, w]
    ids = tok(data["captions"] + [""], padding="max_length", max_length=MAX_TEXT,
              return_tensors="pt").input_ids
    while step < steps:
        torch.manual_seed(40000000 + step * dist.get_world_size() + dist.get_rank())
        for g in opt.param_groups:
            g["lr"] = rate(step, steps, 1.5e-3)
        pick = torch.randint(0, len(z), (size,))
        words = ids[torch.where(torch.rand(size) < 0.1, len(z), pick)]
        t = (torch.arange(size) + torch.rand(size)) * (1000 / size)         # each part of the range
        t = t.long()
        x, noise = z[pick], torch.randn(size, *z.shape[1:])
        a = levels[t].view(-1, 1, 1, 1, 1).float()
        noisy, v = a.sqrt() * x + (1 - a).sqrt() * noise, a.sqrt() * noise - (1 - a).sqrt() * x
        y = dit(noisy, text(words).last_hidden_state, t, return_dict=False)[0]
        loss = F.mse_loss(y, v)
        opt.zero_grad()
        loss.backward()
        average_gradients(params)
        torch.nn.utils.clip_grad_norm_(params, 1.0)
        opt.step()
        step += 1
        keep = min(0.995, (step + 1) / (step + 10))
        torch._foreach_mul_(mean, keep)
        torch._foreach_add_(mean, [p.detach() for p in params], alpha=1 - keep)
        shown = loss.item() if shown is None else 0.95 * shown + 0.05 * loss.item()
        if step % 20 == 0:
            say(f"transformer step {step} s {time.time() - began:.0f} loss {shown:.4f}")
        if dist.get_rank() == 0 and (step % 40 == 0 or step == steps):
            save({"text": text.state_dict(), "dit": dit.state_dict(), "opt": opt.state_dict(),
                  "mean": mean, "step": step}, path)
    for p, q in zip(params, mean):
        p.data.copy_(q)
    return text.eval(), dit.eval()


def write(out, tok, text, vae, dit):
    from diffusers import CogVideoXPipeline
    kept = {p.name: p.read_bytes() for p in (out / "tokenizer").iterdir()}
    pipe = CogVideoXPipeline(tokenizer=tok, text_encoder=text, vae=vae, transformer=dit,
                             scheduler=make_scheduler())
    pipe.to(torch.bfloat16).save_pretrained(out, safe_serialization=True)
    # the published layout: spiece.model, not a converted tokenizer.json
    for name, content in kept.items():
        (out / "tokenizer" / name).write_bytes(content)
    (out / "tokenizer" / "tokenizer.json").unlink(missing_ok=True)
    print("wrote", out)


def train(rank, o):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{o.work.resolve()}/meeting", rank=rank,
                            world_size=o.ranks)
    if rank == 0:
        train_tokenizer(o.work, o.out)
    dist.barrier()
    from transformers import T5Tokenizer
    tok = T5Tokenizer.from_pretrained(o.out / "tokenizer")
    torch.manual_seed(10000000)                     # the same first weights on every rank
    vae = train_vae(o.work, o.vae_steps, 8 // o.ranks)
    data = encode_set(o.work, vae, o.count)
    vae.register_to_config(scaling_factor=data["scale"])
    torch.manual_seed(10000001)
    text, dit = train_transformer(o.work, tok, data, o.steps, o.batch // o.ranks)
    if rank == 0:
        write(o.out, tok, text, vae, dit)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--out", type=Path, default="demo-video")
    ap.add_argument("--work", type=Path, default="demo-video-work")
    ap.add_argument("--vae-steps", type=int, default=2600)
    ap.add_argument("--count", type=int, default=1600, help="videos that the transformer sees")
    ap.add_argument("--steps", type=int, default=3000)
    ap.add_argument("--batch", type=int, default=48)
    ap.add_argument("--ranks", type=int, default=2, help="processes with one thread each")
    o = ap.parse_args()
    o.out.mkdir(exist_ok=True)
    o.work.mkdir(exist_ok=True)
    (o.work / "meeting").unlink(missing_ok=True)
    torch.multiprocessing.spawn(train, args=(o,), nprocs=o.ranks)


if __name__ == "__main__":
    main()
