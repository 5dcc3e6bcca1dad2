//! The program: loaded, attached to the interface, and its maps.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};

use aya::Ebpf;
use aya::maps::{Map, MapData, PerCpuArray};
use aya::programs::{Xdp, XdpMode};
use rand::RngExt;
use rand::rngs::SmallRng;

use super::inject::inject;
use super::shared::{Control, Mapped, RING, Request, SAMPLES, SLOTS, SOURCES_MAX, Slot, Source};

/// The program, attached to an interface until it is dropped.
pub(super) struct Program {
    ebpf: Ebpf,
    interface: u32,
    magic: u64,
    control: Mapped<Control>,
    pub(super) sources: Mapped<Source>,
    pub(super) slots: Mapped<Slot>,
    pub(super) requests: Mapped<Request>,
    pub(super) samples: Mapped<AtomicU64>,
    counters: PerCpuArray<MapData, [u64; COUNTS]>,
}

/// What the program counts.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts([u64; COUNTS]);

/// The number of fields of `struct counts`.
const COUNTS: usize = 15;

/// The port of the first source. It is below those that the kernel gives to sockets.
const FIRST_PORT: u16 = 10_000;

/// The type of an injected frame.
const SEED_TYPE: u16 = 0x88b5;

const OBJECT: &[u8] = aya::include_bytes_aligned!("../../../bpf/generator.bpf.o");

impl Program {
    /// Loads the program and attaches it to an interface. Requests come from `sources` and go to `server`.
    pub(super) fn attach(
        interface: &str,
        server: SocketAddr,
        sources: &[SocketAddr],
        random: &mut SmallRng,
    ) -> Result<Self, String> {
        let SocketAddr::V4(server) = server else {
            return Err(format!("the generator at the driver hook sends no requests over IPv6, as to {server}"));
        };
        if sources.len() > SOURCES_MAX {
            return Err(format!("{} sockets: the generator at the driver hook has {SOURCES_MAX}", sources.len()));
        }
        let name = interface;
        let interface = nix::net::if_::if_nametoindex(name)
            .map_err(|error| format!("there is no network interface {name}: {error}"))?;
        let refused = |error: &dyn std::error::Error| {
            let cause = error.source().map(|source| format!(": {source}")).unwrap_or_default();
            format!("the kernel refuses the program of the generator on {name} ({error}{cause}): run as root")
        };
        let mut ebpf = Ebpf::load(OBJECT).map_err(|error| refused(&error))?;
        // The program refers to the maps while it is loaded.
        xdp(&mut ebpf)?.load().map_err(|error| refused(&error))?;
        let mut take = |name: &str| match ebpf.take_map(name) {
            Some(Map::Array(map) | Map::PerCpuArray(map)) => Ok(map),
            _ => Err(format!("the program of the generator has no map {name}")),
        };
        let unmapped = |error: std::io::Error| format!("cannot map the program's memory: {error}");
        let control = Mapped::<Control>::new(take("controls")?.fd().as_fd(), 1).map_err(unmapped)?;
        let mapped_sources = Mapped::<Source>::new(take("sources")?.fd().as_fd(), SOURCES_MAX).map_err(unmapped)?;
        let slots = Mapped::new(take("slots")?.fd().as_fd(), SLOTS).map_err(unmapped)?;
        let requests = Mapped::new(take("requests")?.fd().as_fd(), RING).map_err(unmapped)?;
        let samples = Mapped::new(take("samples")?.fd().as_fd(), SAMPLES).map_err(unmapped)?;
        let counters = PerCpuArray::try_from(Map::PerCpuArray(take("counters")?)).map_err(|error| refused(&error))?;
        let magic = random.random();
        let program = Self { ebpf, interface, magic, control, sources: mapped_sources, slots, requests, samples, counters };
        let control = program.control();
        control.magic.store(magic, Ordering::Relaxed);
        control.random.store(random.random(), Ordering::Relaxed);
        control.is_stopped.store(1, Ordering::Relaxed);
        control.server_ip.store(u32::from_ne_bytes(server.ip().octets()), Ordering::Relaxed);
        control.server_port.store(server.port().to_be(), Ordering::Relaxed);
        control.first_port.store(FIRST_PORT, Ordering::Relaxed);
        for (source, address) in program.sources.iter().zip(sources) {
            if let IpAddr::V4(ip) = address.ip() {
                source.ip.store(u32::from_ne_bytes(ip.octets()), Ordering::Relaxed);
            }
            source.must_connect.store(1, Ordering::Relaxed);
        }
        control.sources.store(u32::try_from(sources.len()).unwrap_or(0), Ordering::Relaxed);
        let mut program = program;
        xdp(&mut program.ebpf)?
            .attach_to_if_index(interface, XdpMode::Driver).map_err(|error| refused(&error))?;
        Ok(program)
    }

    pub(super) fn control(&self) -> &Control {
        &self.control[0]
    }

    /// Puts a frame into a slot, which carries one request after the other from then on.
    pub(super) fn start_slot(&mut self, slot: u16) -> Result<(), String> {
        let (interface, magic) = (self.interface, self.magic);
        let mut frame = [0; 64];
        frame[12..14].copy_from_slice(&SEED_TYPE.to_be_bytes());
        frame[14..16].copy_from_slice(&slot.to_ne_bytes());
        frame[16..24].copy_from_slice(&magic.to_ne_bytes());
        let program = xdp(&mut self.ebpf)?.fd().map_err(|error| error.to_string())?;
        inject(program.as_fd(), interface, &frame)
            .map_err(|error| format!("the kernel injects no frames (BPF_PROG_RUN): {error}"))
    }

    /// Returns the counts so far, of all processors.
    pub(super) fn counts(&self) -> Result<Counts, String> {
        let values = self.counters.get(&0, 0).map_err(|error| format!("cannot read the counters: {error}"))?;
        let mut sum = Counts::default();
        for value in values.iter() {
            sum.0.iter_mut().zip(value).for_each(|(sum, count)| *sum += count);
        }
        Ok(sum)
    }
}

fn xdp(ebpf: &mut Ebpf) -> Result<&mut Xdp, String> {
    let program = ebpf.program_mut("generate").and_then(|program| program.try_into().ok());
    program.ok_or_else(|| "the object of the generator has no program".to_owned())
}

impl Counts {
    /// Returns what was counted since `before`.
    pub(super) fn since(&self, before: &Self) -> Self {
        Self(std::array::from_fn(|index| self.0[index].wrapping_sub(before.0[index])))
    }

    /// Connects, announces and scrapes that were sent.
    pub(super) fn requests(&self) -> [u64; 3] {
        [self.0[0], self.0[1], self.0[2]]
    }

    /// Good replies to each of them.
    pub(super) fn responses(&self) -> [u64; 3] {
        [self.0[3], self.0[4], self.0[5]]
    }

    pub(super) fn peers(&self) -> u64 {
        self.0[6]
    }

    pub(super) fn announce_reply_bytes(&self) -> u64 {
        self.0[7]
    }

    pub(super) fn errors(&self) -> u64 {
        self.0[8]
    }

    /// Replies that are malformed, of another action, of an unknown transaction, and of another number of entries.
    pub(super) fn wrong(&self) -> [u64; 4] {
        [self.0[9], self.0[10], self.0[11], self.0[12]]
    }

    /// Requests that were sent again, because the ring was empty.
    pub(super) fn repeated(&self) -> u64 {
        self.0[13]
    }

    /// Frames that could not become a request.
    pub(super) fn failed(&self) -> u64 {
        self.0[14]
    }

    /// Replies of any kind.
    pub(super) fn replies(&self) -> u64 {
        self.responses().iter().sum::<u64>() + self.errors() + self.wrong().iter().sum::<u64>()
    }
}
