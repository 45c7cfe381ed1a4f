// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_ANALYZER_MODEL_RUN_H_
#define DSTRACE_ANALYZER_MODEL_RUN_H_

// What a trace says, as values. Everything that prints sees only this.
//
// Immutable after construction. Thread-safe for reads. Bytes are bytes; times
// are nanoseconds since the start of the trace unless named otherwise.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace dstrace::model {

using StackId = uint32_t;  // 0: no stack was taken

struct Module {
  std::string path;
  uint64_t base = 0;
  uint64_t size = 0;
  std::string build_id;  // raw bytes
};

struct Frame {
  enum class Kind { kNative, kPython };
  Kind kind = Kind::kNative;
  uint64_t pc = 0;
  int module = -1;   // index into Stacks::modules, -1: none
  std::string name;  // native: mangled; Python: qualified name
  uint64_t name_offset = 0;
  std::string file;  // Python, or filled by symbolize/
  uint32_t line = 0;
  uint32_t first_line = 0;
};

struct Stack {
  std::vector<uint32_t> frames;  // indices into Stacks::frames, innermost first
  bool truncated = false;
};

// All definitions of a trace. `stacks[id]`; index 0 is the empty stack.
struct Stacks {
  std::vector<Module> modules;
  std::vector<Frame> frames;
  std::vector<Stack> stacks;
};

struct Gpu {
  int index = 0;
  std::string name;
  std::string uuid;
  uint64_t total_bytes = 0;
};

enum class EndKind {
  kKilled,
  kExit,
  kFastExit,
  kSignal,
  kExec,
  kAbort,
  kStillRunning
};

struct Process {
  uint32_t pid = 0;
  uint32_t parent_pid = 0;
  std::string host;
  std::vector<std::string> command;
  std::string executable;
  std::map<std::string, std::string> environment;
  std::map<std::string, std::string> properties;  // "torch.version", ...
  std::vector<Gpu> gpus;
  std::optional<int> rank;
  std::optional<int> world_size;
  std::string stacks_mode;  // "full", "python", "none"
  std::string dstrace_version;
  bool crash_proof = true;
  uint64_t start_monotonic_ns = 0;
  uint64_t start_real_ns = 0;
  uint64_t duration_ns = 0;
  EndKind end = EndKind::kKilled;
  int end_status = 0;
};

struct Loss {
  std::string cause;
  uint64_t count = 0;
  std::string detail;
};

// Which layer a live holding is counted in; the two are never added together.
// kCode is CUDA's own device memory: code, kernels' local memory, streams.
// kManagedOnDevice is the part of kManaged that is deduced to be on the device.
enum class Layer {
  kTensor,
  kDevice,
  kHostPinned,
  kManaged,
  kCode,
  kManagedOnDevice
};

// Live bytes of one (layer, owner, stack).
struct Holding {
  Layer layer = Layer::kTensor;
  std::string owner;  // "torch", "nccl", "cublas", ... by asking library
  StackId stack = 0;
  uint64_t bytes = 0;
  uint64_t count = 0;
};

// Device memory at one instant. used == torch_live + torch_cached +
// sum(libraries) + residual, exactly; residual may be negative when the sample
// is older than an event, and says how far off the account is.
struct Ledger {
  uint64_t device_total = 0;
  // The cuMemGetInfo sample nearest in time, brought to this instant by the
  // device-layer events between the two.
  uint64_t device_used = 0;
  bool device_used_known = false;  // false: no sample; residual is 0
  uint64_t sample_age_ns = 0;      // distance of that sample
  uint64_t torch_live = 0;
  uint64_t torch_reserved = 0;
  uint64_t torch_cached = 0;  // reserved - live
  uint64_t torch_stream_pending =
      0;  // part of cached, freed but still in use by a stream
  std::map<std::string, uint64_t> libraries;  // other owners, device bytes
  int64_t residual = 0;  // contexts, modules, other processes, error
  uint64_t before_first_context = 0;  // used by others before our context
  uint64_t context = 0;               // measured growth around context creation
  // No sample was possible before the first context: `context` is what was used
  // right after it, so it holds other processes' memory too.
  bool context_includes_others = false;
  // Part of residual: what CUDA took for code, kernels' local memory and
  // streams since the context was made, measured around the calls that took it.
  uint64_t code = 0;
  // Part of residual: managed memory's pages come to the device when a kernel
  // touches them, and no call tells. What a sample cannot explain otherwise
  // while managed allocations are alive, beyond what it could not before the
  // first of them, at most `managed_extent`.
  uint64_t managed_on_device = 0;
  uint64_t managed_extent = 0;  // of live managed memory, in 2 MiB blocks
  // Part of residual: physical memory that was released, but that the device
  // has not got back, since another process has it open (as NCCL's peers do).
  uint64_t held_elsewhere = 0;
  uint64_t host_pinned = 0;  // beside it, not part of it
  uint64_t managed = 0;      // beside it: cudaMallocManaged, wherever it is
};

// What the residual holds beside contexts, other processes and error.
constexpr int64_t NamedResidual(const Ledger& ledger) {
  return static_cast<int64_t>(ledger.code + ledger.managed_on_device +
                              ledger.held_elsewhere);
}

// What no line of a ledger names: residual less contexts, those who were there
// before, and what has a name.
constexpr int64_t Unexplained(const Ledger& ledger) {
  return ledger.residual - NamedResidual(ledger) -
         static_cast<int64_t>(ledger.context + ledger.before_first_context);
}

// What was asked for on behalf of one NCCL communicator or CUDA graph, see
// groups.h. Ids count from 1.
using GroupId = uint32_t;
inline constexpr GroupId kNoGroup = 0;

struct Group {
  enum class Kind { kCommunicator, kGraph };
  Kind kind = Kind::kCommunicator;
  bool complete = false;  // false: it never came to be
  bool split = false;     // a communicator made of another one's ranks
  int device = 0;
  uint64_t handle = 0;
  uint64_t unique_id = 0;   // hash of NCCL's unique id; split: its parent's
  uint64_t split_from = 0;  // split: the parent's handle
  uint64_t ranks = 0;       // 0: not known
  uint64_t rank = 0;        // split: its key
  uint64_t created_ns = 0;  // a graph: when its capture began
  uint64_t ended_ns = 0;  // communicator destroyed, capture ended; 0: not seen
  StackId stack = 0;
  uint64_t bytes = 0;  // device memory asked for, CUDA's own with it
  uint64_t count = 0;
  uint64_t nccl_bytes = 0;  // NCCL's own account at the end; 0: it has none
  uint64_t node_bytes = 0;  // of memory nodes; taken when it is launched
};

struct Snapshot {
  uint64_t time_ns = 0;
  std::string name;  // "peak", "end", "12.3s", "mark:NAME"
  Ledger ledger;
  std::vector<Holding> holdings;  // largest first
  // What ledger.torch_stream_pending consists of, by the stack that had
  // allocated the block; largest first. Not part of `holdings`.
  std::vector<Holding> stream_pending;
  // Of Group::bytes, what is still held.
  std::map<GroupId, uint64_t> groups = {};
};

struct TimelinePoint {
  uint64_t time_ns = 0;         // start of the bucket
  uint64_t device_used = 0;     // last sample plus device events since
  uint64_t torch_reserved = 0;  // maximum inside the bucket
  uint64_t torch_live = 0;
};

// Who made the device layer grow: one row per stack of a device allocation.
struct Growth {
  std::string owner;
  StackId stack = 0;
  uint64_t bytes = 0;  // allocated over the run
  uint64_t count = 0;
  uint64_t live_at_end = 0;
  uint64_t live_at_peak = 0;
};

struct Failure {  // a failed driver call or torch OOM
  uint64_t time_ns = 0;
  std::string api;  // "torch" for torch's own report
  int device = 0;
  uint64_t size = 0;
  int result = 0;
  uint64_t free_bytes = 0;
  uint64_t total_bytes = 0;
  uint64_t torch_live = 0;
  uint64_t torch_reserved = 0;
  StackId stack = 0;
};

struct MarkPoint {
  uint64_t time_ns = 0;
  std::string name;
  int kind = 0;  // 0 point, 1 push, 2 pop
};

// PyTorch's own totals against the model's, at each of its reports.
struct TorchCheck {
  uint64_t reports = 0;        // totals compared
  uint64_t mismatches = 0;     // allocated differed
  uint64_t largest_error = 0;  // bytes
  // `reserved` against the torch segments of the device layer; compared only
  // where that layer saw torch allocate.
  uint64_t reserved_reports = 0;
  uint64_t reserved_mismatches = 0;
  uint64_t largest_reserved_error = 0;  // bytes
};

// CUPTI's count against the hooks', over the time that CUPTI ran.
struct CuptiCheck {
  struct Sum {
    uint64_t count = 0;
    uint64_t bytes = 0;
    bool operator==(const Sum&) const = default;
  };
  struct Sums {
    Sum device;
    Sum managed;
    Sum pinned;
    Sum array;
    Sum physical;  // cuMemCreate: CUPTI does not tell of it
    // The hooks' alone: CUPTI counts these as allocations of device memory.
    Sum mapped;  // cuMemMap of device memory that this process created
    Sum opened;  // handles of other processes; bytes are often not known
    Sum graphs;  // what memory nodes took; CUPTI may see it in more pieces
  };
  bool ran = false;
  bool stopped = false;  // early: the program took CUPTI for itself
  uint32_t version = 0;  // cuptiGetVersion()
  Sums cupti;
  Sums hooks;
  uint64_t opened_unsized = 0;  // of hooks.opened
  // Mappings that CUPTI did not report: so many, and so many bytes, are between
  // it and the hooks, and mappings of these sizes there were.
  Sum unreported;
  uint64_t pool_operations = 0;
  uint64_t dropped = 0;
  uint64_t unknown = 0;
};

struct Device {
  int index = 0;  // CUDA ordinal; -1: tensors in host memory
  uint64_t peak_time_ns =
      0;  // of device use (torch live where no device layer)
  std::vector<TimelinePoint> timeline;  // at most Options::timeline_points
  std::vector<Snapshot> snapshots;      // peak, end, then the requested one
  std::vector<Growth> growth;           // largest first
  TorchCheck torch_check;
};

struct Run {
  Process process;
  Stacks stacks;
  std::vector<Device> devices;
  std::vector<Failure> failures;
  std::vector<MarkPoint> marks;
  std::vector<Group> groups;  // groups[id - 1]
  CuptiCheck cupti;
  std::vector<Loss> losses;
  std::vector<std::string> notes;  // reader's remarks: truncated tail, ...
  uint64_t event_count = 0;
  uint64_t file_bytes = 0;
  // A trace with a limit (DSTRACE_LOG_LIMIT) tells of all that was live at this
  // time, and of everything since; peaks are of the time since. 0: complete.
  uint64_t history_start_ns = 0;
  uint64_t log_limit_bytes = 0;  // 0: none
  uint64_t tracer_bytes = 0;     // the recorder's own memory; 0: not told
  // Frees of addresses that were not live in the trace.
  uint64_t unmatched_tensor_frees = 0;
  uint64_t unmatched_device_frees = 0;
};

}  // namespace dstrace::model

#endif  // DSTRACE_ANALYZER_MODEL_RUN_H_
