// Connection ids, as in `connection_id.rs` of the engine.
#pragma once

#include "frame.h"
#include "maps.h"

// The length of a slot.
#define SLOT_NS 120000000000ULL

// SipHash-2-4.

#define ROTATE(x, bits) ((x) << (bits) | (x) >> (64 - (bits)))

#define ROUND                     \
    do {                          \
        v0 += v1;                 \
        v2 += v3;                 \
        v1 = ROTATE(v1, 13) ^ v0; \
        v3 = ROTATE(v3, 16) ^ v2; \
        v0 = ROTATE(v0, 32) + v3; \
        v2 += v1;                 \
        v1 = ROTATE(v1, 17) ^ v2; \
        v3 = ROTATE(v3, 21) ^ v0; \
        v2 = ROTATE(v2, 32);      \
    } while (0)

#define BLOCK(m)  \
    do {          \
        v3 ^= m;  \
        ROUND;    \
        ROUND;    \
        v0 ^= m;  \
    } while (0)

// Returns the id of a slot. The message is the address, of one word for IPv4, followed by three bytes of the slot.
INLINE u64 connection_id(const u64 keyed[4], const u32 *ip, u32 words, u64 slot) {
    u64 v0 = keyed[0], v1 = keyed[1], v2 = keyed[2], v3 = keyed[3];
    u64 last = slot & 0xffffff;
    if (words == 1) {
        last = ip[0] | last << 32 | 7ULL << 56;
    } else {
        u64 first = ip[0] | (u64)ip[1] << 32, second = ip[2] | (u64)ip[3] << 32;
        BLOCK(first);
        BLOCK(second);
        last |= 19ULL << 56;
    }
    BLOCK(last);
    v2 ^= 0xff;
    ROUND;
    ROUND;
    ROUND;
    ROUND;
    u64 hash = v0 ^ v1 ^ v2 ^ v3;
    return (hash & ~0xffULL) | 1 << 6 | (slot & 0x3f);
}

// Sets `slot` to the present one. Returns 0 if user space has not told it for too long.
INLINE int present(const struct settings *settings, u64 now_ns, u64 *slot, u64 *end_ns) {
    *slot = settings->slot;
    *end_ns = settings->slot_end_ns;
    if (now_ns < *end_ns)
        return 1;
    *slot += 1;
    *end_ns += SLOT_NS;
    return now_ns < *end_ns;
}

// Returns whether the tracker accepts the connection id of a request.
OUTLINE int is_verified(const struct datagram *datagram, const struct request *request, const struct settings *settings,
                       u64 now_ns) {
    u64 slot, end_ns, id = (u64)BE32(request->id[0]) << 32 | BE32(request->id[1]);
    if (!present(settings, now_ns, &slot, &end_ns))
        return 0;
    u64 age = (slot + 1 - id) & 0x3f;
    if (age > slot + 1)
        return 0;
    s64 since_ns = (s64)(now_ns - end_ns) + ((s64)age - 1) * (s64)SLOT_NS;
    if (since_ns >= (s64)settings->valid_ns)
        return 0;
    slot = slot + 1 - age;
    if (connection_id(settings->keyed, datagram->source, datagram->words, slot) == id)
        return 1;
    return settings->flags & HAS_FORMER && now_ns < settings->former_end_ns &&
           connection_id(settings->former, datagram->source, datagram->words, slot) == id;
}
