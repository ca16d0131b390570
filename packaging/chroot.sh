#!/bin/sh
# chroot.sh SUITE - runs the shell script on standard input as root in a chroot with the Debian or
# Ubuntu release SUITE (trixie, noble), with HEAD of this tree, or the archive of sources
# ARCHIVE, in /build/xdit. Needs root, debootstrap and a mirror of packages; if one is missing, it
# prints the reason and exits with 77.
# If Ubuntu's keys are not installed, apt downloads Debian 13's package ubuntu-keyring and checks
# its signature.
#   CHROOTS: folder that keeps the chroots; by default they are in /tmp and removed at the end
#   MIRROR: address of the packages
set -eu
suite=$1
skip() {
    echo "SKIP: $1"
    exit 77
}
debian_keys=/usr/share/keyrings/debian-archive-keyring.gpg
case $suite in
noble)
    mirror=${MIRROR:-http://archive.ubuntu.com/ubuntu}
    keys=/usr/share/keyrings/ubuntu-archive-keyring.gpg
    components=main,universe
    script=/usr/share/debootstrap/scripts/gutsy # for all later Ubuntu releases
    ;;
*)
    mirror=${MIRROR:-http://deb.debian.org/debian}
    keys=$debian_keys
    components=main
    script=
    ;;
esac
PATH=$PATH:/usr/sbin:/sbin
[ "$(id -u)" = 0 ] || skip "a chroot needs root"
made=${CHROOTS:-$(mktemp -d)}
[ -n "${CHROOTS:-}" ] || trap 'rm -rf "$made"' EXIT
root=$made/$suite
# fetch_keys FOLDER: unpacks Debian 13's ubuntu-keyring there, with private files for apt. apt runs
# as the current user, who can write there.
fetch_keys() {
    mkdir -p "$1/lists/partial" "$1/cache/archives/partial"
    : >"$1/status"
    echo "deb [signed-by=$debian_keys] http://deb.debian.org/debian trixie main" >"$1/list"
    own="-o Dir::Etc::SourceList=$1/list -o Dir::Etc::SourceParts=- -o Dir::State::Lists=$1/lists
        -o Dir::State::Status=$1/status -o Dir::Cache=$1/cache -o APT::Sandbox::User=root"
    # A list of words.
    # shellcheck disable=SC2086
    (cd "$1" && apt-get $own -q update && apt-get $own -q download ubuntu-keyring &&
        dpkg-deb -x ubuntu-keyring_*.deb .)
}
# The mark means that debootstrap was successful.
if [ ! -e "$root/made" ]; then
    command -v debootstrap >/dev/null || skip "there is no debootstrap"
    command -v curl >/dev/null &&
        ! curl -sf -o /dev/null --max-time 60 "$mirror/dists/$suite/Release" &&
        skip "$mirror has no $suite, or is not reached: MIRROR is the address of another mirror"
    if [ "$suite" = noble ] && [ ! -r "$keys" ]; then
        rm -rf "$made/keys"
        fetch_keys "$made/keys" >&2 || true
        keys=$made/keys$keys
    fi
    [ -r "$keys" ] || skip "there are no keys of $suite: install the package of ${keys##*/}"
    rm -rf "$root"
    mkdir -p "$root"
    debootstrap --variant=buildd --keyring="$keys" --components="$components" \
        "$suite" "$root" "$mirror" ${script:+"$script"}
    : >"$root/made"
fi
cp /etc/resolv.conf "$root/etc/"
rm -rf "$root/build"
mkdir -p "$root/build"
cat >"$root/build/run"
if [ -n "${ARCHIVE:-}" ]; then
    mkdir "$root/build/xdit"
    tar -x -z -f "$ARCHIVE" --strip-components=1 -C "$root/build/xdit"
else
    git -C "$(dirname "$0")/.." archive --prefix=build/xdit/ HEAD | tar x -C "$root"
fi
# Mounts and processes of the chroot end with this process.
setpriv --pdeathsig KILL unshare --mount --pid --fork --kill-child sh -eu -c '
    mount -t proc proc "$1/proc"
    mount -t sysfs sysfs "$1/sys"
    mount -t devpts -o ptmxmode=666 devpts "$1/dev/pts"
    mount -t tmpfs -o mode=1777 tmpfs "$1/dev/shm"
    exec chroot "$1" env -i PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
        LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive CI="$2" sh -eu /build/run
' sh "$root" "${CI:-}"
