//! The eBPF program and its maps.
//!
//! [`Program::load`] gives the program to the kernel, and creates its maps. [`Maps`] tell it what to do: endpoints, keys,
//! networks, limits and sockets. Until then it leaves every frame to the kernel. [`Program::attach`] puts it at the hook of
//! an interface.
//!
//! A [`Link`] is a descriptor that holds the program at its interface. The kernel closes it with the process, however that
//! ends, and then the interface is as before. Another process may take it over ([`Program::replace`]).
//!
//! `unsafe` is only in `syscall`, which passes pointers to the kernel, and in `mapped`, which shares memory with it.
//!
//! The program contains only work that needs no swarm: connect requests, because an id is a hash of the address and the
//! time, and refusals by address. It takes no decision of its own, and it makes ids by the SipHash of `shoal-engine`,
//! so it does not matter who has issued one. It leaves to the kernel what it does not understand, and what its worker
//! does not take in time.
//!
//! The limits of sources are token buckets in a count-min sketch, as in `shoal_base::source`. A map that forgets the
//! least recently used sources was the alternative. Each packet of a flood from forged addresses would then insert an
//! entry under a lock and push an honest source out. That costs ten times as much and frees the attacker of its limit.
//!
//! The library is aya. libbpf-rs is as well kept, but needs libelf and zlib, and so more than Rust and a C compiler to
//! build. The object is in the repository. `cargo xtask bpf` builds it again and compares it, which takes clang 14.

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

/// The oldest kernel. Before, another process could not map the rings of a socket that is bound, as after an upgrade of the
/// tracker ("xsk: allow remap of fill and/or completion rings"). The program itself loads on 6.1.
const KERNEL_MIN: (u8, u8) = (6, 4);

/// The sizes of the maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Maximum number of queues of an interface.
    pub queues: u32,
    /// Maximum number of networks of each family.
    pub networks_max: u32,
    /// Number of sources that can be at their limits at the same time, roughly. Each takes 32 bytes.
    pub sources_max: u32,
    /// Maximum number of endpoints.
    pub endpoints_max: u32,
}

/// Where a program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// In the driver if that is possible, or else in the kernel.
    Auto,
    /// In the driver, before the kernel has allocated anything for a frame.
    Native,
    /// In the kernel, for any interface. It costs about as much as a socket.
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
    /// The machine stores numbers in the other order.
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
    /// The interface does not exist, or not any more.
    #[error("there is no such interface")]
    NoInterface,
    /// The descriptor is not that of an XDP link.
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

/// A program at its interface. It is detached when this is dropped, unless another process has the descriptor too.
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
    /// The frame as it is afterwards.
    pub frame: Vec<u8>,
    /// The time of one run.
    pub duration: Duration,
}

impl Program {
    /// Loads the program, and creates its maps.
    ///
    /// # Errors
    /// Returns what is missing on this host.
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
            // Each address has an entry of its own.
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

    /// Attaches the program to the interface of this index, as its only one.
    ///
    /// # Errors
    /// Returns the reason, and what to do about it.
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

    /// Puts the program in the place of the one that a link of another process holds at its interface, without a gap. `mode`
    /// is that of the link, which stays as it is.
    ///
    /// # Errors
    /// Returns the reason. The other program then stays in force.
    pub fn replace(&self, link: OwnedFd, mode: Mode) -> Result<Link, AttachError> {
        if syscall::interface_of_link(link.as_fd()).map_err(AttachError::new)?.is_none() {
            return Err(AttachError::NoInterface);
        }
        syscall::update_link(link.as_fd(), self.as_fd()?).map_err(AttachError::new)?;
        Ok(Link { fd: link, mode, passed_over: None })
    }

    /// Runs the program on a frame of at least 14 bytes, `repeat` times, without an interface (`BPF_PROG_TEST_RUN`). For
    /// tests, which compare it with the model.
    ///
    /// # Errors
    /// Returns those of the kernel.
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
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Returns why the program does not run in the driver, if that was tried.
    #[must_use]
    pub fn passed_over(&self) -> Option<&AttachError> {
        self.passed_over.as_ref()
    }

    /// Returns the index of the interface, or `None` if that has vanished.
    ///
    /// # Errors
    /// Returns those of the kernel.
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
        // The kernel has an error number of its own for what a driver does not support (`linux/errno.h`).
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

/// Returns the index of the interface of a link, which another process may have created, or `None` if the interface has vanished.
///
/// # Errors
/// Fails if the descriptor is not that of an XDP link.
pub fn interface_of_link(link: BorrowedFd<'_>) -> io::Result<Option<u32>> {
    Ok(syscall::interface_of_link(link)?)
}

/// Returns whether there is an interface of this index.
fn exists(index: u32) -> bool {
    let socket = socket(AddressFamily::INET, SocketType::DGRAM, None);
    socket.and_then(|socket| index_to_name_inlined(socket, index)).is_ok()
}

/// Returns the error of the kernel that an error of the library stands for.
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
