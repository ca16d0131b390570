#!/bin/sh
# xdit probe: the file that it writes, where plans look for it, what they make of it. Rates are not
# looked at.
. "$(dirname "$0")/lib.sh"
export XDG_CACHE_HOME=$T/cache

# file FILE EXPRESSION: is it true of the cluster file?
file() {
    python3 -c '
import json, sys
doc = json.load(open(sys.argv[1]))
sys.exit(not eval("(" + sys.argv[2] + ")", {**doc, "all": all, "doc": doc}))' "$1" "$2"
}
positive="all(r[k] > 0 for r in (f32, bf16) for k in ('gemm_flops', 'attention_flops_64',
    'attention_flops_128', 'convolution_flops', 'memory_bandwidth', 'norm_bandwidth',
    'group_norm_bandwidth', 'activation_bandwidth', 'weight_bandwidth',
    'convolution_3d_flops'))
    and all(0 <= r[k] < 1e4 for r in (f32, bf16) for k in ('gemm_half_rows',
    'attention_half_keys', 'attention_half_queries', 'call_seconds', 'convolution_half_rows'))"

try probe --threads 1 --output "$T/one.json"
check "one rank" [ "$rc" = 0 -a "$out" = "$T/one.json" ]
check "its rates" file "$T/one.json" "($positive)"
check "one host of one rank" file "$T/one.json" \
    "(hosts, ranks_per_host, threads_per_rank) == (1, 1, 1) and memory > 1e7"
if grep -q '"read_bytes_per_second": 0,$' "$T/one.json"; then
    check "why reading was not measured" said "reading speed of $T could not be measured: "
else
    check "the speed of reading, 64 MB beside the file" said "xdit: $T: .*[0-9]+ MB/s"
    check "in the file, in bytes" file "$T/one.json" "1e6 < read_bytes_per_second < 1e12"
fi
check "and nothing is left there" [ "$(ls "$T" | grep -c xdit-probe)" = 0 ]
try plan --model "$MODEL" --cluster "$T/one.json"
check "a plan on it" [ "$rc" = 0 -a "$(printf '%s\n' "$out" | grep -c '^best: one rank')" = 1 ]
try plan --model "$MODEL" --world 2
check "not probed: plans are guessed, and say so" [ "$(printf '%s\n' "$out" |
    grep -c 'estimated (xdit probe')" = 1 ]

if [ -n "${XDIT_NO_MPI-}" ] || "$XDIT" probe --ranks 2 --threads 1 2>&1 |
    grep -Eq 'has no MPI|install the package'; then
    echo "# skipped: there is no MPI to start several ranks with"
    done_testing
    exit 0
fi
name=$(ls "$XDG_CACHE_HOME/xdit")
check "two ranks, without a name" [ "$(printf '%s\n' "$name" |
    grep -c '^machine-.*-2x1.json$')" = 1 ]
check "rates and links" file "$XDG_CACHE_HOME/xdit/$name" "ranks_per_host == 2 and ($positive) and
    inside['latency_seconds'] > 0 and inside['bandwidth'] > 0 and 0 <= inside['overlap'] <= 1"
cores=$(nproc)
if [ "$cores" = 2 ]; then
    try plan --model "$MODEL" --world 2
    check "plans for this machine take it, and say so" [ "$(printf '%s\n' "$out" |
        grep -c 'this machine, as measured by xdit probe')" = 1 ]
else
    echo "# skipped: plans of two ranks have $cores cores here, and the probe had two threads"
fi
echo '{"hosts": 1}' >"$XDG_CACHE_HOME/xdit/$name"
try plan --model "$MODEL" --world 2
check "a broken one is said and not used" [ "$rc" = 0 ]

refused "names" 2 "probe" probe models
refused "a file that cannot be" 1 "none/here.json" probe --threads 1 --output "$T/none/here.json"
done_testing
