#!/usr/bin/env python3
"""Writes tests/golden/clip/*: tiny CLIP text models with what transformers makes of four texts.

Each directory holds config.json, model.safetensors and golden.safetensors: "K.ids" [n] ->
"K.last" [n,E] (after the final norm), "K.penultimate" [n,E] (what the last block reads) and
"K.pooled" [1,P]. Weights are rounded to bf16, as they are stored, before anything is computed.

    tools/golden_clip.py [directory]
"""
import json
import pathlib
import sys

import torch
from safetensors.torch import save_file
from transformers import CLIPTextConfig, CLIPTextModel, CLIPTextModelWithProjection

VOCAB, POSITIONS = 23, 12
COMMON = dict(vocab_size=VOCAB, max_position_embeddings=POSITIONS, bos_token_id=0)

CASES = {
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


def texts(end, pad):
    yield [0, 7, 4, 9, end] + [pad] * (POSITIONS - 5)
    yield [0] + [3 + i % 9 for i in range(POSITIONS - 2)] + [end]
    yield [4, 17, 8]
    yield [end]


def build(cls, config):
    model = cls(CLIPTextConfig(**COMMON, **config)).eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.ndim == 1:
                p.copy_(("norm" in name and name.endswith("weight")) + 0.3 * torch.randn(p.shape))
            else:
                p.copy_(torch.randn(p.shape) * (1 if "embedding" in name else 1.5 / p.shape[1] ** 0.5))
            p.copy_(p.to(torch.bfloat16).float())
    return model


def stored(model, prefix):
    out = {}
    for name, p in model.state_dict().items():
        name = name.removeprefix("text_model.")
        if "position_ids" not in name:
            name = name if name.startswith("text_projection") else prefix + name
            out[name] = p.to(torch.bfloat16).contiguous()
    if prefix:
        out[prefix + "embeddings.position_ids"] = torch.arange(POSITIONS)[None]
    return out


@torch.no_grad()
def golden(model, end, pad):
    out = {}
    for k, ids in enumerate(texts(end, pad)):
        y = model(torch.tensor([ids]), output_hidden_states=True)
        pooled = y.text_embeds if hasattr(y, "text_embeds") else y.pooler_output
        out[f"{k}.ids"] = torch.tensor(ids, dtype=torch.int32)
        out[f"{k}.last"] = y.last_hidden_state[0]
        out[f"{k}.penultimate"] = y.hidden_states[-2][0]
        out[f"{k}.pooled"] = pooled
    return {k: v.contiguous() for k, v in out.items()}


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else
                        pathlib.Path(__file__).resolve().parent.parent / "tests/golden")
    for name, (cls, prefix, end, config) in CASES.items():
        torch.manual_seed(11)
        folder = root / "clip" / name
        folder.mkdir(parents=True, exist_ok=True)
        model = build(cls, config)
        save_file(stored(model, prefix), folder / "model.safetensors")
        save_file(golden(model, end, config["pad_token_id"]), folder / "golden.safetensors")
        record = dict(architectures=[cls.__name__], model_type="clip_text_model", **COMMON, **config)
        (folder / "config.json").write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
