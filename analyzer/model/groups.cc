// SPDX-License-Identifier: Apache-2.0
#include "analyzer/model/groups.h"

#include <algorithm>
#include <string_view>

namespace dstrace::model {
namespace {

// "cuStreamBeginCapture_v2_ptsz", "cudaStreamBeginCapture", ...
bool Is(std::string_view api, std::string_view name) {
  for (const std::string_view prefix : {"cu", "cuda"}) {
    if (api.starts_with(prefix) &&
        api.substr(prefix.size()).starts_with(name)) {
      return true;
    }
  }
  return false;
}

bool Makes(std::string_view api) {
  return api.starts_with("ncclCommInit") || api.starts_with("ncclCommSplit");
}

}  // namespace

GroupId Groups::New(Group::Kind kind, const DeviceEvent& event, int device) {
  Group group;
  group.kind = kind;
  group.device = device;
  group.created_ns = event.time;
  group.stack = event.stack;
  groups_.push_back(group);
  return static_cast<GroupId>(groups_.size());
}

GroupId Groups::Of(const DeviceEvent& event, int device) {
  GroupId id = kNoGroup;
  if (Makes(event.label)) {
    GroupId& making = in_the_making_[{event.thread, device}];
    if (making == kNoGroup) {
      making = New(Group::Kind::kCommunicator, event, device);
    }
    id = making;
  } else if (!captures_.empty()) {
    id = captures_.back().second;
  }
  if (id == kNoGroup) return kNoGroup;
  At(id).bytes += event.size;
  ++At(id).count;
  return id;
}

void Groups::Apply(const DeviceEvent& event, int device) {
  if (event.kind == DeviceKind::kCommunicator) {
    if (Makes(event.api)) {
      MakeCommunicator(event, device);
    } else if (event.result == 0) {
      EndCommunicator(event);
    }
    return;
  }
  if (event.kind != DeviceKind::kGraph) return;
  if (Is(event.api, "StreamEndCapture")) return EndCapture(event);
  if (event.result != 0) return;
  if (Is(event.api, "StreamBeginCapture")) {
    captures_.emplace_back(event.stream,
                           New(Group::Kind::kGraph, event, device));
  } else if (Is(event.api, "GraphDestroy")) {
    graphs_.erase(event.handle);  // the number may come again
  } else if (event.address != 0 && event.size != 0) {
    AddNode(event, device);
  }
}

void Groups::MakeCommunicator(const DeviceEvent& event, int device) {
  const auto making = in_the_making_.find({event.thread, device});
  GroupId id = kNoGroup;
  if (making != in_the_making_.end()) {
    id = making->second;
    in_the_making_.erase(making);
  }
  if (event.result != 0 || event.handle == 0) return;
  if (id == kNoGroup) id = New(Group::Kind::kCommunicator, event, device);
  Group& group = At(id);
  group.complete = true;
  group.handle = event.handle;
  group.created_ns = event.time;
  group.stack = event.stack;
  group.rank = event.flags;
  group.split = event.api.starts_with("ncclCommSplit");
  group.unique_id = event.address;
  if (group.split) {  // address: the parent
    group.split_from = event.address;
    const auto parent = communicators_.find(event.address);
    group.unique_id = parent == communicators_.end()
                          ? 0
                          : groups_[parent->second - 1].unique_id;
  }
  group.ranks = event.size;
  communicators_[event.handle] = id;
}

void Groups::EndCommunicator(const DeviceEvent& event) {
  const auto found = communicators_.find(event.handle);
  if (found == communicators_.end()) return;
  Group& group = At(found->second);
  group.nccl_bytes = std::max(group.nccl_bytes, event.size);
  if (event.api == "ncclCommFinalize") return;  // its destruction follows
  group.ended_ns = event.time;
  communicators_.erase(found);
}

void Groups::EndCapture(const DeviceEvent& event) {
  const auto found = std::find_if(
      captures_.begin(), captures_.end(),
      [&](const auto& open) { return open.first == event.stream; });
  if (found == captures_.end()) return;
  Group& group = At(found->second);
  group.complete = event.result == 0;
  group.ended_ns = event.time;
  group.handle = event.handle;
  if (event.handle != 0) graphs_[event.handle] = found->second;
  captures_.erase(found);
}

void Groups::AddNode(const DeviceEvent& event, int device) {
  GroupId id = kNoGroup;
  if (event.handle == 0) {  // an allocation on a captured stream
    for (const auto& [stream, open] : captures_) {
      if (stream == event.stream || id == kNoGroup) id = open;
    }
  } else {
    GroupId& known = graphs_[event.handle];
    if (known == kNoGroup) {
      known = New(Group::Kind::kGraph, event, device);
      At(known).complete = true;
      At(known).handle = event.handle;
    }
    id = known;
  }
  if (id != kNoGroup) At(id).node_bytes += event.size;
}

}  // namespace dstrace::model
