//! Requests about an interface, in the form of `struct ifreq` (`linux/if.h`).
#![allow(unsafe_code, reason = "ioctl takes pointers")]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// `SIOCETHTOOL` of `linux/sockios.h`.
const SIOCETHTOOL: u32 = 0x8946;

/// The length of a name with its end, `IFNAMSIZ`.
const NAME_BYTES: usize = 16;

#[derive(Debug)]
pub(super) struct Request<'s> {
    socket: BorrowedFd<'s>,
    name: [u8; NAME_BYTES],
}

/// A `struct ifreq`: the name, and the data of the request.
#[repr(C)]
struct InterfaceRequest<T> {
    name: [u8; NAME_BYTES],
    data: T,
}

/// The largest contents of a `struct ifreq`.
type Data = [u64; 3];

/// Contents that are a pointer.
#[repr(C)]
struct Pointer {
    words: *mut u32,
    unused: [u64; 2],
}

impl<'s> Request<'s> {
    /// Returns `None` if no interface can have this name.
    pub(super) fn new(socket: &'s impl AsFd, name: &str) -> Option<Self> {
        let mut padded = [0; NAME_BYTES];
        let is_name = (1..NAME_BYTES).contains(&name.len()) && !name.contains('\0');
        padded.get_mut(..name.len())?.copy_from_slice(name.as_bytes());
        is_name.then(|| Self { socket: socket.as_fd(), name: padded })
    }

    pub(super) fn is_up(&self) -> io::Result<bool> {
        let data = self.ask(libc::SIOCGIFFLAGS)?;
        let flags = u16::from_ne_bytes([data[0], data[1]]);
        Ok(i32::from(flags) & libc::IFF_UP != 0)
    }

    pub(super) fn mtu(&self) -> io::Result<u32> {
        let data = self.ask(libc::SIOCGIFMTU)?;
        Ok(u32::from_ne_bytes([data[0], data[1], data[2], data[3]]))
    }

    pub(super) fn mac(&self) -> io::Result<[u8; 6]> {
        // A `struct sockaddr`: the type of the hardware, and its address.
        let data = self.ask(libc::SIOCGIFHWADDR)?;
        Ok([data[2], data[3], data[4], data[5], data[6], data[7]])
    }

    /// Asks the driver. The first word is the command, which implies the number of words.
    pub(super) fn ethtool<const WORDS: usize>(&self, words: &mut [u32; WORDS]) -> io::Result<()> {
        let mut request =
            InterfaceRequest { name: self.name, data: Pointer { words: words.as_mut_ptr(), unused: [0; 2] } };
        // SAFETY: the callers pass arrays of the length of the structure of their command, to which the kernel writes.
        // The request is as long as a `struct ifreq`, whose contents are the pointer here.
        let result = unsafe { libc::ioctl(self.socket.as_raw_fd(), SIOCETHTOOL.into(), &raw mut request) };
        check(result)
    }

    fn ask(&self, command: libc::Ioctl) -> io::Result<[u8; 8]> {
        let mut request = InterfaceRequest { name: self.name, data: Data::default() };
        // SAFETY: the kernel writes at most a `struct ifreq`, and the request is that long.
        let result = unsafe { libc::ioctl(self.socket.as_raw_fd(), command, &raw mut request) };
        check(result)?;
        Ok(request.data[0].to_ne_bytes())
    }
}

const _: () = assert!(size_of::<InterfaceRequest<Data>>() >= size_of::<libc::ifreq>());

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
