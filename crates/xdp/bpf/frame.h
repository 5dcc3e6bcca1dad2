// Frames: datagrams for the tracker, their checksums and addresses. `src/frame.rs` is the same in Rust.
#pragma once

#include "headers.h"

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

_Static_assert(sizeof(struct request) == 16 && sizeof(struct reply) == 16, "a reply is as long as its request");

enum {
    // The longest payload of a frame of 1500 bytes. Longer requests are left to user space.
    PAYLOAD_MAX = 1472,
    PAYLOAD_MAX_MASK = 0x7ff,
    // Bytes that are summed at once.
    STEP = 16,
    // The shortest frame of Ethernet, without the checksum at its end. The card pads shorter ones.
    FRAME_MIN = 60,
    // The longest frame for a socket: longer ones would not leave room for the reply in the memory of a frame.
    REDIRECTED_MAX = 2304,
};

INLINE u64 sum_words(const u32 *words, int count) {
    u64 sum = 0;
#pragma unroll
    for (int i = 0; i < count; i++)
        sum += words[i];
    return sum;
}

// Returns the sum of the bytes from `at` on. The verifier follows each turn of the loop, hence the long steps, and the rest
// comes first, because the paths through it would multiply with the turns.
OUTLINE u64 sum_bytes(const u8 *at, u32 bytes, const u8 *end) {
    u64 sum = 0;
    const u8 *rest = at + (bytes & (PAYLOAD_MAX_MASK - STEP + 1));
    if (bytes & 8 && rest + 8 <= end) {
        sum += sum_words((const u32 *)rest, 2);
        rest += 8;
    }
    if (bytes & 4 && rest + 4 <= end) {
        sum += *(const u32 *)rest;
        rest += 4;
    }
    if (bytes & 2 && rest + 2 <= end) {
        sum += *(const u16 *)rest;
        rest += 2;
    }
    if (bytes & 1 && rest + 1 <= end)
        sum += *rest;
    for (int i = 0; i < PAYLOAD_MAX / STEP && bytes >= STEP && at + STEP <= end; i++) {
        sum += sum_words((const u32 *)at, STEP / 4);
        at += STEP;
        bytes -= STEP;
    }
    return sum;
}

struct endpoint;

// A datagram for the tracker. Everything but the payload is within the frame.
struct datagram {
    struct xdp_md *context;
    const struct settings *settings;
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
    // The address and port of the tracker.
    const struct endpoint *endpoint;
    // The index of its segment.
    u32 segment;
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

// Returns whether no reply can reach the address: it is "this network", multicast, broadcast, or an IPv4 address in an IPv6
// header. See `address.rs` of the engine.
INLINE int is_nowhere(const u32 *ip, u32 words) {
    if (words == 1) {
        u8 first = ip[0] & 0xff;
        return first == 0 || first >> 4 == 14 || ip[0] == 0xffffffff;
    }
    u32 high = ip[0] | ip[1];
    return (ip[0] & 0xff) == 0xff || (!high && (ip[2] == BE32(0xffff) || !(ip[2] | ip[3])));
}
