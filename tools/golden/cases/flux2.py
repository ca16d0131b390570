"""FLUX.2: klein, distilled, base and with stored reference images, and dev.

Layout and names of tensors as in joint.py. Latents are those of the transformer, packed and
normalized: [4 C, h, w] with cells of 2 x 2 cells of the autoencoder.

flux2-lora adds two random LoRA files at once, both loaded by diffusers: peft.safetensors in the
form of diffusers, kohya.safetensors with the original names, as sd-scripts writes them.

A model's directory has no weights, as in joint.py. The text encoders have as many blocks as the
hidden states that the pipeline reads ask for, and one more.
"""
import json
import shutil

import torch
from diffusers import (AutoencoderKLFlux2, FlowMatchEulerDiscreteScheduler, Flux2KleinKVPipeline,
                       Flux2KleinPipeline, Flux2Pipeline, Flux2Transformer2DModel)
from diffusers.pipelines.flux2.pipeline_flux2 import format_input
from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers,
                        pre_tokenizers, processors)
from transformers import (Mistral3Config, Mistral3ForConditionalGeneration, PreTrainedTokenizerFast,
                          Qwen3Config, Qwen3ForCausalLM)

from ..common import (PLAIN, add_loras, keep_images, make_each, make_image, save_run, say_images,
                      tidy)
from ..fill import configure, fill
from .joint import DYNAMIC, byte_letters

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
PLAIN_ADDED = ["<think>", "</think>"]
MERGES = ["r e", "re d", "s t", "a r", "st ar", "Ġ c", "Ġc i", "r c", "l e", "Ġci rc", "Ġcirc le"]
# The words of Qwen's pre-tokenizer.
WORDS = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
         r"|\s*[\r\n]+|\s+(?!\S)|\s+")
TEMPLATE = ("{%- for m in messages %}{{- '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>'"
            " + '\n' }}{%- endfor %}{%- if add_generation_prompt %}"
            "{{- '<|im_start|>assistant\n' }}{%- if enable_thinking is false %}"
            "{{- '<think>\n\n</think>\n\n' }}{%- endif %}{%- endif %}")
QWEN = dict(vocab_size=288, hidden_size=12, intermediate_size=19, num_hidden_layers=28,
            num_attention_heads=4, num_key_value_heads=2, head_dim=8, max_position_embeddings=1024,
            rope_parameters=dict(rope_type="default", rope_theta=1e6), tie_word_embeddings=True)
MARKS = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]", "<pad>", "[SYSTEM_PROMPT]",
         "[/SYSTEM_PROMPT]", "[IMG]"]
TURNS = ("<s>{%- for m in messages %}{%- if m.role == 'system' %}"
         "{{- '[SYSTEM_PROMPT]' + m.content[0].text + '[/SYSTEM_PROMPT]' }}{%- else %}"
         "{{- '[INST]' + m.content[0].text + '[/INST]' }}{%- endif %}{%- endfor %}")
MISTRAL = dict(
    text_config=dict(model_type="mistral", vocab_size=288, hidden_size=20, intermediate_size=27,
                     num_hidden_layers=31, num_attention_heads=4, num_key_value_heads=2, head_dim=8,
                     max_position_embeddings=1024, rms_norm_eps=1e-5, sliding_window=None,
                     rope_parameters=dict(rope_type="default", rope_theta=1e9)),
    vision_config=dict(model_type="pixtral", hidden_size=8, intermediate_size=12,
                       num_hidden_layers=1, num_attention_heads=2, head_dim=4, image_size=16,
                       patch_size=4))
VAE = dict(block_out_channels=(8, 8, 12), layers_per_block=1, norm_num_groups=4, latent_channels=3,
           sample_size=64, batch_norm_eps=0.01, **PLAIN(3))
DIT = dict(attention_head_dim=8, in_channels=12, axes_dims_rope=(2, 2, 2, 2),
           joint_attention_dim=36)

MODELS = {
    "flux2-klein": dict(distilled=True, weights="bf16",
                        dit=dict(guidance_embeds=False, num_attention_heads=3, num_layers=2,
                                 num_single_layers=3, **DIT)),
    "flux2-base": dict(distilled=False, weights="f16",
                       dit=dict(guidance_embeds=False, num_attention_heads=5, num_layers=1,
                                num_single_layers=2, mlp_ratio=2.5, timestep_guidance_channels=32,
                                rope_theta=300, **DIT)),
    "flux2-kv": dict(kv=True, distilled=True, weights="f16",
                     dit=dict(guidance_embeds=False, num_attention_heads=5, num_layers=2,
                              num_single_layers=2, **DIT)),
    "flux2": dict(dev=True, weights="bf16",
                  dit=dict(num_attention_heads=3, num_layers=1, num_single_layers=3)
                  | DIT | dict(joint_attention_dim=60)),
}
RUNS = {
    "flux2-klein": dict(prompts=["A large Red circle, on a blue background"], width=40, height=56,
                        steps=4, seed=7, guidance=0.0, max_sequence_length=77),
    "flux2-base": dict(prompts=["two stars", "a purple ring"], width=56, height=32, steps=3, seed=8,
                       guidance=3.5, max_sequence_length=41),
    "flux2-images": dict(model="flux2-klein", prompts=["put both side by side"], width=48,
                         height=40, steps=3, seed=10, guidance=0.0, max_sequence_length=53,
                         sizes=((75, 64), (64, 91))),
    "flux2-lora": dict(model="flux2-klein", prompts=["a white star"], width=40, height=32, steps=3,
                       seed=71, guidance=0.0, max_sequence_length=37,
                       loras=dict(peft=0.7, kohya=-0.4)),
    "flux2-kv": dict(prompts=["a star beside the ring", "red"], width=40, height=72, steps=4,
                     seed=33, guidance=0.0, max_sequence_length=29, sizes=((75, 64), (64, 91))),
    "flux2": dict(prompts=["a [IMG]cyan triangle"], width=48, height=40, steps=3, seed=9,
                  guidance=2.5, max_sequence_length=203),
}
# Module of a LoRA file -> those of diffusers whose rows it holds.
PEFT = {m: [m] for m in (
    "transformer_blocks.0.attn.to_q", "transformer_blocks.1.attn.add_v_proj",
    "transformer_blocks.0.ff.linear_in", "transformer_blocks.1.ff_context.linear_out",
    "single_transformer_blocks.0.attn.to_qkv_mlp_proj", "x_embedder",
    "single_transformer_blocks.2.attn.to_out", "double_stream_modulation_img.linear",
    "time_guidance_embed.timestep_embedder.linear_2", "proj_out")}
KOHYA = {"double_blocks_0_img_attn_qkv": ["transformer_blocks.0.attn.to_" + k for k in "qkv"],
         "double_blocks_1_txt_attn_qkv": [f"transformer_blocks.1.attn.add_{k}_proj" for k in "qkv"],
         "double_blocks_1_img_attn_proj": ["transformer_blocks.1.attn.to_out.0"],
         "double_blocks_0_txt_attn_proj": ["transformer_blocks.0.attn.to_add_out"],
         "double_blocks_1_img_mlp_0": ["transformer_blocks.1.ff.linear_in"],
         "double_blocks_0_txt_mlp_2": ["transformer_blocks.0.ff_context.linear_out"],
         "single_blocks_1_linear1": ["single_transformer_blocks.1.attn.to_qkv_mlp_proj"],
         "single_blocks_2_linear2": ["single_transformer_blocks.2.attn.to_out"]}


# ---- models --------------------------------------------------------------------------------------

def make_tokenizer(out, special=SPECIAL):
    """Byte-level BPE with Qwen's words and a few merges."""
    out.mkdir(parents=True)
    letters = byte_letters()
    vocab = letters + [m.replace(" ", "") for m in MERGES]
    t = Tokenizer(models.BPE(vocab={w: i for i, w in enumerate(vocab)},
                             merges=[tuple(m.split(" ")) for m in MERGES]))
    t.normalizer = normalizers.NFC()
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(WORDS), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    t.add_special_tokens([AddedToken(w, normalized=False, special=True) for w in special])
    t.add_tokens([AddedToken(w, normalized=False, special=False) for w in PLAIN_ADDED])
    t.save(str(out / "tokenizer.json"))
    (out / "tokenizer_config.json").write_text(json.dumps(dict(
        tokenizer_class="Qwen2Tokenizer", model_max_length=1024, padding_side="right",
        pad_token="<|endoftext|>", eos_token="<|im_end|>", bos_token=None, unk_token=None,
        chat_template=TEMPLATE), indent=2) + "\n")


def make_dev_tokenizer(out):
    """Byte-level BPE with Mistral's special tokens, padded on the left."""
    out.mkdir(parents=True)
    letters = byte_letters()
    vocab = MARKS + letters + [m.replace(" ", "") for m in MERGES]
    t = Tokenizer(models.BPE(vocab={w: i for i, w in enumerate(vocab)},
                             merges=[tuple(m.split(" ")) for m in MERGES]))
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(WORDS), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    t.add_special_tokens([AddedToken(w, normalized=False, special=True) for w in MARKS])
    t.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", 1)])
    t.save(str(out / "tokenizer.json"))
    (out / "tokenizer_config.json").write_text(json.dumps(dict(
        tokenizer_class="TokenizersBackend", model_max_length=1024, padding_side="left",
        pad_token="<pad>", eos_token="</s>", bos_token="<s>", unk_token="<unk>",
        chat_template=TURNS), indent=2) + "\n")


def load_tokenizer(folder, dev):
    if dev:
        return PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"),
                                       pad_token="<pad>", eos_token="</s>", bos_token="<s>",
                                       chat_template=TURNS, padding_side="left")
    return PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"),
                                   pad_token="<|endoftext|>", eos_token="<|im_end|>",
                                   chat_template=TEMPLATE, padding_side="right")


def make_parts(name):
    spec = MODELS[name]
    parts = {"text_encoder": Mistral3ForConditionalGeneration(Mistral3Config(**MISTRAL))
             if spec.get("dev") else Qwen3ForCausalLM(Qwen3Config(**QWEN)),
             "transformer": Flux2Transformer2DModel(**spec["dit"]),
             "vae": AutoencoderKLFlux2(**VAE)}
    return {folder: fill(m, spec["weights"]) for folder, m in parts.items()}


def make_model(name, out):
    """Configurations and the tokenizer."""
    if out.exists():
        shutil.rmtree(out)
    dev = MODELS[name].get("dev")
    kv = MODELS[name].get("kv")
    index = {"_class_name": "Flux2Pipeline" if dev else f"Flux2Klein{'KV' if kv else ''}Pipeline",
             "tokenizer": ["transformers", "PixtralProcessor" if dev else "Qwen2TokenizerFast"],
             "scheduler": ["diffusers", "FlowMatchEulerDiscreteScheduler"]}
    if not dev and not kv:
        index["is_distilled"] = MODELS[name]["distilled"]
    for folder, m in make_parts(name).items():
        configure(m, out / folder)
        index[folder] = ["transformers" if folder == "text_encoder" else "diffusers",
                         type(m).__name__]
    (make_dev_tokenizer if dev else make_tokenizer)(out / "tokenizer")
    FlowMatchEulerDiscreteScheduler(**DYNAMIC).save_pretrained(out / "scheduler")
    (out / "model_index.json").write_text(json.dumps(index))
    tidy(out, {})


def load(model, out):
    d, dev = out / model, MODELS[model].get("dev")
    parts = make_parts(model) | dict(
        scheduler=FlowMatchEulerDiscreteScheduler.from_pretrained(d / "scheduler"),
        tokenizer=load_tokenizer(d / "tokenizer", dev))
    klein = Flux2KleinKVPipeline if MODELS[model].get("kv") else Flux2KleinPipeline
    pipe = Flux2Pipeline(**parts) if dev else klein(
        is_distilled=MODELS[model]["distilled"], **parts)
    pipe.set_progress_bar_config(disable=True)
    return pipe


# ---- runs ----------------------------------------------------------------------------------------

def record_text(pipe, r, out):
    """Ids and what encode_prompt gives for prompt 0 and the empty negative prompt."""
    n = r["max_sequence_length"]
    if isinstance(pipe, Flux2Pipeline):
        rows, _ = pipe.encode_prompt(r["prompts"][0], max_sequence_length=n)
        out["ids"] = pipe.tokenizer.apply_chat_template(
            format_input(r["prompts"][:1], pipe.system_message), tokenize=True, return_dict=True,
            return_tensors="pt", padding="max_length", truncation=True,
            max_length=n)["input_ids"][0].int()
        out["prompt_embeds"] = rows[0]
        return
    guided = r["guidance"] > 1 and not MODELS[r["model"]]["distilled"]
    for prefix, text in (("", r["prompts"][0]), ("negative_", ""))[:1 + guided]:
        chat = pipe.tokenizer.apply_chat_template(
            [dict(role="user", content=text)], tokenize=False, add_generation_prompt=True,
            enable_thinking=False)
        out[prefix + "ids"] = pipe.tokenizer(chat, max_length=n, truncation=True,
                                             padding="max_length",
                                             return_tensors="pt").input_ids[0].int()
        rows, _ = pipe.encode_prompt(text, max_sequence_length=n)
        out[prefix + "prompt_embeds"] = rows[0]


def run(name, out_dir):
    """One request; with LoRA files floats of the image are not kept."""
    r = dict(model=name, images=1, loras={}) | RUNS[name]
    d = out_dir / name
    d.mkdir(parents=True, exist_ok=True)
    pipe = load(r["model"], out_dir)
    if r["loras"]:
        add_loras(pipe, r, d, PEFT, KOHYA, ranks=2)
    count = len(r["prompts"]) * r["images"]
    gens = [torch.Generator("cpu").manual_seed(r["seed"] + i) for i in range(count)]
    out, trail, more = {}, [], {}
    for i, size in enumerate(r.get("sizes", ())):
        more.setdefault("image", []).append(make_image(size, r["seed"] + 2000 + i))
        more["image"][i].save(d / ("image.png" if i == 0 else f"image_{i + 1}.png"))
    record_text(pipe, r, out)
    h, w = (r[side] // (2 * pipe.vae_scale_factor) for side in ("height", "width"))

    def keep(p, step, t, kw):
        z = kw["latents"]
        trail.append((float(t), z.permute(0, 2, 1).unflatten(2, (h, w)).clone()))
        return {}
    if not MODELS[r["model"]].get("kv"):
        more["guidance_scale"] = r["guidance"]
    images = pipe(prompt=r["prompts"], num_inference_steps=r["steps"],
                  num_images_per_prompt=r["images"], height=r["height"], width=r["width"],
                  generator=gens, output_type="pt", max_sequence_length=r["max_sequence_length"],
                  callback_on_step_end=keep, **more).images
    keep_images(out, trail, images, r, count, True, not r["loras"])
    save_run(d, name, r["model"], {
        "weights": MODELS[r["model"]]["weights"], "prompts": r["prompts"], "negative_prompt": "",
        "width": r["width"], "height": r["height"], "model_width": r["width"],
        "model_height": r["height"], "num_inference_steps": r["steps"],
        "guidance_scale": r["guidance"], "true_cfg_scale": 0.0, "seed": r["seed"],
        "num_images_per_prompt": r["images"], "images": count,
        "max_sequence_length": r["max_sequence_length"], "scheduler": None, "tiling": False,
        "resolution_binning": False, "strength": 0.0}
        | ({"image": True, "more_images": len(more["image"]) - 1} if "image" in more else {})
        | ({"loras": [{"path": f"{k}.safetensors", "scale": v} for k, v in r["loras"].items()]}
           if r["loras"] else {}), out)
    say_images(name, r, out, trail, count)


def make(names, options):
    make_each(names, options.out, MODELS, make_model, run)
