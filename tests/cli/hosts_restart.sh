#!/bin/sh
# hosts_restart.sh XDIT ROOT MPIRUN - hosts are lost while an image is generated: the command goes
# on with those that are left, and the image is that of an undisturbed run.
#
# Four network namespaces on a bridge are hosts: `zero`, where the command runs, and one, two and
# three, which have two ranks each. Each has a folder of checkpoints of its own.
. "$(dirname "$0")/lib.sh"
MPIRUN=$3
NAMES="zero one two three"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMP_NUM_THREADS=1
skip() { echo "1..0 # SKIP $1"; exit 0; }
space() { echo "xdit-$1-$$"; }
clean() {
    for n in $NAMES bridge; do
        for p in $(ip netns pids "$(space "$n")" 2>/dev/null); do
            kill -s KILL "$p" 2>/dev/null
        done
        ip netns del "$(space "$n")" 2>/dev/null
    done
    rm -rf "$T"
}
trap clean EXIT
trap 'exit 1' INT TERM HUP PIPE

[ "$(id -u)" = 0 ] || skip "only root can make network namespaces"
command -v ip >/dev/null || skip "there is no program ip: install the package iproute2"
bridge=$(space bridge)
why=$(ip netns add "$bridge" 2>&1 && ip -n "$bridge" link add br0 type bridge 2>&1 &&
    ip -n "$bridge" link set br0 up 2>&1) || skip "no network namespaces or bridges here: $why"
i=1
for n in $NAMES; do
    i=$((i + 1)) s=$(space "$n")
    why=$(ip netns add "$s" 2>&1 &&
        ip link add eth-x netns "$s" type veth peer name "to-$n" netns "$bridge" 2>&1 &&
        ip -n "$bridge" link set "to-$n" master br0 up 2>&1 && ip -n "$s" link set lo up 2>&1 &&
        ip -n "$s" addr add "10.213.78.$i/24" dev eth-x 2>&1 &&
        ip -n "$s" link set eth-x up 2>&1) ||
        skip "no hosts in namespaces here: $why"
    mkdir -p "$T/disk-$n"
done
one=10.213.78.3 two=10.213.78.4 three=10.213.78.5

mkdir "$T/bin" "$T/work"
# on NAME COMMAND...: runs on a host, whose disk is at one path.
cat >"$T/bin/on" <<END
#!/bin/sh
exec ip netns exec "xdit-\$1-$$" unshare --uts --ipc --mount sh -c '
    hostname "\$1" && mount -t tmpfs shm /dev/shm && mount --bind "$T/disk-\$1" "$T/work" &&
        cd "$T/work" || exit 1
    shift
    exec "\$@"' sh "\$@"
END
# In place of ssh: ADDRESS, then words of a command line.
cat >"$T/bin/agent" <<END
#!/bin/sh
case \$1 in $one) n=one ;; $two) n=two ;; $three) n=three ;; *) exit 1 ;; esac
shift
exec "$T/bin/on" \$n sh -c "\$*"
END
chmod +x "$T/bin/on" "$T/bin/agent"
export OMPI_MCA_plm_rsh_agent="$T/bin/agent" OMPI_MCA_oob_tcp_if_include=eth-x \
    OMPI_MCA_btl_tcp_if_include=eth-x XDIT_MPIRUN="$MPIRUN"
"$T/bin/on" zero true || skip "no host names or mounts of their own here"

STEPS=60
how="generate --model $MODEL --steps $STEPS --seed 3 --dtype f32 -t 1 -W 256 -H 256"
how="$how --no_resolution_binning"
latents=$((4 * 32 * 32 * 4))            # bytes of [4,32,32] at the end of a file
same() { tail -c $latents "$1" >"$T/1.lat" && tail -c $latents "$2" >"$T/2.lat" &&
    cmp "$T/1.lat" "$T/2.lat"; }
# shellcheck disable=SC2086
try $how --prompt "a red circle" -o "$T/whole.safetensors"
check "one rank" [ "$rc" = 0 ]

# start ARGS...: the command on host zero.
start() {
    rm -rf "$T"/disk-*/saved "$T"/disk-*/x.safetensors
    # shellcheck disable=SC2086
    timeout 200 "$T/bin/on" zero "$XDIT" $how --prompt "a red circle" -o x.safetensors \
        --checkpoint saved "$@" >"$T/stdout" 2>"$T/stderr" </dev/null &
    pid=$!
}
# lose NAME [KILL]: its link is cut when a step is saved on it; with KILL its processes end, too,
# and with them those that the launcher has started to reach it.
lose() {
    n=0
    while [ -z "$(ls "$T/disk-$1/saved" 2>/dev/null | grep safetensors)" ] && [ "$n" -lt 600 ]; do
        sleep 0.05
        n=$((n + 1))
    done
    sleep 0.2
    ip -n "$bridge" link set "to-$1" down
    at=$(date +%s)
    [ -n "${2-}" ] || return 0
    for p in $(ip netns pids "$(space "$1")"); do kill -s KILL "$p" 2>/dev/null; done
}
# ended TITLE FIRST: the image is on the disk of the host of the first rank.
ended() {
    wait "$pid"
    rc=$? out=$(cat "$T/stdout") err=$(cat "$T/stderr")
    echo "# $1: ended $(($(date +%s) - at)) s after the loss"
    check "$1: the command goes on" [ "$rc" = 0 ]
    check "$1: the bits of one rank" same "$T/whole.safetensors" "$T/disk-$2/x.safetensors"
    check "$1: no rank is left" sh -c '
        n=0
        while [ -n "$(for s; do ip netns pids "$s"; done)" ] && [ "$n" -lt 150 ]; do
            sleep 0.1
            n=$((n + 1))
        done
        [ "$n" -lt 150 ]' x "$(space zero)" "$(space one)" "$(space two)" "$(space three)"
    for d in one two three; do ip -n "$bridge" link set "to-$d" up; done
}
# continued NAME: how many steps the first rank need not repeat.
continued() { said 'image 1 continues after step [0-9]+ of '"$STEPS"; }

start --hosts "$one:2,$two:2" --ulysses_degree 2 --ring_degree 2
lose two
check "both hosts have a state" sh -c '[ -e "$1/disk-one/saved/image-0001.safetensors" ] &&
    [ -e "$1/disk-two/saved/image-0001.copy.safetensors" ]' x "$T"
ended "the second host is lost" one
check "the second host is lost: one line" said \
    "starting 2 ranks again on $one:2 without $two, with the plan .*restart 1 of 1"
check "the second host is lost: continues" continued
check "the second host is lost: nothing is left on the first" [ ! -e "$T/disk-one/saved" ]

start --hosts "$one:2,$two:2" --ulysses_degree 4
lose one kill
ended "the first host is lost" two
check "the first host is lost: one line" said \
    "starting 2 ranks again on $two:2 without $one, with the plan .*restart 1 of 1"
check "the first host is lost: continues from the copy" continued
check "the first host is lost: nothing is left on the second" [ ! -e "$T/disk-two/saved" ]

printf '# hosts\n%s slots=2\n%s:2 # a comment\n%s slots=2\n' "$one" "$two" "$three" >"$T/hostfile"
start --hosts "$T/hostfile" --spare 2 --ulysses_degree 4
lose one
ended "a spare host" two
check "a spare host: the plan stays" said \
    "starting 4 ranks again on $two:2,$three:2 without $one, with the same plan"
check "a spare host: ulysses 4 again" [ "$(grep -c '(ulysses 4)' "$T/stderr")" = 2 ]
check "a spare host: continues from the copy" continued
check "a spare host: nothing is left" [ ! -e "$T/disk-two/saved" -a ! -e "$T/disk-three/saved" ]

start --hosts "$one:2,$two:2" --ulysses_degree 4 --max_restarts 0
lose two
wait "$pid"
rc=$? err=$(cat "$T/stderr") out=
check "without restarts: an error" [ "$rc" = 1 ]
check "without restarts: one sentence" [ "$(grep -c "^xdit: lost the connection to host $two" \
    "$T/stderr")" = 1 ]
# Two images on two hosts, whose states change places when the command is given again with the hosts
# in another order.
# shellcheck disable=SC2086
try $how --prompt "a red circle" --prompt "a blue square" -o "$T/w%d.safetensors"
pair() { # pair HOSTS
    # shellcheck disable=SC2086
    setsid timeout 200 "$T/bin/on" zero "$XDIT" $how --prompt "a red circle" \
        --prompt "a blue square" -o x%d.safetensors --checkpoint saved --hosts "$1" \
        --data_parallel_degree 2 >"$T/stdout" 2>"$T/stderr" </dev/null &
    pid=$!
}
rm -rf "$T"/disk-*/saved "$T"/disk-*/x*.safetensors
pair "$one:1,$two:1"
n=0
while [ "$n" -lt 600 ] && ! [ -e "$T/disk-one/saved/image-0001.safetensors" -a \
    -e "$T/disk-two/saved/image-0002.safetensors" ]; do
    sleep 0.05
    n=$((n + 1))
done
for d in zero one two; do
    for p in $(ip netns pids "$(space "$d")"); do kill -s KILL "$p" 2>/dev/null; done
done
wait "$pid" 2>/dev/null
check "each host has the state of its image" [ ! -e "$T/disk-one/saved/image-0002.safetensors" -a \
    ! -e "$T/disk-two/saved/image-0001.safetensors" ]
pair "$two:1,$one:1"
wait "$pid"
rc=$? out=$(cat "$T/stdout") err=$(cat "$T/stderr")
check "the hosts change places" [ "$rc" = 0 ]
check "both images continue" [ "$(grep -c 'image [12] continues after step' "$T/stderr")" = 2 ]
check "the first image has the bits of one rank" \
    same "$T/w1.safetensors" "$T/disk-two/x1.safetensors"
check "so has the second" same "$T/w2.safetensors" "$T/disk-two/x2.safetensors"
check "nothing is left of them" [ ! -e "$T/disk-one/saved" -a ! -e "$T/disk-two/saved" ]
done_testing
