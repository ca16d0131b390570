#!/usr/bin/env python3
"""A model is known in one place: no code outside of src/families names a family of models, and no
family names another one.

usage: models.py [ROOT]

Families are those of the registry (src/families/meson.build), with their titles, recipes and
classes, and the SYNONYMS. Looks at src/, app/ and include/: code, comments, help texts and files of
the build. By rule a name may stand in
  * NAME.c, NAME_*.c and NAME.h of a room that has a registry of its own (ROOMS), which are about a
    class of that name
    (AutoencoderKLCogVideoX), and the identifiers and file names by which that room reaches them;
  * a path of the demo model;
  * names of models that are not built and contain that of a family (OTHERS).
EXCEPTIONS are all others; one that no line needs is an error, too.
"""
import pathlib
import re
import sys

SYNONYMS = {                    # patterns
    "sd3": [r"(?i:sd[ _-]?3|stable[ _-]?diffusion[ _-]?3)"],
    "cogvideox": ["(?i:cogvideo)"],
    "flux": ["(?i:schnell)"],
    "flux2": [r"(?i:flux[.-]2)"],
    "hunyuandit": ["(?i:hunyuan)"],
}
OTHERS = re.compile(r"HunyuanVideo-1\.5|CausalWan|LTX-?2", re.IGNORECASE)
LONGER = {                      # names of other families that begin like a family's own
    "flux": re.compile(r"flux[.-]?2", re.IGNORECASE),
    "hunyuandit": re.compile(r"hunyuan[_-]?video", re.IGNORECASE),
}
DEMO = re.compile(r"models/demo-\w+")
ROOMS = ("vae", "upsample", "sampler", "text", "audio")
EXCEPTIONS = [  # file, text, reason
    ("app/cli/xdit_flags.c",
     r"the feed-forwards of FLUX|; not CogVideoX, ConsisID|change(s)? little \(FLUX\)|"
     r"\(Wan\)|Wan 2\.2|, of Wan|\"wan_teacache_",
     "what flags mean in xDiT, which has them for these models alone"),
    ("app/serve/comfy_nodes.c", '"', "names of ComfyUI's nodes, and the values of their inputs"),
    ("app/serve/comfy_request.c", 'xd_comfy_is', "names of ComfyUI's nodes"),
    ("app/serve/comfy_images.c", 'xd_comfy_is', "names of ComfyUI's nodes"),
    ("src/io/jpeg.c", "without chroma subsampling", "the colours of an image"),
    ("src/io/movie.c", r"chroma at the left|chroma_(sample_)?location", "the colours of an image"),
]
SUFFIXES = {".c", ".h", ".cc", ".in", ".build"}


def families(root):
    """{family: its files} of the registry."""
    text = (root / "src/families/meson.build").read_text(encoding="utf-8")
    rows = re.findall(r"^  \['(\w+)',\s*([^\]]*)\]", text, re.MULTILINE)
    return {name: re.findall(r"'([^']+)'", files) for name, files in rows}


def pattern_of(name):
    """Anywhere, whatever its case; a short name not inside of a word ("wan" in "want" is none)."""
    text = re.escape(name)
    if len(name) > 4:
        return f"(?i:{text})"
    return f"(?:(?<![A-Za-z])(?i:{text})|{re.escape(name.capitalize())})(?![a-z])"


def names_of(root, family, files):
    """A pattern for everything that a family is called."""
    names = {family}
    for f in files:
        text = (root / "src/families" / f).read_text(encoding="utf-8")
        names |= set(re.findall(r'^    \.(?:title|name) = "([^"]+)"', text, re.MULTILINE))
    return re.compile("|".join([pattern_of(n) for n in sorted(names)] + SYNONYMS.get(family, [])))


def without_rules(path, line, family):
    """The line without what may stand there by rule."""
    line = OTHERS.sub("", DEMO.sub("", line))
    if family in LONGER:
        line = LONGER[family].sub("", line)
    if len(path.parts) > 2 and path.parts[0] == "src" and path.parts[1] in ROOMS:
        room = path.parts[1]
        line = re.sub(rf"xd_{room}_{family}\w*|'{family}\w*\.c'", "", line)
    return line


def is_about_class(path, family):
    own = re.fullmatch(rf"{family}(_\w+)?\.[ch]", path.name)
    return len(path.parts) == 3 and path.parts[1] in ROOMS and own


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    registry = families(root)
    patterns = {f: names_of(root, f, files) for f, files in registry.items()}
    paths = [p.relative_to(root) for d in ("src", "app", "include")
             for p in sorted((root / d).rglob("*"))
             if p.suffix in SUFFIXES]
    found, used = [], set()
    for path in paths:
        own = path.parts[2] if path.parts[:2] == ("src", "families") else None
        own = pathlib.Path(own).stem if own else None
        if own and own not in registry:         # what all families have in common
            continue
        for n, line in enumerate((root / path).read_text(encoding="utf-8").splitlines(), 1):
            for family, pattern in patterns.items():
                m = pattern.search(without_rules(path, line, family))
                if not m or family == own or is_about_class(path, family):
                    continue
                row = [i for i, (file, text, _) in enumerate(EXCEPTIONS)
                       if file == path.as_posix() and re.search(text, line)]
                used |= set(row)
                if not row:
                    found.append(f"{path}:{n}: names {m[0]}, a model of src/families")
    found += [f"{file}: no line needs the exception of {text!r}"
              for i, (file, text, _) in enumerate(EXCEPTIONS)
              if i not in used]
    print(*found, f"{len(registry)} families, {len(paths)} files, {len(found)} complaints",
          sep="\n")
    return 1 if found or not registry or not paths else 0


sys.exit(main())
