# shellcheck shell=bash disable=SC2154 # what is not set here is run.sh's
# start.sh — sourced by run.sh: the origin and the three proxies on free loopback ports, in a
# temporary folder, and what the kernel knows of their processes.  Everything that was started ends
# with the script.

dir=$(mktemp -d)
started=()
used=" "
declare -A pid port
stop_all() {
    for p in ${started[@]+"${started[@]}"}; do kill "$p" 2>/dev/null || true; done
    for p in ${started[@]+"${started[@]}"}; do wait "$p" 2>/dev/null || true; done
    started=()
}
trap 'stop_all; rm -rf "$dir"' EXIT
trap 'exit 1' INT TERM

# ---- processes

take_port() { # key: one that nobody listens on and that was not given away before
    local p
    while :; do
        p=$((20000 + RANDOM % 10000))
        [[ $used != *" $p "* ]] || continue
        (exec 3<>"/dev/tcp/127.0.0.1/$p") 2>/dev/null || break
    done
    used+="$p "
    port[$1]=$p
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

make_certificate() {
    [ ! -e "$dir/bench.pem" ] || return 0
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=bench.test \
        -addext subjectAltName=DNS:bench.test -keyout "$dir/bench.key" -out "$dir/bench.crt" 2>/dev/null
    cat "$dir/bench.crt" "$dir/bench.key" >"$dir/bench.pem"
}

start_origin() {
    take_port origin
    start origin "$build/bench/bench-origin" --port "${port[origin]}"
    wait_port "${port[origin]}"
}

start_gateway() {
    local level=info
    [ "$log" = on ] || level=warn
    printf '{"sandboxes":{"bench":{"address":"127.0.0.1"},
        "bench-h2":{"address":"127.0.0.1","ports":{"%s":{"protocol":"h2c"}}}}}' \
        "${port[origin]}" >"$dir/routes.json"
    take_port admin
    OPENSANDBOX_LOG_OUTPUT=$dir/gateway.log start gateway "$build/sallyport-ingress" --workers 1 --log-level $level \
        --port "${port[gateway.plain]}" --tls-port "${port[gateway.tls]}" \
        --tls-cert "$dir/bench.crt" --tls-key "$dir/bench.key" --backend-idle-max 256 \
        --admin-addr "127.0.0.1:${port[admin]}" --routes "$dir/routes.json"
}

config() { # file: its template filled in
    local nginx_log='access_log off;' haproxy_log='' haproxy_frontend_log=''
    local nginx_buffers='' haproxy_buffers='' name=${1%%.*} kind text
    if [ "$log" = on ]; then
        nginx_log="access_log $dir/nginx.log combined buffer=64k flush=1s;"
        haproxy_log='log stdout format raw local0'
        haproxy_frontend_log='log global
    option httplog'
    fi
    if [ "$buffers" != 0 ]; then
        nginx_buffers="proxy_buffer_size 16k; proxy_buffers 8 ${buffers}k; proxy_busy_buffers_size $((buffers * 2))k;
    grpc_buffer_size ${buffers}k; http2_chunk_size ${buffers}k;"
        haproxy_buffers="tune.bufsize $((buffers * 1024))"
    fi
    text=$(cat "$here/peers/$1")
    text=${text//@DIR@/$dir}
    text=${text//@ORIGIN@/${port[origin]}}
    text=${text//@CIPHERS@/$ciphers}
    for kind in plain h2c tls plain_h2 h2c_h2 tls_h2; do
        text=${text//@${kind^^}@/${port[$name.$kind]}}
    done
    text=${text//@NGINX_BUFFERS@/$nginx_buffers}
    text=${text//@HAPROXY_BUFFERS@/$haproxy_buffers}
    text=${text//@NGINX_LOG@/$nginx_log}
    text=${text//@HAPROXY_LOG@/$haproxy_log}
    text=${text//@HAPROXY_FRONTEND_LOG@/$haproxy_frontend_log}
    printf '%s\n' "$text" >"$dir/$1"
}

# Six listeners each: in front plain h1, h2c, TLS; behind h1 or h2c.  The gateway needs two: it
# tells h2c from h1 by itself, and what is behind by the route.
take_ports() {
    local name kind
    for name in "${names[@]}"; do
        for kind in plain h2c tls plain_h2 h2c_h2 tls_h2; do take_port "$name.$kind"; done
    done
    for kind in h2c plain_h2 h2c_h2; do port[gateway.$kind]=${port[gateway.plain]}; done
    port[gateway.tls_h2]=${port[gateway.tls]}
}

start_proxies() {
    local name
    stop_all
    make_certificate
    start_origin
    take_ports
    config nginx.conf
    config haproxy.cfg
    start_gateway
    start nginx nginx -c "$dir/nginx.conf"
    start haproxy haproxy -db -f "$dir/haproxy.cfg"
    for name in "${names[@]}"; do
        wait_port "${port[$name.plain]}"
        wait_port "${port[$name.tls]}"
    done
}

# ---- using them

path_of() { # name kind target: what leads there through this proxy
    case $1.$2 in
    gateway.*_h2) echo "/sandboxes/bench-h2/port/${port[origin]}$3" ;;
    gateway.*) echo "/sandboxes/bench/port/${port[origin]}$3" ;;
    *) echo "$3" ;;
    esac
}

load_command() { # name kind target flags ...: sets command
    local name=$1 kind=$2 target=$3
    shift 3
    command=("$build/bench/bench-load" --to "127.0.0.1:${port[$name.$kind]}" --path "$(path_of "$name" "$kind" "$target")")
    [[ $kind != tls* ]] || command+=(--tls)
    command+=("$@")
}

load() { # as above: runs it
    local command
    load_command "$@"
    "${command[@]}"
}

field() { # json name
    sed -n "s/.*\"$2\":\([0-9.]*\).*/\1/p" <<<"$1"
}

# ---- what they cost

family() { # pid: itself and its children, one a line
    echo "$1"
    tr ' ' '\n' <"/proc/$1/task/$1/children" | sed '/^$/d'
}

cpu_ns() { # name: of all threads of all its processes so far
    local p
    for p in $(family "${pid[$1]}"); do cat "/proc/$p/task/"*/schedstat; done |
        awk '{ sum += $1 } END { printf "%.0f", sum }'
}

resident_kib() { # name row: VmRSS, or RssAnon: without the pages of the programs' files
    local p sum=0
    for p in $(family "${pid[$1]}"); do
        sum=$((sum + $(awk -v row="$2:" '$1 == row { print $2 }' "/proc/$p/status")))
    done
    echo $sum
}
