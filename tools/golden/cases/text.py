"""Text encoders: tiny CLIP, BERT, mT5 and UMT5 models with what transformers makes of some texts,
and the encoders of images of CLIP and SigLIP.

Each directory holds config.json, model.safetensors and golden.safetensors: "K.ids" [n] ->
"K.last" [n,E] (after the final norm), and of CLIP "K.penultimate" [n,E] (what the last block reads)
and "K.pooled" [1,P]. The first "K.real" ids are text, those behind are padding that attention_mask
hides; CLIP reads it like text. The encoder of images reads "pixels" [n,3,S,S] and makes "states"
[n R,3 E]: what its first and its last block read, and what comes out of that, in SigLIP behind its
last norm. "K.rgb" [h,w,3] are images, and "K.values" what the image processor beside it makes of
them. Weights are rounded to bf16, as they are stored, before anything is computed.
"""
import json

import torch
from PIL import Image
from safetensors.torch import save_file
from transformers import (BertConfig, BertModel, CLIPImageProcessorPil, CLIPTextConfig,
                          CLIPTextModel, CLIPTextModelWithProjection, CLIPVisionConfig,
                          CLIPVisionModel, CLIPVisionModelWithProjection,
                          SiglipImageProcessorPil, SiglipVisionConfig, SiglipVisionModel, T5Config,
                          T5EncoderModel, UMT5Config, UMT5EncoderModel)

VOCAB, POSITIONS = 23, 12
COMMON = dict(vocab_size=VOCAB, max_position_embeddings=POSITIONS, bos_token_id=0)

CLIPS = {
    # an end mark of old configs: the largest id; names as CLIPTextModel itself has them
    "plain": (CLIPTextModel, "", VOCAB - 1, dict(
        hidden_size=40, intermediate_size=13, num_attention_heads=5, num_hidden_layers=1,
        projection_dim=7, hidden_act="quick_gelu", eos_token_id=2, pad_token_id=1)),
    # padding with the end mark itself, a projection, and the buffer of positions
    "proj": (CLIPTextModelWithProjection, "text_model.", 19, dict(
        hidden_size=27, intermediate_size=20, num_attention_heads=3, num_hidden_layers=3,
        projection_dim=11, hidden_act="gelu", eos_token_id=19, pad_token_id=19,
        layer_norm_eps=1e-4)),
}
VISIONS = {
    # names as CLIPVisionModel itself has them; patches that fill the image, numbers of OpenAI
    "plain": (CLIPVisionModel, "", dict(
        hidden_size=40, intermediate_size=29, num_attention_heads=5, num_hidden_layers=2,
        image_size=12, patch_size=4, hidden_act="quick_gelu"),
        dict(size={"shortest_edge": 12}, crop_size={"height": 12, "width": 12})),
    # pixels that are in no patch, a projection; an image that is resized to a square and padded
    "proj": (CLIPVisionModelWithProjection, "vision_model.", dict(
        hidden_size=27, intermediate_size=20, num_attention_heads=3, num_hidden_layers=3,
        image_size=17, patch_size=5, hidden_act="gelu", layer_norm_eps=1e-4, projection_dim=7),
        dict(size={"height": 14, "width": 20}, crop_size={"height": 17, "width": 17}, resample=2,
             image_mean=[0.1, 0.2, 0.3], image_std=[0.5, 0.4, 0.6])),
}
SIGLIPS = {
    # pixels that are in no patch, a head that nobody reads
    "siglip": (dict(hidden_size=24, intermediate_size=35, num_attention_heads=3,
                    num_hidden_layers=2, image_size=17, patch_size=5),
               dict(size={"height": 17, "width": 17})),
}
BERTS = {
    # names as BertModel itself has them, with the pooler that nobody reads
    "plain": ("", dict(hidden_size=40, intermediate_size=37, num_attention_heads=5,
                       num_hidden_layers=2,
                       type_vocab_size=2, hidden_act="gelu", layer_norm_eps=1e-12)),
    # names as behind a head, and the buffer of positions
    "prefix": ("bert.", dict(hidden_size=27, intermediate_size=20, num_attention_heads=3,
                             num_hidden_layers=3, type_vocab_size=1, hidden_act="gelu_new",
                             layer_norm_eps=1e-5)),
}
# as HunyuanDiT's second: num_heads * d_kv is not d_model, the activation gated, no head for words
MT5 = dict(vocab_size=61, d_model=24, d_kv=9, d_ff=41, num_layers=3, num_heads=4,
           relative_attention_num_buckets=8, relative_attention_max_distance=12,
           feed_forward_proj="gated-gelu", dense_act_fn="gelu_new", is_gated_act=True,
           layer_norm_epsilon=1e-6, tie_word_embeddings=False, pad_token_id=0, eos_token_id=1)
# as Wan's: a position bias in every block
UMT5 = dict(MT5, d_kv=8, num_layers=2, num_heads=5, d_ff=37)


def clip_texts(end, pad):
    yield [0, 7, 4, 9, end] + [pad] * (POSITIONS - 5)
    yield [0] + [3 + i % 9 for i in range(POSITIONS - 2)] + [end]
    yield [4, 17, 8]
    yield [end]


def masked_texts(begin, end, most):
    """Ids, and how many of them are text."""
    yield begin + [7, 4, 9, end] + [0] * (most - 4 - len(begin)), 4 + len(begin)
    yield begin + [5 + i % 17 for i in range(most - 1 - len(begin))] + [end], most
    yield begin + [14, 17, end], 3 + len(begin)
    yield begin + [end] + [0] * 2, 1 + len(begin)


def randomize(model, size=1.5):
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.ndim == 1:
                gain = "norm" in name.lower() and name.endswith("weight")
                p.copy_(gain + 0.3 * torch.randn(p.shape))
            else:
                wide = any(k in name for k in ("embedding", "shared", "relative_attention_bias"))
                scale = 1 if wide else size / p.shape[1] ** 0.5
                if ".SelfAttention.q." in name:         # T5 does not scale what it attends with
                    scale /= model.config.d_kv ** 0.5
                p.copy_(torch.randn(p.shape) * scale)
            p.copy_(p.to(torch.bfloat16).float())
    return model.eval()


def clip_stored(model, prefix):
    out = {}
    for name, p in model.state_dict().items():
        name = name.removeprefix("text_model.")
        if "position_ids" not in name:
            name = name if name.startswith("text_projection") else prefix + name
            out[name] = p.to(torch.bfloat16).contiguous()
    if prefix:
        out[prefix + "embeddings.position_ids"] = torch.arange(POSITIONS)[None]
    return out


def bert_stored(model, prefix):
    out = {prefix + n: p.to(torch.bfloat16).contiguous() for n, p in model.state_dict().items()}
    if prefix:
        out[prefix + "embeddings.position_ids"] = torch.arange(POSITIONS)[None]
    return out


@torch.no_grad()
def clip_golden(model, end, pad):
    out = {}
    for k, ids in enumerate(clip_texts(end, pad)):
        y = model(torch.tensor([ids]), output_hidden_states=True)
        pooled = y.text_embeds if hasattr(y, "text_embeds") else y.pooler_output
        out[f"{k}.ids"] = torch.tensor(ids, dtype=torch.int32)
        out[f"{k}.last"] = y.last_hidden_state[0]
        out[f"{k}.penultimate"] = y.hidden_states[-2][0]
        out[f"{k}.pooled"] = pooled
    return {k: v.contiguous() for k, v in out.items()}


@torch.no_grad()
def masked_golden(model, texts):
    out = {}
    for k, (ids, real) in enumerate(texts):
        mask = torch.tensor([[1] * real + [0] * (len(ids) - real)])
        out[f"{k}.ids"] = torch.tensor(ids, dtype=torch.int32)
        out[f"{k}.real"] = torch.tensor([real], dtype=torch.int32)
        out[f"{k}.last"] = model(torch.tensor([ids]), attention_mask=mask)[0][0].contiguous()
    return out


def save(folder, stored, golden, config):
    folder.mkdir(parents=True, exist_ok=True)
    save_file(stored, folder / "model.safetensors")
    save_file(golden, folder / "golden.safetensors")
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")


def make_clip(name, root):
    cls, prefix, end, config = CLIPS[name]
    torch.manual_seed(11)
    model = randomize(cls(CLIPTextConfig(**COMMON, **config)))
    save(root / "clip" / name, clip_stored(model, prefix),
         clip_golden(model, end, config["pad_token_id"]),
         dict(architectures=[cls.__name__], model_type="clip_text_model", **COMMON, **config))


@torch.no_grad()
def make_vision(name, root):
    cls, prefix, config, pixels = VISIONS[name]
    torch.manual_seed(14)
    model = randomize(cls(CLIPVisionConfig(**config)))
    stored = {n if n.startswith(("vision_model.", "visual_")) else prefix + n:
              p.to(torch.bfloat16).contiguous() for n, p in model.state_dict().items()
              if "position_ids" not in n}
    save_vision(root / "clip-vision" / name, model, stored, config, "clip_vision_model",
                CLIPImageProcessorPil(**pixels))


@torch.no_grad()
def make_siglip(name, root):
    config, pixels = SIGLIPS[name]
    torch.manual_seed(15)
    model = randomize(SiglipVisionModel(SiglipVisionConfig(**config)))
    stored = {"vision_model." + n: p.to(torch.bfloat16).contiguous()
              for n, p in model.state_dict().items() if "position_ids" not in n}
    save_vision(root / "clip-vision" / name, model, stored, config, "siglip_vision_model",
                SiglipImageProcessorPil(**pixels))


def save_vision(out, model, stored, config, kind, processor):
    side = config["image_size"]
    golden = {"pixels": torch.randn(2, 3, side, side)}
    y = model(golden["pixels"], output_hidden_states=True)
    states = list(y.hidden_states)
    assert len(states) == config["num_hidden_layers"] + 1
    if kind.startswith("siglip"):
        states[-1] = y.last_hidden_state
    golden["states"] = torch.cat([states[i] for i in (0, -2, -1)], 2).flatten(0, 1).contiguous()
    for k, (h, w) in enumerate(((17, 41), (31, 9), (5, 4), (12, 12))):
        rgb = torch.randint(0, 256, (h, w, 3), dtype=torch.uint8)
        golden[f"{k}.rgb"] = rgb.float()
        golden[f"{k}.values"] = processor(images=Image.fromarray(rgb.numpy()),
                                          return_tensors="pt").pixel_values[0].contiguous()
    save(out, stored, golden,
         dict(architectures=[type(model).__name__], model_type=kind, **config))
    processor.save_pretrained(out)


def make_bert(name, root):
    prefix, config = BERTS[name]
    torch.manual_seed(12)
    model = randomize(BertModel(BertConfig(**COMMON, **config)))
    save(root / "bert" / name, bert_stored(model, prefix),
         masked_golden(model, masked_texts([2], 3, POSITIONS)),
         dict(architectures=["BertModel"], model_type="bert",
              position_embedding_type="absolute", **COMMON, **config))


def make_t5(root, name, cls, config):
    torch.manual_seed(13)
    model = randomize(cls(config), 1)
    stored = {n: p.to(torch.bfloat16).contiguous() for n, p in model.state_dict().items()
              if n != "encoder.embed_tokens.weight"}
    save(root / name, stored, masked_golden(model, masked_texts([], 1, 20)),
         dict(architectures=[cls.__name__], model_type=config.model_type,
              **(MT5 if name == "mt5" else UMT5)))


def make(names, options):
    for name in names:
        kind, _, form = name.partition("/")
        if kind == "clip":
            make_clip(form, options.out)
        elif form in SIGLIPS:
            make_siglip(form, options.out)
        elif kind == "clip-vision":
            make_vision(form, options.out)
        elif kind == "bert":
            make_bert(form, options.out)
        elif kind == "mt5":
            make_t5(options.out, kind, T5EncoderModel, T5Config(**MT5))
        else:
            make_t5(options.out, kind, UMT5EncoderModel, UMT5Config(**UMT5))
