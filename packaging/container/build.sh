#!/bin/sh
# build.sh [NAME] - builds the image NAME (default xdit) of packaging/container/Containerfile from
# the files of HEAD, without a daemon and without a registry: buildah builds it, and its base image
# is a Debian that debootstrap makes. Then generates an image in it. Needs root, buildah and
# debootstrap, about ten minutes, and 4 GB of disk. MIRROR: address of Debian's packages. Exit 77:
# a tool is missing.
set -eu
name=${1:-xdit}
mirror=${MIRROR:-http://deb.debian.org/debian}
base=docker.io/library/debian:bookworm-slim
root=$(cd "$(dirname "$0")/../.." && pwd)
PATH=$PATH:/usr/sbin:/sbin
for tool in buildah debootstrap; do
    command -v "$tool" >/dev/null || {
        echo "SKIP: there is no $tool: apt-get install $tool"
        exit 77
    }
done
[ "$(id -u)" = 0 ] || {
    echo "SKIP: debootstrap needs root"
    exit 77
}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
if ! buildah images -q "$base" >/dev/null 2>&1; then
    debootstrap --variant=minbase bookworm "$tmp/base" "$mirror"
    box=$(buildah from scratch)
    buildah add -q "$box" "$tmp/base" /
    buildah commit -q --rm "$box" "$base"
    rm -rf "$tmp/base"
fi
mkdir "$tmp/src"
git -C "$root" archive HEAD | tar x -C "$tmp/src"
(cd "$root" && tools/commit.sh) >"$tmp/src/COMMIT"
buildah bud -q --pull-never --isolation chroot --network host -t "$name" \
    -f packaging/container/Containerfile "$tmp/src"
box=$(buildah from --pull-never "$name")
buildah run --isolation chroot "$box" -- xdit --version
buildah run --isolation chroot "$box" -- xdit generate --model /usr/share/xdit/demo-pixart \
    --prompt "a red circle" --num_inference_steps 2 --output a.png
buildah rm "$box" >/dev/null
echo "The image $name is built, and has generated an image: buildah images"
