#!/bin/sh
# Every benchmark in one run: lines of `name value unit [ratio of]`, then the bars of this release. Absolute figures mean nothing on a shared
# machine; read the ratios, which compare with a ceiling measured in the same run.
set -u
cd "$(dirname "$0")/../.."
build=${BUILD:-build}
out=$build/bench.txt
: >"$out"

run() {
    echo "# $*" | tee -a "$out"
    "$@" | tee -a "$out"
}
run "$build/tests/bench/bench_tokenizer"
run "$build/tests/bench/bench_guide"
run "$build/tests/bench/bench_engine" --threads 1 --seconds "${BENCH_SECONDS:-1}" --model models/fable
[ "$(nproc)" -lt 2 ] || run "$build/tests/bench/bench_engine" --threads 2 --seconds "${BENCH_SECONDS:-1}"
run "$build/tests/bench/bench_kv_link"
BUILD=$build run /usr/bin/python3 tests/bench/streams.py
BUILD=$build TLS=1 run /usr/bin/python3 tests/bench/streams.py

awk '
    function bar(what, value, least) {
        printf "%-64s %8.2f  (at least %.2f)  %s\n", what, value, least, (value >= least ? "ok" : "BELOW")
        if (value < least) below = 1
    }
    /^#/ { threads = 0; if (match($0, /--threads [0-9]+/)) threads = substr($0, RSTART + 10, RLENGTH - 10) + 0 }
    $1 == "tokenizer_llama3_pattern_mb_s" { bar("Llama 3 pattern, MB/s of text on one core", $2, 5) }
    $1 == "gemm_bf16_layer" { bar("prefill of 512 rows, bf16, " threads " thread(s), over OpenBLAS sgemm", $4, 0.5) }
    $1 == "gemm_f32_layer" { bar("prefill of 512 rows, f32, " threads " thread(s), over OpenBLAS sgemm", $4, 0.5) }
    $1 == "decode_bf16_batch_1" { bar("decode at batch 1, bf16, " threads " thread(s), over read bandwidth", $6, 0.5) }
    $1 == "guide_token_us" { bar("guided decoding, " $2 ": 50 us over mask and advance of a token", 1 / $5, 1) }
    END { exit below }' "$out"
