#!/usr/bin/env python3
"""Every header compiles alone: the public ones as C99 and as C++, all others of src/ as C11.

usage: headers.py ROOT -- CC... -- CXX...

Headers of kernels (src/backend/cpu) are compiled for all instruction sets that the compiler knows.
A header that needs definitions of the file that includes it is a template: its name ends in
_tmpl.h, it is not compiled alone, and its first comment says what "the including file defines".
"""
import pathlib
import re
import subprocess
import sys

MOST = 20       # functions of xdit.h
WARN = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only"]
SETS = ["-mavx2", "-mfma", "-mf16c", "-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl",
        "-mavx512vbmi", "-mavx512vnni", "-mavx512bf16", "-mamx-tile", "-mamx-bf16", "-mamx-int8",
        "-mprfchw", "-fopenmp-simd"]


def compiled(compiler, flags, text):
    return subprocess.run([*compiler, *flags, "-fsyntax-only", "-"], input=text, text=True,
                          capture_output=True)


def alone(compiler, flags, header, include):
    """None, or what the compiler says about a file that includes this header twice."""
    run = compiled(compiler, [*flags, *WARN, *(f"-I{d}" for d in include)],
                   f'#include "{header}"\n#include "{header}"\n')
    return None if run.returncode == 0 else run.stderr


def padded_ends(cc, cxx, root):
    """Lines of public headers where a record ends in padding, in which a later field would lie in
    bytes that a program did not set."""
    for name, _, compiler, flags, include in public_jobs(root, cc, cxx):
        run = compiled(compiler, [*flags, "-Wpadded", *(f"-I{d}" for d in include)],
                       f'#include "{name}"\n')
        yield from (line for line in run.stderr.splitlines() if "alignment boundary" in line)


def mpi_flags():
    """Where mpi.h is, for the headers of the room that uses it; None: there is no MPI here."""
    for name in ("ompi-c", "mpich"):
        run = subprocess.run(["pkg-config", "--cflags", name], text=True, capture_output=True)
        if run.returncode == 0:
            return run.stdout.split()
    return None


def kernel_flags(cc):
    """Flags of the instruction sets; None: this compiler or processor family has others."""
    known = [f for f in SETS if compiled(cc, ["-Werror", f, "-xc"], "").returncode == 0]
    return known if "-mavx512bf16" in known else None


def public_jobs(root, cc, cxx):
    """(header, language, compiler, flags, folders of headers) of every run."""
    include = [root / "include"]
    for h in sorted(include[0].rglob("*.h")):
        name = h.relative_to(include[0])
        yield name, "C99", cc, ["-std=c99", "-xc"], include
        yield name, "C++", cxx, ["-std=c++11", "-xc++"], include


def inner_jobs(root, cc, headers):
    kernels, mpi = kernel_flags(cc), mpi_flags()
    for h in headers:
        name, text = h.relative_to(root / "src"), h.read_text()
        flags = ["-std=c11", "-D_POSIX_C_SOURCE=200809L", "-xc"]
        if "<mpi.h>" in text and mpi is None:
            print(f"# skipped {name}: it needs mpi.h, which is not installed")
            continue
        if "<mpi.h>" in text:
            flags += mpi
        if name.parts[:2] == ("backend", "cpu"):
            if kernels is None:
                print(f"# skipped {name}: the compiler lacks its instruction sets")
                continue
            flags += kernels
        yield name, "C11", cc, flags, [root / "include", root / "src"]


def complaint_about(template, text, including):
    """None, or what is wrong with a header that is not compiled alone."""
    first = re.match(r"/\*(.*?)\*/", text, re.DOTALL)
    said = re.sub(r"\s*\n \*\s*", " ", first[1]) if first else ""
    if "including file" not in said or "defines" not in said:
        return "its first comment does not say what the including file defines"
    if f'/{template.name}"' not in including:
        return "no file includes it"
    return None


def main():
    args = sys.argv[1:]
    cut = args.index("--")
    root = pathlib.Path(args[0]).resolve()
    rest = args[cut + 1:]
    cc, cxx = rest[:rest.index("--")], rest[rest.index("--") + 1:]
    headers = sorted((root / "src").rglob("*.h"))
    templates = [h for h in headers if h.name.endswith("_tmpl.h")]
    main_header = root / "include" / "xdit" / "xdit.h"
    declared = sum(line.startswith("XD_API") for line in main_header.read_text().splitlines())
    if declared > MOST:
        print(f"xdit.h declares {declared} functions, at most {MOST}: tools.h takes the rest")
        return 1
    public = list(public_jobs(root, cc, cxx))
    inner = list(inner_jobs(root, cc, [h for h in headers if h not in templates]))
    bad = 0
    for name, language, compiler, flags, dirs in public + inner:
        says = alone(compiler, flags, name, dirs)
        if says is not None:
            bad += 1
            print(f"{name} alone as {language}:\n{says}")
    for line in sorted(set(padded_ends(cc, cxx, root))):
        bad += 1
        print(f"a record's size is no multiple of 8 without padding: {line}")
    including = "\n".join(line for f in (root / "src").rglob("*.[ch]")
                          for line in f.read_text().splitlines() if line.startswith("#include"))
    for h in templates:
        says = complaint_about(h, h.read_text(), including)
        if says is not None:
            bad += 1
            print(f"{h.relative_to(root)}: {says}")
    print(f"{len(public)} runs over public headers, {len(inner)} over inner ones, "
          f"{len(templates)} templates, {bad} failed")
    return 1 if bad or not public or not inner else 0


sys.exit(main())
