// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_ANALYZER_MODEL_GROUPS_H_
#define DSTRACE_ANALYZER_MODEL_GROUPS_H_

// For which NCCL communicator, or during the capture of which CUDA graph, the
// driver was asked for memory.
//
//   communicator   what the thread asks for beneath the call that makes it
//   graph          what is asked for, by any thread, while a stream is being
//                  captured: torch fills a graph's private pool then. Also the
//                  graph's memory nodes
//
// Not thread-safe. Memory is proportional to the number of groups.

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "analyzer/model/events.h"
#include "analyzer/model/run.h"

namespace dstrace::model {

class Groups {
 public:
  // A communicator made or ended, a capture begun or ended, a node of a graph.
  // Failed calls too: they end what they had begun.
  void Apply(const DeviceEvent& event, int device);

  // The group of memory that `event` takes on `device`; kNoGroup: none.
  GroupId Of(const DeviceEvent& event, int device);

  [[nodiscard]] const std::vector<Group>& all() const { return groups_; }

 private:
  GroupId New(Group::Kind kind, const DeviceEvent& event, int device);
  Group& At(GroupId id) { return groups_[id - 1]; }
  void MakeCommunicator(const DeviceEvent& event, int device);
  void EndCommunicator(const DeviceEvent& event);
  void EndCapture(const DeviceEvent& event);
  void AddNode(const DeviceEvent& event, int device);

  std::vector<Group> groups_;  // by id, from 1
  // Communicators on the way, by thread and device.
  std::map<std::pair<uint32_t, int>, GroupId> in_the_making_;
  absl::flat_hash_map<uint64_t, GroupId> communicators_;  // alive, by handle
  std::vector<std::pair<uint64_t, GroupId>> captures_;    // open, by stream
  absl::flat_hash_map<uint64_t, GroupId> graphs_;         // by handle
};

}  // namespace dstrace::model

#endif  // DSTRACE_ANALYZER_MODEL_GROUPS_H_
