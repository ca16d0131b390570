#!/usr/bin/env python3
"""Compares our declarations of the CUDA libraries with the real headers, where these are installed.

usage: check_headers.py ROOT CC...

Looks in the compiler's own folders, in $CUDA_HOME and in /usr/local/cuda.
"""
import os
import pathlib
import subprocess
import sys


def main():
    root, cc = pathlib.Path(sys.argv[1]), sys.argv[2:]
    homes = (os.environ.get("CUDA_HOME"), "/usr/local/cuda")
    folders = [pathlib.Path(d) / "include" for d in homes if d]
    flags = [f"-isystem{d}" for d in folders if d.is_dir()]
    bad = found = 0
    for header, check in (("cuda.h", "check_driver.c"), ("cublasLt.h", "check_cublaslt.c"),
                          ("cudnn.h", "check_cudnn.c"), ("nccl.h", "check_nccl.c")):
        probe = subprocess.run([*cc, *flags, "-fsyntax-only", "-xc", "-"], text=True,
                               input=f"#include <{header}>\n", capture_output=True)
        if probe.returncode:
            print(f"# {header} is not installed")
            continue
        found += 1
        run = subprocess.run([*cc, "-std=c11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only",
                              *flags, f"-I{root}", f"-I{root / 'src'}", root / "tests/sim" / check],
                             text=True, capture_output=True)
        bad += run.returncode != 0
        print(f"{header}: {'differs' if run.returncode else 'as declared'}\n{run.stderr}")
    if not found:
        print("SKIP: no header of CUDA is installed")
        return 77
    return 1 if bad else 0


sys.exit(main())
