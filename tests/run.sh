#!/bin/sh
# Runs parts of the test suite on what is built under $BUILD and ends with one line of counts.
# Usage: tests/run.sh unit|fuzz|oracle|cluster ...
set -u
cd "$(dirname "$0")/.."
build=${BUILD:-build}
py=/usr/bin/python3
passed=0
failed=0
export ASAN_OPTIONS="${ASAN_OPTIONS:-detect_leaks=1:abort_on_error=0}"
export UBSAN_OPTIONS="${UBSAN_OPTIONS:-print_stacktrace=1}"
export TSAN_OPTIONS="${TSAN_OPTIONS:-suppressions=$PWD/tests/tsan.supp:halt_on_error=0:second_deadlock_stack=1}"
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# One program that exits 0 when all is well: quiet then, its output when not.
one() { # label, command...
    label=$1
    shift
    if timeout 300 "$@" >"$log" 2>&1; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED $label"
        tail -n 60 "$log"
    fi
}

# pytest prints its own counts; its closing line is added to ours.
pytests() { # label, arguments...
    label=$1
    shift
    BUILD=$build $py -m pytest -q -p no:cacheprovider "$@" >"$log" 2>&1
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
    unit) for t in $(find "$build/tests/unit" -type f -name '*_test' | sort); do one "$t" "$t"; done ;;
    fuzz)
        for t in $(find "$build/tests/fuzz" -type f -name 'replay_*' ! -name '*.o' ! -name '*.d' | sort); do
            name=${t##*/replay_}
            one "fuzz corpus $name" "$t" "tests/fuzz/corpus/$name"
        done
        ;;
    oracle) pytests oracle tests/oracle ;;
    cluster) pytests cluster tests/cluster ;;
    *) echo "run.sh: unknown part $part" >&2; exit 2 ;;
    esac
    echo "$part: $((passed - before)) passed in $(($(date +%s) - began)) s"
done
echo "$passed passed, $failed failed"
[ $failed -eq 0 ] && [ $passed -gt 0 ]
