#!/bin/sh
# A file may include its own folder and lower floors, never upwards or sideways (docs/architecture.md).
set -eu
cd "$(dirname "$0")/../.."

# folder and the folders it may include beside its own
allowed() {
    case $1 in
    proto) echo "" ;;
    common/base) echo "proto" ;;
    common/net | common/text | common/engine) echo "proto common/base" ;;
    common/grpc) echo "proto common/base common/net" ;;
    common/guide) echo "proto common/base common/text common/engine" ;;
    common/endpoint) echo "proto common/base common/net common/grpc common/text common/engine common/guide" ;;
    common/instance) echo "proto common/base common/net common/grpc common/text common/engine common/guide common/endpoint" ;;
    prefill | decode) echo "proto common/base common/net common/grpc common/text common/engine common/guide common/endpoint common/instance" ;;
    coordinator) echo "proto common/base common/net common/grpc" ;;
    tools | tools/ctl | tools/load) echo "proto common/base common/net" ;;
    tools/sim) echo "proto common/base tools/load coordinator" ;; # the planner and the router, which are pure
    *) echo "?" ;;
    esac
}

# Only a main may name the other role: it lists the roles its binary can take.
bad=0
for f in $(git ls-files '*.c' '*.h' | grep -v '^tests/'); do
    dir=$(dirname "$f")
    ok=" $dir $(allowed "$dir") "
    case $f in prefill/main.c | decode/main.c) ok="$ok prefill decode " ;; esac
    case $f in tools/baton_bench.c) ok="$ok tools/load " ;; esac
    case $f in tools/ctl/*advise*) ok="$ok tools/load tools/sim " ;; esac
    case $f in tools/simulate.c) ok="$ok tools/load tools/sim " ;; esac
    case $f in tools/openapi_gen.c) ok="$ok common/endpoint " ;; esac # the rows of the parameters, which are data
    case $f in tools/proto_gen.c) ok="$ok common/grpc " ;; esac # the form of the tables that it writes
    case $f in tools/replay*) ok="$ok coordinator " ;; esac # takes its decisions again: the pure function, the events of a recording
    for inc in $(sed -n 's/^#include "\(.*\)"$/\1/p' "$f"); do
        from=$(dirname "$inc")
        case $ok in
        *" $from "*) ;;
        *) echo "floors: $f must not include $inc"; bad=1 ;;
        esac
    done
done

# Which files may include what is not plain C: each library, and the system's headers that open something.
sources=$(git ls-files '*.c' '*.h' | grep -vE '^tests/|^tools/fable_')
only() { # headers, as a regular expression; files that may include them
    listed="$listed|$1"
    for f in $(echo "$sources" | xargs grep -lE "^ *#include <($1)>" || true); do
        case " $2 " in *" $f "*) ;; *) echo "floors: $f must not include <$1>, only these may: $2"; bad=1 ;; esac
    done
}
listed='(assert|ctype|errno|fcntl|float|inttypes|limits|locale|malloc|math|pthread|setjmp|stdarg|stdatomic|stdbool|stddef|stdint|stdio|stdlib|string|strings|time|unistd)\.h'
listed="$listed|(arpa/inet|sys/(stat|types|random|resource|file))\\.h"

# libraries
only 'event2/.*' "common/net/loop.c"
only 'curl/.*' "common/net/http_client.c"
only 'nghttp2/.*' "common/net/h2_priv.h"
only 'zlib\.h' "common/grpc/grpc_inflate.c tools/load/load_source.c"
only 'nanomsg/.*' "common/instance/bus.c"
only 'cblas\.h' "common/engine/kernels_openblas.c"
only 'dlfcn\.h' "common/engine/kernels_openblas.c"
only 'pcre2\.h' "common/text/tok_regex.c common/text/tok_regex_syntax.c"
only 'utf8proc\.h' "common/text/tok_utf8.c common/text/tok_normalize.c common/text/jinja_text.c common/text/tok_charsmap.c"
only 'xxhash\.h' "common/engine/weights_priv.h common/engine/weights_cache.c"
only 'openssl/(ssl|x509|x509v3|pem|err)\.h' "common/net/tls.c common/net/tls_files.c common/net/tls_session.c common/net/tls_peer.c common/net/tls_priv.h"
only 'openssl/hmac\.h' "common/instance/kv_seal.c"
only 'openssl/sha\.h' "common/net/api_keys.c coordinator/journal.c common/engine/model_conf.c common/engine/weights_file.c common/engine/weights_cache.c"
only 'openssl/evp\.h' "common/instance/kv_seal.c common/engine/lora.c common/guide/guide.c common/text/tokenizer.c common/text/tokenizer_gguf.c common/text/tokenizer_spm.c common/text/tok_pieces.c common/text/tok_charsmap.c"
only 'openssl/crypto\.h' "common/net/api_keys.c common/net/tls_files.c common/instance/kv_auth.c common/instance/kv_seal.c"

# the processor
only 'immintrin\.h' "common/engine/kernels_avx2.c common/engine/sample_wide_avx2.c common/engine/sample_wide_avx512.c common/engine/kernels_turn.h common/engine/kernels_zmm.h proto/json_skim_avx2.c"
only 'arm_neon\.h' "common/engine/kernels_neon.h"
only '(emm|wmm|nmm)intrin\.h' "proto/crc32c.c proto/json_lex.c proto/json_skim.c common/instance/kv_recv.c"
only '(cpuid|sys/syscall|sys/auxv|asm/hwcap)\.h' "common/engine/kernels_cpu.c"

# the system: sockets, descriptors, memory, signals
only 'sys/epoll\.h' "common/net/loop.c"
only '(sys/socket|netinet/(in|tcp))\.h' "common/net/sock_io.c common/net/http_server.c common/net/h1.c common/net/http_gate.c common/net/tls_session.c common/instance/bus.c common/instance/kv_listener.c common/net/service.c tools/ctl/ctl_serve.c tools/ctl/doctor_net.c"
only 'sys/un\.h' "common/net/service.c"
only 'netdb\.h' "coordinator/ha.c coordinator/discover.c"
only 'linux/filter\.h' "common/instance/bus.c"
only 'sys/eventfd\.h' "common/net/loop.c common/base/log.c common/instance/bus.c common/instance/kv_io.c common/instance/kv_plane.c"
only 'poll\.h' "common/net/loop.c common/base/log.c common/instance/bus.c common/instance/kv_io.c common/instance/kv_plane.c tools/ctl/doctor_net.c"
only '(ifaddrs|sys/statvfs|sys/timex)\.h' "common/base/host_facts.c"
only 'sys/mman\.h' "proto/json_tree.c common/base/heap.c common/base/file_map.c common/engine/mem.c common/engine/weights.c common/engine/weights_file.c common/engine/weights_cache.c"
# programs that start others
only '(sys/wait|sys/prctl)\.h' "tools/ctl/ctl_local.c tools/ctl/ctl_serve.c tools/ctl/ctl_upgrade.c"
only 'signal\.h' "coordinator/main.c common/instance/instance.c common/base/log.c tools/ctl/ctl_local.c tools/ctl/ctl_serve.c"
only 'sched\.h' "common/base/host_facts.c common/engine/cores.c common/engine/pool.c tools/ctl/ctl_serve.c"
only 'dirent\.h' "common/base/host_facts.c common/net/kept_dir.c common/base/proc_stat.c common/base/gguf.c common/engine/cores.c common/instance/bus.c tools/ctl/ctl_local.c tools/ctl/ctl_serve.c"

# A header that no row names is a library that came in unseen.
for h in $(echo "$sources" | xargs grep -hoE '^ *#include <[^>]+>' | sed 's/.*<\(.*\)>/\1/' | sort -u | grep -vxE "$listed" || true); do
    echo "floors: <$h> has no row in tests/lint/floors.sh: $(echo "$sources" | xargs grep -lF "#include <$h>" | tr '\n' ' ')"
    bad=1
done
exit $bad
