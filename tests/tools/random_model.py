#!/usr/bin/env python3
"""tools/random_model.py on a tiny model of tests/golden: what it writes is complete and generates.

usage: random_model.py ROOT XDIT

Prints TAP.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

from tap import check, done


def run(*command):
    p = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                       text=True, check=False)
    return p.returncode, p.stdout


def main():
    root, xdit = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
    tool, config = root / "tools" / "random_model.py", root / "tests" / "golden" / "zimage"
    with tempfile.TemporaryDirectory() as t:
        t = pathlib.Path(t)
        code, said = run(sys.executable, tool, xdit, config, t / "a", "--shard_gb", "5e-5")
        check("writes a model", code == 0, said)
        index = t / "a" / "transformer" / "diffusion_pytorch_model.safetensors.index.json"
        files = set(json.loads(index.read_text())["weight_map"].values()) if index.exists() else ()
        sizes = sorted((index.parent / f).stat().st_size for f in files)
        # the largest tensor has a file of its own
        check("in shards with an index", len(sizes) > 2 and sizes[-2] < 60000, sizes)
        code, said = run(xdit, "inspect", t / "a")
        check("which is complete", code == 0, said)
        code, said = run(xdit, "generate", "--model", t / "a", "--prompt", "a star", "-W", "32",
                         "-H", "32", "--num_inference_steps", "2", "-o", t / "a.png", "--quiet")
        check("and generates", code == 0 and (t / "a.png").stat().st_size > 100, said)
        run(sys.executable, tool, xdit, config, t / "b", "--shard_gb", "5e-5")
        same = [f for f in (t / "a").rglob("*.safetensors")
                if f.read_bytes() == (t / "b" / f.relative_to(t / "a")).read_bytes()]
        check("the same files again", len(same) >= 5, same)
        code, said = run(sys.executable, tool, xdit, config, t / "a")
        check("nothing is overwritten", code == 1 and "exists" in said, said)
        code, said = run(sys.executable, tool, xdit, root / "doc", t / "c", "--tokenizer",
                         config / "tokenizer")
        check("no components: only what was there", code == 0 and
              not list((t / "c").rglob("*.safetensors")) and (t / "c" / "tokenizer").is_dir(), said)
    return done()


if __name__ == "__main__":
    sys.exit(main())
