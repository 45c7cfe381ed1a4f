# SPDX-License-Identifier: Apache-2.0
"""The report's second question, an out-of-memory inside deepspeed.initialize, on one GPU.

One rank holds as many parameters as each GPU did there (33e9 / 16, about 2.03e9), torch is capped at CAP_GIB (32).
With "sub_group_size": "auto", which means 1e9, AdamW's temporaries do not fit; with SUB_GROUP_SIZE=1e8 they do.
Exit status: 0 initialized, 3 out of memory inside deepspeed.initialize.
"""

import compat

import os
import sys

import torch

import case
import measure

GIB = 1 << 30


def predicted(parameters, group, reduce_bucket):
    """Bytes on torch >= 2.1, where AdamW's temporaries are 4 bytes an element: peak in the first step, and after it."""
    return {
        "peak_first_step": 14 * parameters + 8 * group,
        "steady": 16 * parameters + 2 * reduce_bucket,
        "parameters": parameters,
        "largest_sub_group": group,
    }


def largest_sub_group(sizes, limit):
    """Parameters are added to a sub-group until it has at least `limit` elements."""
    largest = current = 0
    for size in sizes:
        current += size
        largest = max(largest, current)
        if current >= limit:
            current = 0
    return largest


def main():
    compat.single_rank_environment()
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    total = torch.cuda.mem_get_info()[1]
    torch.cuda.set_per_process_memory_fraction(float(os.environ.get("CAP_GIB", "32.0")) * GIB / total)
    import deepspeed

    compat.after_deepspeed()
    text = os.environ.get("SUB_GROUP_SIZE", "auto")
    sub_group = text if text == "auto" else int(float(text))
    config = case.load_config(1, mics=False, sub_group_size=sub_group, reduce_bucket_size=1 << 24)
    deepspeed.init_distributed()
    measure.checkpoint("init_distributed")
    torch.set_default_dtype(torch.float16)
    with deepspeed.zero.Init(config_dict_or_path=config):
        model = case.bare_bloom(case.number("VOCAB", "8192"), case.number("HIDDEN", "2048"),
                                case.number("LAYERS", "40"))
    case.tie(model)
    torch.set_default_dtype(torch.float32)
    torch.cuda.synchronize()
    optimizer = case.adamw(model)
    sizes = [[p.ds_numel for p in g["params"]] for g in optimizer.param_groups]
    limit = 10**9 if sub_group == "auto" else sub_group
    measure.emit("NOTE", **predicted(sum(map(sum, sizes)), max(largest_sub_group(s, limit) for s in sizes), 1 << 24))
    measure.checkpoint("end_of_load", sub_group_size=text)
    try:
        deepspeed.initialize(model=model, optimizer=optimizer, config_params=config, dist_init_required=True)
    except torch.OutOfMemoryError as error:
        measure.emit("NOTE", out_of_memory=str(error).splitlines()[0][:300])
        measure.checkpoint("out_of_memory")
        sys.stdout.flush()
        os._exit(3)
    measure.checkpoint("initialized")
    os._exit(0)


main()
