#!/usr/bin/env python3
"""Asks the real cuDNN, where it is installed, to compile the attention of every family for an H100.

usage: check_plans.py ASK CC...

No GPU is needed: cuDNN takes the properties of one as a text, and finds a driver of stubs that this
script makes from the names in <cuda.h>.
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

# What cuDNN wants to know of a GPU, as NVIDIA's data sheets and CUDA's tables have it.
H100 = {
    "deviceName": "NVIDIA H100 80GB HBM3", "deviceVer": 900, "driverVer": 13000,
    "cudaDeviceId": 0, "pciDeviceId": 9008, "isTccDriver": 0, "supportCoopLaunch": 1,
    "multiProcessorCount": 132, "smClockRateKHz": 1980000, "memClockRateKHz": 2619000,
    "totalGlobalMem": 85029158912, "l2CacheSize": 52428800, "warpSize": 32,
    "maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64],
    "maxThreadsPerBlock": 1024, "maxThreadsPerSM": 2048, "maxCtasPerSM": 32,
    "regsPerBlock": 65536, "maxRegistersPerSM": 65536, "maxSharedMemoryPerBlock": 49152,
    "maxSharedMemoryPerBlockOptin": 232448, "reservedSharedMemoryPerBlock": 1024,
}
# Functions of the driver that cuDNN calls without a GPU, and what they give back: 0 by a pointer to
# a number, an address by one to a handle. All others fail.
NUMBERS = {"cuDriverGetVersion": 13000, "cuKernelGetAttribute": 0, "cuFuncGetAttribute": 0,
           "cuCtxGetDevice": 0, "cuDeviceGet": 0}
HANDLES = ("cuLibraryLoadData", "cuLibraryGetKernel", "cuKernelGetFunction", "cuModuleLoadData",
           "cuModuleGetFunction", "cuCtxGetCurrent")
NOTHING = ("cuLibraryUnload", "cuKernelSetAttribute", "cuFuncSetAttribute")


def stubs(header):
    """The text of a driver, every function that <cuda.h> names."""
    names = set(re.findall(r"\bcu[A-Z]\w+(?=\()", header))
    names |= set(re.findall(r"#define +cu[A-Z]\w+ +(cu[A-Z]\w+)", header))
    bodies = {name: "*p = %d; return 0;" % v for name, v in NUMBERS.items()}
    lines = [f"int {n}(int *p) {{ {b} }}" for n, b in bodies.items()]
    lines += [f"int {n}(void **p) {{ *p = (void *)0x1000; return 0; }}" for n in HANDLES]
    lines += [f"int {n}(void) {{ return 0; }}" for n in NOTHING]
    made = {*NUMBERS, *HANDLES, *NOTHING}
    return "\n".join(lines + [f"int {n}(void) {{ return 34; }}" for n in sorted(names - made)])


def find():
    """The folder of cuDNN and the header of the driver, or the reason why there is none."""
    for home in (os.environ.get("CUDA_HOME"), "/usr/local/cuda"):
        at = pathlib.Path(home) if home else None
        if at and (at / "lib64/libcudnn.so.9").exists() and (at / "include/cuda.h").exists():
            return at / "lib64", (at / "include/cuda.h").read_text(encoding="utf-8")
    return None, "neither $CUDA_HOME nor /usr/local/cuda has libcudnn.so.9 and cuda.h"


def main():
    ask, cc = sys.argv[1], sys.argv[2:]
    lib, header = find()
    if not lib:
        print(f"SKIP: {header}")
        return 77
    with tempfile.TemporaryDirectory() as tmp:
        source, gpu = pathlib.Path(tmp) / "stubs.c", pathlib.Path(tmp) / "gpu.json"
        source.write_text(stubs(header), encoding="utf-8")
        gpu.write_text(json.dumps(H100), encoding="utf-8")
        subprocess.run([*cc, "-shared", "-fPIC", "-w", "-o", f"{tmp}/libcuda.so.1", source],
                       check=True)
        env = dict(os.environ, LD_LIBRARY_PATH=f"{tmp}:{lib}")
        return subprocess.run([ask, lib / "libcudnn.so.9", gpu], env=env, check=False).returncode


sys.exit(main())
