#!/bin/bash
# run.sh — the gateway beside nginx and haproxy, one worker each, in alternating rounds: µs of CPU of
# the proxy's own processes per request, and memory of what is idle or read slowly.  bench/README.md
# says how to read it.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
build=$here/../build/release
rounds=9 seconds=1 connections=16 held=9000 readers=8 buffers=0 log=off
ciphers=TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256 # what the gateway prefers
names=(gateway nginx haproxy)

# name | title | at most so much of the better peer's CPU | listener (_h2: h2c behind) | target | load's flags
table=(
    "keepalive|1 KB, connections kept||plain|/1024|"
    "close|1 KB, a new connection for each request||plain|/1024|--close"
    "tls|1 KB over TLS, connections kept|1.00|tls|/1024|"
    "tls-close|1 KB over TLS, a new connection and full handshake each|1.00|tls|/1024|--close"
    "tls-resume|1 KB over TLS, a new connection and resumed handshake each||tls|/1024|RESUME"
    "h2|1 KB, h2 over TLS, 10 connections of 10 streams|1.00|tls|/1024|--h2 --connections 10 --streams 10"
    "h2c|1 KB, h2c, 10 connections of 10 streams||h2c|/1024|--h2 --connections 10 --streams 10"
    "grpc|gRPC call, 1 KB, h2c to h2c, 10 connections of 10 streams||h2c_h2|/1024|--h2 --grpc --connections 10 --streams 10"
    "grpc-tls|gRPC call, 1 KB, h2 over TLS to h2c, 10 connections of 10 streams||tls_h2|/1024|--h2 --grpc --connections 10 --streams 10"
    "bulk|10 MiB|0.80|plain|/10485760|--connections 4"
    "bulk-tls|10 MiB over TLS|0.80|tls|/10485760|--connections 4"
    "bulk-h2|10 MiB, h2 over TLS|0.80|tls|/10485760|--connections 4 --h2"
    "bulk-h2c|10 MiB, h2c to h2c||h2c_h2|/10485760|--connections 4 --h2"
)
memory=(slow idle idle-tls idle-wss)
others=(dns sidecar mitm cluster) # by scripts of their own

all_names() {
    printf '%s\n' "${table[@]%%|*}" "${memory[@]}" "${others[@]}"
}

usage() {
    cat <<TEXT
usage: bench/run.sh [flags] [scenario ...]      scenarios (none: all): $(all_names | tr '\n' ' ')
  --build DIR        where the programs were built (default build/release)
  --rounds N         rounds of each scenario (default $rounds)
  --seconds N        length of one measurement (default $seconds)
  --connections N    clients at once, where the scenario does not say (default $connections)
  --held N           idle tunnels or connections (default $held)
  --readers N        slow readers of 500 MB each (default $readers)
  --ciphers LIST     of TLS 1.3, for the peers (default: what the gateway prefers)
  --buffers KIB      of the peers, for bodies (default 0: as they come)
  --log              every proxy writes its access log, to a file (default: none does)
TEXT
    exit 2
}

scenarios=()
while [ $# -gt 0 ]; do
    case $1 in
    --build) build=${2-} && shift ;;
    --rounds) rounds=${2-} && shift ;;
    --seconds) seconds=${2-} && shift ;;
    --connections) connections=${2-} && shift ;;
    --held) held=${2-} && shift ;;
    --readers) readers=${2-} && shift ;;
    --ciphers) ciphers=${2-} && shift ;;
    --buffers) buffers=${2-} && shift ;;
    --log) log=on ;;
    *) all_names | grep -qxF -e "$1" || usage
        scenarios+=("$1") ;;
    esac
    shift
done
[ ${#scenarios[@]} -gt 0 ] || mapfile -t scenarios < <(all_names)

for program in sallyport-ingress bench/bench-origin bench/bench-load; do
    [ -x "$build/$program" ] || { echo "$build/$program is not there: build first, or say --build" >&2; exit 2; }
done
PATH=$PATH:/usr/sbin
for program in nginx haproxy openssl; do
    type -P $program >/dev/null || { echo "$program is not installed" >&2; exit 2; }
done
ulimit -n "$(ulimit -Hn)"
# shellcheck source=bench/start.sh
. "$here/start.sh"

# ---- CPU

# The same client for all three, which knows sessions: one connection after the other, HTTP/1.0.
resume() { # name kind target
    local text
    text=$(openssl s_time -connect "127.0.0.1:${port[$1.$2]}" -www "$(path_of "$1" "$2" "$3")" -reuse -time "$seconds" 2>&1) ||
        { echo "$text"; return 1; }
    awk '/real seconds/ && /bytes read per connection/ {
        if ($7 < 1024) exit 1
        printf "{\"requests\":%d,\"p50_us\":0,\"p99_us\":0,\"rate\":%d}\n", $1, $1 / $4 }' <<<"$text"
}

once() { # name kind target flags ...: one measurement, as JSON
    if [ "${4-}" = RESUME ]; then
        resume "$@"
    else
        load "$1" "$2" "$3" --seconds "$seconds" --json --connections "$connections" "${@:4}"
    fi
}

# A row "us p50 p99 rate" per round in a file per proxy; each round goes the other way round.
measure() { # scenario kind target flags ...
    local scenario=$1 round name order before after out
    shift
    for name in "${names[@]}"; do
        : >"$dir/$scenario.$name"
        out=$(once "$name" "$@") || { echo "$scenario, $name: $out" >&2; exit 1; }
    done
    for round in $(seq "$rounds"); do
        order=("${names[@]}")
        [ $((round % 2)) = 1 ] || order=(haproxy nginx gateway)
        for name in "${order[@]}"; do
            before=$(cpu_ns "$name")
            out=$(once "$name" "$@") || { echo "$scenario, $name: $out" >&2; exit 1; }
            after=$(cpu_ns "$name")
            awk -v ns=$((after - before)) -v r="$(field "$out" requests)" -v a="$(field "$out" p50_us)" \
                -v b="$(field "$out" p99_us)" -v c="$(field "$out" rate)" \
                'BEGIN { printf "%.3f %d %d %.0f\n", ns / 1000 / r, a, b, c }' >>"$dir/$scenario.$name"
        done
    done
}

sorted() { # column file
    awk -v c="$1" '{ print $c }' "$2" | sort -g
}

median() { # of sorted numbers on stdin
    awk '{ v[NR] = $1 } END { print (v[int((NR + 1) / 2)] + v[int(NR / 2) + 1]) / 2 }'
}

show() { # scenario title target
    local name f ratio worst=0
    printf '\n%s: %s\n%-10s %11s %19s %9s %9s %9s\n' "$1" "$2" '' 'us/request' 'min .. max' 'p50 us' 'p99 us' 'req/s'
    for name in "${names[@]}"; do
        f=$dir/$1.$name
        printf '%-10s %11.2f %19s %9.0f %9.0f %9.0f\n' "$name" "$(sorted 1 "$f" | median)" \
            "$(sorted 1 "$f" | awk 'NR == 1 { a = $1 } { b = $1 } END { printf "%.2f .. %.2f", a, b }')" \
            "$(sorted 2 "$f" | median)" "$(sorted 3 "$f" | median)" "$(sorted 4 "$f" | median)"
    done
    for name in nginx haproxy; do
        ratio=$(paste "$dir/$1.gateway" "$dir/$1.$name" | awk '{ print $1 / $5 }' | sort -g | median)
        worst=$(awk -v a="$worst" -v b="$ratio" 'BEGIN { print (a > b ? a : b) }')
        printf 'gateway / %-8s %.3f\n' "$name" "$ratio"
    done
    [ -z "$3" ] || awk -v a="$worst" -v b="$3" \
        'BEGIN { printf "of the better one %.3f, target %.2f: %s\n", a, b, (a <= b ? "met" : "MISSED") }'
}

# ---- memory

ratios() { # of kib[]
    local name
    for name in nginx haproxy; do
        awk -v n="$name" -v a="${kib[gateway]}" -v b="${kib[$name]}" \
            'BEGIN { printf "gateway / %-8s %.3f\n", n, a / b }'
    done
}

# Starts load with flags that make it hold, and returns when it does.
hold() { # name kind target flags ...
    local command
    : >"$dir/held.out"
    load_command "$@"
    "${command[@]}" >"$dir/held.out" 2>&1 &
    holder=$!
    started+=("$holder")
    until grep -q holding "$dir/held.out"; do
        kill -0 "$holder" 2>/dev/null || { echo "$1: $(cat "$dir/held.out")" >&2; exit 1; }
        sleep 0.1
    done
    sleep 1
}

idle() { # title kind target flags ...
    local name before after holder
    declare -A kib
    printf '\n%s %s\n%-10s %12s %12s %14s\n' "$held" "$1" '' 'KiB before' 'KiB with' 'KiB each'
    shift
    start_proxies # memory is compared on fresh processes
    for name in "${names[@]}"; do
        load "$name" "$1" /16 --requests 100 >/dev/null
        before=$(resident_kib "$name" VmRSS)
        hold "$name" "$@" --connections 64
        after=$(resident_kib "$name" VmRSS)
        kill "$holder"
        wait "$holder" || { echo "$name: $(cat "$dir/held.out")" >&2; exit 1; }
        kib[$name]=$(awk -v a="$before" -v b="$after" -v n="$held" 'BEGIN { printf "%.2f", (b - a) / n }')
        printf '%-10s %12d %12d %14s\n' "$name" "$before" "$after" "${kib[$name]}"
        sleep 1
    done
    ratios
}

# Most that memory of its own grew by while so many readers took 1 MB/s each of 500 MB, per reader.
slow_one() { # name kind flags ...
    local name=$1 kind=$2 before now most=0 reader bytes
    shift 2
    load "$name" "$kind" /16 --requests 100 --connections 1 "$@" >/dev/null
    before=$(resident_kib "$name" RssAnon)
    load "$name" "$kind" /524288000 --rate 1000000 --connections "$readers" --seconds 4 --json "$@" >"$dir/slow.out" 2>&1 &
    reader=$!
    for _ in $(seq 18); do
        sleep 0.2
        now=$(($(resident_kib "$name" RssAnon) - before))
        [ "$now" -le "$most" ] || most=$now
    done
    wait "$reader" || { echo "$name, $kind: $(cat "$dir/slow.out")" >&2; exit 1; }
    bytes=$(field "$(cat "$dir/slow.out")" bytes)
    [ "$bytes" -gt $((readers * 2000000)) ] || { echo "$name, $kind: too few bytes: $(cat "$dir/slow.out")" >&2; exit 1; }
    awk -v a="$most" -v n="$readers" 'BEGIN { printf "%.0f", a / n }'
}

slow() {
    local row back front http name kind flags
    printf '\nslow: %s readers of 500 MB at 1 MB/s each: KiB each (target: at most 512)\n%-24s %10s %10s %10s\n' \
        "$readers" '' "${names[@]}"
    for back in h1 h2; do
        for row in 'plain h1 plain' 'tls h1 TLS' 'h2c h2 plain' 'tls h2 TLS'; do
            read -r kind http front <<<"$row"
            [ $back = h1 ] || kind+=_h2
            [ "$http" = h1 ] && flags=() || flags=(--h2)
            start_proxies
            printf '%-24s' "$http $front to $back"
            for name in "${names[@]}"; do
                printf ' %10s' "$(slow_one "$name" "$kind" ${flags[@]+"${flags[@]}"})"
            done
            echo
        done
    done
}

# ----

echo "access log: $log; peers' buffers: $([ "$buffers" = 0 ] && echo default || echo "$buffers KiB"); $rounds rounds of $seconds s; CPU of the proxy's own processes"
echo "$(nginx -v 2>&1 | sed 's/.*: //'), $(haproxy -v | sed -n '1s/.*version \([^ ]*\).*/haproxy\/\1/p'), $(uname -sr), $(nproc) cores"
start_proxies
for name in "${names[@]}"; do
    printf '%s: %s\n' "$name" "$(openssl s_client -connect "127.0.0.1:${port[$name.tls]}" -alpn h2 </dev/null 2>/dev/null |
        sed -n 's/^New, //p; s/^ALPN protocol: /ALPN /p; s/^Server Temp Key: //p' | paste -sd,)"
done

for scenario in "${scenarios[@]}"; do
    case $scenario in
    slow) slow && start_proxies ;;
    idle) idle 'idle WebSocket tunnels' plain /ws --ws "$held" ;;
    idle-tls) idle 'idle connections over TLS' tls /16 --idle "$held" ;;
    dns) "$here/dns.sh" --build "$build" --rounds "$rounds" --seconds "$seconds" ;;
    sidecar) "$here/sidecar.py" --build "$build" --rounds "$rounds" ;;
    cluster) "$here/cluster.py" --build "$build" --rounds "$rounds" ;;
    mitm) "$here/mitm.py" --build "$build" --rounds "$rounds" --seconds "$seconds" ;;
    idle-wss) idle 'idle WebSocket tunnels over TLS' tls /ws --ws "$held" ;;
    *)
        for row in "${table[@]}"; do
            IFS='|' read -r name title limit kind target flags <<<"$row"
            [ "$name" = "$scenario" ] || continue
            # shellcheck disable=SC2086 # flags are words
            measure "$name" "$kind" "$target" $flags
            show "$name" "$title" "$limit"
        done ;;
    esac
done
