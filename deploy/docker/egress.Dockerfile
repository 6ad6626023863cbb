# The sidecar's image, with the paths of OpenSandbox's, so that the lifecycle server needs no more than its name in
# [egress].image.  From the repository's top folder:
#
#   docker build -f deploy/docker/egress.Dockerfile -t sallyport-egress \
#       --build-arg COMMIT="$(git rev-parse --short=12 HEAD)" .
#   docker run -d --name egress --cap-add NET_ADMIN -e OPENSANDBOX_EGRESS_MODE=dns+nft \
#       -e OPENSANDBOX_EGRESS_RULES='{"defaultAction":"deny","egress":[{"action":"allow","target":"*.debian.org"}]}' \
#       -e OPENSANDBOX_EGRESS_TOKEN=choose-one sallyport-egress
#   docker run --rm --network container:egress IMAGE-OF-THE-SANDBOX
#
# It must be root and have NET_ADMIN; with NET_RAW (which Docker gives) it also closes AF_XDP to the sandbox.  Rule files that a
# derived image copies into /var/egress/rules/ are read and watched.  /opt/opensandbox stays empty: it is a volume that the
# sandbox shares, where it finds the certificate it has to trust (docs/vault.md).  An authority of your own is mounted as
# /var/lib/mitmproxy/.mitmproxy/mitmproxy-ca.pem, 0600.  TLS is linked in, so there is no libssl.
FROM debian:12-slim AS build
WORKDIR /src
COPY scripts/packages scripts/
RUN scripts/packages build
COPY . .
ARG COMMIT=unknown
RUN cmake --preset release -DSALLYPORT_COMMIT="$COMMIT" \
    && cmake --build build/release --target sallyport-egress sallyport-supervisor sallyport-egress-rules -j "$(nproc)" \
    && cmake --install build/release --prefix /out --strip

FROM debian:12-slim
RUN apt-get -qq update \
    && DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends install \
        libuv1 libcjson1 libnghttp2-14 libmnl0 libnftables1 libidn2-0 libpsl5 libpcre2-8-0 zlib1g libbrotli1 libzstd1 \
        ca-certificates \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --system --uid 10042 --no-create-home --home-dir /var/lib/mitmproxy --shell /usr/sbin/nologin mitmproxy \
    && mkdir -p /opt/opensandbox-egress /opt/opensandbox /var/egress/rules /usr/local/share/ca-certificates \
    && install -d -m 0755 -o mitmproxy /var/lib/mitmproxy /var/lib/mitmproxy/.mitmproxy
COPY --from=build /out/bin/sallyport-egress /opt/opensandbox-egress/egress
COPY --from=build /out/bin/sallyport-supervisor /opt/opensandbox-egress/supervisor
COPY --from=build /out/bin/sallyport-egress-rules /opt/opensandbox-egress/egress-rules
COPY deploy/docker/cleanup.sh /opt/opensandbox-egress/cleanup.sh
COPY --from=build /out/share/doc/sallyport /usr/share/doc/sallyport
COPY --from=build /out/share/sallyport /usr/share/sallyport
RUN ln -s /opt/opensandbox-egress/egress /egress && chmod 0755 /opt/opensandbox-egress/cleanup.sh
EXPOSE 18080
STOPSIGNAL SIGTERM
ENTRYPOINT ["/opt/opensandbox-egress/supervisor", "--name=egress", "--grace-period=20s", \
    "--pre-start=/opt/opensandbox-egress/cleanup.sh", "--", "/opt/opensandbox-egress/egress"]
