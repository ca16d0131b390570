"""What the cases share: models' parts, requests and what is kept of them.

A model's directory has the diffusers layout and beside it golden.json (the request) and
golden.safetensors (inputs and outputs of every stage, f32). A directory without model_index.json is
another request for the model its golden.json names.
"""
import inspect
import json
import shutil
from pathlib import Path

import diffusers
import numpy as np
import torch
import torch.nn.functional as F
import transformers
from diffusers.image_processor import VaeImageProcessor
from PIL import Image
from safetensors.torch import load_file, save_file
from transformers import T5Tokenizer

ROOT = Path(__file__).resolve().parent.parent.parent
PLAIN = lambda n: dict(down_block_types=("DownEncoderBlock2D",) * n,
                       up_block_types=("UpDecoderBlock2D",) * n)


def quiet():
    """No progress, no advice, and sums in the order of one thread."""
    diffusers.logging.set_verbosity_error()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(1)


# ---- models --------------------------------------------------------------------------------------

def smooth(n, c, h, w, g):
    """Random fields of variance one that look like latents: mostly low frequencies."""
    low = F.interpolate(torch.randn(n, c, 3, 3, generator=g), size=(h, w), mode="bicubic",
                        align_corners=True)
    x = low + 0.3 * torch.randn(n, c, h, w, generator=g)
    return x / x.std()


def make_tokenizer(kind, out):
    """The demo's tokenizer without its table of characters (240 KB): spiece.model or
    tokenizer.json."""
    src = ROOT / "models" / "demo-pixart" / "tokenizer"
    out.mkdir(parents=True)
    for f in src.iterdir():
        shutil.copyfile(f, out / f.name)
    from sentencepiece import sentencepiece_model_pb2 as pb
    m = pb.ModelProto()
    m.ParseFromString((src / "spiece.model").read_bytes())
    m.normalizer_spec.name = "identity"
    m.normalizer_spec.precompiled_charsmap = b""
    m.ClearField("trainer_spec")
    m.trainer_spec.model_type = 1
    m.trainer_spec.pad_id, m.trainer_spec.eos_id = 0, 1
    m.trainer_spec.unk_id, m.trainer_spec.bos_id = 2, -1
    (out / "spiece.model").write_bytes(m.SerializeToString())
    if kind == "json":
        T5Tokenizer.from_pretrained(out)._tokenizer.save(str(out / "tokenizer.json"))
        (out / "spiece.model").unlink()


def tidy(out, spec):
    """Configs as a person would publish them: no versions that change, known class names."""
    for path in (list(out.rglob("config.json")) + list(out.glob("*model_index.json")) +
                 list(out.rglob("*_config.json"))):
        c = json.loads(path.read_text())
        for key in ("_diffusers_version", "transformers_version", "_name_or_path"):
            c.pop(key, None)
        if path.parent.name == "transformer":
            c["_class_name"] = spec.get("dit_class", c["_class_name"])
            for key in spec.get("dit_drop", []):
                c.pop(key, None)
        if path.name == "model_index.json" and "dit_class" in spec:
            c["transformer"][1] = spec["dit_class"]
        path.write_text(json.dumps(c, indent=2) + "\n")


def rows_last(t):
    """[1,C,H,W] -> [H,W,C]."""
    return t[0].permute(1, 2, 0).contiguous()


def make_image(size, seed):
    """A smooth random image of a width and a height."""
    g = torch.Generator().manual_seed(seed)
    u8 = (smooth(1, 3, *size[::-1], g) * 50 + 128).clamp(0, 255).to(torch.uint8)
    return Image.fromarray(rows_last(u8).numpy())


def add_alpha(image, seed):
    """The image with smooth random alpha, which is 0 and 255 in some places."""
    g = torch.Generator().manual_seed(seed)
    alpha = (smooth(1, 1, *image.size[::-1], g) * 120 + 150).clamp(0, 255).to(torch.uint8)
    image = image.copy()
    image.putalpha(Image.fromarray(alpha[0, 0].numpy()))
    return image


def make_mask(size):
    """A bright spot with soft edges on black; what is inpainted of it is no box."""
    w, h = size
    y, x = np.mgrid[:h, :w]
    off = np.hypot((x - 0.55 * w) / w, (y - 0.62 * h) / h) + 0.05 * (x > y)
    grey = np.clip(255 * (0.42 - off) / 0.2, 0, 255).astype(np.uint8)
    return Image.fromarray(np.stack([grey, grey, np.minimum(grey, 200)], -1))


# ---- LoRA ----------------------------------------------------------------------------------------

def matrices(modules, dit, rank, g):
    """lora_A and lora_B of modules that are one matrix in a file."""
    ws = [dit.get_submodule(m).weight for m in modules]
    up = torch.randn(sum(len(w) for w in ws), rank, generator=g) / rank ** 0.5
    down = 0.6 * torch.randn(rank, ws[0].shape[1], generator=g) / ws[0].shape[1] ** 0.5
    return down, up


def merge_kohya(path, dit, kohya, scale):
    """Adds kohya.safetensors to the weights, for models of which diffusers reads no such files."""
    lora = load_file(path)
    for m, targets in kohya.items():
        down, up, alpha = (lora[f"lora_unet_{m}.{k}"].float()
                           for k in ("lora_down.weight", "lora_up.weight", "alpha"))
        add = scale * alpha / len(down) * up @ down
        ws = [dit.get_submodule(t).weight for t in targets]
        for w, part in zip(ws, add.split([len(w) for w in ws])):
            w.data += part


def add_loras(pipe, r, d, peft, kohya, prefix="transformer", ranks=3, merges=False):
    """Writes peft.safetensors and kohya.safetensors into the folder d, and adds them to the weights
    with diffusers. A module of a file maps to those of diffusers whose rows it holds; ranks of
    kohya.safetensors are 1 to `ranks`. merges: kohya.safetensors is added without diffusers."""
    g, dit = torch.Generator().manual_seed(r["seed"]), pipe.transformer
    out = {}
    for i, (m, targets) in enumerate(peft.items()):
        out[f"{prefix}.{m}.lora_A.weight"], out[f"{prefix}.{m}.lora_B.weight"] = matrices(
            targets, dit, 2 + i % 2, g)
    save_file(out, d / "peft.safetensors")
    out = {}
    for i, (m, targets) in enumerate(kohya.items()):
        down, up = (t.half() for t in matrices(targets, dit, 1 + i % ranks, g))
        out[f"lora_unet_{m}.lora_down.weight"], out[f"lora_unet_{m}.lora_up.weight"] = down, up
        out[f"lora_unet_{m}.alpha"] = torch.tensor(1.0 + i % 2).half()
    save_file(out, d / "kohya.safetensors")
    before = {m: dit.get_submodule(m).weight.clone()
              for targets in (*peft.values(), *kohya.values()) for m in targets}
    for k, scale in r["loras"].items():
        if merges and k == "kohya":
            merge_kohya(d / "kohya.safetensors", dit, kohya, scale)
            continue
        if not hasattr(pipe, "load_lora_weights"):  # a pipeline that leaves it to its transformer
            dit.load_lora_adapter(load_file(d / f"{k}.safetensors"), prefix=prefix, adapter_name=k)
            dit.set_adapters([k], [scale])
            dit.fuse_lora(adapter_names=[k])
            dit.unload_lora()
            continue
        pipe.load_lora_weights(d, weight_name=f"{k}.safetensors", adapter_name=k)
        pipe.set_adapters([k], [scale])
        pipe.fuse_lora(components=["transformer"], adapter_names=[k])
        pipe.unload_lora_weights()
    for m, w in before.items():
        moved = (dit.get_submodule(m).weight - w).abs().max()
        assert moved > 1e-2, (m, moved)


# ---- requests ------------------------------------------------------------------------------------

def keep_images(out, trail, images, r, count, noise=True, whole=True):
    """Times, noise, latents of every step and images of a request; `trail` is its steps: (time,
    latents)."""
    out["timesteps"] = torch.tensor([t for t, _ in trail])
    for i in range(count):
        if noise:
            g = torch.Generator("cpu").manual_seed(r["seed"] + i)
            out[f"noise.{i}"] = torch.randn((1, *trail[0][1].shape[1:]), generator=g)[0]
        for s, (_, z) in enumerate(trail):
            out[f"latents.{i}.{s}"] = z[i]
        p = images[i].movedim(-3, -1).contiguous()
        out[f"pixels.{i}"] = torch.from_numpy((p.numpy() * 255).round().astype(np.uint8))
        if i == 0 and whole:
            out["image.0"] = p


def begin_with_image(pipe, r, d, g):
    """What StableDiffusionImg2ImgPipeline does before the first step, with an image that is written
    to the folder d: its noisy latents and the times of the steps."""
    image = make_image(r["image"], r["seed"] + 2000)
    image.save(d / "image.png")
    s, vae = pipe.scheduler, pipe.vae
    x = VaeImageProcessor(vae_scale_factor=pipe.vae_scale_factor).preprocess(
        image, r["height"], r["width"])
    s.set_timesteps(r["steps"])
    first = (r["steps"] - min(int(r["steps"] * r["strength"]), r["steps"])) * s.order
    if hasattr(s, "set_begin_index"):
        s.set_begin_index(first)
    times = s.timesteps[first:]
    z = vae.encode(x).latent_dist.sample(g) * vae.config.scaling_factor
    return s.add_noise(z, torch.randn(z.shape, generator=g), times[:1]), times


def start_from_image(pipe, predict, r, d):
    """A request from an image; predict(scaled latents, time) gives what the network predicts
    without the prompt and with it. The images, and the steps as keep_images takes them."""
    s, g, vae = pipe.scheduler, torch.Generator("cpu").manual_seed(r["seed"]), pipe.vae
    (z, times), trail = begin_with_image(pipe, r, d, g), []
    more = {"generator": g} if "generator" in inspect.signature(s.step).parameters else {}
    for t in times:
        none, cond = predict(s.scale_model_input(z, t), t)
        y = (none + r["guidance"] * (cond - none))[None]
        z = s.step(y, t, z, **more, return_dict=False)[0]
        trail.append((float(t), z.clone()))
    y = vae.decode(z / vae.config.scaling_factor).sample
    return (y / 2 + 0.5).clamp(0, 1), trail


def save_run(d, name, model, notes, out):
    """A request: its tensors and its notes, which name the model's folder."""
    save_file({k: v.contiguous() for k, v in out.items()}, d / "golden.safetensors")
    where = "." if model == name else f"../{model}"
    (d / "golden.json").write_text(json.dumps({"model": where} | notes, indent=2) + "\n")
    for p in d.rglob("*"):
        p.chmod(0o755 if p.is_dir() else 0o644)


def tile_sizes(tiles):
    """Arguments of enable_tiling: tiles of `size` that share `overlap` (rows, columns) pixels."""
    if not tiles:
        return {}
    return {f"tile_sample_{what}_{axis}": size - (overlap if what == "stride" else 0)
            for axis, size, overlap in zip(("height", "width"), tiles["size"], tiles["overlap"])
            for what in ("min", "stride")}


def tile_options(tiles):
    """The same as options of a request."""
    if not tiles:
        return {}
    return {f"vae_tile_{what}_{axis}": n for what in ("size", "overlap")
            for axis, n in zip(("height", "width"), tiles[what])}


def make_each(names, out, models, make_model, run):
    """Cases by name: the model, of those that have one of their own, and the request."""
    quiet()
    with torch.no_grad():
        for name in names:
            if name in models:
                make_model(name, out / name)
            run(name, out)


def say_images(name, r, out, trail, count):
    z = [v.abs().max().item() for _, v in trail]
    p = out["pixels.0"].float()
    print(f"{name}: {count} of {r['width']}x{r['height']}, times {[round(t) for t, _ in trail]}, "
          "latents up to "
          f"{', '.join(f'{v:.1f}' for v in z)}; pixels {p.mean():.0f} +- {p.std():.0f}")
