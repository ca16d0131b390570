#!/bin/sh
# slow_link.sh XDIT CONFIG [OPTION...] - one transformer step on two hosts with a slow link, with
# exact messages and with messages in 8 bits (--comms), as `xdit bench` times them, in a Markdown
# table for doc/lab/ranks.md. The hosts are two network namespaces with one rank of one thread each;
# tc limits the link between them. CONFIG is a directory with the configs of a model; weights are
# random. OPTIONs go to every run. RATES in the environment names rates of the link in Gbit/s
# ("1 10"), METHODS some of "ulysses ring pipefusion" (all). Needs root, iproute2 and Open MPI.
# Nothing else should run meanwhile.
set -eu
[ $# -ge 2 ] || { sed -n 's/^# //;2,3p' "$0" >&2; exit 2; }
root=$(cd "$(dirname "$0")/.." && pwd)
xdit=$(cd "$(dirname "$1")" && pwd)/$(basename "$1") config=$(cd "$2" && pwd)
shift 2
: "${RATES:=1 10}" "${METHODS:=ulysses ring pipefusion}" "${MPIRUN:=mpirun.openmpi}"
A=xdit-one-$$ B=xdit-two-$$ dir=$(mktemp -d)
trap 'ip netns del $A; ip netns del $B; rm -rf "$dir"' EXIT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

ip netns add $A
ip netns add $B
ip link add eth-x netns $A type veth peer name eth-x netns $B
n=0
for host in $A $B; do
    n=$((n + 1))
    ip -n $host link set lo up
    ip -n $host link set eth-x up
    ip -n $host addr add 10.213.78.$n/24 dev eth-x
done
cat >"$dir/on" <<END
#!/bin/sh
host=\$1
shift
exec ip netns exec "\$host" unshare --uts --ipc sh -c '
    hostname "\$1" && mount -t tmpfs shm /dev/shm || exit 1
    shift
    exec "\$@"' sh "\$host" "\$@"
END
printf '#!/bin/sh\nshift\nexec "%s/on" %s sh -c "$*"\n' "$dir" $B >"$dir/agent"
chmod +x "$dir/on" "$dir/agent"
printf '10.213.78.1 slots=1\n10.213.78.2 slots=1\n' >"$dir/hostfile"

plan_of() {
    case $1 in
    ulysses)    echo "--ulysses_degree 2" ;;
    ring)       echo "--ring_degree 2" ;;
    pipefusion) echo "--pipefusion_parallel_degree 2 --num_pipeline_patch 4 --warmup_steps 1" ;;
    *)          echo "slow_link.sh: there is no method $1" >&2; exit 2 ;;
    esac
}
for rate in $RATES; do
    for host in $A $B; do
        ip netns exec $host tc qdisc replace dev eth-x root tbf rate "${rate}gbit" burst 1mb \
            latency 50ms
    done
    for m in $METHODS; do
        for comms in exact int8 fp8; do
            echo "$(date +%T) $rate Gbit/s, $m, $comms" >&2
            # The plan is several words.
            # shellcheck disable=SC2046
            "$dir/on" $A "$MPIRUN" --hostfile "$dir/hostfile" --bind-to none -n 2 \
                --mca plm_rsh_agent "$dir/agent" --mca oob_tcp_if_include eth-x \
                --mca btl_tcp_if_include eth-x --mca pml ob1 --mca btl tcp,self \
                "$xdit" bench --config "$config" --random_weights --share_layers --threads 1 \
                --json --parts step $(plan_of "$m") --comms $comms "$@" \
                >"$dir/$rate.$m.$comms.json" </dev/null
        done
    done
done
python3 - "$dir" "$RATES" "$METHODS" <<'END'
import json, sys

folder, rates, methods = sys.argv[1], sys.argv[2].split(), sys.argv[3].split()
print("| Gbit/s | method | exact, s | int8, s | fp8, s | sent, exact | sent, int8 | 1 rank, s |")
print("|--:|---|--:|--:|--:|--:|--:|--:|")
for rate in rates:
    for m in methods:
        p = {}
        for comms in ("exact", "int8", "fp8"):
            with open(f"{folder}/{rate}.{m}.{comms}.json") as f:
                p[comms] = json.load(f)["parts"][0]
        print(f"| {rate} | {m} | {p['exact']['plan_s']:.3g} | {p['int8']['plan_s']:.3g} | "
              f"{p['fp8']['plan_s']:.3g} | {p['exact']['sent_all']} | {p['int8']['sent_all']} | "
              f"{p['exact']['alone_s']:.3g} |")
        for comms, run in p.items():
            if not run.get("as_predicted", True):
                sys.exit(f"{m} with {comms} sends other bytes than predicted")
END
