#!/usr/bin/env bash
# Checks the house rules that a script can check (HACKING.md), and prints our sizes beside them as a mirror.
#
#   tests/lint.sh [--no-format] [--no-cppcheck]
#
# Fails on rules only: who may include what, one door per library, banned calls, header guards, a first comment in each .c,
# unexplained file-scope variables, unfinished places, formatting, cppcheck.  Nothing fails on a size.
set -uo pipefail
cd "$(dirname "$0")/.."

format=true cppcheck=true
for arg in "$@"; do
    case $arg in
        --no-format) format=false ;;
        --no-cppcheck) cppcheck=false ;;
        *) sed -n '2,7s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
    esac
done

mapfile -t product < <(find common policies ingress egress -name '*.[ch]' 2>/dev/null | sort)
mapfile -t others < <(find tests bench -name '*.[ch]' 2>/dev/null | sort)
faults=0

# rule NAME < FINDINGS: counts them.
rule()
{
    local lines
    lines=$(cat)
    if [ -z "$lines" ]; then
        echo "ok    $1"
        return
    fi
    printf 'FAIL  %s\n' "$1"
    sed 's/^/      /' <<<"$lines"
    faults=$((faults + $(wc -l <<<"$lines")))
}

# code FILE...: the files without comments and without what stands in quotes, each line as FILE:LINE:text.
code()
{
    awk '
    FNR == 1 { inside = 0 }
    {
        line = $0; out = ""
        if (line !~ /^[ \t]*#[ \t]*include/) {
            gsub(/\\\\/, "", line); gsub(/\\"/, "", line); gsub(/\\\047/, "", line)
            gsub(/\047"\047/, "", line); gsub(/"[^"]*"/, "\"\"", line)
        }
        while (line != "") {
            if (inside) {
                at = index(line, "*/")
                if (at == 0) break
                line = substr(line, at + 2); inside = 0
            } else {
                at = index(line, "/*"); eol = index(line, "//")
                if (eol && (!at || eol < at)) { out = out substr(line, 1, eol - 1); break }
                if (!at) { out = out line; break }
                out = out substr(line, 1, at - 1); line = substr(line, at + 2); inside = 1
            }
        }
        print FILENAME ":" FNR ":" out
    }' "$@"
}

product_code=$(code "${product[@]}")
all_code=$(printf '%s\n' "$product_code"; [ ${#others[@]} -eq 0 ] || code "${others[@]}")

# ---- who may include what.  A layer includes itself and everything left of it; policies are pure and know base only.
rule "who may include what" < <(awk -F: '
BEGIN {
    n = split("base dns conf net http proxy app", layer, " ")
    for (i = 1; i <= n; i++) rank[layer[i]] = i
}
$3 ~ /^[ \t]*#[ \t]*include[ \t]*"/ {
    split($3, q, "\""); target = q[2]; slash = index(target, "/")
    split($1, at, "/"); top = at[1]; mine = at[2]
    if (!slash) { print $1 ":" $2 ": \"" target "\" names no folder"; next }
    theirs = substr(target, 1, slash - 1)
    if (top == "common") good = (theirs in rank) && rank[theirs] <= rank[mine]
    else if (top == "policies") good = theirs == "base" || theirs == "policies"
    else good = (theirs in rank) || theirs == "policies" || theirs == top
    if (!good) print $1 ":" $2 ": " top (top == "common" ? "/" mine : "") " must not include " target
    if (target ~ /_impl\.h$/) {
        split(target, t, "/")
        if (t[1] != (top == "common" ? mine : top)) print $1 ":" $2 ": " target " is private to its folder"
    }
}' <<<"$product_code")

# ---- one door per foreign library: header, and the places that may include it (DESIGN: a second one is a design question).
doors='
uv\.h                 common/net/
llhttp\.h             common/http/h1head\.c
cjson/|cJSON\.h       common/base/json\.c
openssl/              common/base/digest\.c|common/net/(conn_tls|tls(_[a-z]+)?)\.c|common/net/tls_impl\.h|egress/intercept/((ca|mint)[a-z_]*\.c|ca_impl\.h)|tests/
nghttp2/              common/http/h2_impl\.h|tests/harness/h2frames\.c
hiredis/              ingress/redis/resp\.c
yaml\.h               ingress/kube/kubeconfig_yaml\.c
idn2\.h               policies/domains\.c
libpsl\.h             policies/domains\.c
libmnl/               egress/kernel/
nftables/             egress/kernel/nft\.c
pcre2\.h              egress/intercept/passlist\.c
zlib\.h               egress/vault/coding_gzip\.c|tests/
brotli/               egress/vault/coding_br\.c|tests/
zstd                  egress/vault/coding_zstd\.c|tests/
cmocka\.h             tests/
'
rule "one door per library" < <(while read -r header places; do
    [ -n "$header" ] || continue
    grep -E "#[ 	]*include[ 	]*[<\"]($header)" <<<"$all_code" | grep -vE "^($places)"
done <<<"$doors")
rule "no foreign header in one of ours" < <(
    grep -E '#[ 	]*include[ 	]*<(uv|llhttp|cjson|cJSON|openssl|nghttp2|hiredis|yaml|idn2|libpsl|libmnl|nftables|pcre2|zlib|brotli|zstd)' <<<"$product_code" |
        grep -E '^[^:]*\.h:' | grep -v '_impl\.h:')

# ---- calls
rule "banned calls" < <(grep -E ':.*(^|[^A-Za-z0-9_])(strcpy|strncpy|strcat|strncat|sprintf|vsprintf|strtok|strtok_r|atoi|atol|atoll|atof|strtol|strtoll|strtoul|strtoull|gets|alloca|setjmp|longjmp)[ 	]*\(' \
    <<<"$all_code")
rule "no signal handlers but libuv's" < <(
    grep -E ':.*(^|[^A-Za-z0-9_])(sigaction|signal)[ 	]*\(' <<<"$product_code" | grep -v SIG_IGN)
rule "allocation by base/mem.h only" < <(
    grep -E ':.*(^|[^A-Za-z0-9_.>])(malloc|calloc|realloc|strdup|strndup)[ 	]*\(' <<<"$product_code" |
        grep -v '^common/base/mem\.c:')

# ---- headers
rule "header guards" < <(for f in "${product[@]}" "${others[@]}"; do
    [[ $f == *.h ]] || continue
    guard=${f##*/}
    guard=${guard^^}
    guard=${guard//[.-]/_}
    guard=$(sed -n "s/^#ifndef \([A-Z0-9_]*_$guard\)\$/\1/p" "$f" | head -n 1)
    { [ -n "$guard" ] && grep -q "^#define $guard\$" "$f"; } || echo "$f: no guard FOLDER_NAME_H"
done)

# ---- first comments: a file says its one job
rule "each file says its one job first" < <(for f in "${product[@]}" "${others[@]}"; do
    read -r -N 2 start < "$f" || true
    [ "$start" = '/*' ] || echo "$f: does not begin with a comment"
done)

# ---- file-scope variables: const, or a comment says why (rule 17, rule 0)
rule "no mutable variable at file scope without a reason" < <(awk '
FNR == 1 || /^$/ { explained = 0 }
/\*\// { explained = 1 }
/^[A-Za-z_].*(;|= *[{]?.*)$/ && !/[()]/ && !/^(struct|enum|union|typedef|extern|const|return|goto|else|do)( |$)[^*=]*[{;]$/ \
    && !/^(typedef|extern|enum|#|[}])/ && !/(^|[^a-z_])const / && !/^[a-zA-Z_]+:$/ && !/_Static_assert/ {
    if (!explained) print FILENAME ":" FNR ": " $0
}' $(printf '%s\n' "${product[@]}" | grep '\.c$'))

# ---- unfinished places
rule "nothing unfinished" < <(
    grep -nE '\b(TODO|FIXME|XXX|HACK)\b' "${product[@]}" "${others[@]}" CMakeLists.txt tests/CMakeLists.txt)

# ---- formatting
if $format && clang-format --version 2>/dev/null | grep -q 'version 14\.'; then
    rule "formatting" < <(
        clang-format --dry-run -Werror "${product[@]}" "${others[@]}" 2>&1 | grep -oE '^[^: ]+\.[ch]' | sort -u)
else
    echo "skip  formatting: no clang-format 14, or not wanted"
fi

# ---- cppcheck.  What it takes for uninitialized are buffers that the next call fills: compilers and sanitizers judge that better.
if $cppcheck && cppcheck --version 2>/dev/null | grep -q ' 2\.10'; then
    rule "cppcheck" < <(cppcheck --quiet --std=c11 --enable=warning,portability --inline-suppr --max-configs=4 \
        -I common -I . -D_GNU_SOURCE --suppress={varFuncNullUB,legacyUninitvar,ctuuninitvar,zerodivcond} \
        --suppress={missingInclude,missingIncludeSystem,unknownMacro} --template='{file}:{line}: {id}: {message}' \
        common policies ingress egress 2>&1)
else
    echo "skip  cppcheck: no version 2.10, or not wanted"
fi

# ---- the mirror: sizes, to look at
mirror()
{
    local name=$1
    shift
    [ $# -gt 0 ] || return 0
    awk -v name="$name" '
    function sort(list, n,   i, k, x) {
        for (i = 2; i <= n; i++) {
            x = list[i]
            for (k = i - 1; k >= 1 && list[k] > x; k--) list[k + 1] = list[k]
            list[k + 1] = x
        }
    }
    function rank(list, n, share,   at) { at = int(n * share + 0.999999); return n ? list[at < 1 ? 1 : at] : 0 }
    FNR == 1 { if (file) note(); file = FILENAME; lines = 0; inside = 0; open = 0 }
    {
        lines++
        if (inside || /^[ \t]*\/\*/) comments++; else if ($0 !~ /^[ \t]*$/) { codes++; if (/(^|[^a-z_])(assert|static_assert|_Static_assert)[ \t]*\(/) asserts++ }
        if (!inside && /\/\*/ && $0 !~ /\*\//) inside = 1; else if (inside && /\*\//) inside = 0
        if (/^[{]/) open = FNR
        if (/^[}]/ && open) { f[++nf] = FNR - open + 1; if (f[nf] > 100) long++; open = 0 }
    }
    function note() { if (file ~ /\.c$/) c[++nc] = lines; else h[++nh] = lines }
    END {
        note(); sort(c, nc); sort(h, nh); sort(f, nf)
        printf "%-10s %8d   %5d / %5d / %5d   %5d   %4d / %4d / %4d / %4d   %5.1f %%   %8.2f   %7.1f\n", name, nc,
            rank(c, nc, .5), rank(c, nc, .9), rank(c, nc, 1), rank(h, nh, .5),
            rank(f, nf, .5), rank(f, nf, .9), rank(f, nf, .99), rank(f, nf, 1), nf ? 100 * long / nf : 0,
            codes ? comments / codes : 0, codes ? 1000 * asserts / codes : 0
    }' "$@"
}
echo
echo "mirror      .c files   lines of a .c: median/90%/max  .h   functions: median/90%/99%/max  >100 lines  comments   asserts"
mapfile -t common < <(printf '%s\n' "${product[@]}" | grep '^common/')
mapfile -t policies < <(printf '%s\n' "${product[@]}" | grep '^policies/')
mapfile -t ingress < <(printf '%s\n' "${product[@]}" | grep '^ingress/')
mapfile -t egress < <(printf '%s\n' "${product[@]}" | grep '^egress/')
mapfile -t tests < <(printf '%s\n' "${others[@]}" | grep '^tests/')
mirror common "${common[@]}"
mirror policies "${policies[@]}"
mirror ingress "${ingress[@]}"
mirror egress "${egress[@]}"
mirror all "${product[@]}"
mirror tests "${tests[@]}"
long=$(awk '
/^[{]/ { open = FNR }
/^[}]/ && open { if (FNR - open + 1 > 60) printf "  %s:%d: %d lines: %s\n", FILENAME, open, FNR - open + 1, head; open = 0 }
/^[A-Za-z_].*\(/ { head = $0 }' "${product[@]}" | sort -t: -k3 -rn)
[ -z "$long" ] || printf 'functions over 60 lines:\n%s\n' "$long"

echo
if [ $faults -gt 0 ]; then
    echo "lint: $faults findings"
    exit 1
fi
echo "lint: clean"
