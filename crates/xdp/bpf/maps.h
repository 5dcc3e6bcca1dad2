// The maps, through which user space gives settings and reads counts. `src/program/layout.rs` has their types in Rust.
#pragma once

#include "headers.h"

struct rate {
    // The time in which one token comes back, and in which an empty bucket fills up.
    u64 token_ns;
    u64 full_ns;
};

enum {
    ANSWERS_CONNECTS = 1,
    HAS_NETWORKS_V4 = 2,
    HAS_NETWORKS_V6 = 4,
    LIMITS_CONNECTS = 8,
    LIMITS_REQUESTS = 16,
    HAS_FORMER = 32,
    // The driver runs the program for one frame of a queue after the other, never for two at a time.
    IS_NATIVE = 64,
};

struct endpoint {
    // An IPv4 address is in the first word, and the others are 0.
    u32 ip[4];
    u16 port;
    u16 family;
};

enum {
    NEAR_BITS = 3,
    NEAR_ENDPOINTS = 1 << NEAR_BITS,
};

struct settings {
    // SipHash under the key of connection ids, before the message; and under the key before it.
    u64 keyed[4];
    u64 former[4];
    // The slot of the present, and its end by CLOCK_MONOTONIC.
    u64 slot;
    u64 slot_end_ns;
    // For how long after the end of its slot an id is accepted.
    u64 valid_ns;
    // Until when ids of the former key are accepted.
    u64 former_end_ns;
    struct rate connects;
    struct rate requests;
    u64 bucket_key[2];
    // A bit for the hash of each address of the tracker.
    u64 own_addresses;
    u32 flags;
    // The flags of an address that is in none of the networks.
    u32 network_default;
    u32 line_mask;
    u32 unused;
    // Addresses and ports of the tracker, each at the place of its hash. Those that find it taken are in the map alone.
    struct endpoint near[NEAR_ENDPOINTS];
};

_Static_assert(sizeof(struct settings) == 328, "the layout of `Settings`");

// User space writes settings that are not active, and then makes them active. It writes those again that a frame may still read
// only after as many updates as there are others.
enum { SETTINGS = 8 };

struct control {
    u32 active;
    u32 unused[15];
    struct settings settings[SETTINGS];
};

MAPPED_ARRAY(controls, struct control, 1);

// The addresses and ports of the tracker have the value 1. Each address is there with the port 0 and the value 0 as well.
struct {
    NUMBER(type, MAP_HASH);
    NUMBER(max_entries, 1);
    TYPE(key, struct endpoint);
    TYPE(value, u32);
} endpoints SECTION(".maps");

// A network segment that frames of the interface belong to: that of frames without a tag, or a VLAN of the host.
struct segment {
    // The interface by which the kernel sends into it, or 0 if the host takes no part in it.
    u32 interface_index;
    u8 mac[6];
    u8 unused[2];
};

enum {
    // Segments by the number of their VLAN (IEEE 802.1Q). The number 0 stands for no VLAN: such a tag has only a priority.
    VLAN_MASK = 0xfff,
    // Those of a provider (IEEE 802.1ad) follow.
    PROVIDER_SEGMENTS = VLAN_MASK + 1,
    SEGMENTS = 2 * PROVIDER_SEGMENTS,
};

ARRAY(segments, struct segment, SEGMENTS);

// A way back that the kernel has confirmed.
struct route {
    u32 ip[4];
    u8 mac[6];
    // The index of the segment, and the family of the address.
    u16 segment_and_family;
    // A hash of the address and port of the tracker, since rules of the host may be about them.
    u32 endpoint;
    // When it was confirmed, in units of `ROUTE_TIME_SHIFT`.
    u32 time;
};

enum {
    // Routes in a block, and blocks.
    ROUTES_BITS = 7,
    ROUTE_BLOCKS_BITS = 6,
    ROUTE_TIME_SHIFT = 24,
    // A route is confirmed again after a second.
    ROUTE_TIMES_MAX = 60,
};

struct route_block {
    struct route routes[1 << ROUTES_BITS];
};

_Static_assert(sizeof(struct segment) == 12 && sizeof(struct route) == 32, "the layout of maps");

// No two frames are served at the same time on one processor, so no route is read while it is written.
PERCPU_ARRAY(routes, struct route_block, 1 << ROUTE_BLOCKS_BITS);

enum {
    NETWORK_DENIED = 1,
    // It has no limits.
    NETWORK_EXEMPT = 2,
};

struct network_v4 {
    u32 bits;
    u32 ip;
};

struct network_v6 {
    u32 bits;
    u32 ip[4];
};

struct {
    NUMBER(type, MAP_LPM_TRIE);
    NUMBER(map_flags, MAP_NO_PREALLOC);
    NUMBER(max_entries, 1);
    TYPE(key, struct network_v4);
    TYPE(value, u32);
} networks_v4 SECTION(".maps");

struct {
    NUMBER(type, MAP_LPM_TRIE);
    NUMBER(map_flags, MAP_NO_PREALLOC);
    NUMBER(max_entries, 1);
    TYPE(key, struct network_v6);
    TYPE(value, u32);
} networks_v6 SECTION(".maps");

// Token buckets as in `rate.rs` of shoal-base: a count-min sketch of the times at which buckets are full again. An LRU
// map would have to make room for each address of a flood, and would forget the buckets of others for it.
enum { CELLS = 8 };

struct line {
    u64 cells[CELLS];
};

ARRAY(buckets, struct line, 1);

struct {
    NUMBER(type, MAP_XSKMAP);
    NUMBER(max_entries, 1);
    TYPE(key, u32);
    TYPE(value, u32);
} sockets SECTION(".maps");

// The frames of a queue on their way to its socket. The two sides write different cache lines.
struct backlog {
    u64 redirected;
    u64 unused_redirected[7];
    // Those that user space has received, or that the socket had no room for.
    u64 consumed;
    u64 frames_max;
    u64 unused_consumed[6];
};

MAPPED_ARRAY(backlogs, struct backlog, 1);

// The fate of a frame. Each but the last has a counter.
enum outcome {
    CONNECTS_V4,
    CONNECTS_V6,
    DENIED,
    UNANSWERABLE,
    REDIRECTED,
    NO_SOCKET,
    BACKLOG_FULL,
    MALFORMED,
    BAD_CHECKSUM,
    FRAGMENT,
    EXTENSION_HEADERS,
    TOO_LONG,
    // In a VLAN that is none of the host.
    OTHER_VLAN,
    NO_ROUTE_BACK,
    // A connect request that is left to user space, because the slot is too old. It is counted as handed over as well.
    STALE,
    // Requests over a limit: those of each action over IPv4 and over IPv6.
    LIMITED,
    LIMITED_LAST = LIMITED + 2 * ACTION_SCRAPE + 1,
    COUNTS = 32,
    // A step on the way to one of the others.
    HANDED_OVER = COUNTS,
    NOT_OURS,
};

struct counts {
    u64 of[COUNTS];
};

PERCPU_ARRAY(counters, struct counts, 1);

INLINE void count(enum outcome outcome) {
    u32 zero = 0;
    struct counts *counts = map_lookup(&counters, &zero);
    if (counts)
        counts->of[outcome % COUNTS]++;
}

INLINE const struct settings *active_settings(void) {
    u32 zero = 0;
    struct control *control = map_lookup(&controls, &zero);
    return control ? &control->settings[control->active % SETTINGS] : 0;
}

// Returns an outcome that does not depend on the port, for an address of the tracker.
INLINE enum outcome if_ours(struct endpoint *endpoint, enum outcome outcome) {
    endpoint->port = 0;
    return map_lookup(&endpoints, endpoint) ? outcome : NOT_OURS;
}

// Returns a hash of 32 bits for addresses and ports, of which the upper bits are the better ones.
INLINE u32 hash_of(const u32 *ip, u32 port) {
    return (ip[0] ^ ip[1] ^ ip[2] ^ ip[3] ^ port) * 0x9e3779b1;
}

// Returns whether the tracker listens there. The settings spare the frames for most endpoints the look-up, which takes 20 ns.
INLINE int is_ours(const struct settings *settings, const struct endpoint *endpoint) {
    const struct endpoint *near = &settings->near[hash_of(endpoint->ip, endpoint->port) >> (32 - NEAR_BITS)];
    u32 differs = (near->port ^ endpoint->port) | (near->family ^ endpoint->family);
#pragma unroll
    for (int i = 0; i < 4; i++)
        differs |= near->ip[i] ^ endpoint->ip[i];
    if (!differs)
        return 1;
    u32 *has_port = map_lookup(&endpoints, endpoint);
    return has_port && *has_port;
}

// Returns whether an address is one of the tracker. The bits spare almost all frames the look-up, which takes 25 ns.
INLINE int is_own(const struct settings *settings, const u32 *ip, u32 words) {
    if (!(settings->own_addresses >> (hash_of(ip, 0) >> 26) & 1))
        return 0;
    struct endpoint endpoint = {.ip = {ip[0], ip[1], ip[2], ip[3]}, .family = words == 1 ? 4 : 6};
    return map_lookup(&endpoints, &endpoint) != 0;
}

// Returns the rule of the operator for a source.
INLINE u32 network_flags(const struct settings *settings, const u32 *ip, u32 words) {
    u32 *flags = 0;
    if (words == 1) {
        if (settings->flags & HAS_NETWORKS_V4) {
            struct network_v4 key = {.bits = 32, .ip = ip[0]};
            flags = map_lookup(&networks_v4, &key);
        }
    } else if (settings->flags & HAS_NETWORKS_V6) {
        struct network_v6 key = {.bits = 128, .ip = {ip[0], ip[1], ip[2], ip[3]}};
        flags = map_lookup(&networks_v6, &key);
    }
    return flags ? *flags : settings->network_default;
}
