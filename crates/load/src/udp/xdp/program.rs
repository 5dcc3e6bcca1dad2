//! The program: loaded, attached to the interface, and its maps.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};

use aya::Ebpf;
use aya::maps::{Map, MapData, PerCpuArray};
use aya::programs::{ProgramFd, Xdp, XdpMode};

use super::inject::inject;
use super::shared::{Control, Mapped, RING, Request, SAMPLES, SLOTS, SOURCES_MAX, Shared, Slot, Source};

/// The program, attached to an interface until it is dropped.
pub(super) struct Program {
    /// Detaches it.
    _ebpf: Ebpf,
    descriptor: ProgramFd,
    interface: u32,
    magic: u64,
    control: Mapped<Control>,
    pub(super) sources: Mapped<Source>,
    pub(super) slots: Mapped<Slot>,
    pub(super) requests: Mapped<Request>,
    pub(super) samples: Mapped<AtomicU64>,
    counters: PerCpuArray<MapData, [u64; COUNTS]>,
}

fn mapped<T: Shared>(ebpf: &mut Ebpf, name: &str, entries: usize) -> Result<Mapped<T>, String> {
    let Some(Map::Array(map)) = ebpf.take_map(name) else {
        return Err(format!("the object of the generator has no map {name}"));
    };
    Mapped::new(map.fd().as_fd(), entries).map_err(|error| format!("cannot map the map {name}: {error}"))
}

/// The counts of the program, in the order of `struct counts`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts(pub(super) [u64; COUNTS]);

/// The number of fields of `struct counts`.
const COUNTS: usize = 17;

/// The port of the first source. It is below those that the kernel gives to sockets.
const FIRST_PORT: u16 = 10_000;

/// The slot of a frame that becomes a connect of a flood.
const FLOOD_SLOT: u16 = u16::MAX;

/// The length of an injected frame. The kernel uses the memory of its copies again, with what the program has left there. A connect
/// of a flood is written to the end of the frame, so the mark at its beginning is still there the next time.
const SEED_BYTES: usize = 128;

const _: () = assert!(MARK_BYTES + CONNECT_FRAME_BYTES <= SEED_BYTES);

/// An Ethernet header, a slot and a number.
const MARK_BYTES: usize = 14 + 2 + 8;

/// Headers of Ethernet, IPv4 and UDP, and a connect.
const CONNECT_FRAME_BYTES: usize = 14 + 20 + 8 + 16;

/// The type of an injected frame.
const SEED_TYPE: u16 = 0x88b5;

const OBJECT: &[u8] = aya::include_bytes_aligned!("../../../bpf/generator.bpf.o");

impl Program {
    /// Loads the program and attaches it to an interface, all of whose frames it passes on at first.
    pub(super) fn attach(interface: &str) -> Result<Self, String> {
        let (mut ebpf, index, descriptor) = attach("generate", interface)?;
        let counters = ebpf.take_map("counters").and_then(|map| map.try_into().ok());
        Ok(Self {
            descriptor,
            interface: index,
            magic: random(),
            control: mapped(&mut ebpf, "controls", 1)?,
            sources: mapped(&mut ebpf, "sources", SOURCES_MAX)?,
            slots: mapped(&mut ebpf, "slots", SLOTS)?,
            requests: mapped(&mut ebpf, "requests", RING)?,
            samples: mapped(&mut ebpf, "samples", SAMPLES)?,
            counters: counters.ok_or("the object of the generator has no counters")?,
            _ebpf: ebpf,
        })
    }

    pub(super) fn configure(&self, server: SocketAddr, sources: &[SocketAddr]) -> Result<(), String> {
        let SocketAddr::V4(server) = server else {
            return Err(format!(
                "the generator at the driver hook sends no requests over IPv6, as to {server}"
            ));
        };
        let Ok(count) = u32::try_from(sources.len().min(SOURCES_MAX)) else { unreachable!("there are few") };
        let control = self.control();
        control.is_stopped.store(1, Ordering::Relaxed);
        control.has_ethernet.store(0, Ordering::Relaxed);
        control.magic.store(self.magic, Ordering::Relaxed);
        control.server_ip.store(u32::from_ne_bytes(server.ip().octets()), Ordering::Relaxed);
        control.server_port.store(server.port().to_be(), Ordering::Relaxed);
        control.first_port.store(FIRST_PORT, Ordering::Relaxed);
        // The ring is empty.
        control.produced.store(control.consumed.load(Ordering::Relaxed), Ordering::Relaxed);
        control.next_source.store(0, Ordering::Relaxed);
        self.slots.iter().for_each(|slot| slot.transaction.store(0, Ordering::Relaxed));
        for (source, address) in self.sources.iter().zip(sources) {
            let IpAddr::V4(ip) = address.ip() else { continue };
            source.ip.store(u32::from_ne_bytes(ip.octets()), Ordering::Relaxed);
            source.connects.store(0, Ordering::Relaxed);
        }
        control.sources.store(count, Ordering::Release);
        Ok(())
    }

    /// Passes all frames on from now on.
    pub(super) fn rest(&self) {
        self.control().sources.store(0, Ordering::Release);
    }

    pub(super) fn control(&self) -> &Control {
        &self.control[0]
    }

    /// Puts a frame into a slot, which carries one request after the other from then on.
    pub(super) fn start_slot(&self, slot: u16) -> Result<(), String> {
        self.inject(slot, 1, 1)
    }

    pub(super) fn flood(&self, connects: u32, batch: u32) -> Result<(), String> {
        self.inject(FLOOD_SLOT, connects, batch)
    }

    fn inject(&self, slot: u16, frames: u32, batch: u32) -> Result<(), String> {
        let (interface, magic) = (self.interface, self.magic);
        let mut frame = [0; SEED_BYTES];
        frame[12..14].copy_from_slice(&SEED_TYPE.to_be_bytes());
        frame[14..16].copy_from_slice(&slot.to_ne_bytes());
        frame[16..24].copy_from_slice(&magic.to_ne_bytes());
        inject(self.descriptor.as_fd(), interface, &frame, frames, batch)
            .map_err(|error| format!("the kernel injects no frames (BPF_PROG_RUN): {error}"))
    }

    pub(super) fn counts(&self) -> Result<Counts, String> {
        let values =
            self.counters.get(&0, 0).map_err(|error| format!("cannot read the counters: {error}"))?;
        let mut sum = Counts::default();
        for value in values.iter() {
            sum.0.iter_mut().zip(value).for_each(|(sum, count)| *sum += count);
        }
        Ok(sum)
    }
}

/// Returns a number that no other process knows.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Loads a program and attaches it until the object is dropped. Returns the interface index and the program, too.
fn attach(program: &str, interface: &str) -> Result<(Ebpf, u32, ProgramFd), String> {
    let index = nix::net::if_::if_nametoindex(interface)
        .map_err(|error| format!("there is no network interface {interface}: {error}"))?;
    let refused = |error: &dyn std::error::Error| {
        let cause = error.source().map(|source| format!(": {source}")).unwrap_or_default();
        format!(
            "the kernel refuses the program of the generator on {interface} ({error}{cause}): run as root"
        )
    };
    let mut ebpf = Ebpf::load(OBJECT).map_err(|error| refused(&error))?;
    let xdp: Option<&mut Xdp> = ebpf.program_mut(program).and_then(|program| program.try_into().ok());
    let xdp = xdp.ok_or_else(|| format!("the object of the generator has no program {program}"))?;
    xdp.load().map_err(|error| refused(&error))?;
    xdp.attach_to_if_index(index, XdpMode::Driver).map_err(|error| refused(&error))?;
    let descriptor = xdp.fd().and_then(|fd| Ok(fd.try_clone()?)).map_err(|error| refused(&error))?;
    Ok((ebpf, index, descriptor))
}

/// The program that drops what comes from the network of a flood, attached until this is dropped.
pub(super) struct Discarding {
    _ebpf: Ebpf,
}

impl Discarding {
    /// Attaches the program. `network` and `hosts` are those of the flood, in network byte order.
    pub(super) fn attach(interface: &str, network: u32, hosts: u32) -> Result<Self, String> {
        let (mut ebpf, ..) = attach("discard", interface)?;
        let control = mapped::<Control>(&mut ebpf, "controls", 1)?;
        control[0].flood_network.store(network, Ordering::Relaxed);
        control[0].flood_hosts.store(hosts, Ordering::Release);
        Ok(Self { _ebpf: ebpf })
    }
}

impl Counts {
    pub(super) fn since(&self, before: &Self) -> Self {
        Self(std::array::from_fn(|index| self.0[index].wrapping_sub(before.0[index])))
    }
}
