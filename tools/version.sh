#!/bin/sh
# version.sh - prints the version that include/xdit/xdit.h states: 0.1.0
sed -n 's/^#define XDIT_VERSION_\(MAJOR\|MINOR\|PATCH\) \([0-9]*\)$/\2/p' \
    "$(dirname "$0")/../include/xdit/xdit.h" | paste -s -d .
