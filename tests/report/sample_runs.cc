// SPDX-License-Identifier: Apache-2.0
#include "tests/report/sample_runs.h"

namespace dstrace::testing {
namespace {

using model::Device;
using model::EndKind;
using model::Frame;
using model::Layer;
using model::Ledger;
using model::Run;
using model::Snapshot;
using model::StackId;

constexpr char kZero[] =
    "/opt/py/site-packages/deepspeed/runtime/zero/partition_parameters.py";
constexpr char kStage3[] =
    "/opt/py/site-packages/deepspeed/runtime/zero/stage3.py";
constexpr char kAdam[] = "/opt/py/site-packages/torch/optim/adamw.py";
constexpr char kTrain[] = "/home/ada/train.py";

enum Module { kCudart, kTorch, kNccl, kProgram };

Run Bare() {
  Run run;
  run.process.pid = 4242;
  run.process.host = "gpuhost";
  run.process.command = {"python", "train.py", "--steps", "10"};
  run.process.gpus = {{0, "NVIDIA H200", "GPU-0a1b2c3d", 143771 * kMiB}};
  run.process.stacks_mode = "full";
  run.process.dstrace_version = "0.1.0";
  run.stacks.stacks.emplace_back();
  run.stacks.modules = {
      {"/usr/local/cuda/lib64/libcudart.so.13", 0x1000, 0x1000, ""},
      {"/opt/py/site-packages/torch/lib/libtorch_cuda.so", 0x8000, 0x9000, ""},
      {"/opt/py/site-packages/nvidia/nccl/lib/libnccl.so.2", 0x20000, 0x9000,
       ""},
      {"/home/ada/solver", 0x40000, 0x9000, ""}};
  return run;
}

Ledger Account(uint64_t used_mib, uint64_t live_mib, uint64_t reserved_mib,
               std::map<std::string, uint64_t> libraries_mib) {
  Ledger ledger;
  ledger.device_total = 143771 * kMiB;
  ledger.device_used_known = used_mib != 0;
  ledger.torch_live = live_mib * kMiB;
  ledger.torch_reserved = reserved_mib * kMiB;
  ledger.torch_cached = ledger.torch_reserved - ledger.torch_live;
  uint64_t known = ledger.torch_reserved;
  for (auto& [owner, bytes] : libraries_mib) known += bytes *= kMiB;
  ledger.libraries = std::move(libraries_mib);
  ledger.device_used = used_mib * kMiB;
  if (used_mib != 0)
    ledger.residual = static_cast<int64_t>(ledger.device_used - known);
  return ledger;
}

StackId NcclStack(Run* run) {
  return AddStack(
      &run->stacks,
      {Native("ncclCuMemAlloc", kNccl), Native("ncclCommInitRankConfig", kNccl),
       Native("_ZN4c10d16ProcessGroupNCCL9allgatherEv", kTorch),
       Python("all_gather",
              "/opt/py/site-packages/torch/distributed/distributed_c10d.py",
              3300),
       Python("main", kTrain, 40)});
}

}  // namespace

Frame Python(const std::string& name, const std::string& file, uint32_t line) {
  Frame frame;
  frame.kind = Frame::Kind::kPython;
  frame.name = name;
  frame.file = file;
  frame.line = line;
  return frame;
}

Frame Native(const std::string& symbol, int module) {
  Frame frame;
  frame.name = symbol;
  frame.module = module;
  frame.pc = 0x7f0000001000 + symbol.size();
  return frame;
}

StackId AddStack(model::Stacks* stacks, std::initializer_list<Frame> frames) {
  model::Stack stack;
  for (const Frame& frame : frames) {
    stack.frames.push_back(static_cast<uint32_t>(stacks->frames.size()));
    stacks->frames.push_back(frame);
  }
  stacks->stacks.push_back(stack);
  return static_cast<StackId>(stacks->stacks.size() - 1);
}

Run RegatherRun() {
  Run run = Bare();
  run.process.rank = 0;
  run.process.world_size = 2;
  run.process.properties = {{"torch.version", "2.11.0+cu130"},
                            {"python.version", "3.12.3"}};
  run.process.duration_ns = 42 * kSecond + kSecond / 4;
  run.process.end = EndKind::kExit;
  run.event_count = 474153;
  run.file_bytes = 22 * kMiB;
  const StackId regather = AddStack(
      &run.stacks,
      {Native("cudaMalloc", kCudart),
       Native("_ZN2at6detail13empty_genericEN3c108ArrayRefIlEEPNS1_9AllocatorE",
              kTorch),
       Python("Init._convert_to_deepspeed_param.<locals>._allgather_params",
              kZero, 1647),
       Python("Init._convert_to_deepspeed_param.<locals>.all_gather", kZero,
              1001),
       Python("apply_with_gather.<locals>.wrapped_fn_to_apply", kZero, 379),
       Python("Module.apply",
              "/opt/py/site-packages/torch/nn/modules/module.py", 1032),
       Python("load", kTrain, 31), Python("main", kTrain, 40)});
  const StackId shards =
      AddStack(&run.stacks,
               {Native("cudaMalloc", kCudart),
                Python("Init._partition_param", kZero, 1381),
                Python("Init.partition", kZero, 1060),
                Python("Linear.__init__",
                       "/opt/py/site-packages/torch/nn/modules/linear.py", 106),
                Python("build", kTrain, 22), Python("main", kTrain, 39)});
  const StackId nccl = NcclStack(&run);
  const StackId pinned = AddStack(
      &run.stacks,
      {Native("cudaHostAlloc", kCudart),
       Python("pin_memory",
              "/opt/py/site-packages/torch/utils/data/_utils/pin_memory.py",
              58)});
  Device device;
  device.peak_time_ns = 30 * kSecond;
  Snapshot peak{30 * kSecond,
                "peak",
                Account(34011, 7722, 32062, {{"nccl", 1376}, {"cublas", 64}}),
                {},
                {}};
  peak.ledger.context = 460 * kMiB;
  peak.ledger.torch_stream_pending = 23001 * kMiB;
  peak.ledger.host_pinned = 32 * kMiB;
  peak.holdings = {{Layer::kDevice, "torch", regather, 24340 * kMiB, 482},
                   {Layer::kDevice, "torch", shards, 7722 * kMiB, 93},
                   {Layer::kTensor, "torch", shards, 7600 * kMiB, 291},
                   {Layer::kDevice, "nccl", nccl, 1376 * kMiB, 388},
                   {Layer::kTensor, "torch", regather, 122 * kMiB, 3},
                   {Layer::kDevice, "cublas", 0, 64 * kMiB, 3},
                   {Layer::kHostPinned, "torch", pinned, 32 * kMiB, 4}};
  peak.stream_pending = {
      {Layer::kTensor, "torch", regather, 23001 * kMiB, 470}};
  Snapshot end{42 * kSecond,
               "end",
               Account(9775, 7722, 7826, {{"nccl", 1376}, {"cublas", 64}}),
               {},
               {}};
  end.ledger.context = 460 * kMiB;
  end.holdings = {{Layer::kTensor, "torch", shards, 7722 * kMiB, 293}};
  device.snapshots = {peak, end};
  device.growth = {
      {"torch", regather, 26000 * kMiB, 510, 104 * kMiB, 24340 * kMiB},
      {"torch", shards, 7722 * kMiB, 93, 7722 * kMiB, 7722 * kMiB},
      {"nccl", nccl, 1376 * kMiB, 388, 1376 * kMiB, 1376 * kMiB}};
  for (uint64_t i = 0; i < 43; ++i) {
    const uint64_t reserved = i < 3     ? 0
                              : i <= 30 ? (i - 2) * 1145
                              : i < 36  ? 32062
                                        : 7826;
    device.timeline.push_back(
        {i * kSecond, (reserved + (i < 2 ? 0 : 1949)) * kMiB, reserved * kMiB,
         std::min<uint64_t>(reserved, 260 * i) * kMiB});
  }
  device.torch_check = {20311, 0, 0, 603, 0, 0};
  run.devices.push_back(std::move(device));
  run.marks = {{3 * kSecond, "construct", 1},
               {12 * kSecond, "model.apply", 0},
               {36 * kSecond, "empty_cache", 0}};
  return run;
}

Run OutOfMemoryRun() {
  Run run = Bare();
  run.process.duration_ns = 95 * kSecond;
  run.process.end = EndKind::kExit;
  run.process.end_status = 1;
  run.event_count = 91733;
  run.file_bytes = 3 * kMiB;
  const auto under_initialize = [&](std::initializer_list<Frame> inner) {
    std::vector<Frame> frames(inner);
    frames.push_back(
        Python("DeepSpeedZeroOptimizer_Stage3.__init__", kStage3, 84));
    frames.push_back(Python(
        "initialize", "/opt/py/site-packages/deepspeed/__init__.py", 181));
    frames.push_back(Python("main", kTrain, 77));
    model::Stack stack;
    for (const Frame& frame : frames) {
      stack.frames.push_back(static_cast<uint32_t>(run.stacks.frames.size()));
      run.stacks.frames.push_back(frame);
    }
    run.stacks.stacks.push_back(stack);
    return static_cast<StackId>(run.stacks.stacks.size() - 1);
  };
  const Frame init =
      Python("DeepSpeedZeroOptimizer_Stage3.initialize_optimizer_states",
             kStage3, 914);
  const Frame step =
      Python("DeepSpeedZeroOptimizer_Stage3._optimizer_step", kStage3, 868);
  const StackId flat = under_initialize(
      {Python("DeepSpeedZeroOptimizer_Stage3.defragment", kStage3, 499)});
  const StackId fp32 = under_initialize({Python(
      "DeepSpeedZeroOptimizer_Stage3._create_fp32_partitions", kStage3, 791)});
  const StackId grads = under_initialize({init});
  const StackId states =
      under_initialize({Python("AdamW._init_group", kAdam, 130),
                        Python("AdamW.step", kAdam, 220), step, init});
  const StackId temps =
      under_initialize({Python("_multi_tensor_adamw", kAdam, 640),
                        Python("AdamW.step", kAdam, 230), step, init});
  Device device;
  device.peak_time_ns = 94 * kSecond;
  Snapshot peak{94 * kSecond, "peak", Account(32800, 31900, 32300, {}), {}, {}};
  peak.ledger.context = 500 * kMiB;
  peak.holdings = {{Layer::kTensor, "torch", states, 15490 * kMiB, 6},
                   {Layer::kTensor, "torch", fp32, 7745 * kMiB, 3},
                   {Layer::kTensor, "torch", flat, 3873 * kMiB, 1},
                   {Layer::kTensor, "torch", grads, 3815 * kMiB, 1},
                   {Layer::kTensor, "torch", temps, 977 * kMiB, 1}};
  Snapshot end = peak;
  end.name = "end";
  end.time_ns = 95 * kSecond;
  end.ledger.sample_age_ns = kSecond;
  device.snapshots = {peak, end};
  device.growth = {
      {"torch", states, 15600 * kMiB, 6, 15600 * kMiB, 15600 * kMiB},
      {"torch", fp32, 16700 * kMiB, 9, 16700 * kMiB, 16700 * kMiB}};
  for (uint64_t i = 0; i < 96; ++i) {
    device.timeline.push_back(
        {i * kSecond, (500 + i * 340) * kMiB, i * 340 * kMiB, i * 330 * kMiB});
  }
  device.torch_check = {51, 2, 4096, 0, 0, 0};
  run.devices.push_back(std::move(device));
  run.failures = {{94 * kSecond, "cudaMalloc", 0, 3815 * kMiB, 2, 460 * kMiB,
                   32768 * kMiB, 0, 0, temps},
                  {94 * kSecond + 1000, "torch", 0, 3815 * kMiB, 0, 460 * kMiB,
                   32768 * kMiB, 31900 * kMiB, 32300 * kMiB, temps}};
  return run;
}

Run EmptyRun() {
  Run run = Bare();
  run.process.gpus.clear();
  run.process.command = {"python", "-c", "pass"};
  run.process.end = EndKind::kExit;
  run.file_bytes = 65536;
  return run;
}

Run TensorsOnlyRun() {
  Run run = Bare();
  run.process.gpus.clear();
  run.process.duration_ns = 5 * kSecond;
  run.process.end = EndKind::kKilled;
  run.event_count = 12;
  run.file_bytes = 65536;
  run.notes = {
      "the last chunk ends at byte 65,536 in the middle of a record; 11 of its "
      "records were read"};
  const StackId native = AddStack(
      &run.stacks,
      {Native("_ZN2at6detail13empty_genericEN3c108ArrayRefIlEEPNS1_9AllocatorE",
              kTorch),
       Native("_ZN5torch8autograd6Engine17evaluate_functionERSt10shared_"
              "ptrINS0_9GraphTaskEE",
              kTorch),
       Native("_ZN5torch8autograd6Engine11thread_mainERKSt10shared_ptrINS0_"
              "9GraphTaskEE",
              kTorch)});
  Device device;
  device.peak_time_ns = 2 * kSecond;
  Snapshot peak{2 * kSecond, "peak", Account(0, 96, 128, {}), {}, {}};
  peak.ledger.device_total = 0;
  peak.holdings = {{Layer::kTensor, "torch", native, 64 * kMiB, 8},
                   {Layer::kTensor, "torch", 0, 32 * kMiB, 4}};
  Snapshot end{5 * kSecond, "end", Account(0, 0, 128, {}), {}, {}};
  end.ledger.device_total = 0;
  device.snapshots = {peak, end};
  device.timeline = {{0, 0, 0, 0},
                     {2 * kSecond, 128 * kMiB, 128 * kMiB, 96 * kMiB},
                     {5 * kSecond, 128 * kMiB, 128 * kMiB, 0}};
  run.devices.push_back(std::move(device));
  return run;
}

Run NoTorchRun() {
  Run run = Bare();
  run.process.command = {"/home/ada/solver", "--grid=\x1b[31m4096"};
  run.process.duration_ns = 7265 * kSecond;
  run.process.end = EndKind::kStillRunning;
  run.event_count = 3;
  run.file_bytes = 65536;
  run.losses = {{"disk full", 12, "/scratch"}};
  const StackId grid =
      AddStack(&run.stacks, {Native("cudaMalloc", kCudart),
                             Native("_ZN4Grid8allocateEm", kProgram),
                             Native("main", kProgram)});
  Device device;
  device.peak_time_ns = kSecond;
  Snapshot peak{
      kSecond, "peak", Account(2560, 0, 0, {{"solver", 2048}}), {}, {}};
  peak.ledger.before_first_context = 4 * kMiB;
  peak.ledger.context = 512 * kMiB;
  peak.holdings = {{Layer::kDevice, "solver", grid, 2048 * kMiB, 1}};
  Snapshot end = peak;
  end.name = "end";
  end.time_ns = 7265 * kSecond;
  device.snapshots = {peak, end};
  device.growth = {{"solver", grid, 2048 * kMiB, 1, 2048 * kMiB, 2048 * kMiB}};
  device.timeline = {{0, 0, 0, 0}, {kSecond, 2560 * kMiB, 0, 0}};
  run.devices.push_back(std::move(device));
  return run;
}

Run GroupsRun() {
  Run run = NoTorchRun();
  model::Group communicator;
  communicator.complete = true;
  communicator.handle = 0xc0;
  communicator.unique_id = 0xabcdef;
  communicator.ranks = 8;
  communicator.rank = 3;
  communicator.created_ns = 2 * kSecond;
  communicator.ended_ns = 9 * kSecond;
  communicator.bytes = 484 * kMiB;
  communicator.count = 146;
  model::Group graph;
  graph.kind = model::Group::Kind::kGraph;
  graph.complete = true;
  graph.created_ns = 5 * kSecond;
  graph.bytes = 22 * kMiB;
  graph.node_bytes = 64 * kMiB;
  model::Group failed;
  failed.bytes = 777 * kMiB;
  run.groups = {communicator, failed, graph};
  Device& device = run.devices[0];
  device.snapshots[0].groups = {{1, 484 * kMiB}, {3, 22 * kMiB}};
  device.snapshots[1].groups = {{3, 2 * kMiB}};
  for (Snapshot& snapshot : device.snapshots) {
    snapshot.ledger.managed_on_device = 100 * kMiB;
  }
  return run;
}

}  // namespace dstrace::testing
