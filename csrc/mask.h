// Masks of dropout: numbers that depend on a seed and their place alone. nn/dropout.py computes the
// same with torch.
#pragma once

#include <cstdint>

namespace OG_ISA {

// to[i] = 0 with the probability (last_zero + 1) / 2^32, else `other`, of which bytes know 1 alone.
// Plain loops, which compilers turn into vectors.
template <class T>
void fill_mask(T* to, int64_t count, uint32_t first, uint32_t second, uint32_t last_zero, T other) {
  constexpr int64_t kRun = 256;
  uint32_t words[kRun];
  for (int64_t at = 0; at < count; at += kRun) {
    const int64_t run = count - at < kRun ? count - at : kRun;
    uint32_t place = static_cast<uint32_t>(at) * 0x9E3779B1u + first;
    for (int64_t i = 0; i < kRun; ++i, place += 0x9E3779B1u) {
      uint32_t x = (place ^ (place >> 16)) * 0x85EBCA6Bu;
      x = (x ^ (x >> 13) ^ second) * 0xC2B2AE35u;
      words[i] = (x ^ (x >> 16)) > last_zero;
    }
    if constexpr (sizeof(T) == 1)
      for (int64_t i = 0; i < run; ++i) to[at + i] = static_cast<T>(words[i]);
    else
      for (int64_t i = 0; i < run; ++i) to[at + i] = words[i] == 0 ? T{0} : other;
  }
}

}  // namespace OG_ISA
