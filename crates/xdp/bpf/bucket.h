// The limits of sources.
#pragma once

#include "frame.h"
#include "maps.h"

// A token bucket, by its cells, and the time at which it will be full if the token is taken.
struct bucket {
    u64 *cells[4];
    u64 later_ns;
};

// Finds the bucket of a source. Returns 0 if it has no token.
INLINE int find_bucket(struct bucket *bucket, const struct settings *settings, u64 prefix, u32 kind, u64 token_ns,
                       u64 full_ns, u64 now_ns) {
    u64 hash = prefix ^ settings->bucket_key[0];
    hash = (hash ^ hash >> 32) * (settings->bucket_key[1] | 1) + kind;
    hash = (hash ^ hash >> 29) * (settings->bucket_key[1] | 1);
    hash ^= hash >> 32;
    u64 time = ~0ULL;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        u32 bits = i ? hash >> 32 : hash;
        u32 index = bits & settings->line_mask, place = bits >> 20;
        u32 one = place % CELLS, other = (one + 1 + place / CELLS % (CELLS - 1)) % CELLS;
        struct line *line = map_lookup(&buckets, &index);
        if (!line)
            return 0;
        bucket->cells[2 * i] = &line->cells[one];
        bucket->cells[2 * i + 1] = &line->cells[other];
        if (line->cells[one] < time)
            time = line->cells[one];
        if (line->cells[other] < time)
            time = line->cells[other];
    }
    if (time < now_ns)
        time = now_ns;
    bucket->later_ns = time + token_ns;
    return bucket->later_ns - now_ns <= full_ns;
}

INLINE void take(const struct bucket *bucket) {
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (*bucket->cells[i] < bucket->later_ns)
            *bucket->cells[i] = bucket->later_ns;
}

// Takes a token from each bucket of the source, or from none if one is empty. Returns whether it did.
OUTLINE int takes_token(const struct datagram *datagram, const struct settings *settings, u32 is_connect, u64 now_ns) {
    struct bucket address, site, provider;
    u64 token_ns = is_connect ? settings->connects.token_ns : settings->requests.token_ns;
    u64 full_ns = is_connect ? settings->connects.full_ns : settings->requests.full_ns;
    u32 kind = is_connect << 8;
    const u32 *ip = datagram->source;
    if (datagram->words == 1) {
        if (!find_bucket(&address, settings, ip[0], kind + 32, token_ns, full_ns, now_ns))
            return 0;
        take(&address);
        return 1;
    }
    // A /56 counts as two sources and a /48 as eight.
    u64 prefix = (u64)BE32(ip[0]) << 32 | BE32(ip[1]);
    if (!find_bucket(&address, settings, prefix, kind + 64, token_ns, full_ns, now_ns) ||
        !find_bucket(&site, settings, prefix >> 8, kind + 56, (token_ns + 1) >> 1, full_ns, now_ns) ||
        !find_bucket(&provider, settings, prefix >> 16, kind + 48, (token_ns + 7) >> 3, full_ns, now_ns))
        return 0;
    take(&address);
    take(&site);
    take(&provider);
    return 1;
}
