#!/bin/bash
# run.sh — the gateway beside nginx and haproxy, one worker each, in alternating rounds: µs of CPU of
# the proxy's own processes per request, and memory of idle WebSocket tunnels.  bench/README.md says
# how to read it.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
build=$here/../build/release
rounds=9 seconds=1 connections=16 tunnels=9000 log=off
names=(gateway nginx haproxy)
scenarios=()

usage() {
    cat <<TEXT
usage: bench/run.sh [flags] [scenario ...]      scenarios: keepalive close bulk idle; none: all
  --build DIR        where the programs were built (default build/release)
  --rounds N         rounds of each scenario (default $rounds)
  --seconds N        length of one measurement (default $seconds)
  --connections N    clients at once (default $connections)
  --tunnels N        idle WebSocket tunnels (default $tunnels)
  --log              every proxy writes its access log, to a file (default: none does)
TEXT
    exit 2
}

while [ $# -gt 0 ]; do
    case $1 in
    --build) build=${2-} && shift ;;
    --rounds) rounds=${2-} && shift ;;
    --seconds) seconds=${2-} && shift ;;
    --connections) connections=${2-} && shift ;;
    --tunnels) tunnels=${2-} && shift ;;
    --log) log=on ;;
    keepalive | close | bulk | idle) scenarios+=("$1") ;;
    *) usage ;;
    esac
    shift
done
[ ${#scenarios[@]} -gt 0 ] || scenarios=(keepalive close bulk idle)

for program in sallyport-ingress bench/bench-origin bench/bench-load; do
    [ -x "$build/$program" ] || { echo "$build/$program is not there: build first, or say --build" >&2; exit 2; }
done
for program in nginx haproxy; do
    PATH=$PATH:/usr/sbin type -P $program >/dev/null || { echo "$program is not installed" >&2; exit 2; }
done
PATH=$PATH:/usr/sbin
ulimit -n "$(ulimit -Hn)"

dir=$(mktemp -d)
started=()
declare -A pid port
stop_all() {
    for p in ${started[@]+"${started[@]}"}; do kill "$p" 2>/dev/null || true; done
    for p in ${started[@]+"${started[@]}"}; do wait "$p" 2>/dev/null || true; done
    started=()
}
trap 'stop_all; rm -rf "$dir"' EXIT
trap 'exit 1' INT TERM

# ---- processes

free_port() {
    local p
    while :; do
        p=$((20000 + RANDOM % 10000))
        (exec 3<>"/dev/tcp/127.0.0.1/$p") 2>/dev/null || break
    done
    echo $p
}

wait_port() {
    local tries=100
    until (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; do
        tries=$((tries - 1))
        [ $tries -gt 0 ] || { echo "nothing listens on port $1" >&2; cat "$dir"/*.out >&2; exit 1; }
        sleep 0.1
    done
}

start() { # name command ...: in the background, its output in a file
    local name=$1
    shift
    "$@" >"$dir/$name.out" 2>&1 </dev/null &
    pid[$name]=$!
    started+=("$!")
}

start_origin() {
    port[origin]=$(free_port)
    start origin "$build/bench/bench-origin" --port "${port[origin]}"
    wait_port "${port[origin]}"
}

start_gateway() {
    local level=info
    [ $log = on ] || level=warn
    echo '{"sandboxes":{"bench":{"address":"127.0.0.1"}}}' >"$dir/routes.json"
    OPENSANDBOX_LOG_OUTPUT=$dir/gateway.log start gateway "$build/sallyport-ingress" --workers 1 --log-level $level \
        --port "${port[gateway]}" --admin-addr "127.0.0.1:$(free_port)" --routes "$dir/routes.json"
}

config() { # file: its template filled in
    local nginx_log='access_log off;' haproxy_log='' haproxy_frontend_log=''
    if [ $log = on ]; then
        nginx_log="access_log $dir/nginx.log combined buffer=64k flush=1s;"
        haproxy_log='log stdout format raw local0'
        haproxy_frontend_log='log global
    option httplog'
    fi
    local text
    text=$(cat "$here/peers/$1")
    text=${text//@DIR@/$dir}
    text=${text//@ORIGIN@/${port[origin]}}
    text=${text//@PORT@/${port[${1%%.*}]}}
    text=${text//@NGINX_LOG@/$nginx_log}
    text=${text//@HAPROXY_LOG@/$haproxy_log}
    text=${text//@HAPROXY_FRONTEND_LOG@/$haproxy_frontend_log}
    printf '%s\n' "$text" >"$dir/$1"
}

start_proxies() {
    start_origin
    for name in "${names[@]}"; do port[$name]=$(free_port); done
    config nginx.conf
    config haproxy.cfg
    start_gateway
    start nginx nginx -c "$dir/nginx.conf"
    start haproxy haproxy -db -f "$dir/haproxy.cfg"
    for name in "${names[@]}"; do wait_port "${port[$name]}"; done
}

path_of() { # name target: what leads there through this proxy
    case $1 in
    gateway) echo "/sandboxes/bench/port/${port[origin]}$2" ;;
    *) echo "$2" ;;
    esac
}

load() { # name target flags ...
    local name=$1 target=$2
    shift 2
    "$build/bench/bench-load" --to "127.0.0.1:${port[$name]}" --path "$(path_of "$name" "$target")" "$@"
}

family() { # pid: itself and its children, one a line
    echo "$1"
    tr ' ' '\n' <"/proc/$1/task/$1/children" | sed '/^$/d'
}

cpu_ns() { # name: of all threads of all its processes so far
    local p
    for p in $(family "${pid[$1]}"); do cat "/proc/$p/task/"*/schedstat; done |
        awk '{ sum += $1 } END { printf "%.0f", sum }'
}

rss_kib() {
    local p sum=0
    for p in $(family "${pid[$1]}"); do
        sum=$((sum + $(awk '/^VmRSS/ { print $2 }' "/proc/$p/status")))
    done
    echo $sum
}

# ---- scenarios

field() { # json name
    sed -n "s/.*\"$2\":\([0-9.]*\).*/\1/p" <<<"$1"
}

# A row "us p50 p99 rate" per round in a file per proxy; each round goes the other way round.
measure() { # scenario target flags ...
    local scenario=$1 target=$2 round name order before after out
    shift 2
    for name in "${names[@]}"; do
        : >"$dir/$scenario.$name"
        load "$name" "$target" --seconds 1 "$@" >/dev/null
    done
    for round in $(seq "$rounds"); do
        order=("${names[@]}")
        [ $((round % 2)) = 1 ] || order=(haproxy nginx gateway)
        for name in "${order[@]}"; do
            before=$(cpu_ns "$name")
            out=$(load "$name" "$target" --seconds "$seconds" --json "$@") ||
                { echo "$scenario, $name: $out" >&2; exit 1; }
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

table() { # scenario title
    local name f
    printf '\n%s\n%-10s %11s %19s %9s %9s %9s\n' "$2" '' 'us/request' 'min .. max' 'p50 us' 'p99 us' 'req/s'
    for name in "${names[@]}"; do
        f=$dir/$1.$name
        printf '%-10s %11.2f %19s %9.0f %9.0f %9.0f\n' "$name" "$(sorted 1 "$f" | median)" \
            "$(sorted 1 "$f" | awk 'NR == 1 { a = $1 } { b = $1 } END { printf "%.2f .. %.2f", a, b }')" \
            "$(sorted 2 "$f" | median)" "$(sorted 3 "$f" | median)" "$(sorted 4 "$f" | median)"
    done
    for name in nginx haproxy; do
        printf 'gateway / %-8s %.3f\n' "$name" \
            "$(paste "$dir/$1.gateway" "$dir/$1.$name" | awk '{ print $1 / $5 }' | sort -g | median)"
    done
}

idle_tunnels() {
    local name before after holder
    declare -A each
    printf '\n%s idle WebSocket tunnels\n%-10s %12s %12s %14s\n' "$tunnels" '' 'KiB before' 'KiB with' 'KiB a tunnel'
    for name in "${names[@]}"; do
        load "$name" /16 --requests 100 >/dev/null
        before=$(rss_kib "$name")
        : >"$dir/tunnels.out"
        "$build/bench/bench-load" --to "127.0.0.1:${port[$name]}" --path "$(path_of "$name" /ws)" --ws "$tunnels" \
            --connections 64 >"$dir/tunnels.out" 2>&1 &
        holder=$!
        started+=("$holder")
        until grep -q holding "$dir/tunnels.out"; do
            kill -0 "$holder" 2>/dev/null || { echo "$name: $(cat "$dir/tunnels.out")" >&2; exit 1; }
            sleep 0.1
        done
        sleep 1
        after=$(rss_kib "$name")
        kill "$holder"
        wait "$holder" || { echo "$name: $(cat "$dir/tunnels.out")" >&2; exit 1; }
        each[$name]=$(awk -v a="$before" -v b="$after" -v n="$tunnels" 'BEGIN { printf "%.2f", (b - a) / n }')
        printf '%-10s %12d %12d %14s\n' "$name" "$before" "$after" "${each[$name]}"
        sleep 1
    done
    for name in nginx haproxy; do
        awk -v n="$name" -v a="${each[gateway]}" -v b="${each[$name]}" \
            'BEGIN { printf "gateway / %-8s %.3f\n", n, a / b }'
    done
}

echo "access log: $log; $connections connections, $rounds rounds of $seconds s; CPU of the proxy's own processes"
echo "$(nginx -v 2>&1 | sed 's/.*: //'), $(haproxy -v | sed -n '1s/.*version \([^ ]*\).*/haproxy\/\1/p'), $(uname -sr), $(nproc) cores"
start_proxies
for scenario in "${scenarios[@]}"; do
    case $scenario in
    keepalive)
        measure keepalive /1024 --connections "$connections"
        table keepalive '1 KB, connections kept' ;;
    close)
        measure close /1024 --connections "$connections" --close
        table close '1 KB, a new connection for each request' ;;
    bulk)
        measure bulk /10485760 --connections 4
        table bulk '10 MiB' ;;
    idle)
        stop_all # memory is compared on fresh processes
        start_proxies
        idle_tunnels ;;
    esac
done
