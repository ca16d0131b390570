"""LoRA files on the tiny FLUX and SD3.5 models of joint.py and the Chroma of chroma.py, which are
made before.

Each case has two random files at once. peft.safetensors is in the form of diffusers and is loaded
by diffusers. kohya.safetensors has the names that sd-scripts writes; diffusers knows those with the
widths of the published models only, so that its differences are added to the weights here, and what
diffusers does convert at any width is compared. tests/golden/CASE/golden.json names files and
scales as "loras".

flux-dora has a folder that peft saves, with DoRA, patterns and ranks, merged by peft, and DoRA with
the names of sd-scripts, whose rows (or columns) get their lengths here.

flux-control-lora has a Control LoRA with the names of Black Forest Labs, which widens x_embedder
and replaces norms, and a LoRA for the narrow x_embedder. diffusers converts such names with the
widths and blocks of the published model only, so they are converted here; diffusers loads the
result.

chroma-lora has LoHa with the names of sd-scripts and LoKr with those of ComfyUI and LyCORIS. Their
differences are added here, by the formulas of LyCORIS.
"""
import json
import re

import torch
from diffusers import FluxControlPipeline
from diffusers.loaders.lora_conversion_utils import _convert_kohya_flux_lora_to_diffusers
from safetensors.torch import load_file, save_file

from ..common import quiet
from . import chroma, joint

RUNS = {
    "flux-lora": dict(model="flux", prompts=["A large red circle"], width=32, height=40, steps=3,
                      seed=71, guidance=3.0, max_sequence_length=9),
    "sd35-lora": dict(model="sd35", prompts=["a white star"], width=40, height=32, steps=3, seed=72,
                      guidance=1.0, max_sequence_length=8),
    "flux-dora": dict(model="flux", prompts=["A small blue square"], width=32, height=40, steps=3,
                      seed=73, guidance=3.0, max_sequence_length=9),
    "flux-control-lora": dict(model="flux", prompts=["A small blue square"], width=40, height=48,
                              steps=3, seed=76, guidance=5.0, max_sequence_length=9,
                              control=(61, 50)),
    "chroma-lora": dict(model="chroma", prompts=["A large red circle"], negative_prompt="a star",
                        width=32, height=40, steps=3, seed=75, guidance=2.0,
                        max_sequence_length=20),
}
SCALES = {"peft": 0.7, "kohya": -0.4}

# Module of sd-scripts -> the modules of diffusers whose rows it holds; * swaps the halves of two
# chunks.
BFL = {
    "double_blocks_0_img_attn_qkv": "transformer_blocks.0.attn.to_{q,k,v}",
    "double_blocks_1_txt_attn_qkv": "transformer_blocks.1.attn.add_{q,k,v}_proj",
    "double_blocks_1_img_attn_proj": "transformer_blocks.1.attn.to_out.0",
    "double_blocks_0_txt_attn_proj": "transformer_blocks.0.attn.to_add_out",
    "double_blocks_0_img_mlp_0": "transformer_blocks.0.ff.net.0.proj",
    "double_blocks_1_img_mlp_2": "transformer_blocks.1.ff.net.2",
    "double_blocks_1_txt_mlp_0": "transformer_blocks.1.ff_context.net.0.proj",
    "double_blocks_0_txt_mlp_2": "transformer_blocks.0.ff_context.net.2",
    "double_blocks_0_img_mod_lin": "transformer_blocks.0.norm1.linear",
    "double_blocks_1_txt_mod_lin": "transformer_blocks.1.norm1_context.linear",
    "single_blocks_0_linear1": "single_transformer_blocks.0.attn.to_{q,k,v} "
                               "single_transformer_blocks.0.proj_mlp",
    "single_blocks_2_linear2": "single_transformer_blocks.2.proj_out",
    "single_blocks_1_modulation_lin": "single_transformer_blocks.1.norm.linear",
    "guidance_in_in_layer": "time_text_embed.guidance_embedder.linear_1",
    "time_in_out_layer": "time_text_embed.timestep_embedder.linear_2",
    "vector_in_in_layer": "time_text_embed.text_embedder.linear_1",
    "img_in": "x_embedder", "txt_in": "context_embedder",
    "final_layer_linear": "proj_out", "final_layer_adaLN_modulation_1": "*norm_out.linear",
}
SAI = {
    "joint_blocks_0_x_block_attn_qkv": "transformer_blocks.0.attn.to_{q,k,v}",
    "joint_blocks_1_x_block_attn2_qkv": "transformer_blocks.1.attn2.to_{q,k,v}",
    "joint_blocks_2_context_block_attn_qkv": "transformer_blocks.2.attn.add_{q,k,v}_proj",
    "joint_blocks_2_x_block_attn_proj": "transformer_blocks.2.attn.to_out.0",
    "joint_blocks_0_x_block_attn2_proj": "transformer_blocks.0.attn2.to_out.0",
    "joint_blocks_1_context_block_attn_proj": "transformer_blocks.1.attn.to_add_out",
    "joint_blocks_1_x_block_mlp_fc1": "transformer_blocks.1.ff.net.0.proj",
    "joint_blocks_2_x_block_mlp_fc2": "transformer_blocks.2.ff.net.2",
    "joint_blocks_0_context_block_mlp_fc1": "transformer_blocks.0.ff_context.net.0.proj",
    "joint_blocks_1_context_block_mlp_fc2": "transformer_blocks.1.ff_context.net.2",
    "joint_blocks_0_x_block_adaLN_modulation_1": "transformer_blocks.0.norm1.linear",
    "joint_blocks_0_context_block_adaLN_modulation_1": "transformer_blocks.0.norm1_context.linear",
    "joint_blocks_2_context_block_adaLN_modulation_1": "*transformer_blocks.2.norm1_context.linear",
    "x_embedder_proj": "pos_embed.proj", "context_embedder": "context_embedder",
    "t_embedder_mlp_0": "time_text_embed.timestep_embedder.linear_1",
    "y_embedder_mlp_2": "time_text_embed.text_embedder.linear_2",
    "final_layer_linear": "proj_out", "final_layer_adaLN_modulation_1": "*norm_out.linear",
}
# The prefix of sd-scripts -> our component and its modules.
CLIP = {"text_model.encoder.layers.0.self_attn.q_proj", "text_model.encoder.layers.1.mlp.fc2"}
T5 = {"encoder.block.0.layer.0.SelfAttention.v", "encoder.block.1.layer.1.DenseReluDense.wi_0"}
TEXTS = {"flux-lora": {"te1": ("text_encoder", CLIP), "te3": ("text_encoder_2", T5)},
         "sd35-lora": {"te1": ("text_encoder", CLIP), "te2": ("text_encoder_2", CLIP),
                       "te3": ("text_encoder_3", T5)}}
PEFT = {
    "flux-lora": {"transformer": ["transformer_blocks.0.attn.to_q",
                                  "transformer_blocks.0.attn.add_v_proj",
                                  "transformer_blocks.1.ff.net.0.proj",
                                  "single_transformer_blocks.0.attn.to_k",
                                  "single_transformer_blocks.1.proj_mlp",
                                  "single_transformer_blocks.1.proj_out", "x_embedder"],
                  "text_encoder": ["text_model.encoder.layers.0.self_attn.v_proj",
                                   "text_model.encoder.layers.2.mlp.fc1"]},
    "sd35-lora": {"transformer": ["transformer_blocks.0.attn.to_k",
                                  "transformer_blocks.1.attn2.to_v",
                                  "transformer_blocks.2.attn.add_q_proj",
                                  "transformer_blocks.1.norm1.linear"],
                  "text_encoder": ["text_model.encoder.layers.0.self_attn.out_proj"],
                  "text_encoder_2": ["text_model.encoder.layers.0.self_attn.k_proj",
                                     "text_model.encoder.layers.1.mlp.fc1"]},
}


def spread(text):
    """"a.{q,k} b" -> [a.q, a.k, b]"""
    out = []
    for t in text.split():
        m = re.match(r"(.*)\{(.*)\}(.*)", t)
        out += [m[1] + k + m[3] for k in m[2].split(",")] if m else [t]
    return out


def pair(rows, cols, rank, g, dtype):
    """Two random matrices whose product is about as large as a weight."""
    up = torch.randn(rows, rank, generator=g)
    down = torch.randn(rank, *cols, generator=g)
    n = down[0].numel()
    return (up / rank ** 0.5).to(dtype), (0.6 * down / n ** 0.5).to(dtype)


def weight(pipe, part, module):
    """The module's weight; text models of transformers may lack their prefix."""
    m = getattr(pipe, part)
    try:
        return m.get_submodule(module).weight
    except AttributeError:
        return m.get_submodule(module.removeprefix("text_model.")).weight


def write_peft(name, pipe, path, g):
    """With alphas as tensors for FLUX, as notes in the header for SD3.5."""
    flux, out, notes = name.startswith("flux"), {}, {}
    for part, modules in PEFT[name].items():
        notes |= {f"{part}.r": 2, f"{part}.lora_alpha": 3.0, f"{part}.target_modules": modules,
                  f"{part}.alpha_pattern": {modules[-1]: 5.0}, f"{part}.rank_pattern": {},
                  f"{part}.lora_dropout": 0.0, f"{part}.bias": "none"}
        for i, m in enumerate(modules):
            w, rank = weight(pipe, part, m), 2 + (i % 2) * flux
            up, down = pair(w.shape[0], w.shape[1:], rank, g, torch.float32)
            out[f"{part}.{m}.lora_A.weight"], out[f"{part}.{m}.lora_B.weight"] = down, up
            if flux:
                # diffusers 0.42 loses alphas of a text model that differ from each other
                out[f"{part}.{m}.alpha"] = torch.tensor(2.5 if part != "transformer" else 1.5 + i %
                                                        3)
    save_file(out, path, {"format": "pt"} if flux else {"lora_adapter_metadata": json.dumps(notes)})


def write_kohya(name, pipe, path, g):
    out = {}
    table = BFL if name.startswith("flux") else SAI
    jobs = [(f"lora_unet_{k}", "transformer", v.lstrip("*")) for k, v in table.items()]
    jobs += [(f"lora_{te}_{m.replace('.', '_')}", part, m) for te, (part, ms) in TEXTS[name].items()
             for m in sorted(ms)]
    for i, (key, part, targets) in enumerate(jobs):
        ws, rank = [weight(pipe, part, t) for t in spread(targets)], 1 + i % 3
        up, down = pair(sum(len(w) for w in ws), ws[0].shape[1:], rank, g, torch.float16)
        out[f"{key}.lora_down.weight"] = down
        out[f"{key}.lora_up.weight"] = up[:, :, None, None] if down.ndim == 4 else up
        if i % 4:
            out[f"{key}.alpha"] = torch.tensor(1.0 + i % 2, dtype=torch.float16)
    save_file(out, path)


def product(f, key):
    up, down = f[key + ".lora_up.weight"].float(), f[key + ".lora_down.weight"].float()
    alpha = f.get(key + ".alpha", torch.tensor(float(len(down)))).float()
    return up.flatten(1) @ down.flatten(1) * (alpha / len(down))


def add_kohya(name, pipe, path, scale):
    f = load_file(path)
    flux = name.startswith("flux")
    deltas = {}
    for key, targets in (BFL if flux else SAI).items():
        d = product(f, f"lora_unet_{key}")
        ws = [weight(pipe, "transformer", t) for t in spread(targets.lstrip("*"))]
        if targets[0] == "*":
            d = torch.cat(d.chunk(2)[::-1])
        for t, part in zip(spread(targets.lstrip("*")), d.split([len(w) for w in ws])):
            deltas["transformer." + t] = part
    for te, (part, modules) in TEXTS[name].items():
        for m in modules:
            deltas[f"{part}.{m}"] = product(f, f"lora_{te}_{m.replace('.', '_')}")
    if flux:
        compare(f, deltas)
    for where, d in deltas.items():
        part, m = where.split(".", 1)
        w = weight(pipe, part, m)
        w += scale * d.reshape(w.shape)


def compare(f, deltas):
    """What diffusers makes of the keys that it converts whatever the width."""
    left_out = ("linear1", "final_layer", "lora_te")
    known = _convert_kohya_flux_lora_to_diffusers({k: v.float() for k, v in f.items()
                                                   if not any(s in k for s in left_out)})
    n = 0
    for k in known:
        if not k.endswith(".lora_A.weight"):
            continue
        k = k.removesuffix(".lora_A.weight")
        d = known[k + ".lora_B.weight"] @ known[k + ".lora_A.weight"].flatten(1)
        mine = deltas[k if k.startswith("transformer.") else "transformer." + k]
        assert torch.allclose(d, mine, atol=1e-6), k
        n += 1
    assert n > 15
    print(f"  {n} differences as diffusers converts them")


def make_files(name, out):
    d = out / name
    d.mkdir(parents=True, exist_ok=True)
    g = torch.Generator().manual_seed(RUNS[name]["seed"])
    joint.RUNS[name] = RUNS[name]

    def change(pipe):
        write_peft(name, pipe, d / "peft.safetensors", g)
        write_kohya(name, pipe, d / "kohya.safetensors", g)
        add_kohya(name, pipe, d / "kohya.safetensors", SCALES["kohya"])
        before = {(part, m): weight(pipe, part, m).clone() for part, ms in PEFT[name].items()
                  for m in ms}
        pipe.load_lora_weights(d, weight_name="peft.safetensors", adapter_name="peft")
        pipe.set_adapters(["peft"], [SCALES["peft"]])
        pipe.fuse_lora(components=list(PEFT[name]), adapter_names=["peft"])
        pipe.unload_lora_weights()
        for where, w in before.items():
            moved = (weight(pipe, *where) - w).abs().max()
            assert moved > 1e-2, (where, moved)
    joint.run(name, out, change,
                     {"loras": [{"path": f"{k}.safetensors", "scale": v} for k,
                                v in SCALES.items()]})


# ---- DoRA ----------------------------------------------------------------------------------------

# Module of sd-scripts -> modules of diffusers, and which lengths it has.
DORA = {
    "double_blocks_0_img_attn_qkv": ("transformer_blocks.0.attn.to_{q,k,v}", "rows"),
    "double_blocks_1_txt_mlp_2": ("transformer_blocks.1.ff_context.net.2", "columns"),
    "single_blocks_1_linear1": ("single_transformer_blocks.1.attn.to_{q,k,v} "
                                "single_transformer_blocks.1.proj_mlp", "rows"),
    "final_layer_adaLN_modulation_1": ("*norm_out.linear", "rows"),
}


def save_adapter(transformer, path, g):
    """A folder of peft with random numbers; the adapter."""
    from peft import LoraConfig, get_peft_model
    model = get_peft_model(transformer, LoraConfig(
        r=2, lora_alpha=3, use_dora=True, use_rslora=True,
        target_modules=["to_q", "add_v_proj", "proj_mlp", "x_embedder", "norm_out.linear"],
        rank_pattern={r"^single_transformer_blocks\.\d+\.proj_mlp": 3, "x_embedder": 1},
        alpha_pattern={"^transformer_blocks.0.attn.to_q": 5, "to_q": 2,
                       r"transformer_blocks\..*\.to_(q|k)": 7, "^x_embedder": 4}))
    for name, p in model.named_parameters():
        if "lora_magnitude" in name:
            p.mul_(torch.rand(p.shape, generator=g) + 0.5)
        elif "lora_" in name:
            p.copy_(torch.randn(p.shape, generator=g) * (0.5 if "lora_B" in name else 0.2))
    model.save_pretrained(path)
    (path / "README.md").unlink(missing_ok=True)
    return model


def put_dora(f, pipe, g):
    """Writes the file; (module, rows that it adds, what its sum is multiplied by) of every weight
    as it is before any file."""
    out = []
    for i, (key, (targets, which)) in enumerate(DORA.items()):
        names = spread(targets.lstrip("*"))
        w = torch.cat([weight(pipe, "transformer", t) for t in names])
        swap = targets[0] == "*"
        w = torch.cat(w.chunk(2)[::-1]) if swap else w
        up, down = pair(len(w), w.shape[1:], 1 + i % 3, g, torch.float16)
        axis = 1 if which == "rows" else 0
        alpha = 1.0 + i % 2
        d = SCALES["kohya"] * alpha / len(down) * (up.float() @ down.float())
        length = w.norm(dim=axis, keepdim=True) * (torch.rand(w.norm(dim=axis, keepdim=True).shape,
                                                             generator=g) + 0.5)
        by = (length / (w + d).norm(dim=axis, keepdim=True)).expand(w.shape)
        k = "lora_unet_" + key
        f |= {k + ".lora_down.weight": down, k + ".lora_up.weight": up, k + ".dora_scale": length,
              k + ".alpha": torch.tensor(alpha)}
        if swap:
            d, by = (torch.cat(v.chunk(2)[::-1]) for v in (d, by))
        sizes = [len(weight(pipe, "transformer", t)) for t in names]
        out += zip(names, d.split(sizes), by.split(sizes))
    return out


def make_dora(name, out):
    d = out / name
    d.mkdir(parents=True, exist_ok=True)
    g = torch.Generator().manual_seed(RUNS[name]["seed"])
    joint.RUNS[name] = RUNS[name]

    def change(pipe):
        f = {}
        changes = put_dora(f, pipe, g)
        save_file(f, d / "kohya.safetensors")
        model = save_adapter(pipe.transformer, d / "adapter", g)
        for m in model.modules():
            if hasattr(m, "scale_layer"):
                m.scale_layer(SCALES["peft"])
        pipe.transformer = model.merge_and_unload()
        for module, delta, by in changes:
            w = weight(pipe, "transformer", module)
            w.copy_((w + delta) * by)
    joint.run(name, out, change, {"loras": [{"path": "adapter", "scale": SCALES["peft"]},
                                            {"path": "kohya.safetensors",
                                             "scale": SCALES["kohya"]}]})


# ---- Control LoRA --------------------------------------------------------------------------------

# Norm of Black Forest Labs -> that of diffusers.
NORMS = {
    "double_blocks.0.img_attn.norm.query_norm": "transformer_blocks.0.attn.norm_q",
    "double_blocks.0.img_attn.norm.key_norm": "transformer_blocks.0.attn.norm_k",
    "double_blocks.1.txt_attn.norm.query_norm": "transformer_blocks.1.attn.norm_added_q",
    "double_blocks.1.txt_attn.norm.key_norm": "transformer_blocks.1.attn.norm_added_k",
    "single_blocks.2.norm.query_norm": "single_transformer_blocks.2.attn.norm_q",
    "single_blocks.0.norm.key_norm": "single_transformer_blocks.0.attn.norm_k",
}


def dotted(key):
    """double_blocks_0_img_attn_qkv -> double_blocks.0.img_attn.qkv"""
    for old, new in ((r"_blocks_(\d)_", r"_blocks.\1."), (r"_(qkv|proj|lin|0|2|1)$", r".\1"),
                     (r"(_layer|_in)_(in_layer|out_layer|linear|adaLN)", r"\1.\2")):
        key = re.sub(old, new, key)
    return key


def put_control(f, pipe, g):
    """Writes the file; what diffusers makes of such a file."""
    out, rank = {}, 2      # the published files have one rank, too
    for key, targets in BFL.items():
        names, swap = spread(targets.lstrip("*")), targets[0] == "*"
        ws = [weight(pipe, "transformer", t) for t in names]
        cols = ws[0].shape[1] * (2 if key == "img_in" else 1)
        up, down = pair(sum(len(w) for w in ws), (cols,), rank, g, torch.float32)
        bias = torch.randn(len(up), generator=g) / 2
        f |= {dotted(key) + ".lora_A.weight": down, dotted(key) + ".lora_B.weight": up,
              dotted(key) + ".lora_B.bias": bias}
        up, bias = (torch.cat(v.chunk(2)[::-1]) if swap else v for v in (up, bias))
        sizes = [len(w) for w in ws]
        for t, u, b in zip(names, up.split(sizes), bias.split(sizes)):
            out |= {f"transformer.{t}.lora_A.weight": down.clone(),
                    f"transformer.{t}.lora_B.weight": u.clone(),
                    f"transformer.{t}.lora_B.bias": b.clone()}
    for key, to in NORMS.items():
        f[key + ".scale"] = torch.rand(weight(pipe, "transformer", to).shape, generator=g) + 0.5
        out[f"transformer.{to}.weight"] = f[key + ".scale"].clone()
    return out


def make_control(name, out):
    d = out / name
    d.mkdir(parents=True, exist_ok=True)
    g = torch.Generator().manual_seed(RUNS[name]["seed"])
    joint.RUNS[name] = RUNS[name]
    scales = {"control": 0.85, "plain": -0.6}

    def change(pipe):
        control, plain = {}, {}
        for m in ("x_embedder", "transformer_blocks.1.attn.to_q"):
            w = weight(pipe, "transformer", m)
            up, down = pair(len(w), w.shape[1:], 2, g, torch.float32)
            plain |= {f"transformer.{m}.lora_A.weight": down, f"transformer.{m}.lora_B.weight": up}
        converted = put_control(control, pipe, g)
        save_file(control, d / "control.safetensors")
        save_file(plain, d / "plain.safetensors")
        pipe = FluxControlPipeline.from_pipe(pipe)
        pipe.set_progress_bar_config(disable=True)
        before = pipe.transformer.x_embedder.weight.shape
        pipe.load_lora_weights(converted, adapter_name="control")
        pipe.load_lora_weights(plain, adapter_name="plain")
        pipe.set_adapters(list(scales), list(scales.values()))
        after = pipe.transformer.x_embedder.base_layer.weight.shape
        assert after[1] == 2 * before[1] == pipe.transformer.config.in_channels, (before, after)
        for key, to in NORMS.items():
            assert torch.equal(weight(pipe, "transformer", to), control[key + ".scale"]), to
        return pipe
    joint.run(name, out, change, {"loras": [{"path": f"{k}.safetensors", "scale": v}
                                            for k, v in scales.items()]})


# ---- LoHa and LoKr -------------------------------------------------------------------------------

LOHA = {
    "double_blocks_0_img_attn_qkv": "transformer_blocks.0.attn.to_{q,k,v}",
    "double_blocks_1_txt_mlp_2": "transformer_blocks.1.ff_context.net.2",
    "single_blocks_1_linear1": "single_transformer_blocks.1.attn.to_{q,k,v} "
                               "single_transformer_blocks.1.proj_mlp",
    "distilled_guidance_layer_layers_0_in_layer": "distilled_guidance_layer.layers.0.linear_1",
    "final_layer_linear": "proj_out",
}
# Which factors are whole.
LOKR = {
    "diffusion_model.double_blocks.1.txt_attn.qkv":
        ("transformer_blocks.1.attn.add_{q,k,v}_proj", "w1"),
    "diffusion_model.single_blocks.0.linear2": ("single_transformer_blocks.0.proj_out", "w2"),
    "lycoris_transformer_blocks_0_ff_net_0_proj": ("transformer_blocks.0.ff.net.0.proj", "w1 w2"),
    "diffusion_model.txt_in": ("context_embedder", ""),
    "transformer_blocks.0.attn.norm_k": ("transformer_blocks.0.attn.norm_k", "diff"),
}


def put_loha(f, key, rows, cols, i, g):
    """Writes the factors; the difference that they mean."""
    rank, alpha = 1 + i % 3, 1.0 + i % 2
    a1, b1 = pair(rows, (cols,), rank, g, torch.float32)
    a2, b2 = pair(rows, (1,), rank, g, torch.float32)[0], torch.randn(rank, cols, generator=g)
    f |= {key + ".hada_w1_a": a1, key + ".hada_w1_b": b1, key + ".hada_w2_a": a2,
          key + ".hada_w2_b": b2}
    if i % 2:
        f[key + ".alpha"] = torch.tensor(alpha)
    return (a1 @ b1) * (a2 @ b2) * ((alpha if i % 2 else rank) / rank)


def put_lokr(f, key, rows, cols, whole, g):
    """The same of the Kronecker product, of [4,2] with the rest; an alpha counts for products."""
    rank, alpha, w, scale = 2, 3.0, [], 1.0
    for k, (r, c) in enumerate([(4, 2), (rows // 4, cols // 2)]):
        name = f"{key}.lokr_w{k + 1}"
        if f"w{k + 1}" in whole:
            w.append(torch.randn(r, c, generator=g) * (0.5 if k else 0.3))
            f[name] = w[k]
        else:
            a, b = pair(r, (c,), rank, g, torch.float32)
            f |= {name + "_a": a, name + "_b": b}
            w.append(a @ b)
            scale = alpha / rank
    f[key + ".alpha"] = torch.tensor(alpha)
    return torch.kron(w[0], w[1]) * scale


def add_rows(pipe, targets, d, scale):
    ws = [weight(pipe, "transformer", t) for t in spread(targets)]
    for w, part in zip(ws, d.split([len(w) for w in ws])):
        w += scale * part.reshape(w.shape)


def make_products(name, out):
    d = out / name
    d.mkdir(parents=True, exist_ok=True)
    g = torch.Generator().manual_seed(RUNS[name]["seed"])
    chroma.RUNS[name] = RUNS[name]
    scales = {"loha": 0.7, "lokr": -0.4}

    def change(pipe):
        def extents(targets):
            ws = [weight(pipe, "transformer", t) for t in spread(targets)]
            return sum(len(w) for w in ws), ws[0].shape[-1]
        loha, lokr = {}, {}
        for i, (key, targets) in enumerate(LOHA.items()):
            delta = put_loha(loha, "lora_unet_" + key, *extents(targets), i, g)
            add_rows(pipe, targets, delta, scales["loha"])
        for key, (targets, whole) in LOKR.items():
            if whole == "diff":
                delta = lokr[key + ".diff"] = torch.randn(extents(targets)[0], generator=g)
            else:
                delta = put_lokr(lokr, key, *extents(targets), whole, g)
            add_rows(pipe, targets, delta, scales["lokr"])
        save_file(loha, d / "loha.safetensors")
        save_file(lokr, d / "lokr.safetensors")
    chroma.run(name, out, change, {"loras": [{"path": f"{k}.safetensors", "scale": v}
                                             for k, v in scales.items()]})


def make(names, options):
    quiet()
    with torch.no_grad():
        for name in names:
            {"chroma-lora": make_products, "flux-control-lora": make_control,
             "flux-dora": make_dora}.get(name, make_files)(
                name, options.out)
