#!/bin/sh
# Starts the cluster of cluster-conf/1p1d on loopback and the instance of cluster-conf/embed beside it, asks for a story through several client
# families, for vectors and a ranking, shows the cluster's state and ends (`make demo`), or stays up (`make run`: --stay). With --tls
# (`make demo TLS=1`) they are those of cluster-conf/1p1d-tls and embed-tls: TLS on every plane, sealed KV links and an API key, over a PKI made
# for this one run.
set -u

cd "$(dirname "$0")/.."
bin=${BATON_BIN:-build/bin}
conf=cluster-conf/1p1d
embed_conf=cluster-conf/embed
stay=""
tls=""
for option; do
    case $option in
    --stay) stay=1 ;;
    --tls) tls=1 ;;
    *) echo "demo: unknown option $option" >&2; exit 2 ;;
    esac
done
scheme=http${tls:+s}
door=$scheme://127.0.0.1:1025
manage=$scheme://127.0.0.1:1026
embed=$scheme://127.0.0.1:1035
ports="1025 1026 1028 1029 1035 1036 2025 2026 2121 3025 3026 3121"
logs=$(mktemp -d)
pids=""

say() { printf '\n== %s\n' "$*"; }

stop_all() {
    trap - EXIT INT TERM HUP PIPE
    for p in $pids; do kill "$p" 2>/dev/null; done
    for p in $pids; do wait "$p" 2>/dev/null; done
    rm -rf "$logs"
}

give_up() {
    echo "demo: $*" >&2
    for f in "$logs"/*.log; do
        [ -s "$f" ] && { echo "--- last lines of $(basename "$f")"; tail -n 5 "$f"; } >&2
    done
    stop_all
    exit 1
}

trap 'stop_all; exit 130' INT TERM
trap 'stop_all; exit 1' HUP PIPE
trap stop_all EXIT

# ---- what must be there
for tool in curl awk ${tls:+openssl}; do command -v $tool >/dev/null || give_up "$tool is missing: run \`make deps\`"; done
for d in coordinator prefill decode batonctl; do [ -x "$bin/$d" ] || give_up "$bin/$d is missing: run \`make all\`"; done
grep -qwE 'avx2|asimd' /proc/cpuinfo || echo "demo: this CPU has no AVX2: the plain C kernels are used, which are many times slower" >&2
for p in $ports; do
    # A connect that succeeds means that somebody listens there already.
    if curl -s -o /dev/null --max-time 1 "http://127.0.0.1:$p/" 2>/dev/null || [ $? -ne 7 ]; then
        give_up "port $p on 127.0.0.1 is taken: stop what listens there, or change the ports in $conf and $embed_conf"
    fi
done

# ---- certificates, when there are to be any: in a copy of the configuration, gone with the run
client="$logs/client.curl" # what curl needs for the user plane, out of sight of `ps`
: >"$client"
if [ -n "$tls" ]; then
    say "making a PKI for this run: one CA a plane, encrypted keys, CRLs; and an API key"
    mkdir -m 0700 "$logs/conf"
    for f in cluster-conf/1p1d-tls/*.json cluster-conf/embed-tls/instance.json; do sed "s#\"../../models/#\"$PWD/models/#" "$f" >"$logs/conf/$(basename "$f")"; done
    conf=$logs/conf
    embed_conf=$conf
    pki=$conf/pki
    tools/make-pki.sh "$pki" || give_up "no PKI"
    (umask 077; openssl rand -hex 24 >"$pki/api_keys") || give_up "no API key"
    cat >"$client" <<CURL
cacert = "$pki/user/ca.pem"
cert = "$pki/user/client.pem"
key = "$pki/user/client.key"
pass = "$(cat "$pki/user/client.pass")"
header = "Authorization: Bearer $(cat "$pki/api_keys")"
CURL
    m=$pki/management
    export BATON_CA="$m/ca.pem" BATON_CERT="$m/client.pem" BATON_KEY="$m/client.key" BATON_PASS="$m/client.pass"
fi
ask_curl() { curl -K "$client" "$@"; }

# ---- start
start() { # program, name, configuration
    "$bin/$1" -c "$3" >"$logs/$2.log" 2>&1 &
    pids="$pids $!"
    eval "pid_$2=$!"
}

alive() { for p in $pids; do kill -0 "$p" 2>/dev/null || return 1; done; }

say "starting a coordinator, a prefill and a decode instance with models/fable, and beside them one with models/fable-embed"
start coordinator coordinator "$conf/coordinator.json"
start prefill prefill "$conf/prefill.json"
start decode decode "$conf/decode.json"
start prefill embed "$embed_conf/instance.json"
is_up() { ask_curl -sf -o /dev/null --max-time 1 "$1"; }
shown=""
i=0
until is_up $door/v1/readiness && is_up $embed/v2/health/ready; do
    alive || give_up "a daemon ended while starting"
    i=$((i + 1))
    [ $i -lt 300 ] || give_up "the cluster did not become ready in 60 seconds: $(ask_curl -s --max-time 1 $door/v1/readiness)"
    now=$(cat "$logs"/prefill.log "$logs"/decode.log | grep -c 'percent=')
    if [ -t 1 ] && [ "$now" != "$shown" ]; then
        shown=$now
        awk -v n="$now" 'BEGIN { printf "\rloading the model on both instances: %3d%%", (n >= 20 ? 100 : n * 5) }'
    fi
    sleep 0.2
done
[ -z "$shown" ] || printf '\r'
printf 'models loaded, roles given, KV link %s, cluster ready\n' "$([ -n "$tls" ] && echo sealed || echo up)"

# ---- ask
story="Tell me a story about a fox."
say "OpenAI: POST /v1/chat/completions, streaming"
printf 'you: %s\nfable: ' "$story"
ask_curl -sN $door/v1/chat/completions -d "{\"model\":\"fable\",\"stream\":true,\"max_tokens\":120,\"seed\":7,\"messages\":[{\"role\":\"user\",\"content\":\"$story\"}]}" |
    awk '{
        if (match($0, /"content":"([^"\\]|\\.)*"/)) {
            t = substr($0, RSTART + 11, RLENGTH - 12)
            gsub(/\\n/, "\n", t); gsub(/\\"/, "\"", t); gsub(/\\\\/, "\\", t)
            printf "%s", t; fflush()
        }
        if ($0 ~ /\[DONE\]/) { done = 1; print "" }
    } END { exit !done }' || give_up "the stream did not end with [DONE]"

ask() { # title, URL, body, text that must be in the answer
    say "$1"
    printf '$ curl%s %s -d '"'%s'"'\n' "${tls:+ -K client.curl}" "$2" "$3"
    answer=$(ask_curl -s "$2" -d "$3") || give_up "no answer to $2"
    printf '%s\n' "$answer"
    case $answer in *"$4"*) ;; *) give_up "unexpected answer to $2" ;; esac
}
ask "a mistake, answered as OpenAI's clients expect it (errorStyle in cluster-conf)" $door/v1/chat/completions \
    '{"model":"gpt-4o","messages":[{"role":"user","content":"Hello"}]}' '"code":"model_not_found"'
ask "TGI: POST /generate" $door/generate \
    '{"inputs":"Once upon a time there was a fox","parameters":{"max_new_tokens":40,"do_sample":true,"temperature":0.7,"seed":7,"details":false}}' generated_text
ask "Triton: POST /v2/models/fable/generate" $door/v2/models/fable/generate \
    '{"id":"demo-1","text_input":"Once upon a time there was a fox","parameters":{"max_new_tokens":40,"do_sample":true,"temperature":0.7,"seed":7}}' text_output
ask "vectors of models/fable-embed, an encoder: POST /v1/embeddings (its first 8 of 256 numbers)" $embed/v1/embeddings \
    '{"model":"fable-embed","input":"A fox ran into the wood.","dimensions":8}' '"embedding":['
ask "which text is nearest: POST /v1/rerank" $embed/v1/rerank \
    '{"model":"fable-embed","query":"a hungry fox in the wood","documents":["The king gave his daughter to the soldier.","The wolf ran through the trees to eat the sheep.","The ship sailed over the sea."],"top_n":1}' '"index":1'

if [ -n "$tls" ]; then
    say "who has no certificate or no key stays outside"
    cacert="--cacert $pki/user/ca.pem"
    # shellcheck disable=SC2086 # two words
    curl -s -o /dev/null $cacert $door/v1/models && give_up "the user plane took a client without a certificate"
    echo "no certificate: no connection"
    sed '/^header/d' "$client" >"$logs/no_key.curl"
    code=$(curl -s -o /dev/null -w '%{http_code}' -K "$logs/no_key.curl" $door/v1/models)
    [ "$code" = 401 ] || give_up "a request without an API key got $code, not 401"
    echo "no API key:     401"
    sed "s#$pki/user/client#$pki/management/client#; s#^pass.*#pass = \"$(cat "$pki/management/client.pass")\"#" "$client" >"$logs/other.curl"
    curl -s -o /dev/null -K "$logs/other.curl" $door/v1/models && give_up "the user plane took a certificate of the management plane"
    echo "certificate of another plane: no connection"
fi

say "the cluster: build/bin/batonctl status"
"$bin/batonctl" -m $manage status || give_up "no status"

say "proof of disaggregation: the last request"
"$bin/batonctl" -m $manage request || give_up "no request on record"

say "memory"
for d in coordinator prefill decode embed; do
    eval "p=\$pid_$d"
    awk -v d=$d '/VmRSS/ { printf "%-12s %6.1f MB resident\n", d, $2 / 1024 }' "/proc/$p/status"
done

if [ -n "$stay" ]; then
    say "up. Copy a line; Ctrl-C ends the cluster"
    with=${tls:+ -K $client}
    ctl=$bin/batonctl
    [ -z "$tls" ] || ctl="$ctl -m $manage --ca $BATON_CA --cert $BATON_CERT --key $BATON_KEY --pass $BATON_PASS"
    cat <<TXT
curl$with -N $door/v1/chat/completions -d '{"model":"fable","stream":true,"messages":[{"role":"user","content":"Tell me a story about a bear."}]}'
curl$with $door/generate -d '{"inputs":"Once upon a time","parameters":{"max_new_tokens":60}}'
curl$with $door/v2/models/fable/generate -d '{"text_input":"Once upon a time","parameters":{"max_new_tokens":60}}'
curl$with $embed/v1/embeddings -d '{"model":"fable-embed","input":["Once upon a time","The fox ran."]}'
curl$with $door/v1/models
$ctl status
TXT
    [ -n "$tls" ] || echo "in a browser: $manage/console/ (the cluster) and $door/chat/"
    while alive; do sleep 1; done
    give_up "a daemon ended"
fi
say "done: everything worked; stopping what was started"
stop_all
exit 0
