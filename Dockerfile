FROM python:3.13-slim AS build
WORKDIR /src
COPY requirements.lock ./
RUN python -m venv /opt/gateway && /opt/gateway/bin/pip install --no-cache-dir --require-hashes -r requirements.lock
COPY pyproject.toml README.md LICENSE CHANGELOG.md ./
COPY app app
COPY character_sheets character_sheets
COPY migrations migrations
RUN /opt/gateway/bin/pip install --no-cache-dir --no-deps .

FROM python:3.13-slim
RUN useradd --create-home --uid 10001 gateway && mkdir /data && chown gateway /data
COPY --from=build /opt/gateway /opt/gateway
ENV PATH=/opt/gateway/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    ATROPOS_ENVS_HOST=0.0.0.0 \
    ATROPOS_ENVS_PORT=8000 \
    ATROPOS_ENVS_DATABASE_URL=sqlite:////data/atropos_envs.db
USER gateway
WORKDIR /data
VOLUME /data
EXPOSE 8000
HEALTHCHECK --interval=15s --timeout=5s --start-period=20s \
    CMD ["python", "-c", "import os, urllib.request; urllib.request.urlopen('http://127.0.0.1:' + os.environ['ATROPOS_ENVS_PORT'] + '/readyz', timeout=4)"]
CMD ["atropos-envs", "serve"]
