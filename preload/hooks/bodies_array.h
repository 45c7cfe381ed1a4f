// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_PRELOAD_HOOKS_BODIES_ARRAY_H_
#define DSTRACE_PRELOAD_HOOKS_BODIES_ARRAY_H_

// What to record of arrays and mipmapped arrays. The driver tells nobody how
// many bytes an array takes; `size` is the texels' own size, without the
// driver's tiling and alignment, which end in the ledger's residual.

#include <cstddef>
#include <cstdint>

#include "preload/hooks/bodies_memory.h"
#include "preload/hooks/call.h"
#include "preload/hooks/driver_queries.h"

namespace dstrace::hooks {

// Bytes of one channel of a CUarray_format; 1 for packed and compressed ones.
constexpr uint64_t ChannelBytes(int format) noexcept {
  switch (format) {
    case 0x02:  // UNSIGNED_INT16
    case 0x09:  // SIGNED_INT16
    case 0x10:  // HALF
      return 2;
    case 0x03:  // UNSIGNED_INT32
    case 0x0a:  // SIGNED_INT32
    case 0x20:  // FLOAT
      return 4;
    default:
      return 1;
  }
}

// Bytes of width x height x depth texels; 0 counts as 1 (fewer dimensions).
constexpr uint64_t TexelBytes(uint64_t width, uint64_t height, uint64_t depth,
                              uint64_t bytes) noexcept {
  return width * (height == 0 ? 1 : height) * (depth == 0 ? 1 : depth) * bytes;
}

// All levels, each half the size of the one before.
constexpr uint64_t MipmapBytes(uint64_t width, uint64_t height, uint64_t depth,
                               uint64_t bytes, unsigned int levels) noexcept {
  uint64_t sum = 0;
  for (unsigned int level = 0; level < levels && level < 32; ++level) {
    if (level > 0 && width <= 1 && height <= 1 && depth <= 1) break;
    sum += TexelBytes(width, height, depth, bytes);
    width = width > 1 ? width / 2 : 1;
    height = height > 1 ? height / 2 : height;
    depth = depth > 1 ? depth / 2 : depth;
  }
  return sum;
}

constexpr uint64_t TexelBytes(const cudaChannelFormatDesc& desc) noexcept {
  return static_cast<uint64_t>(desc.x + desc.y + desc.z + desc.w) / 8;
}

struct ArrayBody : Body {
  static constexpr DeviceKind kKind = DeviceKind::kArrayCreate;
  template <class H, class... Rest>
  static void After(DeviceEvent& event, H* out, const Rest&...) noexcept {
    event.handle = Number(*out);
    event.device = CurrentDevice();
  }
};

struct ArrayCreate : ArrayBody {
  template <class D>
  static void Before(DeviceEvent& event, const CUarray*,
                     const D* desc) noexcept {
    if (desc == nullptr) return;
    event.size = TexelBytes(desc->width, desc->height, 1,
                            ChannelBytes(desc->format) * desc->channels);
  }
};
struct Array3DCreate : ArrayBody {
  template <class D>
  static void Before(DeviceEvent& event, const CUarray*,
                     const D* desc) noexcept {
    if (desc == nullptr) return;
    event.size = TexelBytes(desc->width, desc->height, desc->depth,
                            ChannelBytes(desc->format) * desc->channels);
    event.flags = desc->flags;
  }
};
struct MipmappedArrayCreate : ArrayBody {
  static void Before(DeviceEvent& event, const CUmipmappedArray*,
                     const CUDA_ARRAY3D_DESCRIPTOR* desc,
                     unsigned int levels) noexcept {
    if (desc == nullptr) return;
    event.size =
        MipmapBytes(desc->width, desc->height, desc->depth,
                    ChannelBytes(desc->format) * desc->channels, levels);
    event.flags = desc->flags;
  }
};
struct MallocArray : ArrayBody {
  static void Before(DeviceEvent& event, const cudaArray_t*,
                     const cudaChannelFormatDesc* desc, size_t width,
                     size_t height, unsigned int flags) noexcept {
    if (desc == nullptr) return;
    event.size = TexelBytes(width, height, 1, TexelBytes(*desc));
    event.flags = flags;
  }
};
struct Malloc3DArray : ArrayBody {
  static void Before(DeviceEvent& event, const cudaArray_t*,
                     const cudaChannelFormatDesc* desc,
                     const cudaExtent& extent, unsigned int flags) noexcept {
    if (desc == nullptr) return;
    event.size = TexelBytes(extent.width, extent.height, extent.depth,
                            TexelBytes(*desc));
    event.flags = flags;
  }
};
struct MallocMipmappedArray : ArrayBody {
  static void Before(DeviceEvent& event, const cudaMipmappedArray_t*,
                     const cudaChannelFormatDesc* desc,
                     const cudaExtent& extent, unsigned int levels,
                     unsigned int flags) noexcept {
    if (desc == nullptr) return;
    event.size = MipmapBytes(extent.width, extent.height, extent.depth,
                             TexelBytes(*desc), levels);
    event.flags = flags;
  }
};

struct ArrayDestroy : Body {
  static constexpr DeviceKind kKind = DeviceKind::kArrayDestroy;
  static constexpr bool kStampBefore = true;
  template <class H>
  static void Before(DeviceEvent& event, H* array) noexcept {
    event.handle = Number(array);
  }
  static bool Skip(const DeviceEvent& event) noexcept {
    return event.handle == 0;
  }
};
struct MipmappedArrayDestroy : ArrayDestroy {};
struct FreeArray : ArrayDestroy {};
struct FreeMipmappedArray : ArrayDestroy {};

}  // namespace dstrace::hooks

#endif  // DSTRACE_PRELOAD_HOOKS_BODIES_ARRAY_H_
