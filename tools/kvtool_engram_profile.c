/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvtool_engram_profile.c - the profile of tables that are to be imported: a built-in one, or one
 * from a JSON file; and the class map that goes with it.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "complain.h"
#include "interrupt.h"
#include "json_reader.h"
#include "kvtool_engram.h"

enum {
    FILE_BYTES_MAX = 64 << 20, /* Of a profile or class map: far above any. */
    KEY_BYTES = 64,
};

/* `size` bytes, or fewer at the end of the file; how many, below 0 with errno. */
static ssize_t
bytes_read(int descriptor, char *bytes, size_t size)
{
    size_t done = 0;
    ssize_t count = 1;

    while (done < size && count > 0) {
        do {
            count = read(descriptor, bytes + done, size - done);
        } while (count < 0 && errno == EINTR && !interrupt_came());
        if (count < 0)
            return -1;
        done += (size_t)count;
    }
    return (ssize_t)done;
}

/* All bytes of a small file or pipe; NULL: errno says why. */
static char *
descriptor_load(int descriptor, size_t *size_out)
{
    struct stat facts = {0};
    size_t room = FILE_BYTES_MAX;
    char *bytes = NULL;
    ssize_t count = -1;

    if (fstat(descriptor, &facts) != 0)
        return NULL;
    if (S_ISREG(facts.st_mode) && facts.st_size < FILE_BYTES_MAX)
        room = (size_t)facts.st_size;
    bytes = malloc(room + 1);
    if (bytes != NULL)
        count = bytes_read(descriptor, bytes, room);
    if (count == FILE_BYTES_MAX) {
        errno = EFBIG;
        count = -1;
    }
    if (count < 0) {
        free(bytes);
        return NULL;
    }
    *size_out = (size_t)count;
    return bytes;
}

/* A whole small file; NULL: complained. */
static char *
file_load(const char *path, size_t *size_out)
{
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    char *bytes = descriptor < 0 ? NULL : descriptor_load(descriptor, size_out);

    if (bytes == NULL)
        complain("cannot read %s: %s", path, strerror(errno));
    if (descriptor >= 0)
        close(descriptor);
    return bytes;
}

/* --- JSON ------------------------------------------------------------------------------------- */

static bool
number32_read(struct json_reader *reader, uint32_t *number_out)
{
    uint64_t number = 0;

    if (!json_read_number(reader, &number) || number > UINT32_MAX) {
        reader->is_bad = true;
        return false;
    }
    *number_out = (uint32_t)number;
    return true;
}

static void
multipliers_read(struct json_reader *reader, struct kvt_engram_layer *layer)
{
    uint32_t count = 0;

    if (!json_enter(reader, '['))
        return;
    while (json_next(reader)) {
        if (count == KVT_ENGRAM_ORDER_MAX)
            reader->is_bad = true;
        else
            (void)json_read_number(reader, &layer->multipliers[count++]);
    }
}

/* Offsets follow from the primes, and the number of rows, unless it is named, too. */
static void
primes_read(struct json_reader *reader, struct kvt_engram_layer *layer)
{
    uint32_t count = 0;
    uint32_t rows = 0;

    if (!json_enter(reader, '['))
        return;
    while (json_next(reader)) {
        if (count == KVT_ENGRAM_COLUMNS_MAX || !number32_read(reader, &layer->primes[count]) ||
            layer->primes[count] > UINT32_MAX - rows) {
            reader->is_bad = true;
        } else {
            layer->offsets[count] = rows;
            rows += layer->primes[count++];
        }
    }
    if (layer->row_count == 0)
        layer->row_count = rows;
}

static void
layer_read(struct json_reader *reader, struct kvt_engram_layer *layer)
{
    char key[KEY_BYTES];

    if (!json_enter(reader, '{'))
        return;
    while (json_next_key(reader, key, sizeof(key))) {
        if (strcmp(key, "number") == 0)
            (void)number32_read(reader, &layer->number);
        else if (strcmp(key, "row_count") == 0)
            (void)number32_read(reader, &layer->row_count);
        else if (strcmp(key, "multipliers") == 0)
            multipliers_read(reader, layer);
        else if (strcmp(key, "primes") == 0)
            primes_read(reader, layer);
        else
            reader->is_bad = true;
    }
}

static void
layers_read(struct json_reader *reader, struct kvt_engram_profile *profile)
{
    if (!json_enter(reader, '['))
        return;
    while (json_next(reader)) {
        if (profile->layer_count == KVT_ENGRAM_LAYERS_MAX)
            reader->is_bad = true;
        else
            layer_read(reader, &profile->layers[profile->layer_count++]);
    }
}

static void
encoding_read(struct json_reader *reader, struct kvt_engram_profile *profile)
{
    static const char *const words[] = {"bytes", "e4m3_e8m0", "bf16"};
    char text[KEY_BYTES] = "";

    (void)json_read_string(reader, text, sizeof(text));
    profile->encoding = 0;
    while (profile->encoding < 3 && strcmp(text, words[profile->encoding]) != 0)
        profile->encoding++;
    reader->is_bad = reader->is_bad || profile->encoding == 3;
}

static void
member_read(struct json_reader *reader, const char *key, struct kvt_engram_profile *profile)
{
    const struct {
        const char *name;
        uint32_t *field;
    } numbers[] = {
        {"order_max", &profile->order_max},
        {"head_count", &profile->head_count},
        {"class_count", &profile->class_count},
        {"pad_class", &profile->pad_class},
        {"token_count", &profile->token_count},
        {"pad_token", &profile->pad_token},
        {"row_bytes", &profile->row_bytes},
        {"value_count", &profile->value_count},
        {"scale_count", &profile->scale_count},
    };

    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        if (strcmp(key, numbers[i].name) == 0) {
            (void)number32_read(reader, numbers[i].field);
            return;
        }
    }
    if (strcmp(key, "encoding") == 0)
        encoding_read(reader, profile);
    else if (strcmp(key, "layers") == 0)
        layers_read(reader, profile);
    else
        reader->is_bad = true;
}

static bool
json_load(const char *path, struct kvt_engram_profile *profile)
{
    size_t size = 0;
    char *text = file_load(path, &size);
    struct json_reader reader = {.at = text};
    char key[KEY_BYTES];
    bool is_fine;

    if (text == NULL)
        return false;
    reader.end = text + size;
    memset(profile, 0, sizeof(*profile));
    profile->struct_size = sizeof(*profile);
    (void)json_enter(&reader, '{');
    while (json_next_key(&reader, key, sizeof(key)))
        member_read(&reader, key, profile);
    is_fine = json_finish(&reader);
    free(text);
    if (!is_fine)
        complain("%s is no profile: not JSON, or not as `kvtool engram --help` has it", path);
    return is_fine;
}

/* --- The profile ------------------------------------------------------------------------------ */

/* The map's checksum goes into the profile, and everything about it is checked. */
static bool
map_load(const char *path, struct kvt_engram_profile *profile)
{
    size_t size = 0;
    char *bytes = file_load(path, &size);
    uint32_t count = (uint32_t)(size / sizeof(uint32_t));
    kvt_engram_hasher *hasher = NULL;
    uint32_t *map = NULL;
    enum kvt_status status = KVT_OK;

    if (bytes == NULL)
        return false;
    map = calloc(count + 1, sizeof(*map));
    for (uint32_t i = 0; map != NULL && i < count; i++) {
        const unsigned char *from = (const unsigned char *)bytes + 4 * (size_t)i;

        map[i] =
            from[0] | (uint32_t)from[1] << 8 | (uint32_t)from[2] << 16 | (uint32_t)from[3] << 24;
    }
    free(bytes);
    if (map == NULL || count == 0 || size % sizeof(uint32_t) != 0) {
        complain("%s is no class map: an array of little-endian u32", path);
        free(map);
        return false;
    }
    status = kvt_engram_map_hash(map, count, profile->class_map_sha256);
    if (status == KVT_OK)
        status = kvt_engram_hasher_open(profile, map, count, &hasher);
    if (status != KVT_OK)
        complain_status(status, "%s is not the profile's class map", path);
    kvt_engram_hasher_close(hasher);
    free(map);
    return status == KVT_OK;
}

bool
engram_profile_read(const struct engram_order *order, struct kvt_engram_profile *profile)
{
    enum kvt_status status = KVT_OK;

    if (order->profile_path != NULL) {
        if (!json_load(order->profile_path, profile))
            return false;
    } else {
        status = kvt_engram_profile_get(strcmp(order->model, "demo") == 0
                                            ? KVT_ENGRAM_PAPER_DEMO
                                            : KVT_ENGRAM_DEEPSEEK_V41_FLASH,
            profile);
    }
    if (status == KVT_OK)
        status = kvt_engram_profile_check(profile);
    if (status != KVT_OK) {
        complain_status(status, "the profile cannot be used");
        return false;
    }
    return order->class_map_path == NULL || map_load(order->class_map_path, profile);
}
