#!/bin/sh
# chroot_check.sh - builds the Debian packages and the wheel of HEAD, or of the archive ARCHIVE, in
# a clean Debian, installs them there, and generates images with the program and with both Python
# modules. Needs root and debootstrap, about fifteen minutes, and 3 GB of disk (see
# packaging/chroot.sh). SUITE: release, default bookworm.
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
xdit --version
apt-get purge -y -q python3-xdit
apt-get install -y -q --no-install-recommends python3-venv python3-pip python3-mesonpy patchelf
python3 -m venv --system-site-packages venv
venv/bin/pip wheel -q --no-deps --no-build-isolation --wheel-dir . ./xdit
venv/bin/pip install -q --no-deps ./xdit-*.whl
venv/bin/python -c "import xdit
pipe = xdit.Pipeline.from_pretrained('xdit/models/demo-pixart')
print(pipe('a star', num_inference_steps=2, output_type='np').images.shape)"
ls -l program.png *.deb *.whl
INSIDE
echo "The packages and the wheel are built, installed and used."
