# A release is built on a base that cannot change: `docker build --build-arg BASE=python:3.13-slim@sha256:…`. docs/kubernetes.md says how to look the digest up.
ARG BASE=python:3.13-slim
FROM ${BASE} AS build
WORKDIR /src
COPY requirements.lock ./
RUN python -m venv /opt/gateway && /opt/gateway/bin/pip install --no-cache-dir --require-hashes -r requirements.lock
COPY pyproject.toml README.md LICENSE CHANGELOG.md ./
COPY app app
COPY character_sheets character_sheets
COPY migrations migrations
RUN /opt/gateway/bin/pip install --no-cache-dir --no-deps .
# Left out: packages' tests, headers and sources of extensions, Arrow's clients of Flight and S3, a second build of zstandard, pip.
RUN set -e; cd /opt/gateway/lib/python3*/site-packages; \
    rm -rf pyarrow/include pyarrow/includes pyarrow/src numpy/_core/include; \
    rm -f pyarrow/libarrow_flight* pyarrow/libarrow_python_flight* pyarrow/libarrow_s3* \
        pyarrow/_flight.* pyarrow/_s3fs.* zstandard/_cffi.*; \
    find . -type d -name tests -prune -exec rm -rf {} +; \
    find . -type f \( -name '*.py[xdi]' -o -name '*.pxi' -o -name '*.c' -o -name '*.cpp' -o -name '*.h' -o -name '*.hpp' -o -name '*.a' \) -delete; \
    /opt/gateway/bin/python -m pip uninstall -q -y pip
# Nothing that is needed was among it: every module of ours, and what reads data sets, is there. `package_rows` reads an extra that the image does not have.
RUN cd / && /opt/gateway/bin/python -c "import importlib, pkgutil, app, datasets, math_verify, pyarrow.csv, pyarrow.dataset, pyarrow.json, pyarrow.parquet, zstandard; \
    [importlib.import_module(module.name) for module in pkgutil.walk_packages(app.__path__, 'app.') if not module.name.endswith(('.__main__', '.package_rows'))]"

FROM ${BASE}
# Writable for whatever user a cluster chooses.
RUN useradd --home-dir /data --no-create-home --uid 10001 gateway && mkdir /data && chown gateway /data && chmod 1777 /data
COPY --from=build /opt/gateway /opt/gateway
ENV PATH=/opt/gateway/bin:$PATH \
    HOME=/data \
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
