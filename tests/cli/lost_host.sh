#!/bin/sh
# lost_host.sh XDIT ROOT - a launcher that has lost a host and waits for it all the same: the run
# ends within a bounded time. tests/cli/hosts.sh cuts a real link, where it may.
. "$(dirname "$0")/lib.sh"
cat >"$T/launcher" <<'END'
#!/bin/sh
trap '' TERM USR1
cat >&2 <<'SAID'
--------------------------------------------------------------------------
ORTE has lost communication with a remote daemon.

  HNP daemon   : [[1,0],0] on node here
  Remote daemon: [[1,0],1] on node there

This is usually due to either a failure of the TCP network
connection to the node, or possibly an internal failure of
the daemon itself.
--------------------------------------------------------------------------
SAID
while :; do sleep 1; done
END
chmod +x "$T/launcher"
export XDIT_MPIRUN="$T/launcher"
began=$(date +%s)
timeout 90 "$XDIT" generate --model "$MODEL" --prompt a -q --nproc 2 --start_timeout 0 \
    -o "$T/x.png" >"$T/stdout" 2>"$T/stderr"
rc=$?
took=$(($(date +%s) - began)) err=$(cat "$T/stderr")
if said 'has no MPI'; then
    echo "1..0 # SKIP there is no MPI to start several ranks with"
    exit 0
fi
echo "# ended after $took s"
check "a launcher that waits for a lost host is ended" [ "$rc" = 1 -a "$took" -lt 60 ]
check "one sentence names the host" sh -c \
    '[ "$(grep -c "^xdit: lost the connection to host there" "$1")" = 1 ]' x "$T/stderr"
done_testing
