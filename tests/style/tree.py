"""tree.py - the files of the tree."""
import os
import subprocess


def names(root):
    """Names relative to root of the files that git knows; of all files without git. Sorted."""
    try:
        out = subprocess.run(["git", "-C", str(root), "ls-files", "-z"], check=True,
                             capture_output=True).stdout.decode()
        found = [n for n in out.split("\0") if n]
    except (OSError, subprocess.CalledProcessError):
        found = [os.path.relpath(os.path.join(d, f), root)
                 for d, _, files in os.walk(root) for f in files]
        found = [n for n in found if not n.startswith((".git/", "build"))]
    return sorted(n for n in found if (root / n).is_file())
