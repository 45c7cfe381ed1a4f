// SPDX-License-Identifier: Apache-2.0
#include "preload/capture/session.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "preload/capture/header.h"
#include "preload/runtime/diagnostics.h"
#include "preload/runtime/event_clock.h"
#include "preload/runtime/fork_gate.h"
#include "preload/runtime/guard.h"
#include "preload/runtime/memory.h"
#include "preload/stacks/native.h"

namespace dstrace::capture {

constinit Session Session::instance_;

namespace {

// Names tried for a file before giving up.
constexpr int kMaxNameAttempts = 3;

uint32_t ThreadId() noexcept {
  return static_cast<uint32_t>(syscall(SYS_gettid));
}

// "run.pb" -> "run.4711.pb": the file is somebody else's.
Path WithPid(std::string_view path) noexcept {
  const size_t slash = path.rfind('/');
  const size_t dot = path.rfind('.');
  const bool has_suffix =
      dot != std::string_view::npos &&
      (slash == std::string_view::npos || dot > slash + 1) && dot != 0;
  const size_t stem = has_suffix ? dot : path.size();
  Path result;
  result << path.substr(0, stem) << '.' << static_cast<uint64_t>(getpid())
         << runtime::Tail(path, stem);
  return result;
}

// Why the file cannot grow.
runtime::Text<64> Reason(int error) noexcept {
  const auto say = [](std::string_view reason) {
    runtime::Text<64> text;
    text << reason;
    return text;
  };
  switch (error) {
    case ENOSPC:
      return say("no space left on the disk");
    case EDQUOT:
      return say("the disk quota is used up");
    case EFBIG:
      return say("the limit on file sizes, ulimit -f, is reached");
    case EBADF:
      return say("the program closed the file");
    case EIO:
      return say("input/output error");
    default:
      return say("error ") << static_cast<uint64_t>(error);
  }
}

}  // namespace

ThreadState* Session::EnterSlow() noexcept {
  const runtime::KeepErrno keep_errno;
  if (fork_page_.IsChild()) BecomeChild();
  // acquire: pairs with the release in Start().
  if (state_.load(std::memory_order_acquire) == State::kIdle) Start();
  if (state_.load(std::memory_order_acquire) != State::kRecording) {
    return nullptr;
  }
  if (ThisThread() == nullptr) {
    runtime::t_line.state = TakeState();
    if (ThisThread() == nullptr) {
      CountLoss(LossCause::kNoMemory, {});
      return nullptr;
    }
    pthread_setspecific(thread_key_, ThisThread());
    NotePython();
  }
  return ThisThread();
}

ThreadState* Session::TakeState() noexcept {
  ThreadState* const state = threads_.Take(ThreadId());
  if (state == nullptr || !flight_.on() || state->live != nullptr) return state;
  state->live = flight_.tensors().Register(state->log);
  if (state->live != nullptr) return state;
  threads_.GiveBack(state);
  return nullptr;
}

void Session::Settle(ThreadState& thread) noexcept {
  const runtime::KeepErrno keep_errno;
  if (!flight_.tensors().Settle(*thread.live)) {
    CountLoss(LossCause::kNoMemory, {});
  }
}

void Session::NotePython() noexcept {
  // Looks for an interpreter; without a frame its layout is not checked yet.
  stacks::PyFrame frame;
  stacks::CapturePython(&frame, 1, nullptr);
  const stacks::PyStatus status = stacks::PythonStatus();
  // relaxed: only this flag's own order matters.
  if (status == stacks::PyStatus::kNoPython ||
      said_python_.exchange(true, std::memory_order_relaxed)) {
    return;
  }
  const uint32_t hex = stacks::PythonVersionHex();
  runtime::Text<32> version;
  version << uint64_t{hex >> 24} << '.' << uint64_t{hex >> 16 & 0xff} << '.'
          << uint64_t{hex >> 8 & 0xff};
  process_.Write(ProcessLog::kNoTime, [&](wire::Encoder& out, uint64_t) {
    wire::PutProperty(out, "python.version", version.view());
  });
  if (status == stacks::PyStatus::kUnsupported) {
    CountLoss(LossCause::kPythonLayout, version.view());
    runtime::Say("no Python frames: unknown interpreter layout, Python ",
                 version.view());
  }
}

bool Session::Wanted() const noexcept {
  if (config_.disabled) return false;
  if (config_.follow == runtime::Follow::kNone &&
      config_.followed_pid != getpid()) {
    return false;
  }
  if (config_.follow == runtime::Follow::kRank0) {
    const std::string_view rank = Rank();
    return rank.empty() || rank == "0";
  }
  return true;
}

bool Session::OpenFile() noexcept {
  Path path = ExpandOutput(config_.output);
  const log::LogFile::Options options{.limit_bytes = config_.log_limit_bytes,
                                      .checkpointer = flight_.checkpointer()};
  log::OpenResult result = file_.Open(path.c_str(), options);
  for (int attempt = 0;
       result == log::OpenResult::kExists && attempt < kMaxNameAttempts;
       ++attempt) {
    const Path taken = path;
    path = WithPid(taken.view());
    result = file_.Open(path.c_str(), options);
    if (result == log::OpenResult::kOk) {
      Path text;
      text << taken.view() << " exists; writing " << path.view();
      runtime::Say(text.view());
    }
  }
  if (result == log::OpenResult::kOk) return true;
  char reason[128];
  Path text;
  text << "cannot record: " << path.view() << ": ";
  runtime::Say(text.view(), result == log::OpenResult::kExists
                                ? "file exists"
                                : std::string_view(strerror_r(errno, reason,
                                                              sizeof reason)));
  return false;
}

void Session::Start() noexcept {
  const runtime::MutexLock lock(start_mutex_);
  // relaxed: state_ is written under this lock.
  if (state_.load(std::memory_order_relaxed) != State::kIdle) return;
  config_ = runtime::GetConfig();
  fork_page_.Arm();
  runtime::StartEventClock();
  const bool has_limit = config_.log_limit_bytes != 0;
  bool ready = Wanted() && flight_.Start(has_limit) && OpenFile();
  definitions_.LimitStacks(config_.stack_limit);
  definitions_.WriteTo(has_limit ? &flight_.pinned() : nullptr);
  if (ready && !process_.Start(file_, ThreadId(), config_)) {
    runtime::Say("cannot record: no space for the trace file");
    ready = false;
  }
  if (ready && !hooks_installed_) {
    ready = pthread_key_create(&thread_key_, &OnThreadExit) == 0;
    on_exit(&OnExit, nullptr);
    hooks_installed_ = true;
  }
  if (ready && config_.stacks != runtime::StackMode::kNone) PrepareStacks();
  // relaxed: ordered by the release after it. Not only for the quick way: a
  // thread may come in before that is open, or without.
  runtime::Hot().stacks.store(config_.stacks, std::memory_order_relaxed);
  // release: pairs with the acquires in EnterSlow(); whoever sees kRecording
  // sees the file, the key and the configuration.
  state_.store(ready ? State::kRecording : State::kOff,
               std::memory_order_release);
  // Where a child would not find the page zeroed, every event looks closer.
  // release: pairs with the acquire in Enter().
  if (ready && fork_page_.wipes()) {
    runtime::Hot().recording.store(true, std::memory_order_release);
  }
}

void Session::PrepareStacks() noexcept {
  stacks::WarmUp();
  if (!runtime::ForkGate::closed_for_good()) return;
  process_.Write(ProcessLog::kNoTime, [](wire::Encoder& out, uint64_t) {
    wire::PutProperty(out, "stacks.native",
                      "off: another thread was unwinding at fork()");
  });
  runtime::Say(
      "no native stacks in this child: another thread was unwinding at fork()");
}

void Session::BecomeChild() noexcept {
  // One thread is left, and it is here. What it inherited belongs to the
  // parent: mapped chunks are not even mapped (MADV_DONTFORK), other threads'
  // states are leaked on purpose.
  runtime::ForkGate::AdoptChild();
  start_mutex_.ResetAfterFork();
  file_.AbandonInChild();
  process_.AbandonInChild();
  definitions_.AbandonInChild();
  threads_.AbandonInChild();
  flight_.AbandonInChild();
  TorchTotals::Reset();
  runtime::t_line.state = nullptr;
  if (hooks_installed_) pthread_setspecific(thread_key_, nullptr);
  // relaxed: see above.
  said_disk_full_.store(false, std::memory_order_relaxed);
  said_python_.store(false, std::memory_order_relaxed);
  fork_page_.Arm();
  state_.store(State::kIdle, std::memory_order_relaxed);
}

void Session::WriteThread(ThreadState& thread) noexcept {
  const runtime::KeepErrno keep_errno;
  char name[17] = {};
  prctl(PR_GET_NAME, name);
  wire::Encoder record = thread.log.encoder();
  wire::PutThread(record, thread.log.thread(), name);
  if (thread.log.Commit(record)) thread.log.NoteThreadRecorded();
}

void Session::LoseForSpace() noexcept {
  const runtime::KeepErrno keep_errno;
  const int refusal = file_.refusal();
  if (refusal == 0) {
    CountLoss(LossCause::kNoMemory, {});
    return;
  }
  // relaxed: only this flag's own order matters.
  if (said_disk_full_.load(std::memory_order_relaxed) ||
      said_disk_full_.exchange(true, std::memory_order_relaxed)) {
    CountLoss(LossCause::kDiskFull, {});
    return;
  }
  const auto reason = Reason(refusal);
  CountLoss(LossCause::kDiskFull, reason.view());
  runtime::Text<160> message;
  message << "the trace cannot grow (" << reason.view()
          << "); events are lost until it can, the program goes on";
  runtime::Say(message.c_str());
}

void Session::CountLoss(LossCause cause, std::string_view detail) noexcept {
  process_.CountLoss(static_cast<uint32_t>(cause));
  if (detail.empty()) return;
  process_.Write(ProcessLog::kNoTime, [&](wire::Encoder& out, uint64_t) {
    wire::PutLossDetail(out, static_cast<uint32_t>(cause),
                        detail.substr(0, 256));
  });
}

void Session::ModulesChanged() noexcept {
  definitions_.ModulesChanged();
  stacks::ModulesChanged();
}

void Session::NoteOwnMemory() noexcept {
  runtime::Text<32> bytes;
  bytes << runtime::MappedBytes();
  process_.Write(ProcessLog::kNoTime, [&](wire::Encoder& out, uint64_t) {
    wire::PutProperty(out, "dstrace.mapped_bytes", bytes.view());
  });
}

void Session::Finish() noexcept {
  NoteOwnMemory();
  if (!file_.crash_proof()) {
    // relaxed: late events of other threads are refused from here on.
    state_.store(State::kOff, std::memory_order_relaxed);
    runtime::Hot().recording.store(false, std::memory_order_relaxed);
    const auto close = [this](ThreadState& thread) {
      // Under its lock: a checkpoint may be looking at its batch.
      if (thread.live != nullptr) Settle(thread);
      thread.log.Close(file_);
    };
    threads_.ForEachFree(close);
    if (ThisThread() != nullptr) close(*ThisThread());
    flight_.Finish();
    process_.Finish(file_);
  }
  file_.Trim();
}

void Session::OnThreadExit(void* state) noexcept {
  const runtime::Guard guard;
  Session& session = Get();
  // In a forked child the state is the parent's.
  if (session.fork_page_.IsChild() || ThisThread() != state) return;
  runtime::t_line.state = nullptr;
  auto* const own = static_cast<ThreadState*>(state);
  own->log.EndEvent();  // the thread may have been cancelled in one
  if (session.flight_.on()) session.Settle(*own);
  session.threads_.GiveBack(own);
}

void Session::OnExit(int status, void*) noexcept {
  const runtime::Guard guard;
  if (!guard.entered() || Get().fork_page_.IsChild()) return;
  RecordEnd(EndKind::kExit, status);
}

}  // namespace dstrace::capture
