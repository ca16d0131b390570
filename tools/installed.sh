#!/bin/sh
# installed.sh LIBDIR - the last step of `meson install` into the running system: tells the loader
# of the new library, and where the loader does not look there, says what a user has to type.
libdir=$1
soname=libxdit.so.0
PATH=$PATH:/sbin:/usr/sbin
knows() { ldconfig -p 2>/dev/null | grep -qF "=> $libdir/$soname"; }

[ "$(id -u)" != 0 ] || ldconfig 2>/dev/null
knows && exit 0
echo
echo "The loader does not look for libraries in $libdir."
echo "Before a program that is linked with libxdit runs:"
echo "  export LD_LIBRARY_PATH=$libdir\${LD_LIBRARY_PATH:+:\$LD_LIBRARY_PATH}"
echo "or once for all users, as root:"
echo "  echo $libdir >/etc/ld.so.conf.d/xdit.conf && ldconfig"
