#!/bin/sh
# chroot_check.sh - builds the Debian packages of HEAD in a clean Debian, installs them there, and
# generates an image with the program and with the Python module. Needs root and debootstrap, about
# ten minutes, and 3 GB of disk (see packaging/chroot.sh). SUITE: release, default bookworm.
set -eu
"$(dirname "$0")/chroot.sh" "${SUITE:-bookworm}" <<'INSIDE'
export DEB_BUILD_OPTIONS="parallel=$(nproc)"
cd /build/xdit
apt-get update -q
apt-get build-dep -y -q --no-install-recommends ./
dpkg-buildpackage -b -us -uc
apt-get install -y -q --no-install-recommends lintian
lintian --allow-root --fail-on error,warning ../*.changes
apt-get install -y -q --no-install-recommends $(ls ../*.deb | grep -v dbgsym)
cd /build
xdit generate --model xdit/models/demo-pixart --prompt "a red circle" --num_inference_steps 2 \
    --quiet --output program.png
python3 -c "import xdit
pipe = xdit.Pipeline.from_pretrained('xdit/models/demo-pixart')
print(pipe('a star', num_inference_steps=2, output_type='np').images.shape)"
xdit serve --help >help.txt
pkg-config --exists xdit
ls -l program.png ../build/*.deb
INSIDE
echo "The packages are built, installed and used."
