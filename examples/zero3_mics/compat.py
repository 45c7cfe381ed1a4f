# SPDX-License-Identifier: Apache-2.0
"""Lets deepspeed 0.10.1 (and transformers 4.33.1) import and run on Python 3.12 and torch 2.11.

Import this module before either of them, and call after_deepspeed() once deepspeed is imported. Nothing here changes
where memory goes; the one thing that does, the collectives of torch 2.0, is in torch20.py.
"""

import contextlib
import logging
import os
import socket
import sys
import types
import warnings

warnings.filterwarnings("ignore", category=FutureWarning)

try:
    import distutils  # noqa: F401  (gone from Python 3.12's standard library)
except ImportError:
    import setuptools  # noqa: F401  (brings its own)
import distutils.ccompiler  # noqa: F401
import distutils.log  # noqa: F401
import distutils.spawn  # noqa: F401
import distutils.sysconfig  # noqa: F401

import numpy
import torch.distributed.elastic.agent.server.api as elastic

if not hasattr(numpy, "BUFSIZE"):
    numpy.BUFSIZE = 8192
if not hasattr(elastic, "log"):
    elastic.log = logging.getLogger("elastic")
if not hasattr(elastic, "_get_socket_with_port"):

    def _get_socket_with_port():
        s = socket.socket()
        s.bind(("localhost", 0))
        s.listen(0)
        return s

    elastic._get_socket_with_port = _get_socket_with_port


def single_rank_environment():
    """The variables torchrun would set, for a run of one rank without it."""
    if "RANK" in os.environ:
        return
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", LOCAL_WORLD_SIZE="1", MASTER_ADDR="127.0.0.1",
                      MASTER_PORT=str(port))


def old_transformers():
    """Before importing transformers 4.33: skip its version checks, which refuse today's tokenizers and hub releases."""
    checks = types.ModuleType("transformers.dependency_versions_check")
    checks.dep_version_check = lambda *args, **kwargs: None
    sys.modules[checks.__name__] = checks


def after_deepspeed():
    """The coalescing manager's signature changed in torch 2.1; without it each collective runs by itself."""
    sys.modules["deepspeed.comm.torch"].get_coalescing_manager = lambda *args: contextlib.nullcontext()
