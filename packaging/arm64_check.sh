#!/bin/sh
# arm64_check.sh XDIT - compiles HEAD for 64-bit ARM in a chroot of Debian (packaging/chroot.sh) and
# runs tests there under qemu: unit tests, the kernels in plain C, one model against diffusers.
# Compares an image with that of XDIT, a program of this machine, with kernels in plain C. Takes an
# hour on two cores, some minutes with a chroot kept in CHROOTS. SUITE: release, default bookworm.
set -eu
xdit=$1
cd "$(dirname "$0")/.."
image='--prompt stone --seed 5 --num_inference_steps 2 --quiet --output'
# An image of 128 x 128 pixels, without its parameters.
pixels='pixels() { tail -c 49152 "$1" | sha256sum | cut -d" " -f1; }'
eval "$pixels"
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
XDIT_ISA=c "$xdit" generate --model models/demo-pixart $image "$made/here.ppm"
{
    echo "sum=$(pixels "$made/here.ppm") image='$image'"
    echo "$pixels"
    cat <<'INSIDE'
cd /build/xdit
dpkg --add-architecture arm64
apt-get update -q
libraries=$(make -pn configured | sed -n 's/^PACKAGES = //p' | tr ' ' '\n' |
    sed -n 's/^lib.*-dev$/&:arm64/p')
apt-get install -y -q --no-install-recommends make meson ninja-build pkg-config python3 ccache \
    gcc-aarch64-linux-gnu g++-aarch64-linux-gnu qemu-user-static $libraries
cat >/usr/local/bin/aarch64-linux-gnu-pkg-config <<'END'
#!/bin/sh
PKG_CONFIG_LIBDIR=/usr/lib/aarch64-linux-gnu/pkgconfig:/usr/share/pkgconfig exec pkg-config "$@"
END
chmod +x /usr/local/bin/aarch64-linux-gnu-pkg-config
cat >/build/arm64.ini <<'END'
[binaries]
c = ['ccache', 'aarch64-linux-gnu-gcc']
cpp = ['ccache', 'aarch64-linux-gnu-g++']
ar = 'aarch64-linux-gnu-ar'
strip = 'aarch64-linux-gnu-strip'
pkgconfig = 'aarch64-linux-gnu-pkg-config'
pkg-config = 'aarch64-linux-gnu-pkg-config'
exe_wrapper = 'qemu-aarch64-static'

[host_machine]
system = 'linux'
cpu_family = 'aarch64'
cpu = 'aarch64'
endian = 'little'
END
meson setup build --cross-file=/build/arm64.ini --buildtype=release -Dcuda=disabled
ninja -C build app/xdit app/xdit-server tests/golden/test_golden tests/golden/fill
build() { qemu-aarch64-static "build/$@"; }
build app/xdit generate --model models/demo-pixart $image arm.ppm
[ "$(pixels arm.ppm)" = "$sum" ]
build app/xdit doctor --no_ranks | tee doctor
! grep AVX doctor
mkdir -p full
build tests/golden/fill tests/golden/micro full/micro
build tests/golden/test_golden tests/golden full micro
# Left out: address limits and huge pages, which qemu lacks, and tests that take minutes.
for name in bpe blocks json rng safetensors tok tok_bert sampler weight; do
    ninja -C build "tests/unit/unit_$name"
    build "tests/unit/unit_$name"
done
ninja -C build tests/ops/ops
XDIT_ISA=c build tests/ops/ops
INSIDE
} | packaging/chroot.sh "${SUITE:-bookworm}"
echo "ARM computes the bits of plain C."
