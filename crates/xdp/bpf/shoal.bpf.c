// The program at the hook of the network driver (XDP). It answers connect requests (BEP 15), drops what denied networks
// send, and hands the other datagrams for the tracker to the AF_XDP socket of their queue. All other frames go to the
// kernel as they came.
//
// `src/frame/model.rs` is the same in Rust, and a test compares both. `src/program/layout.rs` has the types of the maps.
// `cargo xtask bpf --write` builds the object beside this file.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long s64;

#define INLINE static inline __attribute__((always_inline))
// What is rare, or would be there several times.
#define OUTLINE static __attribute__((noinline))
#define SECTION(name) __attribute__((section(name), used))
#define BE16(x) __builtin_bswap16(x)
#define BE32(x) __builtin_bswap32(x)
#define BE64(x) __builtin_bswap64(x)

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the object is for little-endian machines");

// The interface of the kernel (`linux/bpf.h`). Its header is not included, so that the object depends on nothing but the
// compiler.

struct xdp_md {
    u32 data;
    u32 data_end;
    u32 data_meta;
    u32 ingress_ifindex;
    u32 rx_queue_index;
    u32 egress_ifindex;
};

enum { XDP_DROP = 1, XDP_PASS = 2, XDP_TX = 3, XDP_REDIRECT = 4 };

enum {
    MAP_HASH = 1,
    MAP_ARRAY = 2,
    MAP_PERCPU_ARRAY = 6,
    MAP_LPM_TRIE = 11,
    MAP_XSKMAP = 17,
    MAP_NO_PREALLOC = 1 << 0,
    MAP_MMAPABLE = 1 << 10,
};

static void *(*const map_lookup)(void *map, const void *key) = (void *)1;
static long (*const redirect_map)(void *map, u64 key, u64 otherwise) = (void *)51;
static long (*const adjust_tail)(struct xdp_md *context, int bytes) = (void *)65;
static u64 (*const ktime_coarse_ns)(void) = (void *)160;

// The type information of a map: the length of an array stands for a number.
#define NUMBER(name, value) int (*name)[value]
#define TYPE(name, type) type *name

SECTION("license") static const char license_text[] = "Apache-2.0 OR MIT";

// Headers. Fields of more than one byte are in network byte order.

struct ethernet {
    u8 destination[6];
    u8 source[6];
    u16 type;
};

struct tag {
    u16 control;
    u16 type;
};

struct ipv4 {
    u8 version_and_words;
    u8 service;
    u16 length;
    u16 id;
    u16 fragment;
    u8 hops;
    u8 protocol;
    u16 checksum;
    u32 source;
    u32 destination;
};

struct ipv6 {
    u32 version_and_flow;
    u16 length;
    u8 protocol;
    u8 hops;
    u32 source[4];
    u32 destination[4];
};

struct udp {
    u16 source;
    u16 destination;
    u16 length;
    u16 checksum;
};

// The head of all requests (BEP 15).
struct request {
    u32 id[2];
    u32 action;
    u32 transaction;
};

struct reply {
    u32 action;
    u32 transaction;
    u32 id[2];
};

_Static_assert(sizeof(struct ethernet) == 14 && sizeof(struct tag) == 4, "headers of Ethernet");
_Static_assert(sizeof(struct ipv4) == 20 && sizeof(struct ipv6) == 40 && sizeof(struct udp) == 8, "headers of IP");
_Static_assert(sizeof(struct request) == 16 && sizeof(struct reply) == 16, "a reply is as long as its request");

enum {
    TYPE_IPV4 = 0x0800,
    TYPE_IPV6 = 0x86dd,
    TYPE_TAG = 0x8100,
    TYPE_PROVIDER_TAG = 0x88a8,
    TAGS_MAX = 2,
    PROTOCOL_UDP = 17,
    PROTOCOL_FRAGMENT = 44,
    HOPS = 64,
    // The longest payload of a frame of 1500 bytes. Longer requests are left to user space.
    PAYLOAD_MAX = 1472,
    ACTION_CONNECT = 0,
    ACTION_ANNOUNCE = 1,
    ACTION_SCRAPE = 2,
    MAGIC_HIGH = 0x417,
    MAGIC_LOW = 0x27101980,
};

// The length of a slot, as in `connection_id.rs` of the engine.
#define SLOT_NS 120000000000ULL

// Maps.

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
    u32 flags;
    // The flags of an address that is in none of the networks.
    u32 network_default;
    u32 line_mask;
    u32 unused[5];
};

_Static_assert(sizeof(struct settings) == 176, "the layout of `Settings`");

// User space writes the settings that are not active, and then makes them active.
struct control {
    u32 active;
    u32 unused[15];
    struct settings settings[4];
};

struct {
    NUMBER(type, MAP_ARRAY);
    NUMBER(map_flags, MAP_MMAPABLE);
    NUMBER(max_entries, 1);
    TYPE(key, u32);
    TYPE(value, struct control);
} controls SECTION(".maps");

struct endpoint {
    // An IPv4 address is in the first word, and the others are 0.
    u32 ip[4];
    u16 port;
    u16 family;
};

// The addresses and ports of the tracker have the value 1. Each address is there with the port 0 and the value 0 as well.
struct {
    NUMBER(type, MAP_HASH);
    NUMBER(max_entries, 1);
    TYPE(key, struct endpoint);
    TYPE(value, u32);
} endpoints SECTION(".maps");

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

// Token buckets as in `rate.rs` of shoal-source: a count-min sketch of the times at which buckets are full again. An LRU
// map would have to make room for each address of a flood, and would forget the buckets of others for it.
enum { CELLS = 8 };

struct line {
    u64 cells[CELLS];
};

struct {
    NUMBER(type, MAP_ARRAY);
    NUMBER(max_entries, 1);
    TYPE(key, u32);
    TYPE(value, struct line);
} buckets SECTION(".maps");

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

struct {
    NUMBER(type, MAP_ARRAY);
    NUMBER(map_flags, MAP_MMAPABLE);
    NUMBER(max_entries, 1);
    TYPE(key, u32);
    TYPE(value, struct backlog);
} backlogs SECTION(".maps");

// What becomes of a frame. Each but the last has a counter.
enum outcome {
    CONNECTS_V4,
    CONNECTS_V6,
    DENIED,
    RATE_LIMITED,
    UNANSWERABLE,
    REDIRECTED,
    NO_SOCKET,
    BACKLOG_FULL,
    MALFORMED,
    BAD_CHECKSUM,
    FRAGMENT,
    EXTENSION_HEADERS,
    // A connect request that is left to user space, because the slot is too old. It is counted as handed over as well.
    STALE,
    COUNTS = 16,
    // A step on the way to one of the others.
    HANDED_OVER = COUNTS,
    NOT_OURS,
};

struct counts {
    u64 of[COUNTS];
};

struct {
    NUMBER(type, MAP_PERCPU_ARRAY);
    NUMBER(max_entries, 1);
    TYPE(key, u32);
    TYPE(value, struct counts);
} counters SECTION(".maps");

INLINE void count(enum outcome outcome) {
    u32 zero = 0;
    struct counts *counts = map_lookup(&counters, &zero);
    if (counts)
        counts->of[outcome % COUNTS]++;
}

INLINE const struct settings *active_settings(void) {
    u32 zero = 0;
    struct control *control = map_lookup(&controls, &zero);
    return control ? &control->settings[control->active & 3] : 0;
}

// Returns an outcome that does not depend on the port, for an address of the tracker.
INLINE enum outcome if_ours(struct endpoint *endpoint, enum outcome outcome) {
    endpoint->port = 0;
    return map_lookup(&endpoints, endpoint) ? outcome : NOT_OURS;
}

INLINE int is_ours(const struct endpoint *endpoint) {
    u32 *has_port = map_lookup(&endpoints, endpoint);
    return has_port && *has_port;
}

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

// Checksums: sums of words of 16 or 32 bits, in the order of the machine, which gives the same bytes (RFC 1071, 2 B).

INLINE u16 fold(u64 sum) {
    sum = (sum & 0xffffffff) + (sum >> 32);
    sum = (sum & 0xffffffff) + (sum >> 32);
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    return (sum & 0xffff) + (sum >> 16);
}

INLINE u64 sum_words(const u32 *words, int count) {
    u64 sum = 0;
#pragma unroll
    for (int i = 0; i < count; i++)
        sum += words[i];
    return sum;
}

// Returns the sum of the bytes from `at` on.
OUTLINE u64 sum_bytes(const u8 *at, u32 bytes, const u8 *end) {
    u64 sum = 0;
    for (int i = 0; i < PAYLOAD_MAX / 4 && bytes >= 4 && at + 4 <= end; i++) {
        sum += *(const u32 *)at;
        at += 4;
        bytes -= 4;
    }
    if (bytes >= 2 && at + 2 <= end) {
        sum += *(const u16 *)at;
        at += 2;
        bytes -= 2;
    }
    if (bytes >= 1 && at + 1 <= end)
        sum += *at;
    return sum;
}

// A datagram for the tracker. Everything but the payload is within the frame.
struct datagram {
    struct xdp_md *context;
    struct ethernet *ethernet;
    void *ip;
    struct udp *udp;
    const u8 *end;
    // The address of the sender, whose other words are 0 for IPv4.
    u32 source[4];
    // The words of an address: 1 or 4.
    u32 words;
    u32 payload_bytes;
    u32 has_options;
};

INLINE u64 sum_addresses(const struct datagram *datagram) {
    if (datagram->words == 1)
        return sum_words(&((struct ipv4 *)datagram->ip)->source, 2);
    return sum_words(((struct ipv6 *)datagram->ip)->source, 8);
}

INLINE int is_loopback(const u32 *ip, u32 words) {
    if (words == 1)
        return (ip[0] & 0xff) == 127;
    return !(ip[0] | ip[1] | ip[2]) && ip[3] == BE32(1);
}

// Whether no reply can reach the address: it is "this network", multicast, broadcast, or an IPv4 address in an IPv6
// header. See `address.rs` of the engine.
INLINE int is_nowhere(const u32 *ip, u32 words) {
    if (words == 1) {
        u8 first = ip[0] & 0xff;
        return first == 0 || first >> 4 == 14 || ip[0] == 0xffffffff;
    }
    u32 high = ip[0] | ip[1];
    return (ip[0] & 0xff) == 0xff || (!high && (ip[2] == BE32(0xffff) || !(ip[2] | ip[3])));
}

// Returns what the operator's rules say of a source.
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

// Hands the frame to the socket of its queue, or to the kernel if there is none or if it does not keep up.
INLINE enum outcome hand_over(const struct datagram *datagram) {
    u32 queue = datagram->context->rx_queue_index;
    struct backlog *backlog = map_lookup(&backlogs, &queue);
    if (!backlog)
        return NO_SOCKET;
    u64 waiting = *(volatile u64 *)&backlog->redirected - *(volatile u64 *)&backlog->consumed;
    if (waiting >= backlog->frames_max)
        return backlog->frames_max ? BACKLOG_FULL : NO_SOCKET;
    if (redirect_map(&sockets, queue, XDP_PASS) != XDP_REDIRECT)
        return NO_SOCKET;
    __sync_fetch_and_add(&backlog->redirected, 1);
    return REDIRECTED;
}

// Turns the request into its reply, which goes back the way that it came.
INLINE enum outcome answer(const struct datagram *datagram, struct request *request, u64 id) {
    struct ethernet *ethernet = datagram->ethernet;
    u32 words = datagram->words;
    u64 addresses = sum_addresses(datagram);
#pragma unroll
    for (int i = 0; i < 6; i += 2) {
        u16 source = *(u16 *)&ethernet->source[i];
        *(u16 *)&ethernet->source[i] = *(u16 *)&ethernet->destination[i];
        *(u16 *)&ethernet->destination[i] = source;
    }
    u32 udp_bytes = sizeof(struct udp) + sizeof(struct reply);
    if (words == 1) {
        struct ipv4 *ip = datagram->ip;
        ip->version_and_words = 0x45;
        ip->service = 0;
        ip->length = BE16(sizeof(struct ipv4) + udp_bytes);
        ip->id = 0;
        ip->fragment = BE16(0x4000);
        ip->hops = HOPS;
        u64 sum = BE16(0x4500) + BE16(sizeof(struct ipv4) + udp_bytes) + BE16(0x4000) + BE16(HOPS << 8 | PROTOCOL_UDP);
        ip->checksum = ~fold(sum + addresses);
        ip->source = ip->destination;
        ip->destination = datagram->source[0];
    } else {
        struct ipv6 *ip = datagram->ip;
        ip->version_and_flow = BE32(0x60000000);
        ip->length = BE16(udp_bytes);
        ip->hops = HOPS;
        __builtin_memcpy(ip->source, ip->destination, sizeof(ip->source));
        __builtin_memcpy(ip->destination, datagram->source, sizeof(ip->destination));
    }
    struct udp *udp = datagram->udp;
    u16 source = udp->source;
    udp->source = udp->destination;
    udp->destination = source;
    udp->length = BE16(udp_bytes);
    u32 transaction = request->transaction;
    u64 id_be = BE64(id);
    struct reply *reply = (struct reply *)request;
    reply->action = ACTION_CONNECT;
    reply->transaction = transaction;
    reply->id[0] = id_be;
    reply->id[1] = id_be >> 32;
    u64 sum = addresses + BE16(PROTOCOL_UDP) + 2 * BE16(udp_bytes) + udp->source + udp->destination + transaction +
              (u32)id_be + (id_be >> 32);
    u16 checksum = ~fold(sum);
    // 0 would mean that there is none.
    udp->checksum = checksum ? checksum : 0xffff;
    // What follows the reply is cut off. If that fails, it is padding.
    int rest = (const u8 *)(reply + 1) - datagram->end;
    if (rest < 0)
        adjust_tail(datagram->context, rest);
    return words == 1 ? CONNECTS_V4 : CONNECTS_V6;
}

// Whether the checksum of the datagram is right; or absent; or the sum of the pseudo header alone, as it is if the sender is
// on this host and no hardware has completed it.
INLINE int has_right_checksum(const struct datagram *datagram, const struct request *request) {
    const struct udp *udp = datagram->udp;
    if (!udp->checksum)
        return datagram->words == 1;
    u64 pseudo = sum_addresses(datagram) + BE16(PROTOCOL_UDP) + udp->length;
    u64 sum = pseudo + udp->source + udp->destination + udp->length + udp->checksum +
              sum_words((const u32 *)request, sizeof(*request) / 4);
    if (datagram->payload_bytes > sizeof(*request))
        sum += sum_bytes((const u8 *)(request + 1), datagram->payload_bytes - sizeof(*request), datagram->end);
    return fold(sum) == 0xffff || udp->checksum == fold(pseudo);
}

INLINE enum outcome serve_connect(const struct datagram *datagram, struct request *request, const struct settings *settings,
                         u32 network) {
    if (!(settings->flags & ANSWERS_CONNECTS) || datagram->has_options || datagram->payload_bytes > PAYLOAD_MAX)
        return HANDED_OVER;
    if (!has_right_checksum(datagram, request))
        return BAD_CHECKSUM;
    u64 now_ns = ktime_coarse_ns(), slot, end_ns;
    if (!present(settings, now_ns, &slot, &end_ns)) {
        count(STALE);
        return HANDED_OVER;
    }
    if (settings->flags & LIMITS_CONNECTS && !(network & NETWORK_EXEMPT) &&
        !takes_token(datagram, settings, 1, now_ns))
        return RATE_LIMITED;
    return answer(datagram, request, connection_id(settings->keyed, datagram->source, datagram->words, slot));
}

// Whether the tracker accepts the connection id of a request. See `connection_id.rs` of the engine.
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

INLINE enum outcome serve_request(const struct datagram *datagram, struct request *request,
                                  const struct settings *settings, u32 network) {
    u32 action = BE32(request->action);
    if (action == ACTION_CONNECT && request->id[0] == BE32(MAGIC_HIGH) && request->id[1] == BE32(MAGIC_LOW))
        return serve_connect(datagram, request, settings, network);
    if (!(settings->flags & LIMITS_REQUESTS) || network & NETWORK_EXEMPT ||
        (action != ACTION_ANNOUNCE && action != ACTION_SCRAPE))
        return HANDED_OVER;
    u64 now_ns = ktime_coarse_ns();
    // A forged request uses up no tokens of another source.
    if (is_verified(datagram, request, settings, now_ns) && !takes_token(datagram, settings, 0, now_ns))
        return RATE_LIMITED;
    return HANDED_OVER;
}

// Serves a datagram for the tracker. Its lengths are right.
INLINE enum outcome serve(const struct datagram *datagram) {
    if ((datagram->ethernet->destination[0] | datagram->ethernet->source[0]) & 1)
        return MALFORMED;
    if (is_loopback(datagram->source, datagram->words))
        return MALFORMED;
    if (!datagram->udp->source || is_nowhere(datagram->source, datagram->words))
        return UNANSWERABLE;
    const struct settings *settings = active_settings();
    if (!settings)
        return NO_SOCKET;
    u32 network = network_flags(settings, datagram->source, datagram->words);
    if (network & NETWORK_DENIED)
        return DENIED;
    struct request *request = (struct request *)(datagram->udp + 1);
    if (datagram->payload_bytes >= sizeof(*request) && (const u8 *)(request + 1) <= datagram->end) {
        enum outcome outcome = serve_request(datagram, request, settings, network);
        if (outcome != HANDED_OVER)
            return outcome;
    }
    return hand_over(datagram);
}

INLINE enum outcome serve_v4(struct datagram *datagram) {
    struct ipv4 *ip = datagram->ip;
    if ((const u8 *)(ip + 1) > datagram->end)
        return NOT_OURS;
    u32 header_bytes = (ip->version_and_words & 0xf) * 4;
    if (ip->version_and_words >> 4 != 4 || header_bytes < sizeof(*ip) || ip->protocol != PROTOCOL_UDP)
        return NOT_OURS;
    struct endpoint endpoint = {.ip = {ip->destination}, .family = 4};
    if (ip->fragment & BE16(0x3fff))
        return if_ours(&endpoint, FRAGMENT);
    struct udp *udp = datagram->ip + header_bytes;
    if ((const u8 *)(udp + 1) > datagram->end)
        return if_ours(&endpoint, MALFORMED);
    endpoint.port = udp->destination;
    if (!is_ours(&endpoint))
        return NOT_OURS;
    u32 ip_bytes = BE16(ip->length), udp_bytes = BE16(udp->length);
    if ((const u8 *)datagram->ip + ip_bytes > datagram->end || udp_bytes < sizeof(*udp) ||
        ip_bytes != header_bytes + udp_bytes)
        return MALFORMED;
    u64 sum = sum_words(datagram->ip, 5);
    if (header_bytes > sizeof(*ip))
        sum += sum_bytes((const u8 *)(ip + 1), header_bytes - sizeof(*ip), datagram->end);
    if (fold(sum) != 0xffff)
        return BAD_CHECKSUM;
    datagram->udp = udp;
    datagram->source[0] = ip->source;
    datagram->words = 1;
    datagram->payload_bytes = udp_bytes - sizeof(*udp);
    datagram->has_options = header_bytes > sizeof(*ip);
    return serve(datagram);
}

INLINE enum outcome serve_v6(struct datagram *datagram) {
    struct ipv6 *ip = datagram->ip;
    if ((const u8 *)(ip + 1) > datagram->end || (ip->version_and_flow & 0xf0) != 0x60)
        return NOT_OURS;
    struct endpoint endpoint = {
        .ip = {ip->destination[0], ip->destination[1], ip->destination[2], ip->destination[3]}, .family = 6};
    switch (ip->protocol) {
    case PROTOCOL_UDP:
        break;
    case PROTOCOL_FRAGMENT:
        return if_ours(&endpoint, FRAGMENT);
    case 0:
    case 43:
    case 51:
    case 60:
    case 135:
    case 139:
    case 140:
        return if_ours(&endpoint, EXTENSION_HEADERS);
    default:
        return NOT_OURS;
    }
    struct udp *udp = (struct udp *)(ip + 1);
    if ((const u8 *)(udp + 1) > datagram->end)
        return if_ours(&endpoint, MALFORMED);
    endpoint.port = udp->destination;
    if (!is_ours(&endpoint))
        return NOT_OURS;
    u32 udp_bytes = BE16(udp->length);
    if ((const u8 *)udp + udp_bytes > datagram->end || udp_bytes < sizeof(*udp) || ip->length != udp->length)
        return MALFORMED;
    datagram->udp = udp;
    __builtin_memcpy(datagram->source, ip->source, sizeof(ip->source));
    datagram->words = 4;
    datagram->payload_bytes = udp_bytes - sizeof(*udp);
    datagram->has_options = 0;
    return serve(datagram);
}

INLINE enum outcome outcome_of(struct xdp_md *context) {
    struct datagram datagram = {.context = context, .end = (const u8 *)(long)context->data_end};
    datagram.ethernet = (struct ethernet *)(long)context->data;
    if ((const u8 *)(datagram.ethernet + 1) > datagram.end)
        return NOT_OURS;
    u16 type = datagram.ethernet->type;
    datagram.ip = datagram.ethernet + 1;
#pragma unroll
    for (int i = 0; i < TAGS_MAX; i++) {
        if (type != BE16(TYPE_TAG) && type != BE16(TYPE_PROVIDER_TAG))
            break;
        struct tag *tag = datagram.ip;
        if ((const u8 *)(tag + 1) > datagram.end)
            return NOT_OURS;
        type = tag->type;
        datagram.ip = tag + 1;
    }
    if (type == BE16(TYPE_IPV4))
        return serve_v4(&datagram);
    if (type == BE16(TYPE_IPV6))
        return serve_v6(&datagram);
    return NOT_OURS;
}

SECTION("xdp") int shoal(struct xdp_md *context) {
    enum outcome outcome = outcome_of(context);
    if (outcome == NOT_OURS)
        return XDP_PASS;
    count(outcome);
    switch (outcome) {
    case CONNECTS_V4:
    case CONNECTS_V6:
        return XDP_TX;
    case DENIED:
    case RATE_LIMITED:
    case UNANSWERABLE:
        return XDP_DROP;
    case REDIRECTED:
        return XDP_REDIRECT;
    default:
        return XDP_PASS;
    }
}
