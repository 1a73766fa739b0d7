#!/bin/sh
# Tests of what is built for aarch64, under qemu-user: unit programs with each kernel set, oracles, bits across architectures, and clusters of one
# prefill and one decode instance, the second with its prefill instance on this machine. Ends with counts, and before them says what was left out.
# Usage: tests/arm/run.sh BUILD SYSROOT, with what is built for this machine in build/. PARTS="unit oracle cluster" for some of it.
set -u
cd "$(dirname "$0")/../.." || exit 2
build=$PWD/$1
sysroot=$PWD/$2
run=$1-run
cpu=${ARM_CPU:-max}

# Emulation takes 10 to 60 times as long. Left out is what waits or computes for minutes then, or watches a process by what qemu shows of itself.
left_out="
common/base/build_test           reads /proc/self, which is the emulator's
"
left_out_names=$(echo "$left_out" | sed -n 's/^\([^ ]\{1,\}\) .*/\1/p')

# A program that starts one of the others finds it by the same path.
rm -rf "$run"
for program in $(cd "$build" && find bin tests/unit tests/oracle -type f -perm -u+x ! -name '*.o'); do
    case " $(echo "$left_out_names" | tr '\n' ' ') " in *" ${program#tests/unit/} "*) continue ;; esac
    mkdir -p "$run/$(dirname "$program")"
    printf '#!/bin/sh\nexec qemu-aarch64 -cpu "${ARM_CPU:-%s}" -L %s %s "$@"\n' "$cpu" "$sysroot" "$build/$program" >"$run/$program"
    chmod +x "$run/$program"
done

failed=0
for part in ${PARTS:-unit oracle cluster}; do
    case $part in
    unit) BUILD=$run tests/run.sh unit || failed=1 ;;
    oracle)
        BUILD=$run /usr/bin/python3 -m pytest -q -p no:cacheprovider -n "$(nproc)" --timeout 1200 tests/oracle/test_engine.py \
            tests/oracle/test_kv.py tests/oracle/test_quant.py || failed=1
        ;;
    cluster) BUILD=$run /usr/bin/python3 -m pytest -q -p no:cacheprovider --timeout 1200 tests/arm || failed=1 ;;
    *) echo "run.sh: unknown part $part" >&2; exit 2 ;;
    esac
done
echo "left out:$left_out"
exit $failed
