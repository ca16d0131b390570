"""Weights that follow from the names of tensors, as xd_random_weight (src/exec/store.c) and
tests/golden/fill.c make them."""
import numpy as np
import torch

MASK = (1 << 64) - 1
TYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


def mix(z):
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xbf58476d1ce4e5b9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94d049bb133111eb)
    return z ^ (z >> np.uint64(31))


def weights(name, shape, gain, mean):
    h = 0xcbf29ce484222325
    for b in name.encode():
        h = ((h ^ b) * 0x100000001b3) & MASK
    with np.errstate(over="ignore"):
        h = mix(np.array([h], np.uint64))
        i = np.arange(1, int(np.prod(shape)) + 1, dtype=np.uint64)
        u = mix(h + i * np.uint64(0x9e3779b97f4a7c15))
        v = (u >> np.uint64(40)).astype(np.float32) * np.float32(1 / 8388608)
        v = (v - np.float32(1)) * np.float32(1.7320508)
    return torch.from_numpy((np.float32(mean) + np.float32(gain) * v).reshape(shape))


def scale_of(name, shape):
    """Gain and mean of a tensor's numbers."""
    if name.endswith(("running_var", "latents_std")):
        return 0.3, 1.0
    if name.endswith("gamma"):
        return 0.1, 1.0
    if len(shape) == 1:
        return 0.1, 1.0 if name.endswith("weight") else 0.0
    if name.endswith("mel_basis"):      # sums of magnitudes, whose logarithm is taken
        return 0.1, 0.3
    if name.endswith("relative_attention_bias.weight"):
        return 0.7, 0.0
    if name.endswith(("shared.weight", "pos_embedding", "register_tokens")):
        return 1.0, 0.0
    if name.startswith("motion_encoder."):  # which divides by the root of the inputs itself
        return 1.0, 0.0
    gain = np.float32(0.9) / np.sqrt(np.float32(np.prod(shape[1:])))
    if name.endswith("decoder.conv_out.conv.weight"):
        gain *= np.float32(0.15)
    elif name.endswith("bwe_generator.conv_out.weight"):    # samples that are not clamped
        gain *= np.float32(0.05)
    elif name.endswith("decoder.proj_out.weight"):
        gain *= np.float32(0.4)
    elif name.endswith("time_step_proj.linear_2.weight"):   # gates of which attention is seen
        gain *= np.float32(2.5)
    elif name.endswith((".q.weight", ".k.weight", "conv_out.weight")):
        gain *= np.float32(0.5)
    return gain, 0.0


def fill(module, dtype, salt=""):
    """All that a file of the module has, rounded to the type in which it is stored ("bf16"). salt:
    before the names, for a second module of the same ones."""
    stored = module.state_dict()
    # what files have before names, and transformers leaves out
    prefix = {"CLIPTextModel": "text_model.", "CLIPVisionModel": "vision_model.",
              "SiglipVisionModel": "vision_model.",
              "BertModel": "bert."}.get(type(module).__name__, "")
    for name, p in list(module.named_parameters()) + [(n, b) for n, b in module.named_buffers()
                                                      if n in stored]:
        name = name if name.startswith(prefix) else prefix + name
        if type(module).__name__ == "Mistral3ForConditionalGeneration":  # as Mistral stores it
            name = name.replace("model.language_model.", "language_model.model.")
        if type(module).__name__ == "Qwen2_5_VLForConditionalGeneration":   # as Qwen stores it
            name = name.replace("model.language_model.", "model.")
            name = name.replace("model.visual.", "visual.")
        if type(module).__name__ == "LlavaForConditionalGeneration":    # as LLaVA is published
            name = name.replace("model.language_model.", "language_model.model.")
            name = name.replace("lm_head.", "language_model.lm_head.")
            name = name.replace("model.vision_tower.", "vision_tower.vision_model.")
            name = name.replace("model.multi_modal_", "multi_modal_")
        gain, mean = scale_of(name, p.shape)
        if type(module).__name__ == "Krea2Transformer2DModel" and p.ndim == 1:
            mean = 0.0                                           # gains are stored minus 1
        p.data.copy_(weights(salt + name, p.shape, gain, mean).to(TYPES[dtype]))
    return module.eval()


def configure(module, folder):
    """The module's configuration, without weights."""
    if hasattr(module.config, "save_pretrained"):
        module.config.architectures = [type(module).__name__]
        module.config.save_pretrained(folder)
    else:
        module.save_config(folder)
