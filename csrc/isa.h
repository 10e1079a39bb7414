// The engine's entry points for one instruction set.
#pragma once

#include "onegate.h"

struct Engine {
  const char* name;
  bool (*forward32)(const og_forward&);
  bool (*forward64)(const og_forward&);
  bool (*backward32)(const og_backward&);
  bool (*backward64)(const og_backward&);
};
