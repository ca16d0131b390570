"""HunyuanVideo-1.5: whole requests with random weights, with Qwen2.5-VL and ByT5 as text encoders.

Layout and names of tensors as in hunyuanvideo.py. `ids_2` are ByT5's ids of the quoted texts, and
`prompt_embeds` has the rows of Qwen, then those of ByT5, padded with zeros to one width and without
the rows that the pipeline masks. In image to video, SigLIP's rows of image.png stand behind them,
and "condition" [T,C,h,w] are the channels beside the noise. SigLIP's image is resized by Pillow, as
in wan.py. hunyuanvideo15-lora adds two random LoRA files: peft.safetensors with diffusers' own
names, kohya.safetensors with those of musubi-tuner, in part with queries, keys and values together.
"""
import json
import shutil

import torch
from diffusers import (AutoencoderKLHunyuanVideo15, ClassifierFreeGuidance,
                       FlowMatchEulerDiscreteScheduler, HunyuanVideo15ImageToVideoPipeline,
                       HunyuanVideo15Pipeline, HunyuanVideo15Transformer3DModel)
from diffusers.pipelines.hunyuan_video1_5.pipeline_hunyuan_video1_5 import extract_glyph_texts
from transformers import (ByT5Tokenizer, PreTrainedTokenizerFast, Qwen2_5_VLTextConfig,
                          Qwen2_5_VLTextModel, SiglipImageProcessorPil, SiglipVisionConfig,
                          SiglipVisionModel, T5Config, T5EncoderModel)

from ..common import add_loras, make_each, make_image, save_run, tidy
from ..fill import configure, fill
from ..lm_vocab import qwen
from .hunyuanvideo import FRAMES_FIRST
from .video import keep_frames

DROP = 108
TEMPLATE = ("{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n"
            "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
QWEN = dict(vocab_size=640, hidden_size=24, intermediate_size=27, num_hidden_layers=4,
            num_attention_heads=3, num_key_value_heads=1, max_position_embeddings=2048,
            use_sliding_window=False,
            rope_parameters=dict(rope_type="default", rope_theta=1e6, mrope_section=[2, 1, 1]))
BYT5 = dict(vocab_size=384, d_model=20, d_kv=8, d_ff=28, num_layers=2, num_heads=3,
            feed_forward_proj="gated-gelu")
DIT = dict(in_channels=9, out_channels=4, attention_head_dim=8, text_embed_dim=24,
           text_embed_2_dim=20, image_embed_dim=12, rope_axes_dim=(2, 2, 4), target_size=64,
           task_type="t2v")
VAE = dict(block_out_channels=(8, 8, 8, 16, 16), layers_per_block=1, latent_channels=4,
           scaling_factor=0.6)
# an image of 20 x 20 pixels, whose patches leave two columns and rows: 9 rows
SIGLIP = dict(hidden_size=16, intermediate_size=21, num_attention_heads=2, num_hidden_layers=2,
              image_size=20, patch_size=6)
PIXELS = dict(size={"height": 20, "width": 20})
SEES = dict(DIT, image_embed_dim=16, task_type="i2v")

MODELS = {
    "hunyuanvideo15": dict(dit=dict(DIT, num_attention_heads=3, num_layers=3), shift=5.0,
                           weights="bf16"),
    "hunyuanvideo15-five": dict(dit=dict(DIT, num_attention_heads=5, num_layers=2,
                                         num_refiner_layers=1, use_meanflow=True), shift=7.0,
                                weights="f16", guidance=1.0),
    "hunyuanvideo15-i2v": dict(dit=dict(SEES, num_attention_heads=3, num_layers=2), shift=5.0,
                               weights="bf16"),
    # distilled for few steps: an embedding of the next timestep
    "hunyuanvideo15-few": dict(dit=dict(SEES, num_attention_heads=5, num_layers=2,
                                        num_refiner_layers=1, use_meanflow=True), shift=7.0,
                               weights="f16", guidance=1.0),
}
RUNS = {
    "hunyuanvideo15": dict(prompts=['A large Red sign with "Open" and “Café 7”, "Open"'],
                           width=80, height=112, frames=9, steps=4, seed=17,
                           negative="a green ring"),
    "hunyuanvideo15-one": dict(model="hunyuanvideo15", prompts=["a cyan triangle"], width=48,
                               height=80, frames=1, steps=3, seed=18, guidance=3.5),
    "hunyuanvideo15-lora": dict(model="hunyuanvideo15-i2v", prompts=['a star with "Red"'],
                                frames=5, steps=2, seed=72, guidance=1.0, image=(40, 51),
                                loras=dict(peft=0.7, kohya=-0.4)),
    "hunyuanvideo15-five": dict(prompts=["a purple ring", 'two stars beside ""'], width=80,
                                height=48, frames=24, steps=3, seed=41),
    "hunyuanvideo15-i2v": dict(prompts=['a red circle beside "Open"'], frames=9, steps=4, seed=42,
                               negative="a green ring", image=(70, 37)),
    "hunyuanvideo15-few": dict(prompts=["a star", "two stars"], frames=5, steps=3, seed=43,
                               image=(31, 55)),
}
BLOCK = "context_embedder.token_refiner.refiner_blocks"
PEFT = {m: [m] for m in (
    "transformer_blocks.0.attn.to_k", "transformer_blocks.1.ff_context.net.2",
    "transformer_blocks.0.attn.to_out.0", "transformer_blocks.1.norm1.linear",
    BLOCK + ".0.attn.to_q", BLOCK + ".1.ff.net.0.proj", "context_embedder.proj_in",
    "context_embedder_2.linear_2", "image_embedder.linear_1",
    "time_embed.timestep_embedder.linear_1", "norm_out.linear", "proj_out")}
KOHYA = {"double_blocks_0_img_attn_qkv": ["transformer_blocks.0.attn.to_" + k for k in "qkv"],
         "double_blocks_1_img_attn_v": ["transformer_blocks.1.attn.to_v"],
         "double_blocks_1_txt_attn_k": ["transformer_blocks.1.attn.add_k_proj"],
         "double_blocks_1_txt_attn_proj": ["transformer_blocks.1.attn.to_add_out"],
         "double_blocks_1_txt_mlp_fc1": ["transformer_blocks.1.ff_context.net.0.proj"],
         "double_blocks_0_img_mod_linear": ["transformer_blocks.0.norm1.linear"],
         "txt_in_individual_token_refiner_blocks_0_self_attn_qkv":
         [f"{BLOCK}.0.attn.to_{k}" for k in "qkv"],
         "txt_in_individual_token_refiner_blocks_1_adaLN_modulation_1":
         [BLOCK + ".1.norm_out.linear"],
         "txt_in_c_embedder_linear_1":
         ["context_embedder.time_text_embed.text_embedder.linear_1"],
         "byt5_in_fc1": ["context_embedder_2.linear_1"],
         "vision_in_proj_3": ["image_embedder.linear_2"],
         "time_in_mlp_2": ["time_embed.timestep_embedder.linear_2"]}


# ---- models --------------------------------------------------------------------------------------

def system_message():
    return HunyuanVideo15Pipeline._get_mllm_prompt_embeds.__defaults__[2]


def load_tokenizer(folder):
    return PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"),
                                   pad_token="<|endoftext|>", eos_token="<|im_end|>",
                                   chat_template=TEMPLATE, padding_side="right")


def sees(name):
    return MODELS[name]["dit"]["task_type"] == "i2v"


def kind_of(name):
    return HunyuanVideo15ImageToVideoPipeline if sees(name) else HunyuanVideo15Pipeline


def make_parts(name):
    spec = MODELS[name]
    parts = {"text_encoder": Qwen2_5_VLTextModel(Qwen2_5_VLTextConfig(**QWEN)),
             "text_encoder_2": T5EncoderModel(T5Config(**BYT5)),
             "transformer": HunyuanVideo15Transformer3DModel(**spec["dit"]),
             "vae": AutoencoderKLHunyuanVideo15(**VAE)}
    if sees(name):
        parts["image_encoder"] = SiglipVisionModel(SiglipVisionConfig(**SIGLIP))
    return {folder: fill(m, spec["weights"]) for folder, m in parts.items()}


def make_model(name, out):
    """Configurations and the tokenizers."""
    if out.exists():
        shutil.rmtree(out)
    index = {"_class_name": kind_of(name).__name__,
             "tokenizer": ["transformers", "Qwen2TokenizerFast"],
             "tokenizer_2": ["transformers", "ByT5Tokenizer"],
             "guider": ["diffusers", "ClassifierFreeGuidance"],
             "scheduler": ["diffusers", "FlowMatchEulerDiscreteScheduler"]}
    for folder, m in make_parts(name).items():
        configure(m, out / folder)
        index[folder] = ["transformers" if "encoder" in folder else "diffusers",
                         type(m).__name__]
    if sees(name):
        index["feature_extractor"] = ["transformers", "SiglipImageProcessor"]
        SiglipImageProcessorPil(**PIXELS).save_pretrained(out / "feature_extractor")
    texts = ["<|im_start|>system\n" + system_message() + "<|im_end|>\n<|im_start|>user\n"]
    qwen(out / "tokenizer", texts * 3, 262)
    config = out / "tokenizer" / "tokenizer_config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"chat_template": TEMPLATE}))
    ByT5Tokenizer().save_pretrained(out / "tokenizer_2")
    ClassifierFreeGuidance(
        guidance_scale=MODELS[name].get("guidance", 6.0)).save_pretrained(out / "guider")
    FlowMatchEulerDiscreteScheduler(shift=MODELS[name]["shift"]).save_pretrained(out / "scheduler")
    (out / "model_index.json").write_text(json.dumps(index))
    tidy(out, {})


def load(model, out, guidance):
    d = out / model
    more = dict(feature_extractor=SiglipImageProcessorPil(**PIXELS)) if sees(model) else {}
    pipe = kind_of(model)(
        scheduler=FlowMatchEulerDiscreteScheduler.from_pretrained(d / "scheduler"),
        tokenizer=load_tokenizer(d / "tokenizer"),
        tokenizer_2=ByT5Tokenizer.from_pretrained(d / "tokenizer_2"),
        guider=ClassifierFreeGuidance(guidance_scale=guidance), **more, **make_parts(model))
    pipe.set_progress_bar_config(disable=True)
    pipe.vae.use_slicing = True     # the mask of its attention is only right for one video
    assert len(pipe.tokenizer) <= QWEN["vocab_size"], len(pipe.tokenizer)
    return pipe


# ---- runs ----------------------------------------------------------------------------------------

def chat(text):
    return (f"<|im_start|>system\n{system_message()}<|im_end|>\n<|im_start|>user\n{text or ' '}"
            "<|im_end|>\n<|im_start|>assistant\n")


def see(pipe, r, d, out):
    """Saves the image, sets the request's size, and records the channels beside the noise. Returns
    SigLIP's rows, as wide as Qwen's."""
    image = make_image(r["image"], r["seed"])
    image.save(d / "image.png")
    r["height"], r["width"] = pipe.video_processor.calculate_default_height_width(
        height=image.size[1], width=image.size[0], target_size=pipe.target_size)
    own = pipe.prepare_cond_latents_and_mask

    def watched(*args, **kwargs):
        z = own(*args, **kwargs)
        out["condition"] = torch.cat(z, dim=1)[0].permute(FRAMES_FIRST).contiguous()
        return z
    pipe.prepare_cond_latents_and_mask = watched
    resized = pipe.video_processor.resize(image, height=r["height"], width=r["width"],
                                          resize_mode="crop")
    rows = pipe.encode_image(resized, 1, "cpu", torch.float32)[0]
    r["given"] = dict(image=image)
    return torch.nn.functional.pad(rows, (0, QWEN["hidden_size"] - rows.shape[1]))


def record_text(pipe, r, seen, out):
    """Ids and what encode_prompt gives for prompt 0 and the negative prompt, without padding."""
    texts = (("", r["prompts"][0]), ("negative_", r["negative"]))
    print(len(pipe.tokenizer(chat("@").split("@")[0]).input_ids), "ids before a prompt")
    for prefix, text in texts[:1 + (r["guidance"] > 1)]:
        rows, mask, rows_2, mask_2 = pipe.encode_prompt(text)
        out[prefix + "ids"] = pipe.tokenizer(chat(text), return_tensors="pt").input_ids[0].int()
        glyphs = extract_glyph_texts(text)
        if glyphs:
            out[prefix + "ids_2"] = pipe.tokenizer_2(glyphs, return_tensors="pt").input_ids[0].int()
        rows, rows_2 = rows[0][mask[0].bool()], rows_2[0][mask_2[0].bool()]
        rows_2 = torch.nn.functional.pad(rows_2, (0, rows.shape[1] - rows_2.shape[1]))
        out[prefix + "prompt_embeds"] = torch.cat([rows, rows_2, *seen])
        assert len(out[prefix + "ids"]) == len(rows) + DROP


def run(name, out_dir):
    """One request."""
    r = dict(model=name, negative="", length=0, loras={}) | RUNS[name]
    r.setdefault("guidance", MODELS[r["model"]].get("guidance", 6.0))
    d = out_dir / name
    d.mkdir(parents=True, exist_ok=True)
    pipe = load(r["model"], out_dir, r["guidance"])
    if r["loras"]:
        add_loras(pipe, r, d, PEFT, KOHYA, merges=True)
    count = len(r["prompts"])
    gens = [torch.Generator("cpu").manual_seed(r["seed"] + i) for i in range(count)]
    out, trail, noise = {}, [], []
    record_text(pipe, r, [see(pipe, r, d, out)] if "image" in r else [], out)
    prepare, step = pipe.prepare_latents, pipe.scheduler.step
    pipe.prepare_latents = lambda *a, **k: noise.append(prepare(*a, **k)) or noise[0].clone()

    def keep(v, t, z, **kw):
        after = step(v, t, z, **kw)
        trail.append((float(t), after[0].clone()))
        return after
    pipe.scheduler.step = keep
    given = r.get("given") or dict(height=r["height"], width=r["width"])
    frames = pipe(prompt=r["prompts"], num_inference_steps=r["steps"], num_frames=r["frames"],
                  generator=gens, output_type="pt", negative_prompt=[r["negative"]] * count,
                  **given).frames
    keep_frames(name, r, out, trail, noise[0], frames, order=FRAMES_FIRST)
    save_run(d, name, r["model"], {
        "weights": MODELS[r["model"]]["weights"], "prompts": r["prompts"],
        "negative_prompt": r["negative"], "width": r["width"], "height": r["height"],
        "num_frames": r["frames"], "num_inference_steps": r["steps"],
        "guidance_scale": r["guidance"], "seed": r["seed"], "num_images_per_prompt": 1,
        "images": count, "max_sequence_length": r["length"], "scheduler": None, "tiling": False,
        "resolution_binning": False} | ({"image": 1} if "image" in r else {}) | (
            {"loras": [{"path": f"{k}.safetensors", "scale": v} for k, v in r["loras"].items()]}
            if r["loras"] else {}), out)


def make(names, options):
    make_each(names, options.out, MODELS, make_model, run)
