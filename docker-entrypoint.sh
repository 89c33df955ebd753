#!/bin/sh
# Runs kept. The server of a container is reached from outside of it, so it needs a token before it starts.
set -eu

if [ "$#" -gt 0 ] && [ "$1" = kept ]; then
    shift
fi
if [ ! -w "${KEPT_HOME:-/data}" ]; then
    echo "kept: ${KEPT_HOME:-/data} cannot be written by uid $(id -u)" >&2
    echo "  next: use a named volume, or give the folder to that uid: chown $(id -u) FOLDER" >&2
    exit 74
fi
if [ "${1:-}" = serve ] && [ "${2:-}" = --host ] && [ "$(kept serve token list --json)" = "[]" ]; then
    echo "kept: this server can be reached from outside of the container, and there is no token yet" >&2
    echo "  next: create one, it is shown once, and start the container again:" >&2
    echo "  docker run --rm -v VOLUME:/data IMAGE serve token create --name NAME" >&2
    exit 2
fi
# in place of this shell, so that SIGTERM reaches the server
exec kept "$@"
