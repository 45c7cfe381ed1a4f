#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Collects the pure-Python packages that the ZeRO-3 workloads need and that a
# GPU machine without a package registry lacks. Only downloads and unpacks:
# nothing is built or installed.
#
#   tests/gpu/fetch_packages.sh [DEST]        default DEST: .gpu (git-ignored by you)
#
#   DEST/site              deepspeed 0.10.1, pydantic 1.10, hjson
#   DEST/transformers4331  transformers 4.33.1 with BLOOM as its only model
#   DEST/rmm               RMM 26.10 for CUDA 13, without its headers; needs cuda-bindings and numpy, as PyTorch does
#
# The first folder goes on PYTHONPATH for every ZeRO workload, the second only
# for from_pretrained.py with the transformers release of the report.
set -euo pipefail

dest=${1:-.gpu}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$dest"

download() { "$work/venv/bin/pip" download -q --no-deps -d "$work/dl" "$@"; }

echo "downloading into $work"
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q 'setuptools<81' wheel
download --only-binary=:all: --platform any --python-version 3.12 'pydantic==1.10.24' 'hjson==3.1.0' 'transformers==4.33.1'
# deepspeed exists as a source archive only; asking pip for it runs its setup.py,
# which works without torch and compiles nothing.
DS_BUILD_OPS=0 download --no-binary deepspeed --no-build-isolation 'deepspeed==0.10.1'

DS_BUILD_OPS=0 download --no-binary deepspeed --no-build-isolation 'deepspeed==0.19.6'

rm -rf "$dest/site" "$dest/site19" "$dest/transformers4331"
mkdir -p "$dest/site" "$dest/site19" "$dest/transformers4331"

tar -C "$work" -xzf "$work/dl/deepspeed-0.10.1.tar.gz"
cp -rL "$work/deepspeed-0.10.1/deepspeed" "$dest/site/"
# The CUDA sources are only needed to compile DeepSpeed's own kernels, which no
# workload does; the folders stay, since the op builders look for them.
find "$dest/site/deepspeed/ops/csrc" -type f -delete
printf '0.10.1\n' >"$dest/site/version.txt"
info=$dest/site/deepspeed-0.10.1.dist-info
mkdir -p "$info"
printf 'Metadata-Version: 2.1\nName: deepspeed\nVersion: 0.10.1\n' >"$info/METADATA"
printf 'deepspeed\n' >"$info/top_level.txt"

for wheel in "$work"/dl/pydantic-*.whl "$work"/dl/hjson-*.whl; do
  python3 -m zipfile -e "$wheel" "$dest/site"
done

python3 -m zipfile -e "$work"/dl/transformers-4.33.1-*.whl "$work/tf"
# Of the models only BLOOM, and the auto classes that others import; modeling_utils
# and its from_pretrained are whole.
mkdir "$work/models"
cp -r "$work"/tf/transformers/models/{auto,bloom} "$work/models/"
printf 'from . import auto, bloom\n' >"$work/models/__init__.py"
rm -rf "$work/tf/transformers/models" "$work/tf/transformers/kernels"
mv "$work/models" "$work/tf/transformers/models"
cp -r "$work/tf/transformers" "$work"/tf/transformers-4.33.1.dist-info "$dest/transformers4331/"

rm -rf "$dest/rmm"
mkdir -p "$dest/rmm"
download --only-binary=:all: --python-version 3.12 --platform manylinux_2_28_x86_64 --platform manylinux_2_24_x86_64 \
  --platform manylinux_2_27_x86_64 'rmm-cu13==26.10.0' 'librmm-cu13==26.10.0' 'rapids-logger==0.3.0'
for wheel in "$work"/dl/*rmm_cu13-*.whl "$work"/dl/rapids_logger-*.whl; do
  python3 -m zipfile -e "$wheel" "$dest/rmm"
done
rm -rf "$dest"/rmm/{librmm,rapids_logger}/include "$dest"/rmm/librmm/lib64/{cmake,rapids} "$dest/rmm/rmm/tests"
find "$dest/rmm" -name '*.pxd' -delete

find "$dest/site" "$dest/transformers4331" -name __pycache__ -prune -exec rm -rf {} +
du -sh "$dest/site" "$dest/transformers4331" "$dest/rmm"
