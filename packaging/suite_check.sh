#!/bin/sh
# suite_check.sh SUITE [arguments of meson test] - builds HEAD in a chroot of another Debian or
# Ubuntu (packaging/chroot.sh), generates the demo image there and runs the tests of `make check`,
# or the named tests. Takes half an hour on two cores, less with a chroot kept in CHROOTS, which has
# a ccache.
set -eu
suite=$1
shift
[ $# -gt 0 ] || set -- --no-suite slow
{
    echo "set -- $*"
    cat <<'INSIDE'
cd /build/xdit
apt-get update -q
apt-get install -y -q --no-install-recommends make ccache
make demo
[ -s demo.png ]
known=
for package in $(make -pn configured | sed -n 's/^TEST_PACKAGES = //p'); do
    if apt-cache show "$package" >/dev/null 2>&1; then
        known="$known $package"
    else
        echo "There is no package $package: its tests are skipped."
    fi
done
make packages TEST_PACKAGES="$known"
tests/run.sh build "$@"
INSIDE
} | "$(dirname "$0")/chroot.sh" "$suite"
