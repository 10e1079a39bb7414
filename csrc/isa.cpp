// The engine for one instruction set. Compiled once for each, with OG_ISA naming the namespace and
// OG_VECTOR_BYTES the register width; api.cpp picks one when the library is loaded.
#include "backward.h"
#include "forward.h"
#include "isa.h"
#include "mask.h"
#include "stream.h"

namespace OG_ISA {

extern const Engine engine;
const Engine engine = {OG_ISA_NAME, &run_forward<float>, &run_forward<double>,
                       &run_backward<float>, &run_backward<double>, &new_stream<float>, &new_stream<double>,
                       &fill_mask<uint8_t>, &fill_mask<float>, &fill_mask<double>};

}  // namespace OG_ISA
