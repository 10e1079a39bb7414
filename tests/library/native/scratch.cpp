// Fills the calling thread's scratch with NaN, for one instruction set (OG_ISA, as in csrc/isa.cpp):
// whoever reads scratch before writing it computes NaN.
#include <cstring>

#include "plan.h"

namespace OG_ISA {

void fill_scratch_with_nan() {
  constexpr size_t kBytes = size_t{1} << 22;
  std::memset(thread_scratch().reserve(kBytes), 0xff, kBytes);
}

}  // namespace OG_ISA
