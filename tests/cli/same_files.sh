#!/bin/sh
# same_files.sh XDIT ROOT MPIRUNS - ranks whose weight files or kernels are not the same: what is
# compared always, and what --verify_weights compares.
. "$(dirname "$0")/lib.sh"
# Names of Open MPI's launcher, whose options are given below.
MPIRUN=$(for m in $3; do command -v "$m"; done | head -n 1)
if [ -z "$MPIRUN" ]; then
    echo "1..0 # SKIP mpirun of Open MPI is not here"
    exit 0
fi
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMP_WAIT_POLICY=passive
mkdir "$T/one"
cp -r "$ROOT/models/demo-pixart" "$T/one/m"
chmod -R u+w "$T/one"
cp -r "$T/one" "$T/two"
one="$XDIT generate -q -W 64 -H 64 --no_resolution_binning -p red --steps 1 -t 1 --plan u2"
one="$one --dtype f32 -o $T/x.ppm"
# pair FLAGS BEFORE1: two ranks with these flags, and words before the command of rank 1.
pair() {
    two_ranks "$MPIRUN" "$one -m $T/one/m $1" "$2 $one -m $T/two/m $1" >"$T/stdout" 2>"$T/stderr"
    rc=$?
}
pair --verify_weights ""
check "the same bytes" [ "$rc" = 0 ]
# Between the 64 pages that are compared always.
weights=$(cd "$T/two/m" && find . -name '*.safetensors' -path '*transformer*' | head -n 1)
for at in 100000 2000000 5000003; do
    printf '\177' | dd of="$T/two/m/$weights" bs=1 seek=$at conv=notrunc 2>"$T/dd"
done
check "bytes were changed" sh -c '! cmp -s "$1" "$2"' x "$T/one/m/$weights" "$T/two/m/$weights"
pair "" ""
check "a sample does not see three bytes" [ "$rc" = 0 ]
pair --verify_weights ""
check "all bytes are compared: the file and the rank are named, once" sh -c '[ "$1" = 2 ] &&
    [ "$(grep -c "^xdit: .*$2 of rank 1 on host .* rank 0 on host .* copy it again" "$3")" = 1 ]' \
    x "$rc" "${weights#./}" "$T/stderr"
rm -r "$T/two"
cp -r "$T/one" "$T/two"
pair "" "env XDIT_ISA=c"
check "other kernels on a rank: a warning names them" sh -c '[ "$1" = 0 ] &&
    [ "$(grep -c "warning: rank 1 on host .* cpu-c and .*XDIT_ISA" "$2")" = 1 ]' x "$rc" "$T/stderr"
pair "" ""
check "equal ones: no word" sh -c '[ "$1" = 0 ] && ! grep -q XDIT_ISA "$2"' x "$rc" "$T/stderr"
done_testing
