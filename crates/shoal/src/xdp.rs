//! The XDP data path: eBPF programs on network interfaces, and the AF_XDP sockets through which workers get the
//! requests that the programs do not answer.
//!
//! This module opens the data path while the tracker has its privileges, and distributes the sockets to the workers.
//! It keeps the programs in step with the configuration, the keys and the clock (`follow`, by the rules of `rules`).
//! It must not look into frames, which the workers' back end does (`shoal_net`). It decides nothing that the policy
//! decides: the programs get the policy's tables.
//!
//! An upgrade passes everything on: the links that attach the programs, the sockets, and the memory of the frames
//! (`handed`). The new process loads its own program, which replaces the old one when the old process has let go.
//! Until then, the new process has changed nothing, except that it may have taken a socket's error from the kernel.

mod follow;
mod handed;
mod rules;
mod stats;

use std::io;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, OwnedFd};

use anyhow::{Context, bail};
use shoal_config::{Config, InterfaceName, XdpConfig, XdpMode};
use shoal_net::{QueueLoss, XdpQueue};
use shoal_xdp::interface::Interface;
use shoal_xdp::program::{Link, Maps, Mode, Program, Sizes, interface_of_link};
use shoal_xdp::route::permit_lookups;
use shoal_xdp::socket::{CHUNK_BYTES, Parts, SocketSettings, XdpSocket, ZeroCopy};

pub(crate) use self::follow::DataPathThread;
pub(crate) use self::handed::HandedDataPath;
use self::handed::{link_name, socket_names};

/// Maximum number of addresses with a port that a program serves.
const ENDPOINTS_MAX: u32 = 4096;

/// Maximum number of networks of each family that a program knows. Overlapping networks of different lists are split,
/// and a new list is loaded before the old one goes. The kernel allocates memory only for existing entries.
#[expect(clippy::cast_possible_truncation, reason = "some millions")]
const NETWORKS_MAX: u32 = 4 * shoal_access::networks::NETWORKS_MAX as u32;

/// The data path of all interfaces. It is attached, but leaves everything to the kernel until it is followed.
#[derive(Debug, Default)]
pub(crate) struct DataPath {
    interfaces: Vec<Attached>,
}

#[derive(Debug)]
struct Attached {
    interface: Interface,
    program: Program,
    maps: Maps,
    link: Attachment,
    /// The queues, from the first on, until workers take them.
    queues: Vec<XdpQueue>,
    /// The numbers of the queues with a socket. Each `QueueLoss` tells why a worker has given its socket up.
    losses: Vec<(u32, QueueLoss)>,
}

#[derive(Debug)]
enum Attachment {
    /// By a link of this process.
    Own(Link),
    /// By the link of the running tracker, whose program this one will replace.
    Handed(OwnedFd, Mode),
}

impl DataPath {
    /// Opens the data path of all configured interfaces. Uses a running tracker's parts if possible.
    ///
    /// # Errors
    /// Returns what an interface lacks, unless the data path is optional.
    pub(crate) fn open(config: &Config, mut handed: HandedDataPath) -> anyhow::Result<Self> {
        let mut data_path = Self::default();
        for name in &config.xdp.interfaces {
            match Attached::open(name, &config.xdp, &mut handed) {
                Ok(attached) => {
                    attached.log(&config.xdp);
                    data_path.interfaces.push(attached);
                }
                Err(error) if config.xdp.optional => {
                    tracing::warn!(
                        interface = %name,
                        error = format!("{error:#}"),
                        "no XDP data path on this interface; its sockets serve alone"
                    );
                }
                Err(error) => {
                    return Err(error.context(format!(
                        "udp.xdp.interfaces: {name} cannot have the data path (udp.xdp.optional = true starts without it)"
                    )));
                }
            }
        }
        Ok(data_path)
    }

    /// Takes the queues of all interfaces, and distributes them to the workers.
    pub(crate) fn take_queues(&mut self, workers: NonZeroUsize) -> Vec<Vec<XdpQueue>> {
        let mut dealt: Vec<Vec<XdpQueue>> = (0..workers.get()).map(|_| Vec::new()).collect();
        let queues = self.interfaces.iter_mut().flat_map(|attached| attached.queues.drain(..));
        for (number, queue) in queues.enumerate() {
            dealt[number % workers].push(queue);
        }
        dealt
    }

    /// Returns copies of the descriptors that another process needs to continue, with their names. To be called before
    /// the queues are taken. Fails if the kernel has no more descriptors.
    pub(crate) fn descriptors(&self) -> io::Result<Vec<(String, OwnedFd)>> {
        let mut all = Vec::new();
        for Attached { interface, link, queues, .. } in &self.interfaces {
            let (link, mode) = match link {
                Attachment::Own(link) => (link.as_fd(), link.mode()),
                Attachment::Handed(link, mode) => (link.as_fd(), *mode),
            };
            all.push((link_name(&interface.name, mode), link.try_clone_to_owned()?));
            for queue in queues {
                let Parts { socket, memory } = queue.socket().parts()?;
                let [socket_name, memory_name] = socket_names(&interface.name, queue.socket().queue());
                all.extend([(socket_name, socket), (memory_name, memory)]);
            }
        }
        Ok(all)
    }
}

/// Number of sources whose rates a program remembers for each interface. Each takes 32 bytes of the kernel's memory.
/// If more sources than these ask as often as they may, forged ones among them, some get less than their rate.
const SOURCES_MAX: u32 = 1 << 20;

impl Attached {
    fn open(name: &InterfaceName, config: &XdpConfig, handed: &mut HandedDataPath) -> anyhow::Result<Self> {
        let interface = Interface::find(name.as_str())?;
        if let Some(obstacle) = interface.obstacle() {
            bail!(obstacle);
        }
        for switch in permit_lookups()? {
            tracing::info!(switch, "turned on, so that the XDP program may ask the kernel for routes");
        }
        let sizes = Sizes {
            queues: interface.queues,
            networks_max: NETWORKS_MAX,
            sources_max: SOURCES_MAX,
            endpoints_max: ENDPOINTS_MAX,
        };
        let (program, mut maps) = Program::load(&sizes)?;
        let settings = socket_settings(config);
        let mut queues = Vec::new();
        for number in 0..interface.sockets() {
            let adopted =
                handed.socket(name.as_str(), number).and_then(|parts| adopt(parts, &interface, &settings));
            let (socket, queue): (_, fn(_, _) -> _) = match adopted {
                Some(socket) => (socket, XdpQueue::handed_over),
                None => {
                    let opened = XdpSocket::open(interface.index, number, &settings);
                    (opened.with_context(|| format!("queue {number}"))?, XdpQueue::new)
                }
            };
            maps.set_socket(number, Some(socket.descriptor().as_fd()))?;
            queues.push(queue(socket, maps.backlog(number)));
        }
        // The link of a vanished interface is useless, even if a new interface has the same name.
        let is_present =
            |link: &OwnedFd| interface_of_link(link.as_fd()).is_ok_and(|at| at == Some(interface.index));
        let link = match handed.link(name.as_str()).filter(|(link, _)| is_present(link)) {
            Some((link, mode)) => Attachment::Handed(link, mode),
            None => Attachment::Own(program.attach(interface.index, mode(config.mode))?),
        };
        let losses = queues.iter().map(|queue| (queue.socket().queue(), queue.loss())).collect();
        Ok(Self { interface, program, maps, link, queues, losses })
    }

    fn log(&self, config: &XdpConfig) {
        let Self { interface, link, queues, .. } = self;
        if interface.sockets() < interface.queues {
            tracing::warn!(
                interface = interface.name,
                receive_queues = interface.queues,
                transmit_queues = interface.transmit_queues,
                "the ordinary sockets serve the receive queues beyond the number of transmit queues; as many of each, by \
                 `ethtool -L`, give all of them to the data path"
            );
        }
        let zero_copy = queues.iter().filter(|queue| queue.socket().is_zero_copy()).count();
        let frames: u64 = queues.iter().map(|queue| u64::from(queue.socket().frames_total())).sum();
        tracing::info!(
            interface = interface.name,
            driver = interface.driver,
            mode = handed::mode_name(link.mode()),
            queues = queues.len(),
            zero_copy,
            frames_mib = (frames * u64::from(CHUNK_BYTES)) >> 20,
            "XDP data path"
        );
        let sockets = queues.iter().map(|queue| queue.socket().frames_total());
        for key in retained_keys(config, sockets, link.mode()) {
            tracing::warn!(
                interface = interface.name,
                key,
                "the sockets and the link of the running tracker have another value, which stays until a restart"
            );
        }
        if let Attachment::Own(link) = link
            && let Some(reason) = link.passed_over()
        {
            tracing::warn!(
                interface = interface.name,
                %reason,
                "the XDP program runs in the kernel, where it gains little"
            );
        }
    }
}

/// Continues with a socket of the running tracker. Returns `None` if the socket is useless: a socket of a vanished
/// interface holds no queue, even if a new interface has the same name.
fn adopt(parts: Parts, interface: &Interface, settings: &SocketSettings) -> Option<XdpSocket> {
    let reason = match XdpSocket::from_parts(parts, settings.busy_poll) {
        Ok(socket) if socket.interface_index() != interface.index => {
            "it belongs to another interface".to_owned()
        }
        Ok(socket) => match socket.check() {
            Ok(()) => return Some(socket),
            Err(failure) => failure.to_string(),
        },
        Err(error) => error.to_string(),
    };
    tracing::warn!(
        interface = interface.name,
        reason,
        "an AF_XDP socket of the running tracker is not used; another one takes its place"
    );
    None
}

/// Returns the keys whose values are not in force. `sockets` are their numbers of frames.
fn retained_keys(
    config: &XdpConfig,
    sockets: impl IntoIterator<Item = u32>,
    mode: Mode,
) -> Vec<&'static str> {
    let has_other_frames = sockets.into_iter().any(|frames| frames != config.frames.next_power_of_two());
    let has_other_mode = match config.mode {
        XdpMode::Auto => false,
        XdpMode::Native => mode == Mode::Generic,
        XdpMode::Generic => mode == Mode::Native,
    };
    [(has_other_frames, "udp.xdp.frames"), (has_other_mode, "udp.xdp.mode")]
        .into_iter()
        .filter_map(|(is_retained, key)| is_retained.then_some(key))
        .collect()
}

fn mode(mode: XdpMode) -> Mode {
    match mode {
        XdpMode::Auto => Mode::Auto,
        XdpMode::Native => Mode::Native,
        XdpMode::Generic => Mode::Generic,
    }
}

fn socket_settings(config: &XdpConfig) -> SocketSettings {
    SocketSettings {
        frames: config.frames.next_power_of_two(),
        // The kernel shares the frames with the card if the driver can.
        zero_copy: ZeroCopy::Auto,
        // Polling the card from the worker answered fewer requests in every measurement.
        busy_poll: false,
    }
}

/// Returns the memory of the frames of all interfaces. Sockets of a running tracker keep their frames.
pub(crate) fn bytes(config: &Config, handed: &HandedDataPath) -> u64 {
    let new = u64::from(config.xdp.frames.next_power_of_two()) * u64::from(CHUNK_BYTES);
    let of_interface = |name: &InterfaceName| -> u64 {
        let sockets = Interface::find(name.as_str()).map_or(0, |interface| interface.sockets());
        (0..sockets).map(|queue| handed.frames_bytes(name.as_str(), queue).unwrap_or(new)).sum()
    };
    config.xdp.interfaces.iter().map(of_interface).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_socket_takes_the_memory_of_its_frames() {
        let bytes_of = |interfaces: &str| {
            let variables = [("SHOAL_UDP_XDP_INTERFACES", interfaces), ("SHOAL_UDP_XDP_FRAMES", "1500")];
            let config = shoal_config::read(None, variables.map(|(key, value)| (key.into(), value.into())));
            bytes(&config.unwrap(), &HandedDataPath::default())
        };
        let sockets = Interface::find("lo").unwrap().sockets();
        assert!(sockets > 0);
        assert_eq!(bytes_of("lo"), u64::from(sockets) * 2048 * 4096);
        assert_eq!(bytes_of("shoal-absent"), 0);
    }

    #[test]
    fn keys_that_an_upgrade_does_not_change_are_named() {
        let auto = XdpConfig { frames: 4000, ..XdpConfig::default() };
        assert!(retained_keys(&auto, [4096, 4096], Mode::Generic).is_empty());
        assert_eq!(retained_keys(&auto, [4096, 1024], Mode::Native), ["udp.xdp.frames"]);
        let strict = XdpConfig { mode: XdpMode::Native, ..auto.clone() };
        assert!(retained_keys(&strict, [4096], Mode::Native).is_empty());
        assert_eq!(retained_keys(&strict, [4096], Mode::Generic), ["udp.xdp.mode"]);
        let plain = XdpConfig { mode: XdpMode::Generic, ..auto };
        assert_eq!(retained_keys(&plain, [4096], Mode::Native), ["udp.xdp.mode"]);
    }
}
