# The page and the HTTP API:
#     docker build -t cynosure .
#     docker run --rm -p 8000:8000 cynosure     # prints the address with its access token
FROM python:3.12-slim AS build
WORKDIR /source
COPY packaging/locked ./packaging/locked
RUN python -m pip install --no-cache-dir --require-hashes -r packaging/locked/release.txt \
    && python -m venv /opt/cynosure \
    && /opt/cynosure/bin/pip install --no-cache-dir --require-hashes -r packaging/locked/web.txt
COPY pyproject.toml setup.py README.md LICENSE MANIFEST.in CHANGELOG.md CITATION.cff ./
COPY src ./src
RUN python -m build --no-isolation --wheel --outdir dist \
    && /opt/cynosure/bin/pip install --no-cache-dir --no-deps dist/*.whl

FROM python:3.12-slim
COPY --from=build /opt/cynosure /opt/cynosure
RUN useradd --uid 10001 --create-home --home-dir /srv/cynosure cynosure
USER 10001
WORKDIR /srv/cynosure
ENV PATH=/opt/cynosure/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    NUMBA_CACHE_DIR=/srv/cynosure/.cache/numba
EXPOSE 8000
CMD ["cynosure", "serve", "--host", "0.0.0.0", "--port", "8000"]
