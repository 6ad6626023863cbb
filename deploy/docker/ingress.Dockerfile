# The gateway's image.  From the repository's top folder:
#
#   docker build -f deploy/docker/ingress.Dockerfile -t sallyport-ingress \
#       --build-arg COMMIT="$(git rev-parse --short=12 HEAD)" .
#   docker run --rm -p 28888:28888 -v "$PWD/routes:/etc/sallyport:ro" sallyport-ingress --routes=/etc/sallyport/routes.json
#
# There is no CMD: arguments are the gateway's flags.  Beside an OpenSandbox server that runs sandboxes with Docker on this machine,
# and knows them as addresses of it:
#
#   docker run --rm --network host -v "$PWD/key:/etc/sallyport:ro" sallyport-ingress --provider-type=lifecycle \
#       --lifecycle-url=http://127.0.0.1:8080 --lifecycle-api-key-file=/etc/sallyport/key --allow-target-cidr=127.0.0.0/8
FROM debian:12-slim AS build
WORKDIR /src
COPY scripts/packages scripts/
RUN scripts/packages build
COPY . .
ARG COMMIT=unknown
RUN cmake --preset release -DSALLYPORT_COMMIT="$COMMIT" \
    && cmake --build build/release --target sallyport-ingress -j "$(nproc)" \
    && cmake --install build/release --prefix /out --strip

FROM debian:12-slim
RUN apt-get -qq update \
    && DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends install libuv1 libssl3 libcjson1 libnghttp2-14 \
        libhiredis0.14 libyaml-0-2 ca-certificates \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build /out/bin/sallyport-ingress /usr/local/bin/sallyport-ingress
COPY --from=build /out/share/doc/sallyport /usr/share/doc/sallyport
# No name, so that a cluster's runAsNonRoot can see that it is not root.
USER 65532:65532
EXPOSE 28888
STOPSIGNAL SIGTERM
ENTRYPOINT ["/usr/local/bin/sallyport-ingress"]
