# SPDX-License-Identifier: Apache-2.0
"""The list of GPU workloads: what to run, with how many GPUs, for how long, and how it must end."""

import dataclasses
import os
import shutil
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
EXAMPLES = os.path.join(ROOT, "examples", "zero3_mics")
PACKAGES = os.environ.get("PACKAGES", os.path.join(ROOT, ".gpu"))


@dataclasses.dataclass(frozen=True)
class Workload:
    name: str
    argv: tuple
    group: str = "basic"
    gpus: int = 1
    timeout: int = 60
    env: dict = dataclasses.field(default_factory=dict)
    status: int = 0
    preload: bool = True
    path: tuple = ()  # more folders for PYTHONPATH
    reaches: str = ""  # the CHECKPOINT without which the end proves nothing
    says: str = ""  # what stderr must hold
    records: tuple = ()  # kinds of record that its traces must hold
    needs: str = ""  # a program or folder without which it is skipped, and said


def _script(name, *args):
    return (sys.executable, os.path.join(HERE, "workloads", name), *args)


def _example(name):
    return (sys.executable, os.path.join(EXAMPLES, name))


def _torchrun(gpus, script, *args):
    return (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(gpus), script, *args)


def _tool(program, *arguments):
    """(where it is or "", its command line): from PATH, a CUDA toolkit, or beside the packages."""
    folders = [os.environ.get("PATH", ""), "/usr/local/cuda/bin", os.path.join(PACKAGES, "sanitizer")]
    found = shutil.which(program, path=os.pathsep.join(folders)) or ""
    return found, (found, *arguments)


def _spread(name, *args, gpus=2):
    return _torchrun(gpus, os.path.join(HERE, "workloads", name), *args)


_EXPANDABLE = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
_ASYNC = {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}
_PREALLOCATED = {"XLA_PYTHON_CLIENT_PREALLOCATE": "true", "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.30"}
_GROWING = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}

BASIC = [
    Workload("torch_training", _script("torch_training.py")),
    Workload("training_expandable", _script("torch_training.py"), env=_EXPANDABLE),
    Workload("training_malloc_async", _script("torch_training.py"), env=_ASYNC),
    Workload("training_nccl_1", _script("torch_training.py", "--nccl")),
    Workload("cublas_workspaces", _script("cublas_workspaces.py")),
    Workload("cuda_graphs", _script("cuda_graphs.py")),
    Workload("graph_memory_nodes", _script("graph_memory_nodes.py")),
    Workload("pinned", _script("pinned.py")),
    Workload("managed", _script("managed.py")),
    Workload("ipc", _script("ipc.py"), timeout=80),
    Workload("oom_caught", _script("oom.py")),
    Workload("oom_uncaught", _script("oom.py", "--uncaught"), status=1, reaches="emptied",
             says="OutOfMemoryError"),
    Workload("kill9", _script("sudden_end.py"), status=-9, reaches="before_the_end"),
    Workload("flight_recorder", _script("flight_recorder.py"), timeout=80, env={"DSTRACE_LOG_LIMIT": "4MiB"}, status=-9,
             reaches="before_the_end", records=("checkpoint",)),
    Workload("abort", _script("sudden_end.py", "--how", "abort"), group="ends", status=-6, reaches="before_the_end"),
    Workload("segv", _script("sudden_end.py", "--how", "segv"), group="ends", status=-11, reaches="before_the_end"),
    Workload("fast_exit", _script("sudden_end.py", "--how", "exit"), group="ends", status=7, reaches="before_the_end"),
    Workload("triton_kernel", _script("triton_kernel.py"), timeout=80),
    Workload("cupy_pool", _script("cupy_pool.py"), timeout=80),
    Workload("jax_prealloc", _script("jax_prealloc.py"), timeout=80, env=_PREALLOCATED),
    Workload("jax_growing", _script("jax_prealloc.py"), timeout=80, env=_GROWING),
    Workload("jax_platform", _script("jax_prealloc.py"), group="more", timeout=80,
             env={"XLA_PYTHON_CLIENT_ALLOCATOR": "platform"}),
    Workload("torch_compile", _script("triton_kernel.py", "--compile"), group="more", timeout=120),
    Workload("profiler_bare", _script("torch_profiler.py"), preload=False),
    Workload("profiler_traced", _script("torch_profiler.py")),
    Workload("multi_comm_1", _script("multi_comm.py")),
    Workload("nvtx_marks", _script("nvtx_marks.py")),
]

# CUPTI counts what the hooks count: `dstrace-report` says for each trace whether they agree.
_CUPTI = {"DSTRACE_CUPTI": "1"}
CUPTI = [
    Workload("profiler_traced_cupti", _script("torch_profiler.py"), group="cupti", env=_CUPTI),
    Workload("cupti_training", _script("torch_training.py"), group="cupti", env=_CUPTI),
    Workload("cupti_malloc_async", _script("torch_training.py"), group="cupti", env=dict(_ASYNC, **_CUPTI)),
    Workload("cupti_cublas", _script("cublas_workspaces.py"), group="cupti", env=_CUPTI),
    Workload("cupti_graphs", _script("cuda_graphs.py"), group="cupti", env=_CUPTI),
    Workload("cupti_pinned", _script("pinned.py"), group="cupti", env=_CUPTI),
    Workload("cupti_managed", _script("managed.py"), group="cupti", env=_CUPTI),
    Workload("cupti_expandable", _script("torch_training.py"), group="cupti", env=dict(_EXPANDABLE, **_CUPTI)),
    Workload("cupti_nccl_1", _script("torch_training.py", "--nccl"), group="cupti", env=_CUPTI),
    Workload("cupti_multi_comm_1", _script("multi_comm.py"), group="cupti", env=_CUPTI),
    Workload("cupti_graph_memory_nodes", _script("graph_memory_nodes.py"), group="cupti", env=_CUPTI),
    Workload("cupti_ipc", _script("ipc.py"), group="cupti", timeout=80, env=_CUPTI),
    Workload("cupti_triton", _script("triton_kernel.py"), group="cupti", timeout=80, env=_CUPTI),
    Workload("cupti_cupy", _script("cupy_pool.py"), group="cupti", timeout=80, env=_CUPTI),
    Workload("cupti_jax_prealloc", _script("jax_prealloc.py"), group="cupti", timeout=80,
             env=dict(_PREALLOCATED, **_CUPTI)),
    Workload("cupti_jax_growing", _script("jax_prealloc.py"), group="cupti", timeout=80, env=dict(_GROWING, **_CUPTI)),
]

# Beside other people's tools and allocators.
_SANITIZER, _MEMCHECK = _tool("compute-sanitizer", "--tool", "memcheck", "--target-processes", "all", "--error-exitcode",
                              "9")
_NSYS, _NSYS_PROFILE = _tool("nsys", "profile", "--trace=cuda,nvtx", "--sample=none", "--cpuctxsw=none", "-o",
                             "/tmp/dstrace-nsys", "--force-overwrite=true")
_RMM = os.path.join(PACKAGES, "rmm")
_HELD = ("device_event",)
OTHERS = [
    Workload("pluggable_allocator", _script("pluggable_allocator.py"), group="others", records=_HELD),
    Workload("rmm_pool", _script("rmm_pool.py"), group="others", records=_HELD, path=(_RMM,), needs=_RMM),
    Workload("plain_driver", _script("plain_driver.py"), group="others", timeout=20, records=_HELD),
    Workload("compute_sanitizer", _MEMCHECK + _script("plain_driver.py"), group="others", records=_HELD,
             needs=_SANITIZER or "compute-sanitizer"),
    Workload("nsys", _NSYS_PROFILE + _script("torch_training.py", "--steps", "2"), group="others", records=_HELD,
             needs=_NSYS or "nsys"),
]

TWO_GPUS = [
    Workload("training_nccl_2", _spread("torch_training.py", "--nccl"), gpus=2, timeout=80),
    Workload("multi_comm_2", _spread("multi_comm.py"), gpus=2, timeout=80),
    Workload("cupti_nccl_2", _spread("torch_training.py", "--nccl"), group="cupti_2", gpus=2, timeout=80, env=_CUPTI),
    Workload("cupti_multi_comm_2", _spread("multi_comm.py"), group="cupti_2", gpus=2, timeout=80, env=_CUPTI),
]

_SITE = (os.path.join(PACKAGES, "site"),)
_OLD_TRANSFORMERS = (os.path.join(PACKAGES, "transformers4331"),) + _SITE


def _lab(name, gpus=2, **env):
    settings = {"SHIM": "1", "BW": "100"}
    settings.update(env)
    for knob in ("VOCAB", "HIDDEN", "LAYERS"):  # a smaller model for a quick look
        if knob in os.environ:
            settings[knob] = os.environ[knob]
    return Workload("zero3_" + name, _torchrun(gpus, os.path.join(EXAMPLES, "lab.py")), group="zero3", gpus=gpus,
                    timeout=120, env=settings, path=_SITE)


# The rows of the lab's table, the most telling first.
ZERO3 = [
    _lab("outer"),
    _lab("initialize", INIT="1"),
    _lab("no_outer", OUTER="0"),
    _lab("no_module_apply", OVERRIDE_MODULE_APPLY="0"),
    _lab("launch_blocking", CUDA_LAUNCH_BLOCKING="1"),
    _lab("native", SHIM="0"),
    _lab("native_plain", SHIM="0", OUTER="0"),
]

OOM = [
    Workload("zero3_oom_default", _example("initialize_oom.py"), group="zero3_oom",
             timeout=120, env={"SUB_GROUP_SIZE": "auto"}, status=3, path=_SITE, reaches="out_of_memory"),
    Workload("zero3_oom_1e8", _example("initialize_oom.py"), group="zero3_oom",
             timeout=120, env={"SUB_GROUP_SIZE": "1e8"}, path=_SITE),
]

PRETRAINED = [
    Workload("from_pretrained_5", _example("from_pretrained.py"), group="pretrained",
             timeout=120, env={"SHIM": "1", "BW": "100"}, path=_SITE),
    Workload("from_pretrained_4331", _example("from_pretrained.py"), group="pretrained",
             timeout=120, env={"SHIM": "1", "BW": "100"}, path=_OLD_TRANSFORMERS),
    Workload("from_pretrained_5_2gpu", _torchrun(2, os.path.join(EXAMPLES, "from_pretrained.py")), group="pretrained",
             gpus=2, timeout=120, env={"SHIM": "1", "BW": "100"}, path=_SITE),
    Workload("from_pretrained_4331_2gpu", _torchrun(2, os.path.join(EXAMPLES, "from_pretrained.py")),
             group="pretrained", gpus=2, timeout=120, env={"SHIM": "1", "BW": "100"}, path=_OLD_TRANSFORMERS),
]

ALL = BASIC + CUPTI + OTHERS + TWO_GPUS + ZERO3 + OOM + PRETRAINED
DEFAULT_GROUPS = ("basic",)


def select(names, gpus_present):
    """The workloads named (by name or group), or the default ones, in three lists: those that can run here, those that want
    more GPUs, and those whose program is not here. Unknown names raise."""
    known = {w.name for w in ALL} | {w.group for w in ALL} | {"all"}
    unknown = [n for n in names if n not in known]
    if unknown:
        raise SystemExit("unknown workload or group: %s\nknown: %s" % (" ".join(unknown), " ".join(sorted(known))))
    wanted = set(names) or set(DEFAULT_GROUPS)
    chosen = [w for w in ALL if "all" in wanted or w.name in wanted or w.group in wanted]
    absent = [w for w in chosen if w.needs and not os.path.exists(w.needs)]
    chosen = [w for w in chosen if w not in absent]
    return ([w for w in chosen if w.gpus <= gpus_present], [w for w in chosen if w.gpus > gpus_present], absent)
