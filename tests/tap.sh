# tap.sh - sourced by tests written in sh; speaks TAP. T is a directory of the test's own.
count=0

# check WHAT COMMAND...: does the command succeed? Its output is shown where it does not.
check() {
    count=$((count + 1))
    what=$1
    shift
    if "$@" >"$T/log" 2>&1; then
        echo "ok $count - $what"
    else
        echo "not ok $count - $what"
        sed 's/^/# /' "$T/log"
        bad=1
    fi
}
