"""Decoder language models as text encoders: tiny models of every kind with what transformers makes
of some ids.

Each directory holds config.json, model.safetensors and golden.safetensors: "K.ids" [n], of which
"K.real" from "K.first" on are text and the others padding that attention_mask hides ->
"K.hidden.J" [n,E], hidden state J of transformers (0 the embeddings, the last behind the final
norm). Weights are rounded to bf16, as they are stored, before anything is computed. Attention is
torch's, in which rows that see no key get zeros; Gemma 2, whose scores have a soft cap, is computed
by transformers' own attention, where such rows hold an average of all rows: of its padding the
golden file has zeros, and no test reads them.

qwen25vl-images and qwen3vl-images have a vision tower and one text with two images, "image.K"
[height,width,3], whose ids begin at "at" [2]. Of qwen3vl-images, "rows" are what the tower makes of
the images: the rows that replace embeddings and, behind them, the features that the language model
adds; a hidden state is the input of its block, with these features.
"""
import json

import torch
import transformers as T
from safetensors.torch import save_file
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

VOCAB = 37
SIZES = dict(vocab_size=VOCAB, hidden_size=20, intermediate_size=27, num_hidden_layers=3,
             num_attention_heads=6, num_key_value_heads=2, max_position_embeddings=64,
             bos_token_id=1, eos_token_id=2, pad_token_id=0)
LLAMA3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=32)

# class, what it is made of, how the names of its tensors begin and began, what else its file holds,
# config.json: keys to drop and to put there, as versions before 5 wrote them
CASES = {
    "qwen3": dict(
        cls=T.Qwen3ForCausalLM, config=T.Qwen3Config, prefix=("model.", "model."),
        keys=dict(SIZES, head_dim=8, rope_parameters=dict(rope_type="default", rope_theta=1e6)),
        drop=["rope_parameters", "layer_types", "dtype"],
        put=dict(rope_theta=1000000, rope_scaling=None, torch_dtype="bfloat16",
                 sliding_window=None)),
    # a window in the last layer, biases, heads of hidden_size / heads
    "qwen2": dict(
        cls=T.Qwen2Model, config=T.Qwen2Config, prefix=("", ""),
        keys=dict(SIZES, hidden_size=24, num_attention_heads=3, num_key_value_heads=1,
                  use_sliding_window=True, sliding_window=4, max_window_layers=2,
                  rope_parameters=dict(rope_type="default", rope_theta=5e4))),
    # numbers at the top, as versions before 4.52 stored them
    "qwen25vl": dict(
        cls=T.Qwen2_5_VLForConditionalGeneration, config=T.Qwen2_5_VLConfig,
        prefix=("model.language_model.", "model."), more={"visual.": "model.visual."},
        text=dict(SIZES, hidden_size=32, num_attention_heads=4, rms_norm_eps=1e-6,
                  rope_parameters=dict(rope_type="default", rope_theta=1e6,
                                       mrope_section=[1, 1, 2])),
        vision=dict(depth=1, hidden_size=8, intermediate_size=12, num_heads=2, out_hidden_size=32,
                    patch_size=4, fullatt_block_indexes=[0], window_size=16)),
    "qwen25vl-images": dict(
        cls=T.Qwen2_5_VLForConditionalGeneration, config=T.Qwen2_5_VLConfig, whole=True,
        prefix=("model.language_model.", "model.language_model."), keys=dict(image_token_id=31),
        text=dict(SIZES, hidden_size=40, num_attention_heads=4, rms_norm_eps=1e-6,
                  rope_parameters=dict(rope_type="default", rope_theta=1e4,
                                       mrope_section=[2, 1, 2])),
        vision=dict(depth=3, hidden_size=36, intermediate_size=21, num_heads=3, out_hidden_size=40,
                    patch_size=2, fullatt_block_indexes=[1], window_size=8)),
    "qwen3vl-images": dict(
        cls=T.Qwen3VLForConditionalGeneration, config=T.Qwen3VLConfig, whole=True,
        prefix=("model.language_model.", "model.language_model."), keys=dict(image_token_id=31),
        text=dict(SIZES, hidden_size=40, num_attention_heads=4, head_dim=14, rms_norm_eps=1e-6,
                  rope_parameters=dict(rope_type="default", rope_theta=1e4, mrope_interleaved=True,
                                       mrope_section=[3, 2, 2])),
        vision=dict(depth=3, hidden_size=36, intermediate_size=21, num_heads=3, out_hidden_size=40,
                    patch_size=2, num_position_embeddings=25, deepstack_visual_indexes=[0, 2])),
    "mistral": dict(
        cls=T.Mistral3ForConditionalGeneration, config=T.Mistral3Config,
        prefix=("model.language_model.", "language_model.model."),
        more={"vision_tower.": "model.vision_tower.",
              "multi_modal_projector.": "model.multi_modal_projector.",
              "language_model.lm_head.": "lm_head."},
        text=dict(SIZES, model_type="mistral", head_dim=12, num_attention_heads=4,
                  rms_norm_eps=1e-5, sliding_window=None,
                  rope_parameters=dict(rope_type="default", rope_theta=1e9)),
        vision=dict(model_type="pixtral", hidden_size=8, intermediate_size=12,
                    num_hidden_layers=1, num_attention_heads=2, head_dim=4, image_size=16,
                    patch_size=4)),
    # frequencies of all three ranges of llama3
    "llama": dict(
        cls=T.LlamaForCausalLM, config=T.LlamaConfig, prefix=("model.", "model."),
        keys=dict(SIZES, num_attention_heads=5, num_key_value_heads=5, head_dim=16,
                  rms_norm_eps=1e-5, attention_bias=True, mlp_bias=True,
                  rope_parameters=dict(LLAMA3, rope_theta=5e2))),
    "gemma2": dict(
        cls=T.Gemma2Model, config=T.Gemma2Config, prefix=("", ""), attention="eager",
        keys=dict(SIZES, hidden_size=18, num_hidden_layers=4, head_dim=10, query_pre_attn_scalar=14,
                  sliding_window=4, attn_logit_softcapping=2.0,
                  rope_parameters=dict(rope_type="default", rope_theta=1e4)),
        drop=["rope_parameters", "layer_types"], put=dict(rope_theta=10000.0)),
    "gemma3": dict(
        cls=T.Gemma3ForConditionalGeneration, config=T.Gemma3Config,
        prefix=("model.language_model.", "language_model.model."),
        more={"vision_tower.": "model.vision_tower.",
              "multi_modal_projector.": "model.multi_modal_projector."},
        text=dict(SIZES, hidden_size=18, num_hidden_layers=4, num_key_value_heads=3, head_dim=10,
                  query_pre_attn_scalar=14, sliding_window=3,
                  layer_types=["sliding_attention", "full_attention", "sliding_attention",
                               "full_attention"],
                  rope_parameters=dict(
                      full_attention=dict(rope_type="linear", factor=8.0, rope_theta=1e6),
                      sliding_attention=dict(rope_type="default", rope_theta=1e4))),
        vision=dict(hidden_size=8, intermediate_size=12, num_hidden_layers=1,
                    num_attention_heads=2, image_size=8, patch_size=4)),
}


def texts():
    """Ids, the first that is text, and how many are."""
    yield [3 + 7 * i % 31 for i in range(13)], 0, 13
    yield [5, 9, 30, 21, 6] + [0] * 6, 0, 5
    yield [0] * 4 + [11, 4, 28, 17, 9, 33, 8], 4, 7
    yield [12], 0, 1


def randomize(model):
    gen = torch.Generator().manual_seed(21)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.ndim == 1:
                one = name.endswith("weight") and "Gemma" not in type(model).__name__
                p.copy_(one + 0.3 * torch.randn(p.shape, generator=gen))
            else:
                scale = 1 if "embed" in name else 1 / p.shape[1] ** 0.5
                p.copy_(torch.randn(p.shape, generator=gen) * scale)
            p.copy_(p.to(torch.bfloat16).float())
    return model.eval()


def build(c):
    if "text" not in c:
        config = c["config"](**c["keys"])
    else:
        config = c["config"](text_config=dict(c["text"]), vision_config=dict(c["vision"]),
                             **c.get("keys", {}))
    config._attn_implementation = c.get("attention", "sdpa")
    return randomize(c["cls"](config))


def stored(model, c):
    """Tensors of the file by the names that files have."""
    new, old = c["prefix"]
    out = {}
    for name, p in model.state_dict().items():
        for key, value in c.get("more", {}).items():
            if name.startswith(value):
                name = key + name[len(value):]
                break
        else:
            if name.startswith(new):
                name = old + name[len(new):]
        out[name] = p.to(torch.bfloat16).contiguous().clone()
    if model.config.tie_word_embeddings:
        out.pop("lm_head.weight", None)
        out.pop("language_model.lm_head.weight", None)
    # one tensor of each part that is not read says as much as all
    keep, seen = {}, set()
    for name in sorted(out):
        part = name.split(".")[0]
        if part in ("visual", "vision_tower") and not c.get("whole"):
            if part in seen:
                continue
            seen.add(part)
        keep[name] = out[name]
    return keep


@torch.no_grad()
def golden(model, c):
    out = {}
    for k, (ids, first, real) in enumerate(texts()):
        mask = torch.zeros(1, len(ids), dtype=torch.long)
        mask[0, first:first + real] = 1
        y = model(input_ids=torch.tensor([ids]), attention_mask=mask, output_hidden_states=True,
                  use_cache=False)
        out[f"{k}.ids"] = torch.tensor(ids, dtype=torch.int32)
        out[f"{k}.first"] = torch.tensor([first], dtype=torch.int32)
        out[f"{k}.real"] = torch.tensor([real], dtype=torch.int32)
        for j, h in enumerate(y.hidden_states):
            h = h[0].clone()
            if c.get("attention") == "eager":
                h[:first] = h[first + real:] = 0
            out[f"{k}.hidden.{j}"] = h.contiguous()
    return out


# Sides of images in pixels, of whole 4; windows of 8 do not divide them.
IMAGES = ((12, 20), (28, 4))
MEAN, STD = (0.5, 0.25, 0.75), (0.25, 0.5, 0.4)


@torch.no_grad()
def golden_images(model):
    gen, image, out, ids, at = torch.Generator().manual_seed(5), 31, {}, [7, 2], []
    shown, grids = [], []
    prepare = Qwen2VLImageProcessorPil(patch_size=2, merge_size=2, min_pixels=16, max_pixels=4096,
                                       image_mean=MEAN, image_std=STD)
    for k, (high, wide) in enumerate(IMAGES):
        u8 = torch.randint(0, 256, (high, wide, 3), generator=gen, dtype=torch.uint8)
        one = prepare(images=u8.numpy(), return_tensors="pt")
        shown.append(one["pixel_values"])
        grids.append(one["image_grid_thw"])
        assert grids[k].tolist() == [[1, high // 2, wide // 2]]
        at.append(len(ids))
        ids += [image] * (high * wide // 16) + [3 + k] * (k + 1)
        out[f"image.{k}"] = u8.float()
    types = (torch.tensor([ids]) == image).int()
    states = []
    for layer in model.model.language_model.layers:
        layer.register_forward_pre_hook(lambda m, a: states.append(a[0]))
    y = model(input_ids=torch.tensor([ids]), attention_mask=torch.ones(1, len(ids)).long(),
              pixel_values=torch.cat(shown), image_grid_thw=torch.cat(grids),
              mm_token_type_ids=types, output_hidden_states=True, use_cache=False)
    out["0.ids"] = torch.tensor(ids, dtype=torch.int32)
    out["at"] = torch.tensor(at, dtype=torch.int32)
    for j, h in enumerate(states + [y.hidden_states[-1]]):
        out[f"0.hidden.{j}"] = h[0].contiguous()
    if hasattr(model.model.visual, "deepstack_merger_list"):
        seen = model.model.visual(torch.cat(shown), grid_thw=torch.cat(grids))
        out["rows"] = torch.cat([seen.pooler_output, *seen.deepstack_features], dim=1)
    return out


def tidy(config):
    """Without keys that all models of transformers have."""
    return {k: tidy(v) if isinstance(v, dict) else v for k, v in config.items() if k not in (
        "transformers_version", "_name_or_path", "id2label", "label2id", "return_dict",
        "output_attentions", "output_hidden_states", "chunk_size_feed_forward", "architectures",
        "is_encoder_decoder", "problem_type")}


def config_of(model, name, c):
    config = tidy(json.loads(model.config.to_json_string(use_diff=False)))
    config = dict(architectures=[c["cls"].__name__]) | config
    if name == "qwen25vl":
        text = config.pop("text_config")
        rope = text.pop("rope_parameters")
        config |= {k: v for k, v in text.items() if k not in ("model_type", "dtype", "layer_types")}
        config |= dict(model_type="qwen2_5_vl", rope_theta=rope["rope_theta"], rope_scaling=dict(
            type="mrope", mrope_section=rope["mrope_section"]))
    for key in c.get("drop", []):
        config.pop(key, None)
    config |= c.get("put", {})
    return {k: v for k, v in config.items() if v not in (None, {}, []) or k in c.get("put", {})}


def make(names, options):
    for name in names:
        c = CASES[name]
        model = build(c)
        folder = options.out / "lm" / name
        folder.mkdir(parents=True, exist_ok=True)
        save_file(stored(model, c), folder / "model.safetensors")
        save_file(golden_images(model) if c.get("whole") else golden(model, c),
                  folder / "golden.safetensors")
        (folder / "config.json").write_text(json.dumps(config_of(model, name, c), indent=2) + "\n")
        for p in folder.iterdir():
            p.chmod(0o644)
