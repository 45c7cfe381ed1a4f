// SPDX-License-Identifier: Apache-2.0
#include "preload/capture/header.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "preload/runtime/clock.h"
#include "proto/wire/layout.h"

namespace dstrace::capture {
namespace {

constexpr std::string_view kVersion = DSTRACE_VERSION;

// In the order they are believed: torchrun and deepspeed set RANK, then MPI's
// own, then the batch system's (which mpirun's children inherit).
constexpr const char* kRankVariables[] = {
    "RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID", "LOCAL_RANK"};

constexpr const char* kRecordedVariables[] = {
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE",
    "PMI_RANK",
    "PMI_SIZE",
    "SLURM_PROCID",
    "SLURM_NTASKS",
    "CUDA_VISIBLE_DEVICES",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_MODULE_LOADING",
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_NO_CUDA_MEMORY_CACHING",
    "TORCH_NCCL_AVOID_RECORD_STREAMS",
    "CUBLAS_WORKSPACE_CONFIG",
    "CUBLASLT_WORKSPACE_SIZE",
    "NCCL_BUFFSIZE",
    "NCCL_CUMEM_ENABLE",
    "NCCL_MAX_NCHANNELS",
    "NCCL_NVLS_ENABLE",
    "XLA_PYTHON_CLIENT_PREALLOCATE",
    "XLA_PYTHON_CLIENT_MEM_FRACTION",
};

using Buffer = runtime::Text<8192>;

void ReadFile(const char* path, Buffer& out) noexcept {
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  const ssize_t got = read(fd, out.data(), Buffer::kCapacity);
  close(fd);
  if (got > 0) out.SetSize(static_cast<size_t>(got));
}

// /proc/self/cmdline: arguments that each end in NUL.
void PutCommand(wire::Encoder& out) noexcept {
  Buffer command;
  ReadFile("/proc/self/cmdline", command);
  std::string_view rest = command.view();
  while (!rest.empty()) {
    const std::string_view argument = rest.substr(0, rest.find('\0'));
    out.Bytes(6, argument);
    rest.remove_prefix(std::min(rest.size(), argument.size() + 1));
  }
}

void PutExecutable(wire::Encoder& out) noexcept {
  Path path;
  const ssize_t size = readlink("/proc/self/exe", path.data(), Path::kCapacity);
  if (size > 0) path.SetSize(static_cast<size_t>(size));
  out.Bytes(7, path.view().substr(0, 1024));
}

void PutEnvironment(wire::Encoder& out) noexcept {
  for (const char* name : kRecordedVariables) {
    const char* value = getenv(name);
    if (value == nullptr) continue;
    const size_t body = out.Begin(8);
    out.Bytes(1, name);
    out.Bytes(2, std::string_view(value).substr(0, 256));
    out.End(body);
  }
}

std::string_view StackModeName(runtime::StackMode mode) noexcept {
  switch (mode) {
    case runtime::StackMode::kNone:
      return "none";
    case runtime::StackMode::kPython:
      return "python";
    case runtime::StackMode::kFull:
      break;
  }
  return "full";
}

runtime::Text<256> HostName() noexcept {
  runtime::Text<256> host;
  if (gethostname(host.data(), 256) != 0) return {};
  host.data()[255] = '\0';
  host.SetSize(std::strlen(host.data()));
  return host;
}

}  // namespace

std::string_view Rank() noexcept {
  for (const char* name : kRankVariables) {
    const char* value = getenv(name);
    if (value != nullptr && *value != '\0') return value;
  }
  return {};
}

Path ExpandOutput(std::string_view pattern) noexcept {
  Path path;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char next = i + 1 < pattern.size() ? pattern[i + 1] : '\0';
    if (pattern[i] != '%' || next == '\0') {
      path << pattern[i];
      continue;
    }
    ++i;
    if (next == 'p') {
      path << static_cast<uint64_t>(getpid());
    } else if (next == 'r') {
      path << (Rank().empty() ? std::string_view("0") : Rank());
    } else if (next == 'h') {
      path << HostName().view();
    } else if (next == '%') {
      path << '%';
    } else {
      path << '%' << next;
    }
  }
  return path;
}

void PutProcessHeader(wire::Encoder& out, uint64_t monotonic_now,
                      const runtime::Config& config,
                      bool crash_proof) noexcept {
  const size_t body =
      out.Begin(static_cast<uint32_t>(wire::RecordField::kHeader));
  out.Uint(1, wire::kFormatVersion);
  out.Bytes(2, kVersion);
  out.Uint(3, static_cast<uint64_t>(getpid()));
  out.Uint(4, static_cast<uint64_t>(getppid()));
  out.Bytes(5, HostName().view());
  PutCommand(out);
  PutExecutable(out);
  PutEnvironment(out);
  out.Uint(9, monotonic_now);
  out.Uint(10, runtime::RealNow());
  out.Bytes(11, StackModeName(config.stacks));
  out.Bool(12, crash_proof);
  out.End(body);
}

}  // namespace dstrace::capture
