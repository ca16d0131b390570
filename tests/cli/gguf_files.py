#!/usr/bin/env python3
"""gguf_files.py XDIT ROOT - the demo model in GGUF files as the package gguf writes them.

tools/gguf_file.py writes transformer and T5 in blocks of all types, and as safetensors files with
the numbers that the package decodes: both generate the same pixels, on one rank and on several that
cut matrices within blocks. Skipped without the packages; XDIT_TEST_GGUF_PYTHON names a Python that
has them. Speaks TAP.
"""

import os
import pathlib
import subprocess
import sys
import tempfile

try:
    import gguf
    import safetensors.torch
except ImportError:
    OTHER = os.environ.pop("XDIT_TEST_GGUF_PYTHON", None)
    if OTHER:
        os.execv(OTHER, [OTHER, *sys.argv])
    print("1..0 # SKIP the Python packages gguf and torch are not there (XDIT_TEST_GGUF_PYTHON)")
    sys.exit(0)

TYPES = "Q8_0,Q4_0,Q4_1,Q5_0,Q5_1,Q2_K,Q3_K,Q4_K,Q5_K,Q6_K,IQ4_NL,IQ4_XS"
T5_NAMES = ["encoder.block.=enc.blk.", "shared.=token_embd.",
            "encoder.final_layer_norm=enc.output_norm",
            "layer.0.SelfAttention.relative_attention_bias=attn_rel_b",
            "layer.0.layer_norm=attn_norm", "layer.1.layer_norm=ffn_norm",
            "layer.0.SelfAttention.=attn_", "layer.1.DenseReluDense.wi_0=ffn_gate",
            "layer.1.DenseReluDense.wi_1=ffn_up", "layer.1.DenseReluDense.wo=ffn_down"]
SETTINGS = [["--dtype", "f32"], ["--dtype", "f32", "--weights_dtype", "int8"],
            ["--dtype", "bf16", "--text_weights_dtype", "int8"],
            ["--dtype", "f32", "--plan", "tp3"], ["--dtype", "f32", "--plan", "tp2pp2"]]


COUNT = {"all": 0, "bad": 0}


def tap(fine, what):
    COUNT["all"] += 1
    COUNT["bad"] += not fine
    print("ok" if fine else "not ok", COUNT["all"], "-", what)


def run(*command):
    return subprocess.run([str(c) for c in command], check=True, stdout=subprocess.PIPE,
                          text=True).stdout


def write_files(root, folder):
    for part, stem, arch, names in (("transformer", "diffusion_pytorch_model", "pig", []),
                                    ("text_encoder", "model", "t5encoder", T5_NAMES)):
        run(sys.executable, root / "tools" / "gguf_file.py",
            root / "models" / "demo-pixart" / part / f"{stem}.safetensors",
            folder / f"{part}.gguf", folder / f"{part}.safetensors", TYPES, "--arch", arch,
            *(f"--rename={n}" for n in names))


def pixels(xdit, root, folder, ending, setting):
    out = folder / f"{ending}.ppm"
    run(xdit, "generate", "--model", root / "models" / "demo-pixart", "--prompt", "a red circle",
        "--num_inference_steps", "3", "--seed", "1", "-q", "-o", out, *setting,
        "--transformer", folder / f"transformer.{ending}",
        "--t5xxl", folder / f"text_encoder.{ending}")
    return out.read_bytes().split(b"\n255\n", 1)[1]


def main():
    xdit, root = map(pathlib.Path, sys.argv[1:3])
    print(f"# gguf beside torch {safetensors.torch.torch.__version__}, {len(gguf.GGML_QUANT_SIZES)}"
          " types")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write_files(root, folder)
        shown = run(xdit, "inspect", folder / "transformer.gguf")
        for kind in TYPES.split(","):
            tap(f"{kind} (" in shown, f"inspect shows {kind}")
        for setting in SETTINGS:
            got, want = (pixels(xdit, root, folder, e, setting) for e in ("gguf", "safetensors"))
            tap(len(set(got)) > 20 and got == want, f"the same pixels with {' '.join(setting)}")
    print(f"1..{COUNT['all']}")
    return COUNT["bad"] > 0


if __name__ == "__main__":
    sys.exit(main())
