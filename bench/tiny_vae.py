#!/usr/bin/env python3
"""The decoder of a model and its tiny decoder, with random weights, in turns: how many times the
operations and the time of the tiny decoder the other takes.

usage: tiny_vae.py STEP DIR [NAME ...] [--repeats 3] [--threads N]

STEP is build/bench/step, DIR a folder that bench/models.py wrote; copies of its models with the
tiny autoencoder are written beside them (DIR/NAME-tiny).
"""
import argparse
import json
import pathlib
import shutil
import statistics
import subprocess

TAEHV = {"_class_name": "TAEHV"}
PATCHES = {**TAEHV, "patch_size": 2}
TAEF = {"_class_name": "AutoencoderTiny", "latent_channels": 16}
# name of the model: tiny autoencoder, its config, width, height, frames (0: an image)
ROWS = {
    "Wan2.1-T2V-1.3B": ("taew2_1", TAEHV, 160, 96, 5),
    "HunyuanVideo": ("taehv", TAEHV, 160, 96, 5),
    "HunyuanVideo-1.5": ("taehv1_5", {**PATCHES, "latent_channels": 32}, 160, 96, 5),
    "CogVideoX-5b": ("taecvx", {**TAEHV, "first_frame_alone": False, "scaling_factor": 0.7},
                     160, 96, 5),
    "LTX-Video": ("shape of taeltx_2", {**TAEHV, "patch_size": 4, "latent_channels": 128,
                             "decoder_time_upscale": [2, 2, 2],
                             "encoder_time_downscale": [2, 2, 2]}, 160, 96, 9),
    "mochi-1-preview": ("taem1", {**TAEHV, "latent_channels": 12,
                                  "decoder_time_upscale": [1, 2, 3],
                                  "encoder_time_downscale": [3, 2, 1]}, 160, 96, 7),
    "Qwen-Image": ("taew2_1", {**TAEHV, "images": True}, 256, 256, 0),
    "FLUX.2-klein-4B": ("taef2", {**TAEF, "latent_channels": 32, "latent_pack": 2,
                                  "use_midblock_gn": True}, 256, 256, 0),
    "FLUX.1-dev": ("taef1", TAEF, 256, 256, 0),
}


def arguments():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("step")
    p.add_argument("dir", type=pathlib.Path)
    p.add_argument("names", nargs="*", metavar="NAME")
    p.add_argument("--repeats", type=int, default=3)
    p.add_argument("--threads", type=int, default=0)
    return p.parse_args()


def with_tiny(model, config):
    copy = model.parent / (model.name + "-tiny")
    shutil.copytree(model, copy, dirs_exist_ok=True)
    (copy / "vae/config.json").write_text(json.dumps(config))
    index = json.loads((copy / "model_index.json").read_text())
    index["vae"] = ["diffusers", config["_class_name"]]
    (copy / "model_index.json").write_text(json.dumps(index))
    return copy


def open_turns(o, model, width, height, frames):
    command = [o.step, str(model), "--part", "vae", "-W", str(width), "-H", str(height), "--turns",
               "--json"]
    command += ["--num_frames", str(frames)] if frames else []
    command += ["--threads", str(o.threads)] if o.threads else []
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def run(turns):
    """Seconds and operations of a decode."""
    turns.stdin.write("\n")
    turns.stdin.flush()
    for line in turns.stdout:
        if line.startswith('{"run"'):
            made = json.loads(line)
            return made["seconds"], made["gflop"]
    raise SystemExit("tiny_vae.py: " + " ".join(turns.args) + " ended")


def row(o, name):
    tiny, config, width, height, frames = ROWS[name]
    both = [open_turns(o, m, width, height, frames)
            for m in (o.dir / name, with_tiny(o.dir / name, config))]
    runs = [[run(t) for t in both] for _ in range(o.repeats)]
    for t in both:
        t.stdin.close()
        t.wait()
    ratios = sorted(full[0] / small[0] for full, small in runs)
    full, small = (r[1] for r in runs[0])
    what = f"{frames} x " if frames else ""
    print(f"| {name} | {tiny} | {what}{height} x {width} | {small:.0f} | {full / small:.0f} | "
          f"{statistics.median(ratios):.0f} ({ratios[0]:.0f}-{ratios[-1]:.0f}) |", flush=True)


def main():
    o = arguments()
    for name in o.names or ROWS:
        row(o, name)


if __name__ == "__main__":
    main()
