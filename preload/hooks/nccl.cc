// SPDX-License-Identifier: Apache-2.0
//
// NCCL's communicators: each takes hundreds of MiB, and NCCL's own calls do
// not say for which. What is allocated beneath these calls carries their name
// as label; the communicator is an event of its own.
//
//   handle   the communicator        size    ranks
//   address  hash of the unique id   flags   rank

#include <cstring>
#include <string_view>

#include "preload/hooks/bodies_memory.h"
#include "preload/hooks/call.h"

namespace dstrace::hooks {
namespace {

// FNV-1a: only has to tell one job's communicators apart.
uint64_t HashOf(const ncclUniqueId& id) noexcept {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char byte : id.internal) {
    hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3;
  }
  return hash;
}

struct CommBody : Body {
  static constexpr DeviceKind kKind = DeviceKind::kCommunicator;
};

struct CommInitRank : CommBody {
  template <class... Rest>
  static void Before(DeviceEvent& event, const ncclComm_t*, int ranks,
                     const ncclUniqueId& id, int rank, Rest...) noexcept {
    event.size = static_cast<uint64_t>(ranks);
    event.flags = static_cast<uint64_t>(rank);
    event.address = HashOf(id);
  }
  template <class... Rest>
  static void After(DeviceEvent& event, const ncclComm_t* out, int,
                    const ncclUniqueId&, int, Rest...) noexcept {
    event.handle = Number(*out);
    event.device = CurrentDevice();
  }
};
struct CommInitRankConfig : CommInitRank {};

struct CommInitRankScalable : CommBody {
  static void Before(DeviceEvent& event, const ncclComm_t*, int ranks, int rank,
                     int id_count, const ncclUniqueId* ids,
                     const ncclConfig_t*) noexcept {
    event.size = static_cast<uint64_t>(ranks);
    event.flags = static_cast<uint64_t>(rank);
    if (ids != nullptr && id_count > 0) event.address = HashOf(ids[0]);
  }
  static void After(DeviceEvent& event, const ncclComm_t* out, int, int, int,
                    const ncclUniqueId*, const ncclConfig_t*) noexcept {
    event.handle = Number(*out);
    event.device = CurrentDevice();
  }
};

// One process, one communicator per device: an event for each.
struct CommInitAll : CommBody {
  static void Before(DeviceEvent& event, const ncclComm_t*, int count,
                     const int*) noexcept {
    event.size = static_cast<uint64_t>(count);
  }
  static void After(DeviceEvent& event, const ncclComm_t* comms, int count,
                    const int* devices) noexcept {
    for (int rank = count - 1; rank >= 0; --rank) {
      event.handle = Number(comms[rank]);
      event.flags = static_cast<uint64_t>(rank);
      event.device = devices == nullptr ? rank : devices[rank];
      if (rank > 0) capture::RecordDevice(event);  // RecordAround writes rank 0
    }
  }
};

// address: the communicator that was split; size: not known to the caller.
struct CommSplit : CommBody {
  static void Before(DeviceEvent& event, ncclComm_t comm, int color, int key,
                     const ncclComm_t*, const ncclConfig_t*) noexcept {
    event.address = Number(comm);
    event.flags = static_cast<uint64_t>(static_cast<uint32_t>(key));
    event.offset = static_cast<uint64_t>(static_cast<uint32_t>(color));
  }
  static void After(DeviceEvent& event, ncclComm_t, int, int,
                    const ncclComm_t* out, const ncclConfig_t*) noexcept {
    event.handle = out == nullptr ? 0 : Number(*out);
    event.device = CurrentDevice();
  }
};

// size: what NCCL itself says it holds for it, where it can be asked.
struct CommEnd : CommBody {
  static constexpr bool kStampBefore = true;
  static void Before(DeviceEvent& event, ncclComm_t comm) noexcept {
    event.handle = Number(comm);
    event.size = CommunicatorBytes(comm);
  }
};

}  // namespace

#define DSTRACE_NCCL_HOOK(symbol, body, params, args) \
  DSTRACE_DEFINE_HOOK(symbol, body, params, args)
#include "preload/hooks/hook_table.inc"

}  // namespace dstrace::hooks
