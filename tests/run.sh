#!/bin/sh
# Runs parts of the test suite on what is built under $BUILD and ends with one line of counts.
# Usage: tests/run.sh unit|fuzz|oracle|cluster|abuse|chaos ...
set -u
cd "$(dirname "$0")/.."
build=${BUILD:-build}
py=/usr/bin/python3
passed=0
failed=0
export ASAN_OPTIONS="${ASAN_OPTIONS:-detect_leaks=1:abort_on_error=0}"
export UBSAN_OPTIONS="${UBSAN_OPTIONS:-print_stacktrace=1}"
export TSAN_OPTIONS="${TSAN_OPTIONS:-suppressions=$PWD/tests/tsan.supp:halt_on_error=0:second_deadlock_stack=1:die_after_fork=0}"
jobs=$(nproc)
case $build in # a sanitizer takes up to twenty times as long
*san) limit=1200 ;;
*) limit=300 ;;
esac
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# Programs that exit 0 when all is well, one line of standard input each, one more at a time than there are cores, since some mostly wait:
# quiet then, their output when not.
programs() {
    # shellcheck disable=SC2016
    xargs -r -P $((jobs + 1)) -L 1 sh -c '
        limit=$1
        shift
        if out=$(timeout "$limit" "$@" 2>&1); then echo ok
        else printf "FAILED %s\n%s\n" "$*" "$(echo "$out" | tail -n 60)"
        fi' one "$limit" >"$log"
    ok=$(grep -c "^ok$" "$log")
    bad=$(grep -c "^FAILED " "$log")
    passed=$((passed + ok))
    failed=$((failed + bad))
    grep -v "^ok$" "$log"
}

# pytest prints its own counts; its closing line is added to ours.
pytests() { # label, arguments...
    label=$1
    shift
    BUILD=$build $py -m pytest -q -p no:cacheprovider -n "$jobs" --dist loadfile "$@" >"$log" 2>&1
    rc=$?
    p=$(sed -n 's/.*[^0-9]\([0-9][0-9]*\) passed.*/\1/p; s/^\([0-9][0-9]*\) passed.*/\1/p' "$log" | tail -n 1)
    f=$(sed -n 's/.*[^0-9]\([0-9][0-9]*\) failed.*/\1/p; s/^\([0-9][0-9]*\) failed.*/\1/p' "$log" | tail -n 1)
    passed=$((passed + ${p:-0}))
    failed=$((failed + ${f:-0}))
    if [ $rc -ne 0 ]; then
        [ -n "${f:-}" ] || failed=$((failed + 1))
        echo "FAILED $label"
        tail -n 120 "$log"
    fi
}

for part in "$@"; do
    began=$(date +%s)
    before=$passed
    case $part in
    unit) programs <<EOF
$(find "$build/tests/unit" -type f -name '*_test' | sort)
EOF
        ;;
    fuzz) programs <<EOF
$(find "$build/tests/fuzz" -type f -name 'replay_*' ! -name '*.o' ! -name '*.d' | sort | sed 's|.*/replay_\(.*\)|& tests/fuzz/corpus/\1|')
EOF
        ;;
    oracle) pytests oracle tests/oracle ;;
    cluster) pytests cluster tests/cluster ;;
    abuse) pytests abuse tests/abuse ;;
    chaos) pytests chaos tests/chaos ;;
    *) echo "run.sh: unknown part $part" >&2; exit 2 ;;
    esac
    echo "$part: $((passed - before)) passed in $(($(date +%s) - began)) s"
done
echo "$passed passed, $failed failed"
[ $failed -eq 0 ] && [ $passed -gt 0 ]
