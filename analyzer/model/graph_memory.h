// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_ANALYZER_MODEL_GRAPH_MEMORY_H_
#define DSTRACE_ANALYZER_MODEL_GRAPH_MEMORY_H_

// What the memory nodes of CUDA graphs hold.
//
// The driver tells how much it keeps for them on a device, not for which nodes.
// Its figure is shared out to the stacks that made such nodes, in proportion to
// the largest node of each: a graph's nodes reuse each other's memory. The
// shares of a device always add up to the driver's last figure.
//
// Not thread-safe. Memory is proportional to the stacks that made nodes and the
// addresses that those return.

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "analyzer/model/device_allocation.h"

namespace dstrace::model {

// The owner of what graphs' memory nodes hold.
inline constexpr char kGraphOwner[] = "CUDA graphs";

class GraphMemory {
 public:
  // A node that allocates `size` bytes at `address` whenever its graph runs.
  void AddNode(int device, StackId stack, uint64_t address, uint64_t size);

  // Whether a node returns this address, so that its free outside of the graph
  // has a partner. True once for each node.
  [[nodiscard]] bool TakeAddress(uint64_t address);

  // Ends the shares of a device and returns them.
  [[nodiscard]] std::vector<DeviceAllocation> EndShares(int device);

  // Makes and returns the shares of a device that has none, for `owner`.
  // `asked_by` gets all of it where no node was seen.
  [[nodiscard]] std::vector<DeviceAllocation> MakeShares(int device,
                                                         uint64_t reserved,
                                                         StackId asked_by,
                                                         OwnerId owner);

  // Calls `use(const DeviceAllocation&)` for each share.
  template <typename Use>
  void ForEachLive(Use use) const {
    for (const DeviceAllocation& share : shares_) use(share);
  }

 private:
  // The largest node of each device and stack.
  std::map<std::pair<int, StackId>, uint64_t> nodes_;
  absl::flat_hash_set<uint64_t> addresses_;
  std::vector<DeviceAllocation> shares_;
};

}  // namespace dstrace::model

#endif  // DSTRACE_ANALYZER_MODEL_GRAPH_MEMORY_H_
