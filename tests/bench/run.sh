#!/bin/sh
# Every benchmark in one run: lines of `name value unit [ratio of]` into BUILD/bench.txt, the same as JSON into BUILD/bench.json, then the
# bars of this release. Absolute figures mean nothing on a shared machine; read the ratios, which compare with a ceiling measured in the same
# run (docs/performance.md). BENCH_QUICK=1: fewer layers and rounds. BENCH_CPU_TIME=1: processor time where one thread works.
# A new benchmark is one more line in `programs`.
set -u
cd "$(dirname "$0")/../.."
build=${BUILD:-build}
out=$build/bench.txt
: >"$out"
bin=$build/tests/bench
py=/usr/bin/python3
if [ "${BENCH_QUICK:-}" = 1 ]; then model="--layers 3 --rounds 3"; rounds="--rounds 5"; else model="--rounds 5"; rounds=""; fi

programs() {
    echo "$bin/bench_machine"
    for shape in tinyllama-1.1b qwen2.5-0.5b; do
        for dtype in bf16 int8 int4; do
            for threads in 1 2; do
                [ "$(nproc)" -ge $threads ] && echo "$bin/bench_forward --shape $shape --dtype $dtype --threads $threads $model"
            done
        done
    done
    echo "$bin/bench_lookup"
    echo "$bin/bench_sample"
    echo "$bin/bench_tokenizer"
    echo "$bin/bench_guide"
    echo "$bin/bench_engine --threads 1 --seconds ${BENCH_SECONDS:-1} --model models/fable"
    echo "$bin/bench_kv_parts"
    echo "$bin/bench_kv_link $rounds"
    echo "$bin/bench_relay"
    echo "$py tests/bench/start.py"
    echo "$py tests/bench/cluster_times.py gaps exposed shaped"
    echo "$py tests/bench/streams.py"
    echo "env TLS=1 $py tests/bench/streams.py"
}

programs >"$out.list"
while read -r line; do
    echo "# $line" | tee -a "$out"
    # Two threads share no processor clock, so only one thread is timed by it.
    case $line in *"--threads 2"*) unset_cpu="env -u BENCH_CPU_TIME" ;; *) unset_cpu="" ;; esac
    # shellcheck disable=SC2086
    BUILD=$build $unset_cpu $line </dev/null 2>&1 | tee -a "$out"
done <"$out.list"
rm -f "$out.list"
exec $py tests/bench/report.py "$out" "$build/bench.json"
