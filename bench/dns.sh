#!/bin/bash
# dns.sh — the sidecar's DNS beside dnsmasq, both letting the same 4,096 names through and nothing
# else: µs of CPU of the server's own process per answer, in alternating rounds.
#
#   bench/dns.sh [--build DIR] [--rounds N] [--seconds N] [--lanes N]
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
build=$here/../build/release
rounds=9 seconds=1 lanes=16 count=4096
while [ $# -gt 0 ]; do
    case $1 in
    --build) build=$2 ;;
    --rounds) rounds=$2 ;;
    --seconds) seconds=$2 ;;
    --lanes) lanes=$2 ;;
    *) sed -n '2,6s/^# \?//p' "$0" >&2; exit 2 ;;
    esac
    shift 2
done
PATH=$PATH:/usr/sbin
type -P dnsmasq >/dev/null || { echo "dnsmasq is not installed" >&2; exit 2; }
names=(sidecar dnsmasq) # run.sh's start.sh wants them
# shellcheck source=bench/start.sh
. "$here/start.sh"

write_filters() {
    local i
    {
        printf '{"egress":[{"action":"allow","target":"*.bench.n0.test"}'
        for ((i = 1; i < count; i++)); do
            printf ',{"action":"allow","target":"*.bench.n%d.test"}' "$i"
        done
        printf ']}\n'
    } >"$dir/policy.json"
    {
        printf 'no-resolv\nno-hosts\ncache-size=10000\nbind-interfaces\nlisten-address=127.0.0.1\n'
        printf 'port=%d\nkeep-in-foreground\nno-daemon\nuser=\ngroup=\npid-file=\nlocal=/#/\n' "${port[dnsmasq]}"
        for ((i = 0; i < count; i++)); do
            printf 'server=/bench.n%d.test/127.0.0.1#%d\n' "$i" "${port[upstream]}"
        done
    } >"$dir/dnsmasq.conf"
}

# A row "us p50 p99 rate" per round.
once() { # scenario name flags ...
    local scenario=$1 name=$2 before after out
    shift 2
    before=$(cpu_ns "$name")
    out=$("$build/bench/bench-dnsload" --to "127.0.0.1:${port[$name]}" --seconds "$seconds" --lanes "$lanes" "$@") ||
        { echo "$scenario, $name: $out" >&2; exit 1; }
    after=$(cpu_ns "$name")
    awk -v ns=$((after - before)) -v r="$(field "$out" requests)" -v a="$(field "$out" p50_us)" \
        -v b="$(field "$out" p99_us)" -v c="$(field "$out" rate)" \
        'BEGIN { printf "%.3f %d %d %.0f\n", ns / 1000 / r, a, b, c }' >>"$dir/$scenario.$name"
}

median() { # column file
    awk -v c="$1" '{ print $c }' "$2" | sort -n | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'
}

compare() { # scenario flags ...
    local scenario=$1 round name order
    shift
    for name in "${names[@]}"; do
        once "$scenario" "$name" "$@" # the caches are full then
        : >"$dir/$scenario.$name"
    done
    for round in $(seq "$rounds"); do
        order=("${names[@]}")
        [ $((round % 2)) = 1 ] || order=(dnsmasq sidecar)
        for name in "${order[@]}"; do once "$scenario" "$name" "$@"; done
    done
    for name in "${names[@]}"; do
        printf '%-8s %-8s %7.2f us of CPU per answer   p50 %5d us   p99 %5d us   %7d a second\n' "$scenario" "$name" \
            "$(median 1 "$dir/$scenario.$name")" "$(median 2 "$dir/$scenario.$name")" \
            "$(median 3 "$dir/$scenario.$name")" "$(median 4 "$dir/$scenario.$name")"
    done
    paste "$dir/$scenario.sidecar" "$dir/$scenario.dnsmasq" | awk '{ printf "%.4f\n", $1 / $5 }' >"$dir/ratio"
    printf '%-8s sidecar/dnsmasq: median of %d rounds %.3f, from %.3f to %.3f\n\n' "$scenario" "$rounds" \
        "$(median 1 "$dir/ratio")" "$(sort -n "$dir/ratio" | head -1)" "$(sort -n "$dir/ratio" | tail -1)"
}

for key in upstream sidecar dnsmasq; do take_port $key; done
write_filters
start upstream "$build/bench/bench-dnsorigin" --at "127.0.0.1:${port[upstream]}"
start sidecar "$build/tests/dns_main" "127.0.0.1:${port[sidecar]}" "127.0.0.1:${port[upstream]}" "$dir/policy.json"
start dnsmasq dnsmasq -C "$dir/dnsmasq.conf"
for name in "${names[@]}"; do wait_port "${port[$name]}"; done
compare cached
compare denied --denied
compare unkept --unkept
