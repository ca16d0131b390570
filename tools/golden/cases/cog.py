"""CogVideoX' transformers alone, with this program's random weights.

Weights are those that the program makes of a tensor's name (src/exec/store.c, xd_random_weight), so
that only configs and results are kept. Tensors are tokens [N, C pt p p], features in the order
channel, frame, row, column; rows of text [n,E].
"""
import json

import diffusers
import numpy as np
import torch
from diffusers import CogVideoXImageToVideoPipeline, CogVideoXPipeline, CogVideoXTransformer3DModel
from safetensors.torch import save_file

from ..fill import weights

BASE = dict(num_attention_heads=3, attention_head_dim=16, in_channels=4, out_channels=4,
            time_embed_dim=24,
            text_embed_dim=20, num_layers=2, sample_width=12, sample_height=8, sample_frames=9,
            max_text_seq_length=5)
VARIANTS = {
    "2b": dict(BASE, norm_eps=1e-5),
    "5b": dict(BASE, use_rotary_positional_embeddings=True, attention_bias=False),
    "5b-i2v": dict(BASE, use_rotary_positional_embeddings=True,
                   use_learned_positional_embeddings=True, in_channels=8),
    "1.5-i2v": dict(BASE, use_rotary_positional_embeddings=True, in_channels=8, patch_size_t=2,
                    ofs_embed_dim=24, patch_bias=False),
}
# latent frames, rows and columns; the learned table fits the sample only
SHAPES = {"2b": (4, 6, 10), "5b": (3, 10, 6), "5b-i2v": (3, 8, 12), "1.5-i2v": (4, 6, 10)}


def fill(model):
    named = list(model.named_parameters()) + [(n, b) for n, b in model.named_buffers()
                                              if "pos_embedding" in n]
    for name, p in named:
        if "pos_embedding" in name:
            if not model.config.use_learned_positional_embeddings:
                continue
            v = weights(name, p.shape, 1.0, 0.0)
        elif p.ndim > 1:
            v = weights(name, p.shape, 0.9 / np.sqrt(np.float32(p[0].numel())), 0.0)
        else:
            v = weights(name, p.shape, 0.1, 1.0 if name.endswith("weight") and "norm" in name
                        else 0.0)
        p.data.copy_(v)


def tokens(z, pt, p):
    """[T,C,H,W] -> [N, C pt p p]"""
    T, C, H, W = z.shape
    z = z.reshape(T // pt, pt, C, H // p, p, W // p, p)
    return z.permute(0, 3, 5, 2, 1, 4, 6).reshape(-1, C * pt * p * p).contiguous()


def run(name, out):
    model = CogVideoXTransformer3DModel(**VARIANTS[name]).eval()
    fill(model)
    c, (T, H, W) = model.config, SHAPES[name]
    pt, p, g = c.patch_size_t or 1, c.patch_size, torch.Generator().manual_seed(len(name))
    z = torch.randn(1, T, c.in_channels, H, W, generator=g)
    text = torch.randn(1, c.max_text_seq_length, c.text_embed_dim, generator=g)
    rope = None
    if c.use_rotary_positional_embeddings:
        pipe = (CogVideoXImageToVideoPipeline if c.in_channels > c.out_channels
                else CogVideoXPipeline).__new__(
CogVideoXPipeline)
        pipe.__dict__["transformer"] = model
        pipe.__dict__["vae_scale_factor_spatial"] = 8
        rope = CogVideoXPipeline._prepare_rotary_positional_embeddings(pipe, H * 8, W * 8, T,
                                                                       torch.device("cpu"))
    t = torch.tensor([613.0])
    ofs = torch.full((1,), 2.0) if c.ofs_embed_dim else None
    y = model(z, text, t, ofs=ofs, image_rotary_emb=rope, return_dict=False)[0]
    d = out / name
    d.mkdir(parents=True, exist_ok=True)
    keep = {"latents": tokens(z[0, :, :c.out_channels], pt, p), "text": text[0], "time": t,
            "out": tokens(y[0], pt, p),
            "grid": torch.tensor([T // pt, H // p, W // p], dtype=torch.float32)}
    if c.in_channels > c.out_channels:
        keep["extra"] = tokens(z[0, :, c.out_channels:], pt, p)
    save_file(keep, d / "golden.safetensors")
    config = {k: v for k, v in c.items() if not k.startswith("_")}
    config = {"_class_name": "CogVideoXTransformer3DModel"} | config
    (d / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    print(name, tuple(keep["out"].shape), f"out {y.std():.2f}")


def make(names, options):
    diffusers.logging.set_verbosity_error()
    with torch.no_grad():
        for name in names:
            run(name, options.out / "cog")
