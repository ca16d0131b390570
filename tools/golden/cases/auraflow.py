"""AuraFlow: double and single blocks whose attention enters through the feed-forward, UMT5, a VAE
like SDXL's.

Layout and names of tensors as in joint.py. In prompt_embeds the rows of padding are zeros, and so
are those at the end, in whose place the transformer has its registers. The tokenizer is one of
byte pairs with a space before the text and </s> behind it, in the structure of the published one.

auraflow-lora adds two random LoRA files at once: peft.safetensors, which diffusers loads, and
kohya.safetensors with the modules' original names.
"""
import json
import shutil

import torch
import torch.nn.functional as F
from diffusers import (AuraFlowPipeline, AuraFlowTransformer2DModel, AutoencoderKL,
                       FlowMatchEulerDiscreteScheduler)
from safetensors.torch import save_file
from tokenizers import Tokenizer, models, normalizers, trainers
from transformers import LlamaTokenizerFast, UMT5Config, UMT5EncoderModel

from .. import lm_texts, lm_vocab
from ..common import keep_images, make_each, matrices, save_run, say_images, tidy
from ..fill import configure, fill
from .joint import T5
from .joint import VAE as PLAIN_VAE

# The table of positions is 12 x 12, and two more rows; grids of odd sides are off its centre.
DIT = dict(attention_head_dim=8, num_attention_heads=5, num_mmdit_layers=2, num_single_dit_layers=3,
           joint_attention_dim=40, caption_projection_dim=40, pos_embed_max_size=146,
           sample_size=16)
VAE = {k: v for k, v in PLAIN_VAE.items() if "quant_conv" not in k and k != "shift_factor"} | dict(
    scaling_factor=0.13025)
MODELS = {"auraflow": dict(weights="bf16")}
RUNS = {
    "auraflow": dict(prompts=["A large Red circle, on a blue background"],
                     negative_prompt="a green ring", width=40, height=56, steps=4, seed=81,
                     guidance=3.5, max_sequence_length=37),
    # The text is cut, and the grid has even sides.
    "auraflow-cut": dict(model="auraflow", prompts=["a cyan triangle next to a purple square"],
                         width=64, height=48, steps=3, seed=82, guidance=2.5,
                         max_sequence_length=9),
    "auraflow-one": dict(model="auraflow", prompts=["a white star", "a ring"], width=32, height=48,
                         steps=3, seed=84, guidance=1.0, max_sequence_length=12),
    "auraflow-lora": dict(model="auraflow", prompts=["a large red circle"], width=32, height=40,
                          steps=3, seed=85, guidance=1.0, max_sequence_length=10,
                          loras={"peft": 0.7, "kohya": -0.4}),
}
# Modules of the LoRA file with names of diffusers, which diffusers loads, and of the one with
# original names, whose differences are added here; * swaps the halves of two chunks.
PEFT = ["joint_transformer_blocks.0.attn.to_q", "joint_transformer_blocks.1.attn.add_v_proj",
        "joint_transformer_blocks.1.ff_context.linear_2", "single_transformer_blocks.0.attn.to_k",
        "single_transformer_blocks.2.ff.out_projection", "single_transformer_blocks.1.norm1.linear"]
KOHYA = {
    "double_layers_0_attn_w2v": "joint_transformer_blocks.0.attn.to_v",
    "double_layers_1_attn_w1k": "joint_transformer_blocks.1.attn.add_k_proj",
    "double_layers_0_attn_w1o": "joint_transformer_blocks.0.attn.to_add_out",
    "double_layers_1_attn_w2o": "joint_transformer_blocks.1.attn.to_out.0",
    "double_layers_0_mlpX_c_fc1": "joint_transformer_blocks.0.ff.linear_1",
    "double_layers_1_mlpC_c_proj": "joint_transformer_blocks.1.ff_context.out_projection",
    "double_layers_1_modC_1": "joint_transformer_blocks.1.norm1_context.linear",
    "single_layers_1_attn_w1q": "single_transformer_blocks.1.attn.to_q",
    "single_layers_2_mlp_c_fc2": "single_transformer_blocks.2.ff.linear_2",
    "single_layers_0_modCX_1": "single_transformer_blocks.0.norm1.linear",
    "init_x_linear": "pos_embed.proj", "cond_seq_linear": "context_embedder",
    "t_embedder_mlp_0": "time_step_proj.linear_1", "modF_1": "*norm_out.linear",
    "final_linear": "proj_out",
}


def write_tokenizer(folder):
    t = Tokenizer(models.BPE())
    t.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"),
                                         normalizers.Replace(" ", "\u2581")])
    texts = [f"{a} {b}" for a, b in zip(lm_texts.WORDS, lm_texts.WORDS[1:])]
    t.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=120, show_progress=False))
    model = json.loads(t.to_str())["model"]
    merges = [m.split(" ") if isinstance(m, str) else m for m in model["merges"]]
    words = {"".join(m) for m in merges}
    letters = [p for p in model["vocab"] if p not in words]
    marks = ["<unk>", "<s>", "</s>"]
    pieces = marks + [f"<0x{b:02X}>" for b in range(256)] + ["".join(m) for m in merges] + letters
    doc = lm_vocab.document(
        pieces, merges, dict.fromkeys(marks, "special"),
        {"unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True,
         "continuing_subword_prefix": None, "end_of_word_suffix": None},
        normalizer={"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "\u2581"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]},
        post_processor={
            "type": "TemplateProcessing",
            "single": [{"Sequence": {"id": "A", "type_id": 0}},
                       {"SpecialToken": {"id": "</s>", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}],
            "special_tokens": {"</s>": {"id": "</s>", "ids": [2], "tokens": ["</s>"]}}})
    lm_vocab.put(folder, "tokenizer.json", doc)
    lm_vocab.put(folder, "tokenizer_config.json", {
        "tokenizer_class": "LlamaTokenizerFast", "add_bos_token": False, "add_eos_token": True,
        "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<s>",
        "padding_side": "right", "legacy": True, "model_max_length": 256})
    return len(doc["model"]["vocab"])


def make_parts(vocab):
    parts = {"text_encoder": UMT5EncoderModel(UMT5Config(
        vocab_size=vocab, dropout_rate=0.0, pad_token_id=0, eos_token_id=2,
        tie_word_embeddings=False, **T5)), "transformer": AuraFlowTransformer2DModel(**DIT),
        "vae": AutoencoderKL(**VAE)}
    return {folder: fill(m, MODELS["auraflow"]["weights"]) for folder, m in parts.items()}


def vocab_of(folder):
    return len(json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"])


def make_model(name, out):
    if out.exists():
        shutil.rmtree(out)
    index = {"_class_name": "AuraFlowPipeline"}
    for folder, m in make_parts(write_tokenizer(out / "tokenizer")).items():
        configure(m, out / folder)
        text = folder == "text_encoder"
        index[folder] = ["transformers" if text else "diffusers", type(m).__name__]
    index["tokenizer"] = ["transformers", "LlamaTokenizerFast"]
    FlowMatchEulerDiscreteScheduler(shift=1.73).save_pretrained(out / "scheduler")
    index["scheduler"] = ["diffusers", "FlowMatchEulerDiscreteScheduler"]
    (out / "model_index.json").write_text(json.dumps(index))
    tidy(out, {})


def load(model, out):
    d = out / model
    pipe = AuraFlowPipeline(
        scheduler=FlowMatchEulerDiscreteScheduler.from_pretrained(d / "scheduler"),
        tokenizer=LlamaTokenizerFast.from_pretrained(d / "tokenizer"),
        **make_parts(vocab_of(d / "tokenizer")))
    pipe.set_progress_bar_config(disable=True)
    return pipe


def record_text(pipe, r, out):
    n = r["max_sequence_length"]
    texts = (("", r["prompts"][0]), ("negative_", r["negative_prompt"]))
    for prefix, text in texts[:1 + (r["guidance"] > 1)]:
        ids = pipe.tokenizer(text, padding="max_length", max_length=n, truncation=True,
                             return_tensors="pt").input_ids[0].int()
        out[prefix + "ids"] = ids
        e = pipe.encode_prompt(text, do_classifier_free_guidance=False, max_sequence_length=n)[0][0]
        registers = pipe.transformer.register_tokens.shape[1]
        out[prefix + "prompt_embeds"] = F.pad(e, (0, 0, 0, registers))


def run(name, out_dir, change=None, more_json=None):
    """One request; change(pipe) comes before it, and then floats of the image are not kept."""
    r = dict(model=name, negative_prompt="", images=1) | RUNS[name]
    d = out_dir / name
    d.mkdir(parents=True, exist_ok=True)
    pipe = load(r["model"], out_dir)
    if change:
        change(pipe)
    count = len(r["prompts"])
    gens = [torch.Generator("cpu").manual_seed(r["seed"] + i) for i in range(count)]
    out, trail = {}, []
    record_text(pipe, r, out)

    def keep(p, step, t, kw):
        trail.append((float(t), kw["latents"].clone()))
        return {}
    images = pipe(prompt=r["prompts"], negative_prompt=[r["negative_prompt"]] * count,
                  num_inference_steps=r["steps"], guidance_scale=r["guidance"],
                  height=r["height"], width=r["width"],
                  generator=gens if count > 1 else gens[0], output_type="pt",
                  max_sequence_length=r["max_sequence_length"], callback_on_step_end=keep).images
    keep_images(out, trail, images, r, count, True, not change)
    save_run(d, name, r["model"], {
        "weights": MODELS[r["model"]]["weights"], "prompts": r["prompts"],
        "negative_prompt": r["negative_prompt"], "width": r["width"], "height": r["height"],
        "num_inference_steps": r["steps"], "guidance_scale": r["guidance"], "seed": r["seed"],
        "num_images_per_prompt": 1, "images": count,
        "max_sequence_length": r["max_sequence_length"], "scheduler": None, "tiling": False,
        "resolution_binning": False} | (more_json or {}), out)
    say_images(name, r, out, trail, count)


def add_loras(pipe, r, d):
    g, dit, out = torch.Generator().manual_seed(r["seed"]), pipe.transformer, {}
    for i, m in enumerate(PEFT):
        down, up = matrices([m], dit, 2 + i % 2, g)
        out |= {f"transformer.{m}.lora_A.weight": down, f"transformer.{m}.lora_B.weight": up}
    save_file(out, d / "peft.safetensors")
    pipe.load_lora_weights(d, weight_name="peft.safetensors", adapter_name="peft")
    pipe.set_adapters(["peft"], [r["loras"]["peft"]])
    pipe.fuse_lora(components=["transformer"], adapter_names=["peft"])
    pipe.unload_lora_weights()
    out = {}
    for i, (key, m) in enumerate(KOHYA.items()):
        rank, alpha = 1 + i % 3, 1.0 + i % 2
        down, up = (t.half() for t in matrices([m.lstrip("*")], dit, rank, g))
        out |= {f"lora_unet_{key}.lora_down.weight": down, f"lora_unet_{key}.lora_up.weight": up,
                f"lora_unet_{key}.alpha": torch.tensor(alpha).half()}
        delta = r["loras"]["kohya"] * alpha / rank * (up.float() @ down.float())
        if m[0] == "*":
            delta = torch.cat(delta.chunk(2)[::-1])
        dit.get_submodule(m.lstrip("*")).weight.add_(delta)
    save_file(out, d / "kohya.safetensors")


def run_one(name, out):
    loras = RUNS[name].get("loras")
    if not loras:
        return run(name, out)
    (out / name).mkdir(parents=True, exist_ok=True)
    notes = {"loras": [{"path": f"{k}.safetensors", "scale": v} for k, v in loras.items()]}
    return run(name, out, lambda pipe: add_loras(pipe, RUNS[name], out / name), notes)


def make(names, options):
    make_each(names, options.out, MODELS, make_model, run_one)
