#!/usr/bin/env python3
"""models.py XDIT ROOT - xdit models: the Hugging Face cache and directories; and what xdit generate
takes and asks for where it is told nothing. Speaks TAP."""
import json
import os
import pathlib
import pty
import shutil
import subprocess
import sys
import tempfile

sys.path.append(str(pathlib.Path(__file__).parents[1] / "tools"))
from tap import check, done

XDIT, ROOT = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
DEMO = ROOT / "models" / "demo-pixart"
T = pathlib.Path(tempfile.mkdtemp())


def run(*args, hub=T / "hub"):
    return subprocess.run([XDIT, *args], env={**os.environ, "HF_HUB_CACHE": str(hub)}, cwd=T,
                          stdin=subprocess.DEVNULL, capture_output=True, text=True)


def listed(*args):
    r = run("models", "--json", *args)
    return {m["name"]: m for m in map(json.loads, r.stdout.splitlines())}


def put(name, source, ref="main"):
    """A model of the cache whose snapshot is a copy of `source`."""
    repo = T / "hub" / ("models--" + name.replace("/", "--"))
    (repo / "refs").mkdir(parents=True)
    (repo / "refs" / ref).write_text("abc")
    shutil.copytree(source, repo / "snapshots" / "abc")
    return repo / "snapshots" / "abc"


def ask(answer):
    """xdit generate without a flag, at a terminal at which `answer` is typed."""
    pid, fd = pty.fork()
    if pid == 0:
        os.chdir(T)
        os.environ["HF_HUB_CACHE"] = str(T / "hub")
        os.execv(XDIT, [str(XDIT), "generate"])
    os.write(fd, answer)
    seen = b""
    try:
        while chunk := os.read(fd, 4096):
            seen += chunk
    except OSError:
        pass
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), seen.decode()


r = run("models", hub=T / "none")
check("no cache", r.returncode == 0 and r.stdout == "" and "hf download ORG/NAME" in r.stderr, r)
r = run("generate", "--prompt", "a", hub=T / "none")
check("generate without a model", r.returncode == 2 and "--model is missing" in r.stderr and
      "hf download ORG/NAME" in r.stderr, r)

put("org/demo", DEMO)
r = run("models")
check("a model of the cache", r.returncode == 0 and r.stdout.startswith(
    "org/demo\n    pixart-alpha, makes images, ") and "fits: " in r.stdout and not r.stderr, r)
m = listed()["org/demo"]
check("its JSON", m["complete"] and m["fits"] and m["recipe"] == "pixart-alpha" and
      m["makes"] == "image" and m["bytes"] > 1e7 and m["directory"].endswith("snapshots/abc"), m)
m = listed("--memory", "3MB")["org/demo"]
check("too little memory", not m["fits"] and "3 MB" in m["how"], m)
r = run("models", "--memory", "3 apples")
check("no size", r.returncode == 2 and "memory" in r.stderr, r)

r = run("generate", "--prompt", "a red circle", "--num_inference_steps", "1", "-o", "x.png")
check("the only model is taken", r.returncode == 0 and (T / "x.png").exists() and
      "xdit: model org/demo" in r.stderr and "128 x 128, 1 step, " in r.stderr, r)
r = run("generate", "--prompt", "a", "--num_inference_steps", "1", "-o", "x.png", "--quiet")
check("in silence, where that is asked for", r.returncode == 0 and r.stderr == "", r)
r = run("generate")
check("no prompt, and nobody to ask", r.returncode == 2 and "--prompt" in r.stderr, r)
rc, seen = ask(b"a green star\n")
check("a prompt is asked for", rc == 0 and "Prompt: " in seen and (T / "output.png").exists() and
      b"a green star" in (T / "output.png").read_bytes(), seen)
rc, seen = ask(b"\n")
check("no answer", rc == 2 and "--prompt" in seen, seen)

r = run("generate", "a red circle", "--num_inference_steps", "1", "-o", "x.png")
check("a prompt without its flag", r.returncode == 0 and
      b"a red circle" in (T / "x.png").read_bytes(), r)
for named, args in (("a", ["a", "--prompt", "b"]), ("a", ["--prompt", "b", "a"]),
                    ("b", ["a", "b"]), ("x.png", ["x.png"])):
    r = run("generate", "-o", "y.png", *args)
    check(f"refused: {args}", r.returncode == 2 and not (T / "y.png").exists() and
          f"'{named}'" in r.stderr, r)
(T / "models").mkdir()
(T / "models" / "demo").symlink_to(DEMO)
(T / "models" / "lora.safetensors").write_bytes(b"")
r = run("generate", "a red circle", "--num_inference_steps", "1", "-o", "x.png", hub=T / "none")
check("the only model of ./models", r.returncode == 0 and "xdit: model models/demo" in r.stderr, r)
r = run("generate", "a red circle")
check("two models: of the cache and here", r.returncode == 2 and
      "--model org/demo" in r.stderr and "--model models/demo" in r.stderr, r)
shutil.rmtree(T / "models")

broken = put("org/broken", DEMO)
(broken / "vae" / "diffusion_pytorch_model.safetensors").unlink()
m = listed()
check("what is missing", not m["org/broken"]["complete"] and m["org/broken"]["missing"] == 1 and
      "vae" in m["org/broken"]["first_missing"] and m["org/demo"]["complete"], m)
r = run("models")
check("how to get it", "hf download org/broken\n" in r.stdout, r)
r = run("generate", "--prompt", "a")
r = run("generate", "a red circle", "--num_inference_steps", "1", "-o", "x.png",
        hub=T / "none")

(T / "mine" / "group").mkdir(parents=True)
(T / "mine" / "demo").symlink_to(DEMO)
(T / "mine" / "group" / "other").symlink_to(DEMO)
(T / "mine" / "notes.txt").write_text("no model")
(T / "mine" / "unet").mkdir()
weights = next((DEMO / "transformer").glob("*.safetensors"))
(T / "mine" / "unet" / "w.safetensors").symlink_to(weights)
(T / "mine" / "broken.gguf").write_text("GGUF, but no more")
m = listed("--models", str(T / "mine"))
one = m.pop(str(T / "mine/unet/w.safetensors"))
check("a file of weights", one["components"][0]["component"] == "transformer" and
      "PixArt" in one["components"][0]["layout"] and one["first_missing"] == "", one)
one = m.pop(str(T / "mine/broken.gguf"))
check("a broken one", one["components"] == [] and "broken.gguf" in one["first_missing"], one)
r = run("models", "--models", str(T / "mine"))
check("how it is taken", f"--model DIR --transformer {T}/mine/unet/w.safetensors\n" in r.stdout and
      f"{T}/mine/broken.gguf\n    " in r.stdout, r)
r = run("generate", "--model", str(DEMO), "--transformer", str(T / "mine/unet/w.safetensors"),
        "--prompt", "a red circle", "--num_inference_steps", "1", "-o", "y.png")
check("it is", r.returncode == 0 and (T / "y.png").exists(), r)
check("directories", set(m) == {"org/broken", "org/demo", str(T / "mine/demo"),
                                str(T / "mine/group/other")}, m)
check("a model itself", str(DEMO) in listed("--models", str(DEMO)))
(T / "odd").mkdir()
(T / "odd" / "model_index.json").write_text("{ no JSON")
m = listed("--models", str(T / "odd"))[str(T / "odd")]
check("a broken index", not m["complete"] and m["recipe"] == "" and "model_index.json" in
      m["first_missing"], m)
r = run("models", "--models", str(T / "gone"))
check("a directory that is not there", r.returncode == 1 and "gone: No such file" in r.stderr, r)
check("an operand", run("models", "x").returncode == 2)
shutil.rmtree(T)
sys.exit(done())
