# kept serve in a container. The home is the volume /data; see docs/gateway.md, Deployment.
FROM python:3.13-slim AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
RUN python -m venv /opt/kept \
    && /opt/kept/bin/pip install --no-cache-dir '.[gateway,mcp,postgres]' \
    && /opt/kept/bin/python -m compileall -q /opt/kept/lib

FROM python:3.13-slim
RUN useradd --uid 10001 --create-home --home-dir /home/kept kept \
    && install -d -o kept -g kept -m 0700 /data /data/skills
COPY --from=build /opt/kept /opt/kept
COPY --chmod=0755 docker-entrypoint.sh /usr/local/bin/docker-entrypoint.sh
ENV PATH=/opt/kept/bin:$PATH \
    KEPT_HOME=/data \
    PYTHONDONTWRITEBYTECODE=1
USER kept
VOLUME /data
EXPOSE 8642
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=5s --start-period=15s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8642/healthz', timeout=4)"]
ENTRYPOINT ["docker-entrypoint.sh"]
CMD ["serve", "--host", "0.0.0.0", "--port", "8642"]
