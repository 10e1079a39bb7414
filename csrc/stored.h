// Tensors of a call may be stored in half precision where all is computed in float: numbers are widened
// where they are read, and rounded where they are written, a row at a time.
#pragma once

#include <algorithm>

#include "onegate.h"
#include "vector.h"

namespace OG_ISA {

struct Bfloat16 {
  uint16_t bits;
};
struct Float16 {
  uint16_t bits;
};

typedef uint16_t Halves __attribute__((vector_size(OG_VECTOR_BYTES / 2)));
typedef uint32_t Words __attribute__((vector_size(OG_VECTOR_BYTES)));

template <class To, class From> OG_INLINE To as_bits(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}

// Left to the compiler these two are taken apart into halves of a register.
OG_INLINE Words words(Halves v) {
#if OG_AVX512
  return (Words)_mm512_maskz_cvtepu16_epi32(0xffff, (__m256i)v);
#elif OG_AVX2
  return (Words)_mm256_cvtepu16_epi32((__m128i)v);
#else
  return __builtin_convertvector(v, Words);
#endif
}
OG_INLINE Halves low_halves(Words v) {  // none of them above 2^16
#if OG_AVX512
  return (Halves)_mm512_maskz_cvtepi32_epi16(0xffff, (__m512i)v);
#elif OG_AVX2
  const __m256i twice = _mm256_packus_epi32((__m256i)v, (__m256i)v);
  return (Halves)_mm256_castsi256_si128(_mm256_permute4x64_epi64(twice, 8));
#else
  return __builtin_convertvector(v, Halves);
#endif
}

OG_INLINE Vec<float> widened(Halves v, const Bfloat16*) { return as_bits<Vec<float>>(words(v) << 16); }
OG_INLINE Halves narrowed(Vec<float> v, Bfloat16*) {
  const Words bits = as_bits<Words>(v);
  const Words near = bits + (((bits >> 16) & 1u) + 0x7fffu);  // a tie to the even one
  return low_halves((v == v ? near : bits | 0x400000u) >> 16);
}

#if OG_AVX512
OG_INLINE Vec<float> widened(Halves v, const Float16*) {
  return (Vec<float>)_mm512_maskz_cvtph_ps(0xffff, (__m256i)v);
}
OG_INLINE Halves narrowed(Vec<float> v, Float16*) {
  return (Halves)_mm512_maskz_cvtps_ph(0xffff, (__m512)v, _MM_FROUND_TO_NEAREST_INT);
}
#elif OG_AVX2
OG_INLINE Vec<float> widened(Halves v, const Float16*) {
  return (Vec<float>)_mm256_cvtph_ps((__m128i)v);
}
OG_INLINE Halves narrowed(Vec<float> v, Float16*) {
  return (Halves)_mm256_cvtps_ph((__m256)v, _MM_FROUND_TO_NEAREST_INT);
}
#else
// Whole numbers of 2^-24 below the smallest normal number. No denormal float is computed with: whoever
// flushes them to zero flushes these as little as processors with an instruction for it.
OG_INLINE Vec<float> widened(Halves v, const Float16*) {
  const Words bits = words(v), rest = bits & 0x7fffu;
  const Words normal = (rest << 13) + (rest >= 0x7c00u ? Words{} + (224u << 23) : Words{} + (112u << 23));
  const Vec<float> small = __builtin_convertvector((VecInt<float>)rest, Vec<float>) * 0x1p-24f;
  return as_bits<Vec<float>>((rest < 0x400u ? as_bits<Words>(small) : normal) | (bits & 0x8000u) << 16);
}
OG_INLINE Halves narrowed(Vec<float> v, Float16*) {
  const Words bits = as_bits<Words>(v), rest = bits & 0x7fffffffu;
  const Words normal = (rest - (112u << 23) + 0xfffu + ((rest >> 13) & 1u)) >> 13;
  // The sum's last place is worth 2^-24.
  const Words small = as_bits<Words>(as_bits<Vec<float>>(rest) + 0.5f) - 0x3f000000u;
  Words found = rest < 0x38800000u ? small : normal;
  found = rest >= 0x477ff000u ? Words{} + 0x7c00u : found;  // from halfway to 2^16
  found = rest > 0x7f800000u ? ((rest >> 13) & 0x3ffu) | 0x7e00u : found;
  return low_halves(found | (bits >> 16 & 0x8000u));
}
#endif

// Vectors of numbers as they are computed with, from numbers as they are stored.
template <class T, class S> OG_INLINE Vec<T> load_wide(const S* p) {
  if constexpr (std::is_same_v<S, T>) {
    return load(p);
  } else {
    Halves v;
    std::memcpy(&v, p, sizeof v);
    return widened(v, p);
  }
}
template <class T, class S> OG_INLINE Vec<T> load_wide_part(const S* p, int64_t n) {
  if constexpr (std::is_same_v<S, T>) {
    return load_part(p, n);
  } else {
    S lanes[kLanes<T>] = {};
    for (int64_t i = 0; i < n; ++i) lanes[i] = p[i];
    return load_wide<T>(static_cast<const S*>(lanes));
  }
}
template <class H> OG_INLINE void store_rounded(H* p, Vec<float> v) {
  const Halves halves = narrowed(v, p);
  std::memcpy(p, &halves, sizeof halves);
}

// Numbers of a tensor of the call.
template <class T> struct Numbers {
  char* data;
  int32_t stored;

  Numbers(const void* from, int32_t how)
      : data(static_cast<char*>(const_cast<void*>(from))), stored(how) {}
  Numbers(const T* from) : Numbers(from, OG_AS_COMPUTED) {}

  bool as_computed() const { return !std::is_same_v<T, float> || stored == OG_AS_COMPUTED; }
  T* own() const { return reinterpret_cast<T*>(data); }
  int64_t bytes(int64_t count) const {
    return count * (as_computed() ? static_cast<int64_t>(sizeof(T)) : 2);
  }
  Numbers operator+(int64_t count) const { return {data + bytes(count), stored}; }

  // f with a pointer to what is there.
  template <class F> OG_INLINE void visit(F f) const {
    if constexpr (std::is_same_v<T, float>) {
      if (stored == OG_BFLOAT16) return f(reinterpret_cast<Bfloat16*>(data));
      if (stored == OG_FLOAT16) return f(reinterpret_cast<Float16*>(data));
    }
    f(own());
  }
};

template <class T> OG_INLINE void copy_row(T* to, const T* from, int64_t width) {
  std::memcpy(to, from, static_cast<size_t>(width) * sizeof(T));
}

// to[i] = change(from[i], to[i]) for a row; change is given vectors, of which some lanes may be none's.
template <class H, class F> OG_INLINE void widen_row(float* to, const H* from, int64_t n, F change) {
  constexpr int64_t L = kLanes<float>;
  int64_t i = 0;
  for (; i + L <= n; i += L) store(to + i, change(load_wide<float>(from + i), load(to + i)));
  if (i < n)
    store_part(to + i, change(load_wide_part<float>(from + i, n - i), load_part(to + i, n - i)), n - i);
}
template <class T, class S> OG_INLINE void copy_wide(T* to, const S* from, int64_t n) {
  if constexpr (std::is_same_v<S, T>)
    copy_row<T>(to, from, n);
  else
    widen_row(to, from, n, [](Vec<float> x, Vec<float>) { return x; });
}
template <class H> void round_row(H* to, const float* from, int64_t n) {
  constexpr int64_t L = kLanes<float>;
  int64_t i = 0;
  for (; i + L <= n; i += L) store_rounded(to + i, load(from + i));
  if (i == n) return;
  H lanes[L];
  store_rounded(lanes, load_part(from + i, n - i));
  for (int64_t l = 0; l < n - i; ++l) to[i + l] = lanes[l];
}

template <class T> OG_INLINE void copy_row(T* to, Numbers<T> from, int64_t n) {
  from.visit([=](const auto* own) { copy_wide(to, own, n); });
}
template <class T> OG_INLINE void copy_row(Numbers<T> to, const T* from, int64_t n) {
  to.visit([=](auto* own) {
    if constexpr (std::is_same_v<decltype(own), T*>)
      copy_row<T>(own, from, n);
    else
      round_row(own, from, n);
  });
}
template <class T> OG_INLINE void clear_row(Numbers<T> to, int64_t n) {
  std::memset(to.data, 0, static_cast<size_t>(to.bytes(n)));
}

}  // namespace OG_ISA
