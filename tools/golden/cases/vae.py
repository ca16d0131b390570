"""Tiny AutoencoderKL models with what diffusers makes of them.

Each directory holds a component as it lies in a checkpoint (vae/config.json and weights) and
golden.safetensors: vae.decode.in [C,h,w] -> vae.decode.out [H,W,3], vae.encode.in [H,W,3] ->
vae.encode.out [2C,h,w], and the same in tiles, of another size, under "vae.tiled.". Weights
are rounded to the type they are stored in before anything is computed.
"""
import torch
from diffusers import (AutoencoderDC, AutoencoderKL, AutoencoderKLFlux2, AutoencoderTiny,
                       Flux2KleinPipeline)
from safetensors.torch import save_file

OLD_NAMES = {"to_q": "query", "to_k": "key", "to_v": "value", "to_out.0": "proj_attn"}

CASES = {
    # the shape of the published models: odd latent sizes, tiles of 8 cells, f16 weights
    "vae-plain": dict(
        config=dict(block_out_channels=[8, 16, 16], layers_per_block=1, latent_channels=4,
                    norm_num_groups=4, sample_size=32, scaling_factor=0.7),
        attn=False, type=torch.float16, old=False, whole=(7, 5), tiled=(13, 19)),
    # attention in every block, widths that fall and rise, no quant convolutions, old names
    "vae-attn": dict(
        config=dict(block_out_channels=[24, 8, 16], layers_per_block=2, latent_channels=3,
                    norm_num_groups=2, sample_size=16, scaling_factor=1.5, shift_factor=0.1,
                    use_quant_conv=False, use_post_quant_conv=False,
                    mid_block_add_attention=False),
        attn=True, type=torch.bfloat16, old=True, whole=(4, 3), tiled=(9, 4)),
    # packed and normalized latents, a decoder of other widths than the encoder's
    "vae-packed": dict(
        config=dict(block_out_channels=[8, 16, 16], decoder_block_out_channels=[8, 8, 24],
                    layers_per_block=1, latent_channels=3, norm_num_groups=4, sample_size=32,
                    batch_norm_eps=0.05, use_quant_conv=False),
        attn=False, packed=True, type=torch.float16, old=False, whole=(5, 3), tiled=(3, 6)),
    # convolutions and ReLU; in tiles diffusers blends otherwise
    "vae-tiny": dict(
        config=dict(encoder_block_out_channels=[8, 8, 8], num_encoder_blocks=[1, 2, 1],
                    decoder_block_out_channels=[12, 12, 12], num_decoder_blocks=[2, 1, 1],
                    latent_channels=4, scaling_factor=0.7),
        tiny=True, type=torch.float16, old=False, whole=(7, 5), tiled=(13, 9)),
    # linear attention, channels that become pixels; tiles of it are in the case sana-tiles
    "vae-dc": dict(
        config=dict(latent_channels=4, attention_head_dim=4, scaling_factor=0.7,
                    encoder_block_types=["ResBlock", "ResBlock", "EfficientViTBlock"],
                    decoder_block_types=["ResBlock", "EfficientViTBlock", "EfficientViTBlock"],
                    encoder_block_out_channels=[8, 16, 16], encoder_layers_per_block=[1, 2, 1],
                    decoder_block_out_channels=[4, 16, 32], decoder_layers_per_block=[2, 1, 1],
                    encoder_qkv_multiscales=[[], [], [5]],
                    decoder_qkv_multiscales=[[], [3], [5]], downsample_block_type="Conv"),
        deep=True, type=torch.float16, old=False, whole=(7, 5)),
    # the same without shortcuts beside the latents, and the other way of changing sizes
    "vae-dc-two": dict(
        config=dict(latent_channels=3, attention_head_dim=8, scaling_factor=0.7,
                    encoder_block_types=["ResBlock", "EfficientViTBlock"],
                    decoder_block_types="ResBlock", decoder_norm_types=["rms_norm", "rms_norm"],
                    encoder_block_out_channels=[8, 16], encoder_layers_per_block=[1, 1],
                    decoder_block_out_channels=[8, 8], decoder_layers_per_block=[1, 1],
                    encoder_qkv_multiscales=[[], [3, 5]], decoder_qkv_multiscales=[[], []],
                    upsample_block_type="interpolate", encoder_out_shortcut=False,
                    decoder_in_shortcut=False),
        deep=True, type=torch.float16, old=False, whole=(3, 4)),
}


def build_tiny(case):
    vae = AutoencoderTiny(**case["config"]).eval()
    with torch.no_grad():
        vae.encoder.layers[-1].weight.mul_(40)          # beside the constant log variance
        for p in vae.parameters():
            wide = p * 1.5 if p.ndim > 1 else 0.2 * torch.randn(p.shape)
            p.copy_(wide.to(case["type"]).float())
    return vae


def build_deep(case):
    vae = AutoencoderDC(**case["config"]).eval()
    with torch.no_grad():
        for name, p in vae.named_parameters():
            if p.ndim == 1:
                p.copy_(("norm" in name and name.endswith("weight")) + 0.2 * torch.randn(p.shape))
            p.copy_(p.to(case["type"]).float())
    return vae


def build(case):
    if case.get("deep"):
        return build_deep(case)
    if case.get("tiny"):
        return build_tiny(case)
    prefix = "Attn" if case["attn"] else ""
    n = len(case["config"]["block_out_channels"])
    kind = AutoencoderKLFlux2 if case.get("packed") else AutoencoderKL
    vae = kind(down_block_types=[prefix + "DownEncoderBlock2D"] * n,
               up_block_types=[prefix + "UpDecoderBlock2D"] * n, **case["config"]).eval()
    with torch.no_grad():
        for name, p in vae.named_parameters():
            if p.ndim == 1:
                p.copy_(("norm" in name and name.endswith("weight")) + 0.3 * torch.randn(p.shape))
            elif "attentions" in name:
                p.mul_(3)               # so that the softmax is far from uniform
            p.copy_(p.to(case["type"]).float())
        if case.get("packed"):
            for t, low in ((vae.bn.running_mean, -1), (vae.bn.running_var, 0.3)):
                t.copy_((low + 2 * torch.rand(t.shape)).to(case["type"]).float())
    return vae


def stored(vae, case):
    out = {}
    for name, p in vae.state_dict().items():
        if case["old"] and "attentions" in name:
            for new, old in OLD_NAMES.items():
                name = name.replace("." + new + ".", "." + old + ".")
            if p.ndim == 2:             # some checkpoints keep them as 1x1 convolutions
                p = p[:, :, None, None]
        out[name] = p.to(case["type"]).contiguous()
    return out


def rows_last(t):
    return t[0].permute(1, 2, 0)


def norm_of(vae):
    std = torch.sqrt(vae.bn.running_var + vae.config.batch_norm_eps)
    return vae.bn.running_mean.view(1, -1, 1, 1), std.view(1, -1, 1, 1)


def unpack(vae, z):
    """As Flux2KleinPipeline does before it decodes."""
    mean, std = norm_of(vae)
    return Flux2KleinPipeline._unpatchify_latents(z * std + mean)


def pack(vae, moments):
    """The moments of what the pipeline makes of encoded images."""
    mean, std = norm_of(vae)
    m, v = (Flux2KleinPipeline._patchify_latents(t) for t in moments.chunk(2, dim=1))
    return torch.cat([(m - mean) / std, v - 2 * torch.log(std)], dim=1)


@torch.no_grad()
def golden(vae, case):
    f0, packed = 2 ** (len(vae.config.block_out_channels) - 1), hasattr(vae, "bn")
    out = {}
    for tag, what in (("vae.", "whole"), ("vae.tiled.", "tiled")):
        vae.use_tiling = what == "tiled"
        h, w = case[what]
        f = f0 * (2 if packed else 1)
        z = torch.randn(1, vae.config.latent_channels * (4 if packed else 1), h, w)
        x = torch.rand(1, 3, h * f, w * f) * 2 - 1
        inner = vae.decode(unpack(vae, z) if packed else z)
        out[tag + "decode.in"], out[tag + "decode.out"] = z[0], rows_last(inner.sample)
        assert out[tag + "decode.out"].shape == rows_last(x).shape
        if packed and what == "tiled":          # the engine blends packed cells
            continue
        out[tag + "encode.in"] = rows_last(x)
        moments = vae.encode(x).latent_dist.parameters
        out[tag + "encode.out"] = pack(vae, moments)[0] if packed else moments[0]
    return {k: v.contiguous() for k, v in out.items()}


@torch.no_grad()
def golden_tiny(vae, case):
    """The encoder gives the first half of moments."""
    (h, w), f = case["whole"], 2 ** (len(vae.config.decoder_block_out_channels) - 1)
    z = 2 * torch.randn(1, vae.config.latent_channels, h, w)
    x = torch.rand(1, 3, h * f, w * f) * 2 - 1
    latents = vae.encode(x)[0]
    same = torch.full_like(latents, -30)
    return {k: v.contiguous() for k, v in {
        "vae.decode.in": z[0], "vae.decode.out": rows_last(vae.decode(z).sample),
        "vae.encode.in": rows_last(x), "vae.encode.out": torch.cat([latents, same], dim=1)[0],
    }.items()}


def make(names, options):
    for seed, (name, case) in enumerate(CASES.items()):
        if name not in names:
            continue
        torch.manual_seed(seed)
        vae = build(case)
        folder = options.out / name
        vae.save_config(folder / "vae")
        weights = folder / "vae/diffusion_pytorch_model.safetensors"
        for path, tensors in ((weights, stored(vae, case)),
                              (folder / "golden.safetensors",
                               (golden_tiny if "tiled" not in case or case.get("tiny")
                               else golden)(vae, case))):
            save_file(tensors, path)
            path.chmod(0o644)
        print(name, sum(p.stat().st_size for p in folder.rglob("*.*")), "bytes")
