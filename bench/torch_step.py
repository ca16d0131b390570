#!/usr/bin/env python3
"""The work of bench/step in diffusers, transformers and PyTorch, with random weights, on this
machine.

    torch_step.py pixart-512 --pair build/bench/step
            one row: ours and PyTorch in turn, and the ratio
    torch_step.py --all --pair build/bench/step --resume rows.json --markdown
            all rows, as they are done
    torch_step.py t5-120                                    PyTorch alone
    torch_step.py pixart-512 --pair build/bench/step --twice "--dtype f32"
            ours against ours, no PyTorch
    torch_step.py --all --pair build/bench/step --device cuda
            both on the GPU
    torch_step.py --list

Each program has a process of its own on the same cores. PyTorch runs eagerly and compiled
(torch.compile of the blocks, or of the whole where there are none; eager decoding also with
channels last), and its best way takes turns with ours; medians count. The register peak is measured
by bench/step before and after its runs. Needs (for PyTorch's side) the Python packages torch,
diffusers, transformers; torch.compile needs a C++ compiler.
"""
import argparse
import json
import os
import pathlib
import resource
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import models
import need

# Each row: model, part, pixels, frames, tokens of text, blocks of each kind; tflop says how many
# rounds.
ROWS = {
    "pixart-512": dict(model="PixArt-XL-2-512x512", part="step", size=(512, 512), text=120,
                       tflop=1.24, what="PixArt-XL, a whole step, 512 x 512"),
    "pixart-1024": dict(model="PixArt-XL-2-1024-MS", part="step", size=(1024, 1024), text=120,
                        tflop=6.51, what="PixArt-XL, a whole step, 1024 x 1024"),
    "flux-512": dict(model="FLUX.1-dev", part="step", size=(512, 512), text=512, layers=(2, 4),
                     tflop=2.28, what="FLUX.1, 2 double and 4 single blocks, 512 x 512"),
    "flux-1024": dict(model="FLUX.1-dev", part="step", size=(1024, 1024), text=512, layers=(2, 4),
                      tflop=7.84, what="FLUX.1, 2 double and 4 single blocks, 1024 x 1024"),
    "flux2-1024": dict(model="FLUX.2-klein-4B", part="step", size=(1024, 1024), text=512,
                       layers=(2, 4), tflop=8.35,
                       what="FLUX.2 klein-4B, 2 double and 4 single blocks, 1024 x 1024"),
    "zimage-1024": dict(model="Z-Image-Turbo", part="step", size=(1024, 1024), text=128,
                        layers=(2, 1), tflop=5.4,
                        what="Z-Image, 2 layers and 1 block of each refiner, 1024 x 1024"),
    "lumina-1024": dict(model="Lumina-Image-2.0", part="step", size=(1024, 1024), text=128,
                        layers=(2, 1), tflop=2.46,
                        what="Lumina-Image 2.0, 2 layers and 1 block of each refiner, 1024 x 1024"),
    "krea2-1024": dict(model="Krea-2-Turbo", part="step", size=(1024, 1024), text=128, layers=(2,),
                       tflop=8.8, what="Krea-2, 2 blocks and the text's, 1024 x 1024"),
    "sana-1024": dict(model="SANA1.5-4.8B", part="step", size=(1024, 1024), text=300, layers=(6,),
                      tflop=0.89, what="SANA 1.5 4.8B, 6 blocks, 1024 x 1024"),
    "qwen-1024": dict(model="Qwen-Image", part="step", size=(1024, 1024), text=128, layers=(2,),
                      tflop=2.36, what="Qwen-Image, 2 blocks, 1024 x 1024"),
    "qwen21-1024": dict(model="Qwen-Image-2.1", part="step", size=(1024, 1024), text=128,
                        layers=(2,), tflop=3.3, what="Qwen-Image-2.1, 2 blocks, 1024 x 1024"),
    "sd3-1024": dict(model="SD3.5-medium", part="step", size=(1024, 1024), text=256, layers=(14,),
                     tflop=7, what="SD3.5-medium, 14 blocks, 1024 x 1024"),
    "auraflow-1024": dict(model="AuraFlow-v0.3", part="step", size=(1024, 1024), text=256,
                          layers=(2, 4), tflop=7.33,
                          what="AuraFlow, 2 double and 4 single blocks, 1024 x 1024"),
    "sdxl-512": dict(model="SDXL-base-1.0", part="step", size=(512, 512), tflop=1.54,
                     what="Stable Diffusion XL, a whole step, 512 x 512"),
    "sd15-512": dict(model="SD1.5", part="step", size=(512, 512), tflop=0.8,
                     what="Stable Diffusion 1.5, a whole step, 512 x 512"),
    "hunyuan-1024": dict(model="HunyuanDiT-v1.2", part="step", size=(1024, 1024), layers=(8,),
                         tflop=2.82, what="HunyuanDiT, 8 blocks, 1024 x 1024"),
    "cogvideox-5b": dict(model="CogVideoX-5b", part="step", size=(480, 720), frames=49, text=226,
                         layers=(1,), tflop=7.93, what="CogVideoX-5b, one block, 49 x 480 x 720"),
    "wan-1.3b": dict(model="Wan2.1-T2V-1.3B", part="step", size=(480, 832), frames=81, text=512,
                     layers=(1,), tflop=9.5, what="Wan 2.1 1.3B, one block, 81 x 480 x 832"),
    "skyreels-1.3b": dict(model="SkyReels-V2-DF-1.3B-540P", part="step", size=(544, 960),
                          frames=33, text=512, layers=(1,), tflop=3.68,
                          what="SkyReels-V2 DF 1.3B, one block, 33 x 544 x 960"),
    "latte-512": dict(model="Latte-1", part="step", size=(512, 512), frames=16, text=120,
                      layers=(2,), tflop=2.46, what="Latte, 2 pairs of blocks, 16 x 512 x 512"),
    "sana-video": dict(model="SANA-Video-2B-480p", part="step", size=(480, 832), frames=17,
                       text=300, layers=(1,), tflop=1.44,
                       what="SANA-Video, one block, 17 x 480 x 832"),
    "ltx-161": dict(model="LTX-Video", part="step", size=(512, 704), frames=161, text=128,
                    layers=(1,), tflop=1.32, what="LTX-Video, one block, 161 x 512 x 704"),
    "ltx2-121": dict(model="LTX-2", part="step", size=(512, 768), frames=121, text=1024,
                     layers=(1,), tflop=4.0, what="LTX-2, one block, 121 x 512 x 768 and audio"),
    "mochi-480": dict(model="mochi-1-preview", part="step", size=(480, 848), frames=19, text=256,
                      layers=(1,), tflop=2.01, what="Mochi 1, one block, 19 x 480 x 848"),
    "hunyuanvideo": dict(model="HunyuanVideo", part="step", size=(480, 832), frames=17, text=128,
                         layers=(1, 1, 1), tflop=5.14,
                         what="HunyuanVideo, one block of each kind, 17 x 480 x 832"),
    "hunyuanvideo15": dict(model="HunyuanVideo-1.5", part="step", size=(480, 832), frames=17,
                           text=128, layers=(1,), tflop=1.4,
                           what="HunyuanVideo-1.5, one block, 17 x 480 x 832"),
    "vace-1.3b": dict(model="Wan2.1-VACE-1.3B", part="step", size=(480, 832), frames=81, text=512,
                      layers=(2,), tflop=28.7,
                      what="Wan 2.1 VACE 1.3B, 2 blocks and a control block, 81 x 480 x 832"),
    "vae-512": dict(model="FLUX.1-dev", part="vae", size=(512, 512), tflop=2.52,
                    what="KL VAE (16 channels), decoding 512 x 512"),
    "vae-1024": dict(model="FLUX.1-dev", part="vae", size=(1024, 1024), tflop=10.5,
                     ways=("eager", "last"), what="KL VAE (16 channels), decoding 1024 x 1024"),
    "vae-wan": dict(model="Wan2.1-T2V-1.3B", part="vae", size=(240, 416), frames=5, tflop=4.4,
                    ways=("eager",), what="causal VAE, decoding 5 x 240 x 416"),
    "vae-hunyuanvideo": dict(model="HunyuanVideo", part="vae", size=(240, 416), frames=5, tflop=9.5,
                             ways=("eager",),
                             what="VAE of HunyuanVideo, decoding 5 x 240 x 416"),
    "t5-77": dict(model="PixArt-XL-2-512x512", part="text", text=77, layers=(4,), tflop=0.12,
                  what="T5-XXL, 4 layers, 77 tokens"),
    "t5-120": dict(model="PixArt-XL-2-512x512", part="text", text=120, layers=(4,), tflop=0.19,
                   what="T5-XXL, 4 layers, 120 tokens"),
    "t5-226": dict(model="PixArt-XL-2-512x512", part="text", text=226, layers=(4,), tflop=0.35,
                   what="T5-XXL, 4 layers, 226 tokens"),
    "t5-512": dict(model="PixArt-XL-2-512x512", part="text", text=512, layers=(4,), tflop=0.81,
                   what="T5-XXL, 4 layers, 512 tokens"),
    "qwen3-77": dict(model="PixArt-Qwen3-4B", part="text", text=77, layers=(4,), tflop=0.06,
                     what="Qwen3-4B, 4 layers, 77 tokens"),
    "qwen3-120": dict(model="PixArt-Qwen3-4B", part="text", text=120, layers=(4,), tflop=0.1,
                      what="Qwen3-4B, 4 layers, 120 tokens"),
    "qwen3-512": dict(model="PixArt-Qwen3-4B", part="text", text=512, layers=(4,), tflop=0.42,
                      what="Qwen3-4B, 4 layers, 512 tokens"),
}
HEAVY = 4.0                     # TFLOP: from here on two rounds must do


# ---- PyTorch's side, in a process of its own -----------------------------------------------------

def config_of(home, part, row):
    config = json.loads((home / part / "config.json").read_text())
    keys = [k for k in ("num_layers", "num_hidden_layers", "num_single_layers", "n_layers",
                        "n_refiner_layers", "num_refiner_layers", "num_mmdit_layers",
                        "num_single_dit_layers") if k in config]
    for key, n in zip(keys, row.get("layers", ())):
        config[key] = n
    if "vace_layers" in config:
        config["vace_layers"] = [n for n in config["vace_layers"] if n < config["num_layers"]]
    return config


def fill(net, torch):
    """Weights and buffers get small normal numbers of their own: no zeros, no denormals, nothing
    that grows, and no two tensors that are equal, which a compiler would merge."""
    random = torch.Generator().manual_seed(1)
    noise = torch.randn(1 << 22, generator=random) * 0.02
    for name, t in list(net.named_parameters()) + list(net.named_buffers()):
        if not t.is_floating_point():
            t.data.zero_()
            continue
        flat, one = t.data.view(-1), "norm" in name.split(".")[-2:][0] and name.endswith("weight")
        i = 0
        while i < flat.numel():
            start = int(torch.randint(noise.numel() // 2, (1,), generator=random))
            part = flat[i:i + noise.numel() - start]
            part.copy_(noise[start:start + part.numel()])
            i += part.numel()
        if one:
            flat.add_(1)


def moved(value, device):
    """Tensors on the device, also those inside of dictionaries, lists and tuples."""
    if isinstance(value, dict):
        return {k: moved(v, device) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(moved(v, device) for v in value)
    return value.to(device) if hasattr(value, "to") else value


def open_net(row, home, dtype, torch, device):
    """The network on memory of its own, and what it is called with (on the CPU)."""
    rand = lambda *d: torch.randn(*d, generator=torch.Generator().manual_seed(2)).to(dtype)
    h, w = (n // 8 for n in row.get("size", (0, 0)))
    with torch.device("meta"):
        if row["part"] == "text":
            import transformers
            config = config_of(home, "text_encoder", row)
            if config["model_type"] == "qwen3":
                net = transformers.Qwen3Model(transformers.Qwen3Config(**config))
            else:
                net = transformers.T5EncoderModel(transformers.T5Config(**config))
        else:
            import diffusers
            kind = {"PixArt": "PixArtTransformer2DModel", "FLUX.1": "FluxTransformer2DModel",
                    "FLUX.2": "Flux2Transformer2DModel",
                    "CogVid": "CogVideoXTransformer3DModel", "Z-Imag": "ZImageTransformer2DModel",
                    "Lumina": "Lumina2Transformer2DModel",
                    "Hunyua": "HunyuanDiT2DModel", "Qwen-I": "QwenImageTransformer2DModel",
                    "AuraFl": "AuraFlowTransformer2DModel",
                    "SD3.5-": "SD3Transformer2DModel", "mochi-": "MochiTransformer3DModel",
                    "SDXL-b": "UNet2DConditionModel", "SD1.5": "UNet2DConditionModel",
                    "LTX-Vi": "LTXVideoTransformer3DModel",
                    "LTX-2": "LTX2VideoTransformer3DModel", "Krea-2": "Krea2Transformer2DModel",
                    "Latte-": "LatteTransformer3DModel", "SANA1.": "SanaTransformer2DModel",
                    "SkyRee": "SkyReelsV2Transformer3DModel",
                    "SANA-V": "SanaVideoTransformer3DModel",
                    "Wan2.1": "WanTransformer3DModel"}
            kind = kind[row["model"][:6]]
            if row["model"] == "HunyuanVideo":
                kind = "HunyuanVideoTransformer3DModel"
            if row["model"] == "HunyuanVideo-1.5":
                kind = "HunyuanVideo15Transformer3DModel"
            if "VACE" in row["model"]:
                kind = "WanVACETransformer3DModel"
            if row["part"] == "vae":
                kind = json.loads((home / "vae" / "config.json").read_text())["_class_name"]
            folder = ("vae" if row["part"] == "vae" else
                      "unet" if kind.startswith("UNet") else "transformer")
            net = getattr(diffusers, kind).from_config(config_of(home, folder, row))
    net = net.to(dtype).eval().to_empty(device=device)
    fill(net, torch)
    if row["part"] == "text":
        return net, dict(input_ids=torch.arange(row["text"])[None] % 1000 + 3)
    if row["part"] == "vae" and "frames" in row:
        channels = net.config.get("z_dim") or net.config.latent_channels
        return net, dict(z=rand(1, channels, (row["frames"] - 1) // 4 + 1, h, w))
    if row["part"] == "vae":
        return net, dict(z=rand(1, net.config.latent_channels, h, w))
    t = torch.tensor([500.0])
    if "HunyuanVideo15" in kind:
        return net, dict(hidden_states=rand(1, 65, (row["frames"] - 1) // 4 + 1, h, w), timestep=t,
                         encoder_hidden_states=rand(1, row["text"], 3584),
                         encoder_attention_mask=torch.ones(1, row["text"]),
                         encoder_hidden_states_2=rand(1, 1, 1472),
                         encoder_attention_mask_2=torch.zeros(1, 1),
                         image_embeds=torch.zeros(1, 1, 1152, dtype=dtype))
    if "HunyuanVideo" in kind:
        return net, dict(hidden_states=rand(1, 16, (row["frames"] - 1) // 4 + 1, h, w),
                         timestep=t, guidance=torch.tensor([6000.0]),
                         encoder_hidden_states=rand(1, row["text"], 4096),
                         encoder_attention_mask=torch.ones(1, row["text"], dtype=torch.long),
                         pooled_projections=rand(1, 768))
    if "Hunyuan" in kind:
        from diffusers.models.embeddings import get_2d_rotary_pos_embed
        turn = get_2d_rotary_pos_embed(88, ((0, 0), (32, 32)), (h // 2, w // 2))
        mask = [torch.ones(1, n, dtype=torch.long) for n in (77, 256)]
        return net, dict(hidden_states=rand(1, 4, h, w), timestep=t.to(dtype),
                         encoder_hidden_states=rand(1, 77, 1024),
                         text_embedding_mask=mask[0], encoder_hidden_states_t5=rand(1, 256, 2048),
                         text_embedding_mask_t5=mask[1], image_rotary_emb=turn)
    if "ZImage" in kind:
        return net, dict(x=[rand(16, 1, h, w)], t=(t / 1000).to(dtype),
                         cap_feats=[rand(row["text"], 2560)])
    if "AuraFlow" in kind:
        return net, dict(hidden_states=rand(1, 4, h, w), timestep=(t / 1000).to(dtype),
                         encoder_hidden_states=rand(1, row["text"], 2048))
    if "Lumina2" in kind:
        # as below
        net.rope_embedder = type(net.rope_embedder)(10000, list(net.config.axes_dim_rope),
                                                    list(net.config.axes_lens))
        return net, dict(hidden_states=rand(1, 16, h, w), timestep=1 - t / 1000,
                         encoder_hidden_states=rand(1, row["text"], 2304),
                         encoder_attention_mask=torch.ones(1, row["text"], dtype=torch.long))
    if "UNet" in kind:
        added = dict(text_embeds=rand(1, 1280),
                     time_ids=torch.tensor([[8.0 * h, 8.0 * w, 0, 0, 8.0 * h, 8.0 * w]]))
        return net, dict(sample=rand(1, 4, h, w), timestep=t,
                         encoder_hidden_states=rand(1, 77, net.config.cross_attention_dim),
                         added_cond_kwargs=added if net.config.addition_embed_type else None)
    if "QwenImage" in kind:
        # its tables are no buffers: they are left without data above
        net.pos_embed = type(net.pos_embed)(10000, list(net.config.axes_dims_rope), True)
        return net, dict(hidden_states=rand(1, h * w // 4, 64), timestep=(t / 1000).to(dtype),
                         encoder_hidden_states=rand(1, row["text"], 3584),
                         img_shapes=[[(1, h // 2, w // 2)]])
    if "Flux2" in kind:
        places = lambda *n: torch.cartesian_prod(*(torch.arange(k).float() for k in n))[None]
        return net, dict(hidden_states=rand(1, h * w // 4, 128), timestep=t.to(dtype) / 1000,
                         encoder_hidden_states=rand(1, row["text"], 7680), guidance=None,
                         img_ids=places(1, h // 2, w // 2, 1), txt_ids=places(1, 1, 1, row["text"]))
    if "SD3" in kind:           # the tokens of both CLIP encoders stand before those of T5
        return net, dict(hidden_states=rand(1, 16, h, w), timestep=t,
                         encoder_hidden_states=rand(1, 77 + row["text"], 4096),
                         pooled_projections=rand(1, 2048))
    text = rand(1, row["text"], 4096)
    if "LTX2" in kind:
        frames, h, w = (row["frames"] - 1) // 8 + 1, row["size"][0] // 32, row["size"][1] // 32
        sounds = round(row["frames"] / 24 * 25)
        return net, dict(hidden_states=rand(1, frames * h * w, 128), timestep=t,
                         audio_hidden_states=rand(1, sounds, 128),
                         encoder_hidden_states=rand(1, row["text"], 3840),
                         audio_encoder_hidden_states=rand(1, row["text"], 3840),
                         num_frames=frames, height=h, width=w, fps=24.0, audio_num_frames=sounds,
                         sigma=t, audio_sigma=t)
    if "LTX" in kind:
        frames, h, w = (row["frames"] - 1) // 8 + 1, row["size"][0] // 32, row["size"][1] // 32
        return net, dict(hidden_states=rand(1, frames * h * w, 128), timestep=t,
                         encoder_hidden_states=text, num_frames=frames, height=h, width=w,
                         rope_interpolation_scale=(8 / 25, 32, 32),
                         encoder_attention_mask=torch.ones(1, row["text"], dtype=torch.bool))
    if "Mochi" in kind:
        return net, dict(hidden_states=rand(1, 12, (row["frames"] - 1) // 6 + 1, h, w), timestep=t,
                         encoder_hidden_states=text,
                         encoder_attention_mask=torch.ones(1, row["text"], dtype=torch.bool))
    if "Krea2" in kind:
        places = torch.cartesian_prod(torch.zeros(1), torch.arange(h // 2).float(),
                                      torch.arange(w // 2).float())
        return net, dict(hidden_states=rand(1, h * w // 4, 64), timestep=t.to(dtype) / 1000,
                         encoder_hidden_states=rand(1, row["text"], 12, 2560),
                         position_ids=torch.cat([torch.zeros(row["text"], 3), places]))
    if "Latte" in kind:
        return net, dict(hidden_states=rand(1, 4, row["frames"], h, w), timestep=t,
                         encoder_hidden_states=text, enable_temporal_attentions=True)
    if "SanaTransformer2D" in kind:
        return net, dict(hidden_states=rand(1, 32, h // 4, w // 4), timestep=t,
                         encoder_hidden_states=rand(1, row["text"], 2304),
                         encoder_attention_mask=torch.ones(1, row["text"], dtype=torch.long))
    if "SkyReels" in kind:
        frames = (row["frames"] - 1) // 4 + 1
        return net, dict(hidden_states=rand(1, 16, frames, h, w), timestep=t.expand(1, frames),
                         encoder_hidden_states=text, enable_diffusion_forcing=True,
                         fps=torch.tensor([0]))
    if "SanaVideo" in kind:
        return net, dict(hidden_states=rand(1, 16, (row["frames"] - 1) // 4 + 1, h, w), timestep=t,
                         encoder_hidden_states=rand(1, row["text"], 2304),
                         encoder_attention_mask=torch.ones(1, row["text"], dtype=torch.long))
    if "Wan" in kind:
        cells = (row["frames"] - 1) // 4 + 1, h, w
        control = dict(control_hidden_states=rand(1, 96, *cells)) if "VACE" in kind else {}
        return net, dict(hidden_states=rand(1, 16, *cells), timestep=t, encoder_hidden_states=text,
                         **control)
    if "PixArt" in kind:
        extra = dict(resolution=torch.tensor([[8.0 * h, 8.0 * w]]),
                     aspect_ratio=torch.tensor([[h / w]]))
        return net, dict(hidden_states=rand(1, 4, h, w), encoder_hidden_states=text, timestep=t,
                         added_cond_kwargs=extra if net.use_additional_conditions else
                         dict(resolution=None, aspect_ratio=None))
    if "Flux" in kind:
        n = h * w // 4
        return net, dict(hidden_states=rand(1, n, 64), encoder_hidden_states=text,
                         timestep=t.to(dtype) / 1000,
                         pooled_projections=rand(1, 768), guidance=torch.tensor([3.5]),
                         img_ids=torch.cartesian_prod(torch.zeros(1), torch.arange(h // 2).float(),
                                                      torch.arange(w // 2).float()),
                         txt_ids=torch.zeros(row["text"], 3))
    from diffusers.models.embeddings import get_3d_rotary_pos_embed
    frames = (row["frames"] - 1) // 4 + 1
    turn = get_3d_rotary_pos_embed(64, ((0, 0), (h // 2, w // 2)), (h // 2, w // 2), frames)
    return net, dict(hidden_states=rand(1, frames, 16, h, w), encoder_hidden_states=text,
                     timestep=t, image_rotary_emb=turn)


def tensor_of(torch, out):
    """The tensor in what a network returns: a tensor, or a tuple or output that begins with one."""
    while not torch.is_tensor(out):
        out = out[0]
    return out


def compiled(net, torch):
    """Blocks of transformers one by one (each kind is compiled once), other networks whole."""
    if hasattr(net, "compile_repeated_blocks") and getattr(net, "_repeated_blocks", None):
        net.compile_repeated_blocks()
    else:
        call = torch.compile(net.decode if hasattr(net, "decode") else net.forward)
        return lambda **k: call(**k)
    return None


def work(args, row):
    """Runs once for each way ("eager", "last", "compiled") that it reads; "end" ends it."""
    import logging
    import warnings

    import torch
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(args.threads)
    torch.set_grad_enabled(False)
    dtype = torch.float32 if args.dtype == "f32" else torch.bfloat16
    net, inputs = open_net(row, pathlib.Path(args.config), dtype, torch, args.device)
    inputs = moved(inputs, args.device)
    wait = torch.cuda.synchronize if args.device != "cpu" else lambda: None
    plain = net.decode if row["part"] == "vae" else net
    calls = {"eager": plain, "last": plain}
    print(json.dumps({"ready": True, "torch": torch.__version__}), flush=True)
    now, flop, fine = "eager", 0, True
    for line in sys.stdin:
        way = line.strip()
        if way == "end":
            break
        if way == "flop":
            from torch.utils.flop_counter import FlopCounterMode
            with FlopCounterMode(display=False) as counter:
                t0 = time.perf_counter()
                plain(**inputs)
                wait()
                t = time.perf_counter() - t0
            flop = counter.get_total_flops()
        else:
            if "last" in (way, now) and way != now:
                order = torch.channels_last if way == "last" else torch.contiguous_format
                net.to(memory_format=order)
                inputs["z"] = inputs["z"].contiguous(memory_format=order)
            if way == "compiled" and way not in calls:
                calls[way] = compiled(net, torch) or net
            now = way
            t0 = time.perf_counter()
            out = calls[way](**inputs)
            wait()
            t = time.perf_counter() - t0
            fine = fine and bool(torch.isfinite(tensor_of(torch, out)).all())
        rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        print(json.dumps({"way": way, "seconds": t, "gflop": flop / 1e9, "max_rss_bytes": rss}),
              flush=True)
    print(json.dumps({"finite": fine}), flush=True)


# ---- the programs as they are called -------------------------------------------------------------

class Program:
    """A process that runs once for every line it is given."""

    def __init__(self, command, env):
        self.command = command
        self.p = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                  env=env)
        self.answer("ready")

    def answer(self, key):
        for line in self.p.stdout:
            try:
                found = json.loads(line)
            except ValueError:          # the pieces of step's report
                continue
            if key in found:
                return found
        self.p.wait()
        sys.exit(f"{shlex.join(map(str, self.command))} ended with {self.p.returncode}")

    def run(self, way=""):
        self.p.stdin.write(way + "\n")
        self.p.stdin.flush()
        return self.answer("seconds")

    def end(self, line=""):
        """All that it prints at its end."""
        text, _ = self.p.communicate(line)
        return text


def step_command(args, row, config, more=()):
    c = [args.pair, str(config), "--turns", "--json", "--part", row["part"], "--threads",
         str(args.threads), "--dtype", args.dtype]
    if args.device != "cpu":
        c += ["--device", args.device]
    if "size" in row:
        c += ["-H", str(row["size"][0]), "-W", str(row["size"][1])]
    if "frames" in row:
        c += ["--num_frames", str(row["frames"])]
    if "text" in row:
        c += ["--max_sequence_length", str(row["text"])]
    if "layers" in row:
        c += ["--layers", ",".join(map(str, row["layers"]))]
    return c + list(more)


def step_end(p):
    """(max_rss_bytes, device) of a step that ends."""
    report = p.end()
    start = report.rfind('], "predicted_bytes"')
    rss = json.loads("{" + report[start:].split(",", 1)[1])["max_rss_bytes"]
    return rss


def environment(args):
    env = dict(os.environ, OMP_NUM_THREADS=str(args.threads))
    if args.isa:
        env["XDIT_ISA"] = args.isa
    if args.isa == "avx2":
        env.update(ATEN_CPU_CAPABILITY="avx2", ONEDNN_MAX_CPU_ISA="AVX2", DNNL_MAX_CPU_ISA="AVX2",
                   MKL_ENABLE_INSTRUCTIONS="AVX2")
    return env


def torch_program(args, name, config):
    return Program([args.python, __file__, name, "--worker", "--config", str(config), "--threads",
                    str(args.threads), "--dtype", args.dtype, "--device", args.device],
                   environment(args))


def ways_of(args, row):
    ways = args.ways.split(",") if args.ways else row.get("ways", ("eager", "last", "compiled"))
    return [w for w in ("eager", "last", "compiled") if w in ways and
            (w != "last" or row["part"] == "vae")]


def best_way(torch, ways, heavy):
    """Runs every way once to warm up and once for its seconds: ({way: seconds}, {way: most bytes},
    gflop).

    The eager run with the flop counter is the warm-up of all eager ones, and where runs are long it
    counts. A later way's memory has that of those before, so eager ones come first."""
    first = torch.run("flop")
    times, bytes_of = {}, {}
    for way in ways:
        if way == "compiled" or (way == "last" and not heavy):
            torch.run(way)
        run = first if way == "eager" and heavy else torch.run(way)
        times[way], bytes_of[way] = run["seconds"], run["max_rss_bytes"]
    return times, bytes_of, first["gflop"]


def measure(args, name, config):
    """One row: ours and PyTorch (or ours and ours) in turn."""
    row = ROWS[name]
    heavy = row["tflop"] > HEAVY and args.device == "cpu"
    rounds = args.rounds or (2 if heavy else 7 if row["tflop"] < 1 else 3)
    r = {"row": name, "threads": args.threads, "dtype": args.dtype, "isa": args.isa or ""}
    if args.device != "cpu":
        r["device"] = args.device
    ours = step = other = None
    if args.pair:
        step = Program(step_command(args, row, config), environment(args))
    if args.twice is None:
        other = torch_program(args, name, config)
        r["torch_ways"], rss, r["torch_gflop"] = best_way(other, ways_of(args, row), heavy)
        way = min(r["torch_ways"], key=r["torch_ways"].get)
        r["torch_way"], r["other_rss"] = way, rss[way]
    else:
        other = Program(step_command(args, row, config, shlex.split(args.twice)), environment(args))
        way, r["twice"] = "", args.twice
    a, b = [], []
    for _ in range(rounds):
        if step:
            a.append(step.run())
        b.append(other.run(way))
    r["other_s"] = [x["seconds"] for x in b]
    if step:
        r["ours_s"] = [x["seconds"] for x in a]
        r["gflop"] = a[0]["gflop"]
        r["peak_gflops"] = statistics.median(x["peak_gflops"] for x in a)
        r["ours_rss"] = step_end(step)
    if args.twice is None:
        last = json.loads(other.end("end\n").strip().split("\n")[-1])
        r["finite"] = last["finite"]
    else:
        r["other_rss"] = step_end(other)
    return r


# ---- what is said --------------------------------------------------------------------------------

def spread(v):
    m = statistics.median(v)
    return f"{m:.3g} ({min(v):.3g} to {max(v):.3g})"


def share(r, key):
    """Of the peak, by the work that each side does."""
    gflop = r["torch_gflop"] if key == "other_s" and "torch_gflop" in r else r["gflop"]
    return gflop / statistics.median(r[key]) / r["peak_gflops"]


def plain_work(r):
    """What our share would be if we did all that PyTorch does; nothing when we do (within 3 %)."""
    if "torch_gflop" not in r or abs(r["torch_gflop"] / r["gflop"] - 1) < 0.03:
        return ""
    return f" ({100 * share(r, 'ours_s') * r['torch_gflop'] / r['gflop']:.0f} %)"


def ratio(r):
    """How many times as fast: ours against PyTorch, or with more arguments against without."""
    times = statistics.median(r["other_s"]) / statistics.median(r["ours_s"])
    return 1 / times if "twice" in r else times


HEAD = ("| work | TFLOP | ours, s | of peak | {0}, s | of peak | ratio | ours, GB | {0}, GB |\n"
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|")


def markdown(r):
    what, way = ROWS[r["row"]]["what"], r.get("torch_way", "").replace("last", "channels last")
    if "ours_s" not in r:
        return (f"| {what} | {r['torch_gflop'] / 1e3:.3f} | | | {spread(r['other_s'])} "
                f"{way} | | | | "
                f"{r['other_rss'] / 1e9:.2f} |")
    work = f"{r.get('torch_gflop', r['gflop']) / 1e3:.3f}"
    return (f"| {what} | {work} | {spread(r['ours_s'])} | "
            f"{100 * share(r, 'ours_s'):.0f} %{plain_work(r)} | "
            f"{spread(r['other_s'])} {way} | {100 * share(r, 'other_s'):.0f} % | "
            f"**{ratio(r):.2f}** | "
            f"{r['ours_rss'] / 1e9:.2f} | {r['other_rss'] / 1e9:.2f} |")


def sentence(r):
    lines = []
    if "torch_gflop" in r:
        ways = ", ".join(f"{w} {s:.3f} s" for w, s in r["torch_ways"].items())
        lines.append(f"{r['row']}: PyTorch counts {r['torch_gflop'] / 1e3:.3f} TFLOP; {ways}"
                     + ("" if r["finite"] else "; ITS RESULT IS NOT FINITE"))
    other = r.get("twice") or "PyTorch"
    if "ours_s" in r:
        lines.append(f"{r['row']}: ours {spread(r['ours_s'])} s, "
                     f"{100 * share(r, 'ours_s'):.1f} % of "
                     f"{r['peak_gflops']:.0f} GFLOP/s, {r['ours_rss'] / 1e9:.2f} GB; {other} "
                     f"{spread(r['other_s'])} s, "
                     f"{100 * share(r, 'other_s'):.1f} %, {r['other_rss'] / 1e9:.2f} GB; ratio "
                     f"{ratio(r):.2f}")
        if "torch_gflop" in r and abs(r["torch_gflop"] / r["gflop"] - 1) > 0.03:
            lines.append(f"{r['row']}: ours does it with {r['gflop'] / 1e3:.3f} TFLOP; had it done "
                         "PyTorch's in that "
                         f"time, its share would be {plain_work(r).strip(' ()')}")
    else:
        lines.append(f"{r['row']}: {spread(r['other_s'])} s, {r['other_rss'] / 1e9:.2f} GB")
    return "\n".join(lines)


def key(r):
    return tuple(r.get(k) for k in ("row", "threads", "dtype", "isa", "twice", "device"))


def done_before(path):
    rows = {}
    if path and os.path.exists(path):
        for line in open(path, encoding="utf-8"):
            r = json.loads(line)
            rows[key(r)] = r
    return rows


def check_needs(args):
    if args.pair:
        args.pair = need.program(args.pair, "bench/step")
    if not shutil.which(args.python):
        need.fail(f"--python {args.python} is not a program")
    if args.twice is not None:
        return
    code = ("import importlib.util as u, sys; print(' '.join(p for p in ('torch', 'diffusers', "
            "'transformers') "
            "if not u.find_spec(p)))")
    missing = subprocess.run([args.python, "-c", code], capture_output=True, text=True,
                             check=False).stdout.split()
    if missing:
        need.fail(f"{args.python} lacks {', '.join(missing)}: pip install torch "
                 "diffusers transformers "
                 "(torch from the index of its CPU builds), or name another interpreter with "
                 "--python")


def parse():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("rows", nargs="*", metavar="ROW", help="see --list")
    p.add_argument("--all", action="store_true", help="every row, light ones first")
    p.add_argument("--list", action="store_true", help="say which rows there are, as JSON")
    p.add_argument("--pair", metavar="STEP", help="bench/step as it was built")
    p.add_argument("--twice", metavar="ARGS", help="instead of PyTorch: step again, with these "
                                                   "arguments more")
    p.add_argument("--config", metavar="DIR", help="a model directory instead of the published "
                                                   "sizes")
    p.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)),
                   help="default: all cores")
    p.add_argument("--dtype", choices=("bf16", "f32"), help="default: bf16, with --isa avx2 f32")
    p.add_argument("--isa", choices=("avx2",), help="both sides with AVX2 and no more, in f32")
    p.add_argument("--device", default="cpu", choices=("cpu", "cuda"), help="of both sides")
    p.add_argument("--rounds", type=int, help="default: 7, 3 or 2, by the work")
    p.add_argument("--ways", help="of PyTorch: some of eager,last,compiled (default: all; of "
                                  "vae-1024 the first two, since compiling was slower at 512; of "
                                  "vae-wan the first)")
    p.add_argument("--python", default=sys.executable, help="that has PyTorch (default: this one)")
    p.add_argument("--json", action="store_true", help="a line of JSON for each row")
    p.add_argument("--markdown", action="store_true", help="a row of a table for each")
    p.add_argument("--resume", metavar="FILE", help="rows are kept there as JSON; those it has are "
                                                    "not run again")
    p.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    args = p.parse_args()
    args.dtype = args.dtype or ("f32" if args.isa else "bf16")
    for name in args.rows:
        if name not in ROWS:
            p.error(f"there is no row {name}; there are {', '.join(ROWS)}")
    if args.twice is not None and not args.pair:
        p.error("--twice needs --pair")
    if not (args.list or args.all or args.rows):
        p.error("which rows? --list says what there is")
    return args


def main():
    args = parse()
    if args.list:
        print(json.dumps(ROWS, indent=1))
        return
    if args.worker:
        work(args, ROWS[args.rows[0]])
        return
    check_needs(args)
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, set(cores[:args.threads]))
    rows = sorted(ROWS, key=lambda n: ROWS[n]["tflop"]) if args.all else args.rows
    before = done_before(args.resume)
    if args.markdown:
        print(HEAD.format(f"`{args.twice}`" if args.twice is not None else "PyTorch"), flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        for name in rows:
            want = key({"row": name, "threads": args.threads, "dtype": args.dtype,
                        "isa": args.isa or "",
                        **({"device": args.device} if args.device != "cpu" else {}),
                        **({"twice": args.twice} if args.twice is not None else {})})
            r = before.get(want)
            if not r:
                row = ROWS[name]
                r = measure(args, name, args.config or
                            models.write(scratch, row["model"], row.get("layers")))
                if args.resume:
                    with open(args.resume, "a", encoding="utf-8") as f:
                        f.write(json.dumps(r) + "\n")
            print(json.dumps(r) if args.json else markdown(r) if args.markdown else sentence(r),
                  flush=True)


if __name__ == "__main__":
    main()
