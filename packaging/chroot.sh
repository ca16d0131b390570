#!/bin/sh
# chroot.sh SUITE - runs the shell script of the standard input as root of a chroot with a Debian or
# Ubuntu of that name (trixie, noble), and HEAD of this tree in its /build/xdit. Needs root,
# debootstrap and the packages of a mirror; where one is missing it prints why and exits with 77.
#   CHROOTS: folder that keeps the chroots; by default they are in /tmp and removed at the end
#   MIRROR: of the packages
set -eu
suite=$1
skip() {
    echo "SKIP: $1"
    exit 77
}
case $suite in
noble)
    mirror=${MIRROR:-http://archive.ubuntu.com/ubuntu}
    keys=/usr/share/keyrings/ubuntu-archive-keyring.gpg
    components=main,universe
    ;;
*)
    mirror=${MIRROR:-http://deb.debian.org/debian}
    keys=/usr/share/keyrings/debian-archive-keyring.gpg
    components=main
    ;;
esac
PATH=$PATH:/usr/sbin:/sbin
[ "$(id -u)" = 0 ] || skip "a chroot needs root"
made=${CHROOTS:-$(mktemp -d)}
[ -n "${CHROOTS:-}" ] || trap 'rm -rf "$made"' EXIT
root=$made/$suite
# The mark says that debootstrap came to its end.
if [ ! -e "$root/made" ]; then
    command -v debootstrap >/dev/null || skip "there is no debootstrap"
    [ -r "$keys" ] || skip "there are no keys of $suite ($keys)"
    command -v curl >/dev/null &&
        ! curl -sf -o /dev/null --max-time 60 "$mirror/dists/$suite/Release" &&
        skip "$mirror has no $suite"
    rm -rf "$root"
    mkdir -p "$root"
    debootstrap --variant=buildd --keyring="$keys" --components="$components" \
        "$suite" "$root" "$mirror"
    : >"$root/made"
fi
cp /etc/resolv.conf "$root/etc/"
rm -rf "$root/build"
mkdir -p "$root/build"
cat >"$root/build/run"
git -C "$(dirname "$0")/.." archive --prefix=build/xdit/ HEAD | tar x -C "$root"
# Mounts and processes of the chroot end with it.
setpriv --pdeathsig KILL unshare --mount --pid --fork --kill-child sh -eu -c '
    mount -t proc proc "$1/proc"
    mount -t sysfs sysfs "$1/sys"
    mount -t devpts -o ptmxmode=666 devpts "$1/dev/pts"
    mount -t tmpfs -o mode=1777 tmpfs "$1/dev/shm"
    exec chroot "$1" env -i PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
        LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive CI="$2" sh -eu /build/run
' sh "$root" "${CI:-}"
