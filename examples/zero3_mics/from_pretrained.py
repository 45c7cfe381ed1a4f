# SPDX-License-Identifier: Apache-2.0
"""The report's own program: HfDeepSpeedConfig, MiCS_Init around from_pretrained, then
deepspeed.initialize (its `initlialize` put right), on a BLOOM checkpoint with random weights made on the spot.

  CHECKPOINT_DIR            where the checkpoint is made, or found (default: a temporary folder)
  OUTER=0                   plain from_pretrained under HfDeepSpeedConfig, no MiCS: the supported form
  OVERRIDE_MODULE_APPLY=0   "override_module_apply": false
  SHIM=1, BW=<GB/s>         emulate torch 2.0's collectives (torch20.py)
  INIT=0                    stop after loading
  VOCAB, HIDDEN, LAYERS     the model; default 500 MB of fp16 weights

Works with transformers 4.33 and with 5.x, whichever is first on PYTHONPATH. One rank without a launcher, or under
python3 -m torch.distributed.run --nproc_per_node N.
"""

import compat

import contextlib
import importlib.metadata
import os
import shutil
import tempfile

import torch

import case
import measure
import torch20


def transformers_major():
    return int(importlib.metadata.version("transformers").split(".")[0])


def make_checkpoint(folder):
    """A sharded checkpoint of a small BLOOM, in the transformers release in use."""
    from transformers import BloomConfig, BloomForCausalLM

    hidden = case.number("HIDDEN", "1024")
    config = BloomConfig(vocab_size=case.number("VOCAB", "65536"), hidden_size=hidden,
                         n_layer=case.number("LAYERS", "12"), n_head=max(1, hidden // 128))
    BloomForCausalLM(config).half().save_pretrained(folder, max_shard_size="100MB")


def checkpoint_folder(rank):
    """Made by rank 0 before ZeRO-3 is switched on; the others wait for it."""
    folder = os.environ.get("CHECKPOINT_DIR") or os.path.join(
        tempfile.gettempdir(), "bloom-%s-%s" % (os.environ["MASTER_PORT"], transformers_major()))
    if rank == 0 and not os.path.exists(os.path.join(folder, "config.json")):
        make_checkpoint(folder)
    torch.distributed.barrier()
    return folder


def load(deepspeed, config, folder):
    if transformers_major() < 5:
        # The auto class of 4.33 first imports every model of the library; it then calls this very method.
        from transformers import BloomForCausalLM as model_class
    else:
        from transformers import AutoModelForCausalLM as model_class
    if case.flag("OUTER", "1"):
        outer = deepspeed.zero.MiCS_Init(config_dict_or_path=config)
    else:
        outer = contextlib.nullcontext()
    with outer:
        return model_class.from_pretrained(folder, torch_dtype=torch.float16)


def main():
    compat.single_rank_environment()
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    if case.flag("SHIM", "0"):
        torch20.install(float(os.environ.get("BW", "0")))
    if transformers_major() < 5:
        compat.old_transformers()
    import deepspeed

    compat.after_deepspeed()
    deepspeed.init_distributed()
    folder = checkpoint_folder(rank)
    measure.checkpoint("checkpoint_made", transformers=importlib.metadata.version("transformers"))

    if transformers_major() < 5:
        from transformers.deepspeed import HfDeepSpeedConfig
    else:
        from transformers.integrations import HfDeepSpeedConfig
    config = case.load_config(world, mics=case.flag("OUTER", "1"),
                              override_module_apply=case.flag("OVERRIDE_MODULE_APPLY", "1"))
    kept_alive = HfDeepSpeedConfig(config)  # transformers holds only a weak reference to it
    model = load(deepspeed, config, folder)
    torch.cuda.synchronize() if torch.cuda.is_available() else None
    measure.checkpoint("end_of_load", parameters=sum(p.ds_numel for p in model.parameters()), world=world,
                       partitioned=all(hasattr(p, "ds_id") for p in model.parameters()))
    if case.flag("INIT", "1"):
        deepspeed.initialize(model=model, optimizer=case.adamw(model), config_params=config, dist_init_required=True)
        measure.checkpoint("initialized")
    del kept_alive
    torch.distributed.barrier()
    if rank == 0 and "CHECKPOINT_DIR" not in os.environ:
        shutil.rmtree(folder, ignore_errors=True)
    os._exit(0)  # DeepSpeed 0.10.1's destructors and a destroyed NCCL do not go together


main()
