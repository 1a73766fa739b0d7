#!/bin/sh
# Starts the cluster of cluster-conf/1p1d on loopback, asks it a story through several client families, shows its state and ends
# (`make demo`), or stays up (`make run`: --stay).
set -u

cd "$(dirname "$0")/.."
bin=${BATON_BIN:-build/bin}
conf=cluster-conf/1p1d
stay=""
[ "${1:-}" = "--stay" ] && stay=1
door=http://127.0.0.1:1025
manage=http://127.0.0.1:1026
ports="1025 1026 1028 1029 2025 2026 2121 3025 3026 3121"
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
for tool in curl awk; do command -v $tool >/dev/null || give_up "$tool is missing: run \`make deps\`"; done
for d in coordinator prefill decode batonctl; do [ -x "$bin/$d" ] || give_up "$bin/$d is missing: run \`make all\`"; done
grep -qw avx2 /proc/cpuinfo || echo "demo: this CPU has no AVX2: the plain C kernels are used, which are many times slower" >&2
for p in $ports; do
    # A connect that succeeds means that somebody listens there already.
    if curl -s -o /dev/null --max-time 1 "http://127.0.0.1:$p/" 2>/dev/null || [ $? -ne 7 ]; then
        give_up "port $p on 127.0.0.1 is taken: stop what listens there, or change the ports in $conf"
    fi
done

# ---- start
start() {
    "$bin/$1" -c "$conf/$2.json" >"$logs/$2.log" 2>&1 &
    pids="$pids $!"
    eval "pid_$2=$!"
}

alive() { for p in $pids; do kill -0 "$p" 2>/dev/null || return 1; done; }

say "starting a coordinator, a prefill and a decode instance with models/fable"
start coordinator coordinator
start prefill prefill
start decode decode
shown=""
i=0
until curl -sf -o /dev/null --max-time 1 $door/v1/readiness; do
    alive || give_up "a daemon ended while starting"
    i=$((i + 1))
    [ $i -lt 300 ] || give_up "the cluster did not become ready in 60 seconds: $(curl -s --max-time 1 $door/v1/readiness)"
    now=$(cat "$logs"/prefill.log "$logs"/decode.log | grep -c 'percent=')
    [ "$now" = "$shown" ] || { shown=$now; awk -v n="$now" 'BEGIN { printf "\rloading the model on both instances: %3d%%", (n >= 20 ? 100 : n * 5) }'; }
    sleep 0.2
done
printf '\rloading the model on both instances: 100%%; roles given, KV link up, cluster ready\n'

# ---- ask
story="Tell me a story about a fox."
say "OpenAI: POST /v1/chat/completions, streaming"
printf 'you: %s\nfable: ' "$story"
curl -sN $door/v1/chat/completions -d "{\"model\":\"fable\",\"stream\":true,\"max_tokens\":120,\"seed\":7,\"messages\":[{\"role\":\"user\",\"content\":\"$story\"}]}" |
    awk '{
        if (match($0, /"content":"([^"\\]|\\.)*"/)) {
            t = substr($0, RSTART + 11, RLENGTH - 12)
            gsub(/\\n/, "\n", t); gsub(/\\"/, "\"", t); gsub(/\\\\/, "\\", t)
            printf "%s", t; fflush()
        }
        if ($0 ~ /\[DONE\]/) { done = 1; print "" }
    } END { exit !done }' || give_up "the stream did not end with [DONE]"

ask() { # title, path, body, text that must be in the answer
    say "$1"
    answer=$(curl -s $door"$2" -d "$3") || give_up "no answer to $2"
    printf '%s\n' "$answer"
    case $answer in *"$4"*) ;; *) give_up "unexpected answer to $2" ;; esac
}
ask "TGI: POST /generate" /generate \
    '{"inputs":"Once upon a time there was a fox","parameters":{"max_new_tokens":40,"do_sample":true,"temperature":0.7,"seed":7,"details":false}}' generated_text
ask "Triton: POST /v2/models/fable/generate" /v2/models/fable/generate \
    '{"id":"demo-1","text_input":"Once upon a time there was a fox","parameters":{"max_new_tokens":40,"do_sample":true,"temperature":0.7,"seed":7}}' text_output

say "the cluster: build/bin/batonctl status"
"$bin/batonctl" -m $manage status || give_up "no status"

say "proof of disaggregation: the last request"
"$bin/batonctl" -m $manage request || give_up "no request on record"

say "memory"
for d in coordinator prefill decode; do
    eval "p=\$pid_$d"
    awk -v d=$d '/VmRSS/ { printf "%-12s %6.1f MB resident\n", d, $2 / 1024 }' "/proc/$p/status"
done

if [ -n "$stay" ]; then
    say "up. Copy a line; Ctrl-C ends the cluster"
    cat <<TXT
curl -N $door/v1/chat/completions -d '{"model":"fable","stream":true,"messages":[{"role":"user","content":"Tell me a story about a bear."}]}'
curl $door/generate -d '{"inputs":"Once upon a time","parameters":{"max_new_tokens":60}}'
curl $door/v2/models/fable/generate -d '{"text_input":"Once upon a time","parameters":{"max_new_tokens":60}}'
curl $door/v1/models
build/bin/batonctl status
TXT
    while alive; do sleep 1; done
    give_up "a daemon ended"
fi
say "done: everything worked; stopping what was started"
stop_all
exit 0
