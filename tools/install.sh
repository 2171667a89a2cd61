#!/bin/sh
# Installs into .venv what a make target needs: `tools/install.sh runtime` to serve, `tools/install.sh learn` to learn and test.
# The Makefile decides when; this file says how. PYTHON and TORCH_INDEX_URL come from the caller's environment.
set -eu
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-python3}
pip() { .venv/bin/python -m pip install --disable-pip-version-check -c constraints.txt "$@"; }
say() { printf '%s\n' "$*"; }
fail() { say "error: $*" >&2; exit 1; }

make_venv() {
    command -v "$PYTHON" >/dev/null || fail "$PYTHON not found; install Python 3.11 or newer, or say which: make PYTHON=python3.12 ..."
    "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
        fail "$PYTHON is too old or does not run ($("$PYTHON" --version 2>&1)); minillm needs 3.11 or newer. Say which to use: make PYTHON=python3.12 ..."
    "$PYTHON" -c 'import venv, ensurepip' 2>/dev/null ||
        fail "$PYTHON lacks the venv module; on Debian and Ubuntu: sudo apt install python3-venv"
    "$PYTHON" -m venv .venv
    pwd -P >.venv/root # scripts in a venv hold its path: the Makefile compares, so that a moved folder is noticed
}

install_torch() {
    torch=$(grep '^torch==' constraints.txt)
    installed=$(.venv/bin/python -c 'from importlib.metadata import version; print("torch==" + version("torch"))' 2>/dev/null || true)
    [ "${installed%%+*}" = "$torch" ] && return # "+cpu", "+cu130": the build, not the version
    if [ -n "${TORCH_INDEX_URL:-}" ]; then
        say "Installing $torch from TORCH_INDEX_URL."
        # --no-deps: such an index has torch, but not always the pinned versions of what torch needs; those follow below
        pip --no-deps --index-url "$TORCH_INDEX_URL" "$torch"
        return
    fi
    if nvidia-smi >/dev/null 2>&1; then
        say "NVIDIA GPU found: installing $torch with CUDA, about 3 GB to download."
    elif [ "$(uname -s)" = Linux ]; then
        say "No NVIDIA GPU found: installing $torch, about 0.2 GB to download."
        say "On Linux the default package may bring CUDA with it (about 3 GB). To be sure of the CPU build, stop here (Ctrl-C), look up"
        say "its index URL at https://pytorch.org/get-started (Linux, Pip, CPU: the address after --index-url), and run"
        say "    make setup TORCH_INDEX_URL=<that address>"
    else
        say "Installing $torch, about 0.2 GB to download."
    fi
    pip "$torch"
}

case ${1:-} in
runtime)
    make_venv
    say "Setting up .venv with what serving needs. It will hold about 1.1 GB with a CPU build of torch."
    # builds the editable install below: --no-build-isolation, because isolation would fetch a version of its own choice
    pip -q setuptools
    install_torch
    say "Installing the other runtime packages, about 0.05 GB to download."
    pip -q --no-build-isolation -e .
    .venv/bin/python tools/kernels_guard.py
    ;;
learn)
    say "Installing what learning and testing need (transformers, Jupyter, pytest, Triton ...), about 0.35 GB to download."
    pip -q --no-build-isolation -e '.[learn,dev]'
    ;;
*)
    fail "usage: tools/install.sh runtime|learn"
    ;;
esac
