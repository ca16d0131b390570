#!/bin/sh
# xdit doctor: every line has a state, exit codes, JSON, and launchers that do not work.
. "$(dirname "$0")/lib.sh"

has() { printf '%s\n' "$out" | grep -Eq -- "$1"; }
states() { ! printf '%s\n' "$out" | grep -Evq '^(ok|warn|fail) +[a-z]+ +[^ ]'; }

try doctor --no_ranks
check "it fails nothing here" [ "$rc" = 0 -a -z "$err" ]
check "every line has a state" states
for name in build libraries video kernels cores numa topology placement threads memory shared \
    hugepages limits gpu temporary cache; do
    check "it looks at $name" has "^(ok|warn) +$name "
done
for library in oneDNN OpenMP MPI libpng libjpeg libwebp SentencePiece PCRE2 utf8proc cJSON; do
    check "it names $library" has "$library"
done
check "it counts sockets, nodes, caches and cores" has \
    '^ok +topology +[0-9]+ sockets?, [0-9]+ memory nodes?, [0-9]+ L3 groups?, '\
'[0-9]+ cores?, [0-9]+ hardware threads?$'
try doctor --no_ranks --nproc 1
check "one rank gets all" has '^ok +placement +rank 0 of 1 on CPUs [0-9,-]+$'
try doctor --no_ranks --nproc 9999
check "more ranks than cores get none" has \
    '^ok +placement +9999 ranks are more than [0-9]+ cores?: they are not bound$'
try doctor --no_ranks --model "$MODEL"
check "it weighs a model" has '^(ok|warn) +memory .*[0-9.]+ MB of shared weights'
try doctor --no_ranks --json
printf '%s\n' "$out" >"$T/json"
check "JSON" python3 -c '
import json, sys
d = json.load(open(sys.argv[1]))
assert d["healthy"] is True and len(d["findings"]) >= 13
assert all(f["state"] in ("ok", "warn") and f["text"] for f in d["findings"])' "$T/json"

XDIT_ISA=nothing try doctor --no_ranks
check "an instruction set that is none fails" [ "$rc" = 1 ]
check "and says what to do" has '^fail +kernels .*XDIT_ISA=nothing.*unset XDIT_ISA'
XDIT_ISA=c try doctor --no_ranks
check "plain C is slow" has '^warn +kernels '
# An empty file in place of oneDNN.
empty=$(grep -aoE 'libdnnl\.so\.[0-9.]+' "$XDIT" | head -n 1)
mkdir "$T/empty" && : >"$T/empty/$empty"
LD_LIBRARY_PATH=$T/empty try doctor --no_ranks
check "without oneDNN it fails" [ "$rc" = 1 ]
check "and says to install it" has "^fail +kernels .*$empty.*install .*oneDNN"
has '^fail .*unset XDIT_ISA' && fail "a variable that is not set is no cure"
OMP_THREAD_LIMIT=1 try doctor --no_ranks
check "limits of OpenMP are shown" has 'OMP_THREAD_LIMIT=1'
TMPDIR="$T/none" try doctor --no_ranks
check "what fails is an error as well" said '^xdit: failed checks: temporary$'
check "no temporary directory" [ "$rc" = 1 ]
refused "a model that is not there" 2 'directory' doctor --model "$T/none"
refused "a flag that is none" 2 '--json' doctor --jso

try doctor
if printf '%s\n' "$out" | grep -q 'has no MPI\|install the package'; then
    echo "# skipped: there is no MPI to start ranks with"
    done_testing
    exit 0
fi
check "two ranks meet" [ "$rc" = 0 ]
check "and say how fast" has \
    '^ok +ranks +2 ranks exchange messages: [0-9.]+ us latency, [0-9.]+ [MG]B/s'
XDIT_MPIRUN=$T/none try doctor
check "no launcher is no failure" [ "$rc" = 0 ]
check "but said" has '^warn +ranks .*XDIT_MPIRUN'
printf '#!/bin/sh\necho broken >&2\nexit 3\n' >"$T/launcher"
chmod +x "$T/launcher"
XDIT_MPIRUN=$T/launcher try doctor
check "a broken launcher fails" [ "$rc" = 1 ]
check "with its words" has '^fail +ranks .*broken'
done_testing
