"""Every case, by the module of cases/ that makes it, and what it writes below tests/golden.

Needs nothing but Python, so that `--list` works everywhere; tests/tools/cases.py compares it with
the tree and with the modules.
"""


def own(*names):
    """Cases that write a folder of their name."""
    return {name: name for name in names}


SUITES = {
    "pixart": own("alpha", "alpha-ddim", "alpha-euler", "alpha-batch", "alpha-tiles", "alpha-free",
                  "alpha-image", "micro", "sigma", "sigma-dpm", "sigma-image", "bins",
                  "demo") | {"binning": "binning.json"},
    "flux_controlnet": own("flux-controlnet", "flux-controlnet-union", "flux-controlnet-two",
                           "flux-controlnet-image", "flux-controlnet-pixels",
                           "flux-controlnet-pixels-two"),
    "sd3_control": own("sd3-control", "sd3-control-single", "sd3-control-two"),
    "joint": own("flux", "flux-true", "flux-prompts", "flux-image", "flux-mask", "flux-crop",
                 "flux-schnell", "flux-fill", "flux-fill-image", "flux-control",
                 "flux-control-image", "flux-control-mask", "kontext",
                 "kontext-true", "kontext-none", "sd3", "sd3-prompts", "sd3-image", "sd3-mask",
                 "sd3-no-t5", "sd35", "sd35-skip"),
    "zimage": own("zimage", "zimage-cut", "zimage-image", "zimage-mask",
                  "zimage-lora",
                  "zimage-five"),
    "lumina2": own("lumina2", "lumina2-cut", "lumina2-lora", "lumina2-five"),
    "krea2": own("krea2", "krea2-cut", "krea2-image", "krea2-lora", "krea2-turbo"),
    "sana": own("sana", "sana15", "sana-tiles", "sana-window", "sana-lora", "sana-sprint",
                "sana-sprint-4"),
    "sdxl": own("sdxl", "sdxl-zeros", "sdxl-turbo", "sdxl-one", "sdxl-image", "sdxl-mask",
                "sdxl-lora", "sdxl-lcm", "sd", "sd-image", "sd-mask", "sd-lora", "sd2",
                "sdxl-sizes", "sdxl-sizes-image"),
    "sana_video": own("sana-video", "sana-video-five", "sana-video-720", "sana-video-i2v",
                      "sana-video-still", "sana-video-lora"),
    "hunyuan": {"forms": "hunyuan-forms"} | own("hunyuan", "hunyuan12", "hunyuan12-one",
                                                "hunyuan12-rescale", "hunyuan-image",
                                                "hunyuan-control", "hunyuan-control-two",
                                                "hunyuan-control-image"),
    "video": own("cog2b", "cog2b-dynamic", "cog5b", "cog5b-batch", "cog5b-one", "cog5b-tiles",
                 "cog15", "cog15-even", "cog5b-i2v", "cog15-i2v", "cog15-i2v-even",
                 "cog15-i2v-tiles"),
    "hunyuanvideo": own("hunyuanvideo", "hunyuanvideo-one", "hunyuanvideo-tiles",
                        "hunyuanvideo-window", "hunyuanvideo-lora", "hunyuanvideo-five"),
    "hunyuanvideo_image": own("hunyuanvideo-i2v", "hunyuanvideo-i2v-cut", "hunyuanvideo-i2v-lora",
                              "hunyuanvideo-i2v-33ch"),
    "hunyuanvideo15": own("hunyuanvideo15", "hunyuanvideo15-one", "hunyuanvideo15-five",
                          "hunyuanvideo15-i2v", "hunyuanvideo15-few"),
    "latte": own("latte", "latte-one", "latte-dpm"),
    "chroma": own("chroma", "chroma-image", "chroma-one"),
    "auraflow": own("auraflow", "auraflow-cut", "auraflow-one", "auraflow-lora"),
    "flux2": own("flux2-klein", "flux2-base", "flux2-images", "flux2-lora", "flux2-kv",
                 "flux2"),
    "wan": {"forms": "wan-forms"} | own("wan", "wan-one", "wan-five", "wan-lora", "wan-i2v",
                                        "wan-i2v-two", "wan-i2v-one", "wan-i2v-lora", "wan-flf",
                                        "wan-i2v-blind"),
    "ltx": {"forms": "ltx-forms"} | own("ltx", "ltx-one", "ltx-i2v", "ltx-timed", "ltx-five",
                                        "ltx-lora", "ltx-cond", "ltx-cond-late",
                                        "ltx-cond-text"),
    "ltx_up": own("ltx-up", "ltx-up-few", "ltx-up-once"),
    "ltx2": {"forms": "ltx2-forms", "connectors": "ltx2-connectors",
             "audio": "ltx2-audio"} | own("ltx2", "ltx2-five", "ltx2-apart"),
    "mochi": {"forms": "mochi-forms"} | own("mochi", "mochi-one", "mochi-five", "mochi-lora"),
    "wan22": own("wan22", "wan22-two", "wan22-one", "wan22-low", "wan22-lora", "wan22-i2v",
                     "wan-ti2v", "wan-ti2v-text"),
    "vace": {"forms": "vace-forms"} | own("vace", "vace-text", "vace-images", "vace-lora",
                                          "vace-five"),
    "skyreels": {"forms": "skyreels-forms"} | own("skyreels", "skyreels-df", "skyreels-df-lora",
                                                  "skyreels-i2v"),
    "qwenimage21": own("qwen21", "qwen21-five", "qwen21-lora", "qwen21-edit",
                       "qwen21-edit-one"),
    "qwen": own("qwen", "qwen-five", "qwen-image", "qwen-mask"),
    "qwen_edit": own("qwen-edit", "qwen-edit-plus", "qwen-edit-last", "qwen-edit-one",
                     "qwen-edit-lora", "qwen-edit-mask"),
    "caches": own("flux-cache", "flux-taylor", "flux-tea", "flux-db", "wan-cache", "wan-taylor",
                  "wan-tea", "cog5b-cache", "kontext-kept"),
    "fast_attn": own("alpha-ways", "alpha-share", "sd3-ways", "sd35-ways"),
    "lora": own("flux-lora", "flux-control-lora", "sd35-lora", "chroma-lora", "flux-dora"),
    "stale": own("stale"),
    "cog": {name: "cog/" + name for name in ("2b", "5b", "5b-i2v", "1.5-i2v")},
    "cog_vae": {name: "cog-vae/" + name for name in ("four", "two", "eight", "one", "tiles")},
    "ltx_vae": {name: "ltx-vae/" + name
                for name in ("plain", "causal", "timed", "noise", "moved", "second", "types", "old",
                             "tiles")},
    "upsample": {name: "upsample/" + name
                 for name in ("spatial", "flat", "temporal", "both", "rational")},
    "mochi_vae": {name: "mochi-vae/" + name for name in ("six", "three", "one", "tiles")},
    "hunyuanvideo_vae": {name: "hunyuanvideo-vae/" + name
                         for name in ("four", "eight", "last", "tiles")},
    "hunyuanvideo15_vae": {name: "hunyuanvideo15-vae/" + name
                           for name in ("four", "sixteen", "still", "tiles")},
    "causal_vae": {name: "causal-vae/" + name
                   for name in ("small", "like", "decoder", "residual", "image", "tiles-video",
                                "tiles-residual", "tiles-image")},
    "vae": own("vae-plain", "vae-attn", "vae-packed", "vae-tiny", "vae-dc",
               "vae-dc-two"),
    "text": own("clip/plain", "clip/proj", "clip-vision/plain", "clip-vision/proj",
                "clip-vision/siglip", "bert/plain", "bert/prefix", "mt5", "umt5"),
    "lm": {name: "lm/" + name for name in ("qwen3", "qwen2", "qwen25vl", "qwen25vl-images",
                                           "qwen3vl-images",
                                           "mistral", "llama", "gemma2", "gemma3")},
    "captions": {"captions": "captions.txt"},
    "tok": own("tok"),
    "tok_lm": own("tok-lm"),
    "quantized": {name: f"quantized/{name}.safetensors" for name in ("comfy", "nf4", "svdquant")},
    "sampler": {"sampler": "sampler.json"},
    "image_files": {"image_files": "image-files.safetensors"},
    "schedulers": {"schedulers": "schedulers.json"},
}
# What another program writes.
OTHERS = {name: "tools/demo_reference.py" for name in ("demo_sheet.png", "demo_prompts.json")} | {
    name: "tools/demo_video_reference.py" for name in ("demo_video_sheet.png", "demo_video.json")}
