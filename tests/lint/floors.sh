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
    common/guide) echo "proto common/base common/text common/engine" ;;
    common/endpoint) echo "proto common/base common/net common/text common/engine common/guide" ;;
    common/instance) echo "proto common/base common/net common/text common/engine common/guide common/endpoint" ;;
    prefill | decode) echo "proto common/base common/net common/text common/engine common/guide common/endpoint common/instance" ;;
    coordinator | tools) echo "proto common/base common/net" ;;
    *) echo "?" ;;
    esac
}

# Only a main may name the other role: it lists the roles its binary can take.
bad=0
for f in $(git ls-files '*.c' '*.h' | grep -v '^tests/'); do
    dir=$(dirname "$f")
    ok=" $dir $(allowed "$dir") "
    case $f in prefill/main.c | decode/main.c) ok="$ok prefill decode " ;; esac
    case $f in tools/openapi_gen.c) ok="$ok common/endpoint " ;; esac # the rows of the parameters, which are data
    for inc in $(sed -n 's/^#include "\(.*\)"$/\1/p' "$f"); do
        from=$(dirname "$inc")
        case $ok in
        *" $from "*) ;;
        *) echo "floors: $f must not include $inc"; bad=1 ;;
        esac
    done
done

# Each library has one door (or one folder).
door() { # header pattern, files that may
    for f in $(git ls-files '*.c' '*.h' | grep -vE '^tests/|^tools/fable_' | xargs grep -lE "#include <$1" 2>/dev/null || true); do
        case " $2 " in *" $f "*) ;; *) echo "floors: $f must not include <$1>: its door is $2"; bad=1 ;; esac
    done
}
door 'event2/' "common/net/loop.c"
door 'curl/' "common/net/http_client.c"
door 'openssl/(ssl|x509|pem)' "common/net/tls.c common/net/tls_files.c common/net/tls_session.c common/net/tls_priv.h"
door 'json-c/' "nothing: proto/json.h reads JSON"
door 'nanomsg/' "common/instance/bus.c"
door 'cblas' "common/engine/kernels_openblas.c"
exit $bad
