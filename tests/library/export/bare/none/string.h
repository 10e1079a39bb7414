/* All that the self-test takes of it. */
#pragma once
#include <stddef.h>

void *memcpy(void *, const void *, size_t);
void *memset(void *, int, size_t);
