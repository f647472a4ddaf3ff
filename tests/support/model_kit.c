/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model_kit.c - see model_kit.h.
 */
#include "model_kit.h"

#include <stdlib.h>

int
model_setup(void **state)
{
    struct model *model = calloc(1, sizeof(*model));

    *state = model;
    if (model == NULL)
        return -1;
    model_init(model, 99, 8, 0);
    return 0;
}

int
model_teardown(void **state)
{
    free(*state);
    return 0;
}

void
model_read_version(struct model *model, struct model_name name, uint32_t version)
{
    static uint8_t bytes[8 * 4096];

    if (version == 0) {
        model_read(model, name, NULL, 0);
        return;
    }
    model_fill(model, name, version, bytes);
    model_read(model, name, bytes, model_length(model, name, version));
}
