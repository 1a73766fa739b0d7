#!/bin/sh
# Every benchmark in one run: lines of `name value unit [ratio of]` into BUILD/bench.txt, the same as JSON into BUILD/bench.json, then the
# bars of this release. Absolute figures mean nothing on a shared machine; read the ratios, which compare with a ceiling measured in the same
# run (docs/performance.md). Progress goes to stderr. A program that takes too long is ended, and told as failed.
#   BENCH_QUICK=1      fewer layers and rounds: minutes
#   BENCH_ONLY=REGEX   only programs whose command line matches
#   BENCH_KERNELS=SETS  the forward pass with each of these kernel sets ("amx avx512bf16 avx2"), in the place of the one chosen here
#   BENCH_CPU_TIME=1   processor time where one thread works
# A new benchmark is one more line in `programs`.
set -u
cd "$(dirname "$0")/../.." || exit 1
build=${BUILD:-build}
out=$build/bench.txt
bin=$build/tests/bench
py=/usr/bin/python3
if [ "${BENCH_QUICK:-}" = 1 ]; then
    forward="--layers 3 --rounds 3 --seconds 10" lookup="--rounds 3" link="--rounds 5" piece=0.3 streams=300 limit=240 relay="--rounds 1" gap="--layers 3 --rounds 2"
else
    forward="--rounds 5 --seconds 60" lookup="--rounds 5" link="" piece=1 streams=1000 limit=1200 relay="" gap="--rounds 3"
fi
models=$(mktemp -d "${TMPDIR:-/tmp}/baton-bench-models-XXXXXX") || exit 1
trap 'rm -rf "$models" "$out.list"' EXIT
trap 'exit 1' HUP INT TERM

programs() {
    echo "$bin/bench_machine"
    for shape in tinyllama-1.1b qwen2.5-0.5b; do
        for dtype in bf16 int8 int4; do
            for threads in 1 2; do
                for kernels in ${BENCH_KERNELS:-auto}; do
                    [ "$(nproc)" -ge $threads ] &&
                        echo "$bin/bench_forward --shape $shape --dtype $dtype --threads $threads --kernels $kernels --models $models $forward"
                done
            done
        done
        if [ $shape = tinyllama-1.1b ]; then
            for dtype in bf16 int4; do
                for threads in 1 2; do
                    [ "$(nproc)" -ge $threads ] &&
                        echo "$bin/bench_gap --shape $shape --dtype $dtype --threads $threads --models $models $gap"
                done
            done
        fi
        # prefill is what it is with KV of bf16
        echo "$bin/bench_forward --shape $shape --kv int8 --prompt 0 --models $models $forward"
        echo "rm -r $models/$shape-*"
    done
    echo "$py tests/oracle/perplexity.py"
    echo "$bin/bench_lookup $lookup"
    echo "$bin/bench_sample"
    echo "$bin/bench_tokenizer"
    echo "$bin/bench_body"
    echo "$bin/bench_guide"
    echo "$bin/bench_engine --threads 1 --seconds $piece --model models/fable"
    echo "$bin/bench_kv_parts"
    echo "$bin/bench_kv_link $link"
    echo "$bin/bench_relay"
    echo "$bin/bench_relay --streams 20000 --h2 15000 --rate 100000"
    echo "$bin/bench_fleet"
    echo "$bin/bench_relay_tls $relay"
    echo "$py tests/bench/start.py"
    echo "$py tests/bench/vectors.py"
    for model in fable half_b; do echo "$py tests/bench/silence.py $model"; done
    echo "$py tests/bench/turns.py"
    echo "$py tests/bench/advise.py"
    for cluster in 1p1d 2p2d 3p1d; do echo "$py tests/bench/forecast.py $cluster"; done
    for part in gaps exposed shaped; do echo "$py tests/bench/cluster_times.py $part"; done
    echo "env STREAMS=$streams $py tests/bench/streams.py"
    echo "env STREAMS=$streams TLS=1 $py tests/bench/streams.py"
}

: >"$out"
programs | grep -E -e "${BENCH_ONLY:-.}" >"$out.list"
n=0
while read -r line; do
    case $line in "rm -r "*) sh -c "$line" 2>/dev/null; continue ;; esac
    n=$((n + 1))
    echo "bench: program $n of $(grep -vc "^rm " "$out.list"), $(date +%H:%M:%S)" >&2
    echo "# $line" | tee -a "$out"
    # Two threads share no processor clock, so only one thread is timed by it.
    case $line in *"--threads 2"*) unset_cpu="-u BENCH_CPU_TIME" ;; *) unset_cpu="" ;; esac
    # shellcheck disable=SC2086
    { timeout -k 20 $limit env $unset_cpu BUILD="$build" $line </dev/null || echo "# failed with $?: $line"; } | tee -a "$out"
done <"$out.list"
$py tests/bench/report.py "$out" "$build/bench.json"
