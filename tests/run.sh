#!/bin/sh
# Runs parts of the test suite on what is built under $BUILD and ends with one line of counts.
# Usage: tests/run.sh unit|emulated|fuzz|oracle|cluster|arm|random|abuse|chaos|abuse+chaos ...
# The oracles compute and wait for nothing, the others mostly wait: where both are asked for, the oracles run beside them with a low priority,
# on what they leave idle.
set -u
cd "$(dirname "$0")/.." || exit 2
build=${BUILD:-build}
py=/usr/bin/python3
passed=0
failed=0
export ASAN_OPTIONS="${ASAN_OPTIONS:-detect_leaks=1:abort_on_error=0}"
export UBSAN_OPTIONS="${UBSAN_OPTIONS:-print_stacktrace=1}"
export TSAN_OPTIONS="${TSAN_OPTIONS:-suppressions=$PWD/tests/tsan.supp:halt_on_error=0:second_deadlock_stack=1:die_after_fork=0}"
jobs=$(nproc)
case $build in # a sanitizer, and an emulator, takes up to twenty times as long, all of it in computing
*san | *arm-run)
    limit=1200 programs_at_once=$((jobs + 1)) clusters_at_once=$jobs attacks_at_once=$jobs part_limit=14400
    export TEST_SLOW="${TEST_SLOW:-6}" # deadlines of tests, so many times as long: tests/unit/pace.h, tests/cluster/harness.py
    ;;
# they wait for nine tenths, three quarters and two thirds of their time
*) limit=300 programs_at_once=$((jobs * 4)) clusters_at_once=$((jobs * 2)) attacks_at_once=$((jobs + 1)) part_limit=1500 ;;
esac
case $build in *tsan | *arm-run) export TEST_SAMPLE=1 ;; esac # a sample of what is computed many times over (tests/unit/pace.h)
[ "${ABUSE_SLOW:-}${CHAOS_SLOW:-}" = "" ] || part_limit=14400 # tests of minutes have limits of their own (slow_tests.py)
log=$(mktemp)
beside=
# shellcheck disable=SC2317
leave() {
    [ -z "$beside" ] || kill -- "-$beside" 2>/dev/null
    rm -f "$log" "$log.beside"
}
trap leave EXIT
trap 'exit 130' INT TERM

# Programs that exit 0 when all is well, one line of standard input each, more at a time than there are cores, since most wait more than they
# compute: quiet then, their output when not.
programs() {
    # shellcheck disable=SC2016
    xargs -r -P "$programs_at_once" -L 1 sh -c '
        limit=$1
        shift
        if out=$(timeout -k 10 "$limit" "$@" 2>&1); then echo ok
        else printf "FAILED %s\n%s\n" "$*" "$(echo "$out" | tail -n 60)"
        fi' one "$limit" >"$log"
    ok=$(grep -c "^ok$" "$log")
    bad=$(grep -c "^FAILED " "$log")
    passed=$((passed + ok))
    failed=$((failed + bad))
    grep -v "^ok$" "$log"
}

# pytest prints its own counts; its closing line is added to ours. A test that hangs ends its process, with the stacks of its threads in the
# output, and the others go on; a process that does not end after its last test is ended with its part.
pytests() { # label, processes, arguments...
    label=$1
    processes=$2
    shift 2
    BUILD=$build timeout --foreground -k 10 "$part_limit" $py -m pytest -q -p no:cacheprovider -n "$processes" --dist loadfile \
        --timeout $((limit * 2)) --timeout-method thread "$@" >"$log" 2>&1
    rc=$?
    p=$(sed -n 's/.*[^0-9]\([0-9][0-9]*\) passed.*/\1/p; s/^\([0-9][0-9]*\) passed.*/\1/p' "$log" | tail -n 1)
    f=$(sed -n 's/.*[^0-9]\([0-9][0-9]*\) failed.*/\1/p; s/^\([0-9][0-9]*\) failed.*/\1/p' "$log" | tail -n 1)
    passed=$((passed + ${p:-0}))
    failed=$((failed + ${f:-0}))
    if [ $rc -ne 0 ]; then
        [ -n "${f:-}" ] || failed=$((failed + 1))
        echo "FAILED $label"
        [ $rc -ne 124 ] || echo "$label did not end within $part_limit s"
        sed -n '/+ Timeout +/,/+ Timeout +/p' "$log" | head -n 400
        tail -n 120 "$log"
    fi
}

case " $* " in
" oracle ") ;;
*" oracle "*) # in a process group of its own, so that it can be ended
    BUILD=$build $py -c 'import os, sys; os.setpgid(0, 0); os.nice(15); os.execv(sys.argv[1], sys.argv[1:])' tests/run.sh oracle >"$log.beside" 2>&1 &
    beside=$!
    ;;
esac
for part in "$@"; do
    began=$(date +%s)
    before=$passed
    case $part in
    unit) programs <<EOF
$(find "$build/tests/unit" -type f -name '*_test' | sort)
EOF
        ;;
    emulated) programs <<EOF
$(find "$build/tests/unit" -type f -name '*_emulated_test' | sort)
EOF
        ;;
    fuzz) programs <<EOF
$(find "$build/tests/fuzz" -type f -name 'replay_*' ! -name '*.o' ! -name '*.d' | sort | sed 's|.*/replay_\(.*\)|& tests/fuzz/corpus/\1|')
EOF
        ;;
    oracle)
        [ -z "$beside" ] || continue
        # shellcheck disable=SC2086
        pytests oracle "$jobs" ${ORACLES:-tests/oracle} # tests/arm/run.sh has some of them
        ;;
    random) pytests random "$jobs" tests/cluster/test_random_requests.py tests/oracle/test_chat_template.py ;;
    arm) pytests arm 1 tests/arm ;; # of what tests/arm/run.sh made
    cluster) pytests cluster "$clusters_at_once" tests/cluster ;;
    abuse) pytests abuse "$attacks_at_once" tests/abuse ;;
    chaos) pytests chaos "$attacks_at_once" tests/chaos ;;
    abuse+chaos) pytests "$part" "$attacks_at_once" tests/chaos tests/abuse ;;
    *) echo "run.sh: unknown part $part" >&2; exit 2 ;;
    esac
    echo "$part: $((passed - before)) passed in $(($(date +%s) - began)) s"
done
if [ -n "$beside" ]; then
    wait "$beside"
    beside=
    sed '$d' "$log.beside"
    counts=$(tail -n 1 "$log.beside") # "N passed, M failed"
    case $counts in
    *" passed, "*" failed")
        passed=$((passed + ${counts%% *}))
        more=${counts#*, }
        failed=$((failed + ${more%% *}))
        ;;
    *) failed=$((failed + 1)); echo "FAILED oracle"; echo "$counts" ;;
    esac
fi
echo "$passed passed, $failed failed"
[ $failed -eq 0 ] && [ $passed -gt 0 ]
