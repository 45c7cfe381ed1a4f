# SPDX-License-Identifier: Apache-2.0
"""The reported load path on random weights, no checkpoint: outer MiCS_Init -> inner zero.Init -> model ->
Module.apply -> GatheredParameters for each module, the order of calls in transformers 4.33.

  SHIM=1                    emulate torch 2.0's collectives (torch20.py); BW=<GB/s>: and a link that slow
  OUTER=0                   without the user's MiCS_Init around loading, and without MiCS
  OVERRIDE_MODULE_APPLY=0   "override_module_apply": false
  INIT=1                    go on to deepspeed.initialize
  VOCAB, HIDDEN, LAYERS     the model; default BLOOM-7b1

Run: python3 -m torch.distributed.run --nproc_per_node 2 lab.py
"""

import compat

import contextlib
import os
import time

import torch

import case
import measure
import torch20


def fill_weights(deepspeed, model, rank):
    """Loads the weights as transformers does under ZeRO-3: gather a module's parameters, write on rank 0, partition."""
    for module in model.modules():
        own = list(module.parameters(recurse=False))
        if own:
            with deepspeed.zero.GatheredParameters(own, modifier_rank=0):
                if rank == 0:
                    for p in own:
                        p.data.fill_(0.01)


def load(deepspeed, config, outer, rank):
    outer_context = deepspeed.zero.MiCS_Init(config_dict_or_path=config) if outer else contextlib.nullcontext()
    torch.set_default_dtype(torch.float16)
    with outer_context:
        with deepspeed.zero.Init(config_dict_or_path=config):
            model = case.bare_bloom(case.number("VOCAB", "250880"), case.number("HIDDEN", "4096"),
                                    case.number("LAYERS", "30"))
        measure.checkpoint("constructed")
        case.tie(model)
        model.apply(lambda module: None)
        measure.checkpoint("applied")
        fill_weights(deepspeed, model, rank)
        measure.checkpoint("weights_loaded")
    torch.set_default_dtype(torch.float32)
    return model


def main():
    compat.single_rank_environment()
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    shim, outer = case.flag("SHIM", "0"), case.flag("OUTER", "1")
    if shim:
        torch20.install(float(os.environ.get("BW", "0")))
    import deepspeed

    compat.after_deepspeed()
    config = case.load_config(world, mics=outer, override_module_apply=case.flag("OVERRIDE_MODULE_APPLY", "1"))
    deepspeed.init_distributed()
    measure.checkpoint("init_distributed")
    begun = time.monotonic()
    model = load(deepspeed, config, outer, rank)
    torch.cuda.synchronize()
    parameters = sum(p.ds_numel for p in model.parameters())
    measure.checkpoint("end_of_load", parameters=parameters, world=world, seconds=time.monotonic() - begun,
                       torch20_emulated=shim)
    if case.flag("INIT", "0"):
        engine, *_ = deepspeed.initialize(model=model, optimizer=case.adamw(model), config_params=config,
                                          dist_init_required=True)
        measure.checkpoint("initialized")
        del engine
    else:
        torch.cuda.empty_cache()
        measure.checkpoint("emptied")
    torch.distributed.barrier()
    os._exit(0)  # DeepSpeed 0.10.1's destructors and a destroyed NCCL do not go together


main()
