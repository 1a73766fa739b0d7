#!/bin/sh
# Tests of what is built for aarch64, under qemu-user: unit programs with each kernel set, oracles of the kernels, bits across architectures, and
# clusters of one prefill and one decode instance, the second with its prefill instance on this machine; and what `make` does on such a machine.
# Says what was left out, and ends with one line of counts.
# Usage: tests/arm/run.sh BUILD SYSROOT, with what is built for this machine in build/. PARTS="native unit oracle cluster" for some of it;
# ARM_CPU for another processor of qemu's than `max`, which has all that the kernel sets ask for.
set -u
cd "$(dirname "$0")/../.." || exit 2
build=$PWD/$1
sysroot=$PWD/$2
run=$1-run
cpu=${ARM_CPU:-max}

# Left out: what qemu cannot do. Unit programs by their path, or one case of one.
left_out="
common/base/build_test         qemu 7.2 writes /proc/self/stat itself, and zeros for memory and time
common/base/log_test:children  qemu 7.2 ends with an assertion (plugins/core.c) where a process forks beside a thread and its child starts one
"
# Oracles that run: what is computed with the kernels of aarch64, by each set, in any batch, chunk and on any number of threads. What only reads
# files, texts and schemas has no kernel in it, and its unit programs run here. Perplexities take long, and follow from bits that are those of
# x86-64 (test_across.py), of neonbf16 from logits that stay close.
oracles="
test_engine.py                                                    families, the bundled model
test_quant.py::test_logits_are_those_of_the_format                int8 and int4
test_quant.py::test_bits_do_not_depend_on_sets_chunks_or_threads
test_kv.py::test_logits_are_those_of_the_format                   KV of int8
test_kv.py::test_bits_do_not_depend_on_sets_chunks_blocks_or_threads
test_gguf.py::test_blocks_are_computed_with_as_they_are           blocks of GGUF
test_experts.py::test_mxfp4_as_it_is_published                    mixtures
test_decoders.py::test_kernel_sets_agree                          families of other shapes
test_latent.py::test_kernel_sets_agree                            latent attention
test_llama4.py::test_kernel_sets_agree                            attention in chunks
test_lora.py::test_own_sets_agree_bit_for_bit                     adapters
test_embed.py::test_own_sets_agree_bit_for_bit                    encoders
"
ORACLES=$(echo "$oracles" | sed -n 's|^\(test_[^ ]*\).*|tests/oracle/\1|p' | tr '\n' ' ')
export ORACLES
left_out_names=$(echo "$left_out" | sed -n 's/^\([^ ]\{1,\}\) .*/\1/p')

# A program that starts one of the others finds it by the same path.
rm -rf "$run"
for program in $(cd "$build" && find bin tests/unit tests/oracle -type f -perm -u+x ! -name '*.o'); do
    case " $(echo "$left_out_names" | tr '\n' ' ') " in *" ${program#tests/unit/} "*) continue ;; esac
    mkdir -p "$run/$(dirname "$program")"
    skip=$(echo "$left_out_names" | sed -n "s|^${program#tests/unit/}:||p")
    # shellcheck disable=SC2016
    printf '#!/bin/sh\nexport TEST_SELF=%s%s\nexec qemu-aarch64 -cpu "${ARM_CPU:-%s}" -L %s %s "$@"\n' \
        "$PWD/$run/$program" "${skip:+ TEST_SKIP=$skip}" "$cpu" "$sysroot" "$build/$program" >"$run/$program"
    chmod +x "$run/$program"
done

# On a machine of that architecture, with its own gcc, nothing is built for another: what make would run there, by what uname and gcc would say.
native() {
    there=$(mktemp -d)
    printf '#!/bin/sh\n[ "$*" != -m ] || { echo aarch64; exit; }\nexec /usr/bin/uname "$@"\n' >"$there/uname"
    printf '#!/bin/sh\nexec aarch64-linux-gnu-gcc "$@"\n' >"$there/gcc"
    chmod +x "$there/uname" "$there/gcc"
    MAKEFLAGS='' PATH="$there:$PATH" make -n BUILD="$there/build" CC=gcc HOST_CC=false daemons >"$there/commands" 2>&1
    rc=$?
    for set in neondot neoni8mm neonbf16; do
        grep -q "^gcc .*-march=armv8.*/kernels_$set.o " "$there/commands" || { echo "native: kernels_$set has no flags of its own"; rc=1; }
    done
    ! grep -E '^false|/build/host/|-mavx' "$there/commands" || { echo "native: the lines above are those of a build for another machine"; rc=1; }
    [ $rc -eq 0 ] || tail -n 5 "$there/commands"
    rm -rf "$there"
    return $rc
}

failed=0
parts=
for part in ${PARTS:-native unit oracle cluster}; do
    case $part in
    native) if native; then echo "native: as on any machine"; else failed=1; echo "FAILED native"; fi ;;
    unit | oracle) parts="$parts $part" ;;
    cluster) parts="$parts arm" ;;
    *) echo "run.sh: unknown part $part" >&2; exit 2 ;;
    esac
done
echo "left out:$left_out"
# shellcheck disable=SC2086
[ -z "$parts" ] || BUILD=$run tests/run.sh $parts || failed=1
exit $failed
