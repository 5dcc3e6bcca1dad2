// The way back to the source of a frame.
#pragma once

#include "frame.h"
#include "maps.h"

// `struct bpf_fib_lookup` of `linux/bpf.h`.
struct fib_parameters {
    u8 family;
    u8 protocol;
    u16 source_port;
    u16 destination_port;
    u16 total_bytes;
    u32 interface_index;
    u32 flow;
    u32 source[4];
    u32 destination[4];
    u16 vlan[2];
    u8 source_mac[6];
    u8 destination_mac[6];
};

_Static_assert(sizeof(struct fib_parameters) == 64, "the layout of the kernel");

enum {
    FAMILY_V4 = 2,
    FAMILY_V6 = 10,
    // The loopback interface has this index in every network namespace.
    LOOPBACK_INDEX = 1,
};

// Returns whether MAC addresses differ.
INLINE int is_other_mac(const u8 *one, const u8 *other) {
    const u16 *a = (const u16 *)one, *b = (const u16 *)other;
    return (a[0] ^ b[0]) | (a[1] ^ b[1]) | (a[2] ^ b[2]);
}

// Returns whether the kernel would send a reply into this segment, to the MAC address that sent the frame. The kernel looks it up as
// for a packet of this host, which it takes for one from the loopback interface, and only if that forwards.
OUTLINE int is_route_back(const struct datagram *datagram, const struct segment *segment) {
    struct fib_parameters route = {
        .family = datagram->words == 1 ? FAMILY_V4 : FAMILY_V6,
        .protocol = PROTOCOL_UDP,
        .source_port = datagram->endpoint->port,
        .destination_port = datagram->udp->source,
        .interface_index = LOOPBACK_INDEX,
    };
#pragma unroll
    for (int i = 0; i < 4; i++) {
        route.source[i] = datagram->endpoint->ip[i];
        route.destination[i] = datagram->source[i];
    }
    // Any other result than 0 tells why there is none; without an entry for the neighbour, the kernel's own reply makes one.
    return !fib_lookup(datagram->context, &route, sizeof(route), 0) &&
           route.interface_index == segment->interface_index &&
           !is_other_mac(route.destination_mac, datagram->ethernet->source);
}

// Does the same. An answer of the kernel that there is one holds for a second: a look-up takes 80 ns, and 190 for IPv6.
INLINE int has_route_back(const struct datagram *datagram, const struct segment *segment, u64 now_ns) {
    const u32 *ip = datagram->source;
    u32 hash = hash_of(ip, 0), block = hash >> (32 - ROUTE_BLOCKS_BITS);
    struct route_block *routes_of = map_lookup(&routes, &block);
    if (!routes_of)
        return 0;
    struct route *route = &routes_of->routes[hash >> (32 - ROUTE_BLOCKS_BITS - ROUTES_BITS) & ((1 << ROUTES_BITS) - 1)];
    const u8 *mac = datagram->ethernet->source;
    u32 time = now_ns >> ROUTE_TIME_SHIFT, endpoint = hash_of(datagram->endpoint->ip, datagram->endpoint->port);
    u16 segment_and_family = datagram->segment << 1 | (datagram->words == 1);
    u32 differs = (route->segment_and_family ^ segment_and_family) | (route->endpoint ^ endpoint);
#pragma unroll
    for (int i = 0; i < 4; i++)
        differs |= route->ip[i] ^ ip[i];
    if (!differs && !is_other_mac(route->mac, mac) && time - route->time < ROUTE_TIMES_MAX)
        return 1;
    if (!is_route_back(datagram, segment))
        return 0;
#pragma unroll
    for (int i = 0; i < 4; i++)
        route->ip[i] = ip[i];
    __builtin_memcpy(route->mac, mac, sizeof(route->mac));
    route->segment_and_family = segment_and_family;
    route->endpoint = endpoint;
    route->time = time;
    return 1;
}
