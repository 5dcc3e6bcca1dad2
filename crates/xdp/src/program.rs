//! The eBPF program and its maps.
//!
//! [`Program::load`] gives the program to the kernel and creates its maps. [`Maps`] hold its endpoints, keys, networks,
//! limits and sockets. Until they are set, the program leaves every frame to the kernel. [`Program::attach`] puts it at
//! the hook of an interface.
//!
//! A [`Link`] is a descriptor that keeps the program attached. The kernel closes it when the process ends, in whatever
//! way, and the interface is then as before. Another process may adopt it ([`Program::replace`]).
//!
//! Only `syscall`, which passes pointers to the kernel, and `mapped`, which shares memory with it, contain `unsafe`.
//!
//! The program only does work that needs no swarm: connect requests, because an id is a hash of the address and the
//! time, and refusals by address. It takes no decision of its own. It creates ids with the SipHash of `shoal-engine`,
//! so either may issue an id and the other check it. It leaves to the kernel each frame that it does not understand, or
//! that its worker does not take in time.
//!
//! The limits of sources are token buckets in a count-min sketch, like in `shoal_base::source`. The alternative was a
//! map that forgets the least recently used sources. Each packet of a flood from forged addresses would then insert an
//! entry under a lock and push an honest source out. That costs ten times as much and frees the attacker of its limit.
//!
//! The library is aya. libbpf-rs is as well maintained, but needs libelf and zlib, and so more than Rust and a C
//! compiler to build. The object is in the repository. `cargo xtask bpf` rebuilds it with clang 14 and compares it.

use std::error::Error;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use aya::programs::{ProgramError, Xdp};
use aya::util::KernelVersion;
use aya::{Ebpf, EbpfError, EbpfLoader, TestRun, TestRunOptions};
use rustix::io::Errno;
use rustix::net::netdevice::index_to_name_inlined;
use rustix::net::{AddressFamily, SocketType, socket};

mod layout;
mod mapped;
mod maps;
mod networks;
mod settings;
mod syscall;

pub use maps::{Backlog, Counters, Maps, MapsError};
pub use settings::{Counted, Counts, Ids, Network, NetworkRule, Rate, Settings};

/// The object that `cargo xtask bpf` builds from `bpf/shoal.bpf.c`.
static OBJECT: &[u8] = aya::include_bytes_aligned!("../bpf/shoal.bpf.o");

/// The name of the program in its object.
const NAME: &str = "shoal";

/// The oldest supported kernel. Older ones do not let another process map the rings of a bound socket, which an upgrade
/// of the tracker needs ("xsk: allow remap of fill and/or completion rings"). The program itself loads on 6.1.
const KERNEL_MIN: (u8, u8) = (6, 4);

/// The sizes of the maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Maximum number of queues of an interface.
    pub queues: u32,
    /// Maximum number of networks of each family.
    pub networks_max: u32,
    /// Number of sources that can be at their limits at the same time, approximately. Each takes 32 bytes.
    pub sources_max: u32,
    /// Maximum number of endpoints.
    pub endpoints_max: u32,
}

/// Where a program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// In the driver if possible, or else in the kernel.
    Auto,
    /// In the driver, before the kernel has allocated anything for a frame.
    Native,
    /// In the kernel, for any interface. It costs about as much as an ordinary socket.
    Generic,
}

/// The error that the program cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A capability is missing.
    #[error(
        "the kernel does not permit to load an XDP program: it needs the capabilities CAP_BPF, CAP_NET_ADMIN and \
         CAP_PERFMON, or root; in a container, they have to be given to it as well"
    )]
    NotPermitted,
    /// The kernel is too old.
    #[error("XDP needs Linux {}.{} or newer, and this is {found}", KERNEL_MIN.0, KERNEL_MIN.1)]
    KernelTooOld {
        /// The version of the kernel.
        found: String,
    },
    /// The machine is big-endian.
    #[error("the XDP program is built for little-endian machines, and this is another one")]
    BigEndian,
    /// There is no memory for the maps.
    #[error("the kernel has no memory for the maps of the XDP program: {0}")]
    NoMemory(#[source] Box<EbpfError>),
    /// The kernel rejects the program for another reason.
    #[error("the kernel rejects the XDP program: {0}")]
    Rejected(#[source] Box<EbpfError>),
    /// The memory of a map cannot be mapped.
    #[error("the maps of the XDP program cannot be mapped: {0}")]
    Unmapped(#[source] io::Error),
}

/// The error that the program cannot be attached to an interface.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// A capability is missing.
    #[error(
        "the kernel does not permit to attach an XDP program: it needs CAP_NET_ADMIN and CAP_BPF, or root"
    )]
    NotPermitted,
    /// The interface has another program.
    #[error(
        "another XDP program is attached to the interface (`bpftool net` shows it): stop the process that it belongs to, or \
         detach it with `ip link set dev INTERFACE xdp off`"
    )]
    Occupied,
    /// The driver knows no XDP.
    #[error(
        "the driver of the interface has no native XDP: choose the generic mode, or another network card"
    )]
    NoNativeMode,
    /// The interface does not exist, or no longer.
    #[error("there is no such interface")]
    NoInterface,
    /// The descriptor does not refer to an XDP link.
    #[error("the descriptor is not that of an XDP link")]
    NoLink,
    /// The driver knows XDP, and yet refuses it.
    #[error(
        "the driver of the interface refuses the XDP program ({0}): often because of its MTU (at most 3498), of LRO, or of \
         too few queues; `dmesg` may tell"
    )]
    Refused(#[source] io::Error),
}

/// The loaded program.
#[derive(Debug)]
pub struct Program {
    ebpf: Ebpf,
}

/// A program attached to an interface. Dropping it detaches the program, unless another process has the descriptor too.
#[derive(Debug)]
pub struct Link {
    fd: OwnedFd,
    mode: Mode,
    passed_over: Option<AttachError>,
}

/// The outcome of a test run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ran {
    /// `XDP_DROP` and so on, of `linux/bpf.h`.
    pub verdict: u32,
    /// The frame after the run.
    pub frame: Vec<u8>,
    /// The time of one run.
    pub duration: Duration,
}

impl Program {
    /// Loads the program, and creates its maps. The error says what this host lacks.
    pub fn load(sizes: &Sizes) -> Result<(Self, Maps), LoadError> {
        if cfg!(target_endian = "big") {
            return Err(LoadError::BigEndian);
        }
        if let Ok(version) = KernelVersion::current()
            && version < KernelVersion::new(KERNEL_MIN.0, KERNEL_MIN.1, 0)
        {
            return Err(LoadError::KernelTooOld { found: format!("{version:?}") });
        }
        let (mut loader, lines) = (EbpfLoader::new(), maps::lines(sizes));
        for (name, entries) in [
            ("sockets", sizes.queues),
            ("backlogs", sizes.queues),
            ("networks_v4", sizes.networks_max),
            ("networks_v6", sizes.networks_max),
            ("buckets", lines),
            // Each IP address has an entry as well.
            ("endpoints", sizes.endpoints_max.saturating_mul(2)),
        ] {
            loader.map_max_entries(name, entries.max(1));
        }
        let mut ebpf = loader.load(OBJECT).map_err(LoadError::new)?;
        let program: &mut Xdp = match ebpf.program_mut(NAME).map(TryInto::try_into) {
            Some(Ok(program)) => program,
            _ => return Err(LoadError::new(ProgramError::NotLoaded.into())),
        };
        program.load().map_err(|error| LoadError::new(error.into()))?;
        let maps = Maps::new(&mut ebpf, lines)?;
        Ok((Self { ebpf }, maps))
    }

    /// Attaches the program to the interface of this index, as its only one. The error says why not, and how to mend
    /// it.
    pub fn attach(&self, interface_index: u32, mode: Mode) -> Result<Link, AttachError> {
        let attach = |native| {
            let created = syscall::create_link(self.as_fd()?, interface_index, native);
            created.map_err(|errno| match AttachError::new(errno) {
                // The kernel has one number for both.
                AttachError::Refused(_) if !exists(interface_index) => AttachError::NoInterface,
                other => other,
            })
        };
        let link = |fd, mode, passed_over| Link { fd, mode, passed_over };
        match mode {
            Mode::Native => Ok(link(attach(true)?, Mode::Native, None)),
            Mode::Generic => Ok(link(attach(false)?, Mode::Generic, None)),
            Mode::Auto => match attach(true) {
                Ok(fd) => Ok(link(fd, Mode::Native, None)),
                Err(error @ (AttachError::NoNativeMode | AttachError::Refused(_))) => {
                    Ok(link(attach(false)?, Mode::Generic, Some(error)))
                }
                Err(error) => Err(error),
            },
        }
    }

    /// Replaces the program that a link of another process holds at its interface, without a gap. `mode` is the mode of
    /// the link, which does not change. If this fails, the other program stays in force.
    pub fn replace(&self, link: OwnedFd, mode: Mode) -> Result<Link, AttachError> {
        if syscall::interface_of_link(link.as_fd()).map_err(AttachError::new)?.is_none() {
            return Err(AttachError::NoInterface);
        }
        syscall::update_link(link.as_fd(), self.as_fd()?).map_err(AttachError::new)?;
        Ok(Link { fd: link, mode, passed_over: None })
    }

    /// Runs the program on a frame of at least 14 bytes, `repeat` times, without an interface (`BPF_PROG_TEST_RUN`).
    /// For tests, which compare it with the model. Fails with the error of the kernel.
    pub fn run(&self, frame: &[u8], repeat: u32) -> io::Result<Ran> {
        let mut out = vec![0; frame.len()];
        let options = TestRunOptions {
            data_in: Some(frame),
            data_out: Some(&mut out),
            repeat,
            ..TestRunOptions::default()
        };
        let result = self.xdp().map_err(io::Error::other)?.test_run(options).map_err(io::Error::other)?;
        out.truncate(usize::try_from(result.data_size_out).unwrap_or(usize::MAX));
        Ok(Ran { verdict: result.return_value, frame: out, duration: result.duration })
    }

    fn xdp(&self) -> Result<&Xdp, ProgramError> {
        self.ebpf.program(NAME).ok_or(ProgramError::NotLoaded)?.try_into()
    }

    fn as_fd(&self) -> Result<BorrowedFd<'_>, AttachError> {
        let fd = self.xdp().and_then(Xdp::fd);
        fd.map(AsFd::as_fd).map_err(|error| AttachError::Refused(io::Error::other(error)))
    }
}

impl Link {
    /// Returns the mode in force: native or generic.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Returns why the driver does not run the program, if that was tried.
    pub fn passed_over(&self) -> Option<&AttachError> {
        self.passed_over.as_ref()
    }

    /// Returns the index of the interface, or `None` if it has vanished. Fails with the error of the kernel.
    pub fn interface_index(&self) -> io::Result<Option<u32>> {
        interface_of_link(self.fd.as_fd())
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl From<Link> for OwnedFd {
    fn from(link: Link) -> Self {
        link.fd
    }
}

impl LoadError {
    fn new(error: EbpfError) -> Self {
        match errno(&error) {
            Some(Errno::PERM | Errno::ACCESS) => Self::NotPermitted,
            Some(Errno::NOMEM) => Self::NoMemory(Box::new(error)),
            _ => Self::Rejected(Box::new(error)),
        }
    }
}

impl AttachError {
    fn new(errno: Errno) -> Self {
        // The kernel uses its own error number if a driver does not support something (`linux/errno.h`).
        const NOTSUPP: i32 = 524;
        match errno {
            Errno::PERM | Errno::ACCESS => Self::NotPermitted,
            Errno::BUSY | Errno::EXIST => Self::Occupied,
            Errno::OPNOTSUPP => Self::NoNativeMode,
            errno if errno.raw_os_error() == NOTSUPP => Self::NoNativeMode,
            Errno::NODEV => Self::NoInterface,
            Errno::BADF => Self::NoLink,
            other => Self::Refused(other.into()),
        }
    }
}

/// Returns the index of the interface of a link, or `None` if the interface has vanished. Another process may have
/// created the link. Fails if the descriptor does not refer to an XDP link.
pub fn interface_of_link(link: BorrowedFd<'_>) -> io::Result<Option<u32>> {
    Ok(syscall::interface_of_link(link)?)
}

fn exists(index: u32) -> bool {
    let socket = socket(AddressFamily::INET, SocketType::DGRAM, None);
    socket.and_then(|socket| index_to_name_inlined(socket, index)).is_ok()
}

/// Returns the kernel's error inside an error of the library.
fn errno(error: &(dyn Error + 'static)) -> Option<Errno> {
    let mut error = Some(error);
    while let Some(current) = error {
        if let Some(errno) = current.downcast_ref().and_then(Errno::from_io_error) {
            return Some(errno);
        }
        error = current.source();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_programs_find_its_functions_by_their_names() {
        let sizes = Sizes { queues: 1, networks_max: 1, sources_max: 1, endpoints_max: 1 };
        let (program, _maps) = Program::load(&sizes).unwrap();
        // Programs that trace it, such as xdpdump, ask for the types of the program.
        assert!(program.xdp().unwrap().info().unwrap().btf_id().is_some());
    }
}
