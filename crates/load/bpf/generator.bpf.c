// SPDX-License-Identifier: MIT OR Apache-2.0
//
// A load generator at the driver hook: every reply of the tracker becomes the next request, in the same frame, which is
// sent back. User space writes announces and scrapes into a ring in advance, injects the first frames, reads the
// counters, and replaces frames that were lost.
//
// The frames in flight are numbered: each belongs to a slot, which holds the transaction id of its last request. Only the
// reply with that id continues the slot. Requests are sent from several addresses, each with a connection id that the
// program takes from the connect replies.

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/udp.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define SLOTS 256
#define SOURCES_MAX 256
#define RING 8192
#define SAMPLES 4096
#define PAYLOAD_MAX 216
#define SCRAPE_HASHES_MAX 10
#define ERROR_BYTES 64

#define HEAD_BYTES (ETH_HLEN + sizeof(struct iphdr) + sizeof(struct udphdr))
#define CONNECT_BYTES 16
#define ANNOUNCE_BYTES 98
#define ANNOUNCE_REPLY_BYTES 20
#define HASH_BYTES 20
#define PEER_BYTES 6

// A frame that user space injects has this type (IEEE 802, local experimental), which no network carries.
#define ETH_P_SEED 0x88b5

#define ACTION_CONNECT 0
#define ACTION_ANNOUNCE 1
#define ACTION_SCRAPE 2
#define ACTION_ERROR 3

// The kind of a request, and the number of hashes of a scrape, are part of its transaction id, which is never 0:
// kind (2 bits), hashes (4 bits), a counter (18 bits), the slot (8 bits).
#define KIND_CONNECT 1
#define KIND_ANNOUNCE 2
#define KIND_SCRAPE 3

// One request in so many is timed.
#define SAMPLE_MASK 63

struct control {
	__u64 produced; // Requests that user space has written to the ring.
	__u64 consumed; // Requests that were taken from it.
	__u64 sent; // Requests of any kind.
	__u64 requests_max; // Slots end once so many were sent.
	__u64 sampled; // Latencies that were written to the samples.
	__u64 connect_chance; // The share of connects, of 2^32.
	__u64 magic; // What an injected frame carries.
	__u64 random;
	__u32 is_stopped; // Slots end with their reply.
	__u32 server_ip;
	__u32 sources;
	__u32 peers_max;
	__u32 next_source;
	__u32 padding;
	__u16 server_port;
	__u16 first_port; // Source n has port first_port + n, in the byte order of the host.
	__u16 has_ethernet;
	__u16 ethernet[ETH_HLEN / 2]; // The header of all requests, taken from a reply to a socket.
	__u32 error_bytes;
	__u8 error[ERROR_BYTES];
};

struct source {
	__u64 connection_id;
	__u64 connects; // Connect replies.
	__u32 ip;
	__u32 must_connect; // Its next request is a connect.
};

struct slot {
	__u32 transaction; // In the byte order of the network. 0: nothing is in flight.
	__u32 padding;
	__u64 sent_ns; // 0: not timed.
};

struct request {
	__u32 sum; // The checksum of the payload without connection id and transaction id, not folded.
	__u16 bytes;
	__u8 kind;
	__u8 hashes;
	__u32 source;
	__u32 padding;
	__u8 payload[PAYLOAD_MAX];
	__u8 unused[24];
};

struct counts {
	__u64 requests[3]; // Connects, announces, scrapes.
	__u64 responses[3];
	__u64 peers;
	__u64 announce_reply_bytes;
	__u64 errors;
	__u64 malformed;
	__u64 action;
	__u64 transaction;
	__u64 count;
	__u64 repeated; // Requests that were taken from the ring again, because user space was late.
	__u64 failed; // Frames that could not become a request.
};

struct sample {
	__u64 ns;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct control);
} controls SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SOURCES_MAX);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct source);
} sources SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SLOTS);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct slot);
} slots SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, RING);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct request);
} requests SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SAMPLES);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct sample);
} samples SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct counts);
} counters SEC(".maps");

struct seed {
	struct ethhdr ethernet;
	__u16 slot;
	__u64 magic;
} __attribute__((packed));

static __always_inline __u32 fold(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

// Draws by SplitMix64. Two processors may draw the same number, which does no harm.
static __always_inline __u64 draw(struct control *control)
{
	__u64 state = control->random += 0x9e3779b97f4a7c15;
	state = (state ^ (state >> 30)) * 0xbf58476d1ce4e5b9;
	state = (state ^ (state >> 27)) * 0x94d049bb133111eb;
	return state ^ (state >> 31);
}

static __always_inline __u32 next_source(struct control *control)
{
	__u32 source = control->next_source;
	control->next_source = source + 1 < control->sources ? source + 1 : 0;
	return source;
}

// Turns the frame into the next request of a slot.
static __always_inline int send_next(struct xdp_md *ctx, struct control *control, struct counts *counts, struct slot *slot,
				     __u32 slot_number)
{
	__u64 number = __sync_fetch_and_add(&control->sent, 1);
	if (control->is_stopped || number >= control->requests_max) {
		__sync_fetch_and_sub(&control->sent, 1);
		slot->transaction = 0;
		return XDP_DROP;
	}
	struct request *request = 0;
	__u32 kind = KIND_CONNECT, payload_bytes = CONNECT_BYTES, hashes = 0, source_number;
	__u64 consumed = control->consumed;
	if ((draw(control) >> 32) >= control->connect_chance) {
		__u32 key = consumed & (RING - 1);
		request = bpf_map_lookup_elem(&requests, &key);
	}
	source_number = request ? request->source : next_source(control);
	struct source *source = bpf_map_lookup_elem(&sources, &source_number);
	if (!source) {
		slot->transaction = 0;
		counts->failed += 1;
		return XDP_DROP;
	}
	if (request && !source->must_connect && source->connects) {
		kind = request->kind;
		payload_bytes = request->bytes;
		hashes = request->hashes;
		if (consumed >= *(volatile __u64 *)&control->produced)
			counts->repeated += 1;
		// Two processors may take the same request, which does no harm.
		control->consumed = consumed + 1;
	} else {
		// The request waits until its source has a connection id.
		request = 0;
		source->must_connect = 0;
	}

	// The frame of a reply has space in front of its headers, but not always behind its end.
	long old_bytes = (long)ctx->data_end - (long)ctx->data;
	// The verifier knows no arithmetic on parts of a pointer.
	asm volatile("" : "+r"(old_bytes));
	if (bpf_xdp_adjust_head(ctx, (int)(old_bytes - (long)(HEAD_BYTES + payload_bytes)))) {
		slot->transaction = 0;
		counts->failed += 1;
		return XDP_DROP;
	}
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ethhdr *ethernet = data;
	struct iphdr *ip = (void *)(ethernet + 1);
	struct udphdr *udp = (void *)(ip + 1);
	// Connection id, action and transaction id.
	__u32 *payload = (void *)(udp + 1);
	if ((void *)(payload + 4) > end) {
		slot->transaction = 0;
		counts->failed += 1;
		return XDP_DROP;
	}

	__u32 transaction = bpf_htonl(kind << 30 | (hashes & 15) << 26 | (number & 0x3ffff) << 8 | slot_number);
	__u16 source_port = bpf_htons(control->first_port + source_number);
	__u16 udp_bytes = bpf_htons(sizeof(struct udphdr) + payload_bytes);
	__u64 sum = 0;

	for (int word = 0; word < ETH_HLEN / 2; word += 1)
		((__u16 *)data)[word] = control->ethernet[word];
	*ip = (struct iphdr){
		.version = 4,
		.ihl = 5,
		.tot_len = bpf_htons(HEAD_BYTES - ETH_HLEN + payload_bytes),
		.frag_off = bpf_htons(0x4000),
		.ttl = 64,
		.protocol = IPPROTO_UDP,
		.saddr = source->ip,
		.daddr = control->server_ip,
	};
	__u64 addresses = (__u64)source->ip + control->server_ip;
	ip->check =
		~fold(addresses + bpf_htons(0x4500) + ip->tot_len + ip->frag_off + bpf_htons(64 << 8 | IPPROTO_UDP));
	udp->source = source_port;
	udp->dest = control->server_port;
	udp->len = udp_bytes;
	payload[3] = transaction;
	sum = addresses + bpf_htons(IPPROTO_UDP) + udp_bytes + udp_bytes + source_port + control->server_port + transaction;

	if (!request) {
		// The protocol's magic number.
		payload[0] = bpf_htonl(0x417);
		payload[1] = bpf_htonl(0x27101980);
		payload[2] = 0;
		sum += (__u64)bpf_htonl(0x417) + bpf_htonl(0x27101980);
		counts->requests[0] += 1;
	} else {
		__u32 *id = (__u32 *)&source->connection_id;
		payload[0] = id[0];
		payload[1] = id[1];
		sum += (__u64)id[0] + id[1] + request->sum;
		if (kind == KIND_ANNOUNCE) {
			payload[2] = bpf_htonl(ACTION_ANNOUNCE);
			if ((void *)payload + ANNOUNCE_BYTES > end) {
				slot->transaction = 0;
				counts->failed += 1;
				return XDP_DROP;
			}
			__u64 *from = (void *)request->payload, *to = (void *)payload;
#pragma clang loop unroll(full)
			for (int word = CONNECT_BYTES / 8; word < ANNOUNCE_BYTES / 8; word += 1)
				to[word] = from[word];
			*(__u16 *)(to + ANNOUNCE_BYTES / 8) = *(__u16 *)(from + ANNOUNCE_BYTES / 8);
			counts->requests[1] += 1;
		} else {
			payload[2] = bpf_htonl(ACTION_SCRAPE);
			__u32 *from = (void *)(request->payload + CONNECT_BYTES), *to = payload + CONNECT_BYTES / 4;
			for (__u32 hash = 0; hash < SCRAPE_HASHES_MAX; hash += 1) {
				if (hash >= hashes || (void *)(to + HASH_BYTES / 4) > end)
					break;
#pragma clang loop unroll(full)
				for (int word = 0; word < HASH_BYTES / 4; word += 1)
					to[word] = from[word];
				to += HASH_BYTES / 4;
				from += HASH_BYTES / 4;
			}
			counts->requests[2] += 1;
		}
	}
	__u16 check = ~fold(sum);
	udp->check = check ? check : 0xffff;
	slot->sent_ns = number & SAMPLE_MASK ? 0 : bpf_ktime_get_ns();
	*(volatile __u32 *)&slot->transaction = transaction;
	// A veth ignores XDP_TX unless its peer has a program too, which only some trackers have.
	return bpf_redirect(ctx->ingress_ifindex, 0);
}

static __always_inline void note_latency(struct control *control, struct slot *slot)
{
	__u64 ns = bpf_ktime_get_ns() - slot->sent_ns;
	__u32 key = __sync_fetch_and_add(&control->sampled, 1) & (SAMPLES - 1);
	struct sample *sample = bpf_map_lookup_elem(&samples, &key);
	if (sample)
		sample->ns = ns;
}

static __always_inline void check_announce(struct control *control, struct counts *counts, __u32 bytes)
{
	__u32 peer_bytes = bytes - ANNOUNCE_REPLY_BYTES, peers = peer_bytes / PEER_BYTES;
	if (bytes < ANNOUNCE_REPLY_BYTES || peers * PEER_BYTES != peer_bytes) {
		counts->malformed += 1;
	} else if (peers > control->peers_max) {
		counts->count += 1;
	} else {
		counts->peers += peers;
		counts->announce_reply_bytes += bytes;
		counts->responses[1] += 1;
	}
}

SEC("xdp")
int generate(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u32 zero = 0;
	struct control *control = bpf_map_lookup_elem(&controls, &zero);
	struct counts *counts = bpf_map_lookup_elem(&counters, &zero);
	if (!control || !counts)
		return XDP_PASS;

	struct seed *seed = data;
	if ((void *)(seed + 1) <= end && seed->ethernet.h_proto == bpf_htons(ETH_P_SEED)) {
		__u32 number = seed->slot;
		struct slot *slot = bpf_map_lookup_elem(&slots, &number);
		if (seed->magic != control->magic || !slot)
			return XDP_DROP;
		return send_next(ctx, control, counts, slot, number);
	}

	struct ethhdr *ethernet = data;
	struct iphdr *ip = (void *)(ethernet + 1);
	struct udphdr *udp = (void *)(ip + 1);
	if ((void *)(udp + 1) > end || ethernet->h_proto != bpf_htons(ETH_P_IP) || ip->version != 4 || ip->ihl != 5 ||
	    ip->protocol != IPPROTO_UDP || ip->saddr != control->server_ip || udp->source != control->server_port ||
	    ip->frag_off & bpf_htons(0x3fff))
		return XDP_PASS;
	__u32 source_number = (__u16)(bpf_ntohs(udp->dest) - control->first_port);
	if (source_number >= control->sources) {
		// A reply to a socket. Requests take the way back.
		if (!control->has_ethernet) {
			__builtin_memcpy(control->ethernet, ethernet->h_source, ETH_ALEN);
			__builtin_memcpy(control->ethernet + ETH_ALEN / 2, ethernet->h_dest, ETH_ALEN);
			control->ethernet[ETH_ALEN] = ethernet->h_proto;
			control->has_ethernet = 1;
		}
		return XDP_PASS;
	}

	// Action and transaction id begin every reply.
	__u32 *payload = (void *)(udp + 1);
	__u32 bytes = bpf_ntohs(udp->len) - sizeof(*udp);
	__u32 available = (long)end - (long)payload;
	if ((void *)(payload + 2) > end || bytes < 8 || bytes > available) {
		counts->malformed += 1;
		return XDP_DROP;
	}
	__u32 transaction = payload[1], id = bpf_ntohl(transaction), kind = id >> 30, slot_number = id & (SLOTS - 1);
	struct slot *slot = bpf_map_lookup_elem(&slots, &slot_number);
	struct source *source = bpf_map_lookup_elem(&sources, &source_number);
	if (!slot || !source || ip->daddr != source->ip || *(volatile __u32 *)&slot->transaction != transaction) {
		counts->transaction += 1;
		return XDP_DROP;
	}
	if (slot->sent_ns)
		note_latency(control, slot);
	__u32 action = bpf_ntohl(payload[0]);
	if (action == ACTION_ERROR) {
		counts->errors += 1;
		if (!control->error_bytes) {
			__u32 offset = (long)(payload + 2) - (long)data, length = bytes - 8;
			if (length > ERROR_BYTES)
				length = ERROR_BYTES;
			if (length > 0 && !bpf_xdp_load_bytes(ctx, offset, control->error, length))
				control->error_bytes = length;
		}
		// A refusal may be due to an old connection id.
		source->must_connect = 1;
	} else if (action != kind - 1) {
		counts->action += 1;
	} else if (action == ACTION_CONNECT) {
		if ((void *)(payload + 4) > end || bytes != CONNECT_BYTES) {
			counts->malformed += 1;
		} else {
			__u32 *to = (__u32 *)&source->connection_id;
			to[0] = payload[2];
			to[1] = payload[3];
			source->connects += 1;
			counts->responses[0] += 1;
		}
	} else if (action == ACTION_ANNOUNCE) {
		check_announce(control, counts, bytes);
	} else if (bytes != 8 + 12 * (id >> 26 & 15)) {
		counts->count += 1;
	} else {
		counts->responses[2] += 1;
	}
	return send_next(ctx, control, counts, slot, slot_number);
}

char license_text[] SEC("license") = "Dual MIT/GPL";
