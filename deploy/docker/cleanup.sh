#!/bin/sh
# Takes away what releases of OpenSandbox's own sidecar may have left behind in this network namespace; runs before each start of
# the worker.  Our own rules are not touched: they stay closed until the worker replaces them.  Never fails.

# The tables of their native redirects.
for family in inet ip ip6; do
    for table in opensandbox_dns_redirect opensandbox_mitm_redirect; do
        nft delete table $family $table 2>/dev/null
    done
done

# Their iptables rules: port 53, the redirect to the interceptor, the loopback exception before it.
for iptables in iptables ip6tables; do
    command -v $iptables >/dev/null || continue
    $iptables -w 2 -t nat -S OUTPUT 2>/dev/null |
        grep -E -- '--dport 53|--uid-owner 10042|-d (127\.0\.0\.0/8|::1/128) -p tcp -j RETURN' |
        sed 's/^-A/-D/' |
        while read -r rule; do
            # Rules have no quotes in them: words are what the shell makes of them.
            # shellcheck disable=SC2086
            $iptables -w 2 -t nat $rule 2>/dev/null
        done
done

# A mitmproxy that outlived its supervisor.
for process in /proc/[0-9]*; do
    [ "$(cat "$process/comm" 2>/dev/null)" = mitmdump ] && [ "$(stat -c %u "$process" 2>/dev/null)" = 10042 ] &&
        kill "${process#/proc/}" 2>/dev/null
done
exit 0
