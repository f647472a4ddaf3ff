/* SPDX-License-Identifier: Apache-2.0 */
/*
 * network_host.c - which kinds of file system are of a network.
 */
#include <stddef.h>

#include "env_host_internal.h"

const char *
fs_network_name(uint32_t magic)
{
    /* Of linux/magic.h, and for cifs, Lustre and GPFS of their own sources. */
    static const struct {
        uint32_t magic;
        const char *name;
    } kinds[] = {
        {0x6969, "nfs"},
        {0x517B, "smb"},
        {0xFF534D42, "cifs"},
        {0xFE534D42, "smb2"},
        {0x01021997, "9p"},
        {0x00C36400, "ceph"},
        {0x5346414F, "afs"},
        {0x6B414653, "afs"},
        {0x73757245, "coda"},
        {0x0BD00BD0, "lustre"},
        {0x47504653, "gpfs"},
    };

    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (kinds[i].magic == magic)
            return kinds[i].name;
    }
    return NULL;
}
